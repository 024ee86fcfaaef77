"""`forget`, `set-mark` and `clear` on real servers: what they write, and that a guarded write in between wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onewrite import HighWaterMark, Message, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.operate import repair
from tests.support.repairs import Place, TablePlace, output_of

pytestmark = pytest.mark.measured

MESSAGES = [Message(f"m{n}", source="s", sequence=n) for n in range(1, 4)]
FRESH = Message("m9", source="s", sequence=4)


def business(place: Place) -> dict[str, Any]:
    found = place.contents() or {}
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
def test_repair_writes_nothing_if_entity_changed_after_the_read(
    ledger: Ledger, act: tuple[str, ...], place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.apply(ledger, *MESSAGES)
    write: Callable[..., int] = vars(repair)["_write"]

    def after_another(*arguments: Any) -> int:
        assert place.apply(ledger, FRESH) == ["Applied"]
        return write(*arguments)

    monkeypatch.setattr(repair, "_write", after_another)
    assert place.run(*act, "--yes") == 1
    assert "Another writer changed the entity in the meantime, so nothing was written" in capsys.readouterr().err
    assert place.apply(ledger, MESSAGES[-1], FRESH) in (["Duplicate", "Duplicate"], ["Stale", "Duplicate"])
    monkeypatch.undo()


def fill(place: Place) -> None:
    """Four hundred sources, each of which has added one to `n`."""

    def write(fresh: list[Message]) -> dict[str, Any]:
        if place.names_tokens:
            change = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": len(fresh)}}
            return {**place.address(), **change}
        return {**place.address(), "update": {"$inc": {"n": len(fresh)}}, "upsert": True}

    place.store(HighWaterMark()).update_batch(
        [Message(f"m{n}", source=f"source {n}", sequence=1) for n in range(400)], write
    )


def test_ledger_with_many_sources_is_cleared(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """On DynamoDB it takes several requests, of which each finds what the one before has left."""
    fill(place)
    shown = output_of(capsys, lambda: place.run("clear", "--json"))
    assert len(shown["requests"]) == (4 if place.names_tokens else 1)
    assert place.run("clear", "--yes") == 0
    assert business(place) == {"n": 400}


def test_clear_can_be_repeated_if_a_writer_interrupts(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(place, TablePlace):
        pytest.skip("one request does all of it")
    fill(place)
    client: Any = place.client
    sent, send = [0], client.update_item

    def counted(**request: Any) -> Any:
        sent[0] += 1
        if sent[0] == 3:
            assert place.apply(HighWaterMark(), FRESH) == ["Applied"]
        return send(**request)

    monkeypatch.setattr(client, "update_item", counted)
    assert place.run("clear", "--yes") == 1
    assert "only 2 of 4 requests were made" in capsys.readouterr().err
    assert len(business(place)) > 80
    assert place.apply(HighWaterMark(), FRESH) == ["Duplicate"]
    assert place.run("clear", "--yes") == 0
    assert business(place) == {"n": 401}
