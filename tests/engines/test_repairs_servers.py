"""`forget`, `set-mark`, `clear` and `strip` on real servers: what they write, and that a guarded write in between wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from onewrite import (
    Event,
    HighWaterMark,
    Message,
    MessageIDs,
    Outbox,
    SeenIds,
    Tombstones,
)
from onewrite.core.ledgers import Ledger
from onewrite.operate import repair, report, strip
from onewrite.operate.dynamodb import TableStore
from onewrite.operate.mongodb import CollectionStore
from onewrite.operate.report import count_of
from tests.support.repairs import CollectionPlace, Place, TablePlace, log_as_it_was, output_of, place_of

pytestmark = pytest.mark.measured

LEASE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LEDGERS: list[Ledger] = [SeenIds(), MessageIDs("text"), HighWaterMark(name="marks")]
MESSAGES = [Message(f"m{n}", source="s", sequence=n) for n in range(1, 4)]
FRESH = Message("m9", source="s", sequence=4)


@pytest.fixture(params=["dynamodb", "mongodb"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    return place_of(request, monkeypatch)


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    with log_as_it_was():
        yield


def apply(place: Place, ledger: Ledger, *messages: Message, entity: str = "e") -> list[str]:
    store = place.store(ledger)
    return [type(place.write(store, message, entity)).__name__ for message in messages]


def business(place: Place, entity: str = "e") -> dict[str, Any]:
    found = place.contents(entity) or {}
    return {name: value for name, value in found.items() if name not in ("id", "_id")}


ACTS = [
    (SeenIds(), ("forget", "--message", "m2", "--source", "s")),
    (SeenIds(None, readable=True), ("forget", "--message", "m2", "--source", "s")),
    (HighWaterMark(), ("set-mark", "--sequence", "1", "--source", "s")),
    (HighWaterMark(), ("set-mark", "--sequence", "9", "--source", "s")),
    (HighWaterMark(), ("set-mark", "--sequence", "9", "--source", "new")),
    (HighWaterMark(), ("set-mark", "--remove", "--source", "s")),
    (SeenIds(), ("clear",)),
]


@pytest.mark.parametrize(
    ("ledger", "act"), ACTS, ids=lambda each: " ".join(each[:2]) if isinstance(each, tuple) else each.layout
)
def test_a_guarded_write_between_the_look_and_the_repair_wins(
    ledger: Ledger, act: tuple[str, ...], place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(place, ledger, *MESSAGES)
    write: Callable[..., int] = vars(repair)["_write"]

    def after_another(*arguments: Any) -> int:
        assert apply(place, ledger, FRESH) == ["Applied"]
        return write(*arguments)

    monkeypatch.setattr(repair, "_write", after_another)
    assert place.run(*act, "--yes") == 1
    assert "Another writer changed the entity meanwhile, and nothing was written" in capsys.readouterr().err
    assert apply(place, ledger, MESSAGES[-1], FRESH) in (["Duplicate", "Duplicate"], ["Stale", "Duplicate"])
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("ledger", "act"), ACTS[:4], ids=lambda each: " ".join(each[:2]) if isinstance(each, tuple) else each.layout
)
def test_what_a_repair_lets_in_takes_effect_exactly_once_more(ledger: Ledger, act: tuple[str, ...], place: Place) -> None:
    apply(place, ledger, *MESSAGES)
    assert place.run(*act, "--yes") == 0
    assert apply(place, ledger, MESSAGES[1], MESSAGES[1], MESSAGES[0]) in (
        ["Applied", "Duplicate", "Duplicate"],
        ["Applied", "Duplicate", "Stale"],
    )
    assert business(place)["n"] == 4


def test_a_ledger_of_many_sources_is_cleared_and_stripped(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """On DynamoDB it takes several requests, of which each finds what the one before has left."""
    for entity in ("e", "f"):
        for first in range(0, 400, 25):
            place.store(HighWaterMark()).fold(
                [Message(f"m{n}", source=f"source {n}", sequence=1) for n in range(first, first + 25)],
                lambda fresh, entity=entity: _counted(place, entity, len(fresh)),
            )
    shown = output_of(capsys, lambda: place.run("clear", "--json"))
    assert len(shown["requests"]) == (5 if place.names_tokens else 1)
    assert place.run("clear", "--yes") == 0
    assert business(place) == {"n": 400}
    assert place.run("strip", "--yes", entity=None) == 0
    assert business(place, "f") == {"n": 400}


def _counted(place: Place, entity: str, count: int) -> dict[str, Any]:
    if place.names_tokens:
        change = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": count}}
        return {**place.address(entity), **change}
    return {**place.address(entity), "update": {"$inc": {"n": count}}, "upsert": True}


def test_what_is_left_of_a_repair_that_another_writer_stops_is_whole(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(place, TablePlace):
        pytest.skip("one request does all of it")
    ledger = HighWaterMark()
    for first in range(0, 400, 25):
        place.store(ledger).fold(
            [Message(f"m{n}", source=f"source {n}", sequence=1) for n in range(first, first + 25)],
            lambda fresh: _counted(place, "e", len(fresh)),
        )
    client: Any = place.client
    sent, send = [0], client.update_item

    def counted(**request: Any) -> Any:
        sent[0] += 1
        if sent[0] == 3:
            assert apply(place, ledger, FRESH) == ["Applied"]
        return send(**request)

    class Client:
        def __getattr__(self, name: str) -> Any:
            return counted if name == "update_item" else getattr(client, name)

    monkeypatch.setattr("onewrite.operate.stores.dynamodb_client", lambda *_: Client())
    assert place.run("clear", "--yes") == 1
    assert "only 2 of 5 requests were made" in capsys.readouterr().err
    assert len(business(place)) > 80
    assert apply(place, ledger, FRESH) == ["Duplicate"]
    assert place.run("clear", "--yes") == 0
    assert business(place) == {"n": 401}


def test_after_strip_an_entity_is_its_business_part(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    for entity in ("e", "f"):
        for ledger in LEDGERS:
            assert apply(place, ledger, *MESSAGES, entity=entity) == ["Applied"] * 3
        apply(place, SeenIds(name="seen", also=SeenIds()), FRESH, entity=entity)
    place.put("clean", n=1, events_log="x")
    expected = place.store(SeenIds()).without_ledger(place.contents() or {})
    assert expected["n"] == 13
    counted = output_of(capsys, lambda: place.run("strip", "--json", entity=None))
    assert (counted["read"], counted["clean"], counted["stripped"], counted["written"]) == (3, 1, 2, False)
    assert place.run("strip", "--attribute", "ow_marks:l", "--yes", entity=None) == 0
    left = (place.contents() or {}).keys()
    assert not [name for name in left if name.startswith("ow_marks")]
    assert [name for name in left if name.startswith("ow_numbers")]
    assert place.run("strip", "--yes", "--page-size", "1", entity=None) == 0
    assert place.contents() == expected
    again = output_of(capsys, lambda: place.run("strip", "--json", "--yes", entity=None))
    assert (again["clean"], again["stripped"], place.contents("clean")) == (3, 0, place.contents("clean"))


def test_strip_holds_back_from_what_is_under_way(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    outbox, tombstones = Outbox("shop"), Tombstones(timedelta(days=30))
    store = place.store(SeenIds(), outbox=outbox, tombstones=tombstones)
    place.write(store, MESSAGES[0], "pending", emit=[Event("Paid", {})])
    place.write(store, MESSAGES[0], "e")
    place.call(store, "begin", MESSAGES[1], "charge", lease=LEASE, safe_for=HOUR)
    before = {entity: place.contents(entity) for entity in ("pending", "e")}
    found = output_of(capsys, lambda: place.run("strip", "--yes", "--json", entity=None), 1)
    assert (found["read"], found["held_back"], found["stripped"]) == (2, 2, 0)
    assert sorted([each["why"].split(":")[0] for each in found["reasons"]]) == [
        "A step is open",
        "Events are pending in 'ow_events'",
    ]
    assert {entity: place.contents(entity) for entity in before} == before
    assert place.run("strip", "--yes", "--attribute", "ow_l", entity=None) == 1  # of the open step
    assert [name for name in place.contents("pending") or {} if name in ("ow_l", "ow_r0", "ow_r")] == []


def test_strip_deletes_what_was_deleted(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    store = place.store(SeenIds(), tombstones=Tombstones(timedelta(days=30)))
    place.write(store, MESSAGES[0])
    place.call(store, "delete", MESSAGES[1])
    assert place.run("strip", entity=None) == 0
    assert "0 entities would be stripped, and 1 tombstone would be deleted:" in capsys.readouterr().out
    assert place.run("strip", "--attribute", "ow_other:l", "--yes", entity=None) == 0
    assert place.contents() is not None
    assert place.run("strip", "--yes", entity=None) == 0
    assert place.contents() is None


@pytest.mark.parametrize("writes", [1, 99])
def test_strip_comes_back_to_what_was_changed_and_gives_up_on_what_is_still_written_to(
    writes: int, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(place, SeenIds(), MESSAGES[0])
    kind = CollectionStore if isinstance(place, CollectionPlace) else TableStore
    written = kind.write
    count = iter(range(99))

    def after_another(*arguments: Any) -> Any:
        n = next(count)
        if n < writes:
            apply(place, SeenIds(), Message(f"while {n}"))
        return written(*arguments)

    monkeypatch.setattr(kind, "write", after_another)
    assert place.run("strip", "--yes", entity=None) == int(writes > 1)
    out = capsys.readouterr().out
    assert ("It is still being written to" in out) == (writes > 1)
    assert f"An entity was changed {count_of(min(writes, 3), 'time')} between the read and the write" in out
    assert (set(business(place)) == {"n"}) == (writes == 1)


def test_strip_passes_over_what_was_deleted_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(place, SeenIds(), MESSAGES[0])
    kind = CollectionStore if isinstance(place, CollectionPlace) else TableStore
    written = kind.write

    def after_a_delete(*arguments: Any) -> Any:
        if isinstance(place, TablePlace):
            place.client.delete_item(TableName=place.name, Key={"id": {"S": "e"}})
        elif isinstance(place, CollectionPlace):
            place.collection.delete_one({"_id": "e"})
        return written(*arguments)

    monkeypatch.setattr(kind, "write", after_a_delete)
    assert place.run("strip", "--yes", entity=None) == 0
    assert "1 entity, 1 with nothing" in capsys.readouterr().out
    assert place.contents() is None


def test_a_request_that_the_database_refuses_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not isinstance(place, TablePlace):
        pytest.skip("the flow has no error of MongoDB's to look at")
    apply(place, SeenIds(), MESSAGES[0])

    def refuses(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "UpdateItem")

    monkeypatch.setattr(place.client, "update_item", refuses)
    assert place.run("clear", "--yes") == 1
    assert "The database or the network fails: ClientError" in capsys.readouterr().err


@pytest.mark.parametrize("plain", [True, False])
def test_strip_shows_how_far_it_has_come(
    plain: bool, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(place, SeenIds(), MESSAGES[0])
    place.put("f", ow_l="ow2 14d")
    monkeypatch.setattr(report, "_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(strip, "_MOST", 0)
    monkeypatch.setattr(report, "is_plain", lambda *_: plain)
    assert place.run("strip", entity=None) == 1
    shown = capsys.readouterr()
    assert ("onewrite: 2 of about 2 read, 1 to do, 1 left as they are\n" in shown.err) == plain
    assert "1 more is left as it is." in shown.out
    assert "1 entity would be stripped" in shown.out


def test_what_strip_has_done_before_it_failed_is_in_the_log_and_done_once_only(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    for entity in ("e", "f"):
        apply(place, SeenIds(), MESSAGES[0], entity=entity)
    kind = CollectionStore if isinstance(place, CollectionPlace) else TableStore
    written, count = kind.write, iter(range(9))

    def fails_then(*arguments: Any) -> Any:
        if next(count) == 1:
            raise OSError("no route")
        return written(*arguments)

    monkeypatch.setattr(kind, "write", fails_then)
    assert place.run("strip", "--yes", entity=None) == 1
    assert "no route" in capsys.readouterr().err
    assert "1 entity stripped" in caplog.text
    again = output_of(capsys, lambda: place.run("strip", "--yes", "--json", entity=None))
    assert (again["clean"], again["stripped"]) == (1, 1)
