"""`inspect`, `forget`, `set-mark` and `clear`: what an entity holds, in words, and what a repair of it lets happen."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, cast

import pytest
from bson import Decimal128

from onewrite import (
    Applied,
    Begun,
    Event,
    HighWaterMark,
    IdSet,
    InSequence,
    Message,
    Outbox,
    SeenIds,
    Tombstones,
    sortable,
)
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.ring import find_ring, find_span, make_window
from onewrite.core.values import moment
from onewrite.identity import cloudevent
from onewrite.operate import main
from tests.support.repairs import NOW, Place, output_of
from tests.support.seams import name_calls

pytestmark = pytest.mark.measured

DAY = 86_400.0
LEASE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
M1, M2 = Message("m1"), Message("m2")
SAME = ("--message", "m1", "--source", "x", "--sequence", "3")


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)


def inspect(place: Place, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    return output_of(capsys, lambda: place.run("inspect", "--json", *options))


def answers(place: Place, capsys: pytest.CaptureFixture[str], *options: str) -> list[tuple[str, str]]:
    found = inspect(place, capsys, "--message", *options)["predictions"]
    return [(answer["ledger"], answer["outcome"]) for answer in found]


# --- inspect ------------------------------------------------------------------------------------------------------------


def test_ids_are_shown_with_their_time(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.apply(SeenIds(), M1, at=NOW - 9 * DAY)
    place.apply(SeenIds(), M2)
    (ledger,) = inspect(place, capsys)["ledgers"]
    assert (ledger["attribute"], ledger["kept"], ledger["moved_to"]) == ("ow_l", "14d", None)
    old, new = sorted(ledger["sets"], key=lambda each: each["since"])
    for found, at in ((old, NOW - 9 * DAY), (new, NOW)):
        assert found["since"] <= moment(at)
        assert found["until"] is None or moment(at) < found["until"] <= moment(NOW)
        assert (len(found["ids"]), found["live"]) == (1, True)
    slots = {place.place("ow_r", f"r{n}"): f"r{n}" for n in range(6)}
    span = find_span(make_window(timedelta(days=14), timedelta(hours=6)), NOW, slots[new["place"]])
    assert (new["since"], new["until"], old["until"] is None) == (moment(span.since), None, False)
    assert len(new["ids"][0]["hash"]) == 11
    assert inspect(place, capsys)["token_bytes"] == (12 if place.names_tokens else 0)


def test_expired_set_is_shown_as_unused(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    seen = make_window(timedelta(days=14), timedelta(hours=6))
    live = find_ring(seen, int(NOW * 1_000_000)).live
    ago = next(days for days in range(30, 90) if find_ring(seen, int((NOW - days * DAY) * 1_000_000)).present not in live)
    place.apply(SeenIds(), M1, at=NOW - ago * DAY)
    (ledger,) = inspect(place, capsys)["ledgers"]
    assert [each["live"] for each in ledger["sets"]] == [False]
    assert answers(place, capsys, "m1") == [("SeenIds(14d)", "Applied")]
    assert place.run("inspect") == 0
    assert "no store reads this set any longer" in capsys.readouterr().out


def test_inspect_shows_source_and_parts_of_readable_ids(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.apply(SeenIds(None, readable=True), M1, Message("x/y", source="a+b/c").part("p"), Message("@m"))
    (ledger,) = inspect(place, capsys)["ledgers"]
    found = sorted([(each["id"], each["source"], *each["parts"]) for each in ledger["sets"][0]["ids"]])
    assert found == [("@m", ""), ("m1", ""), ("x/y", "a+b/c", "p")]
    assert (ledger["sets"][0]["by_hand"], ledger["sets"][0]["since"]) == (False, None)
    assert place.run("inspect") == 0
    assert "x/y of source a+b/c, part p" in capsys.readouterr().out


def test_marks_are_shown_by_source(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    sources = ["shop", "order-7", "a.b$c%\0é"]
    place.apply(HighWaterMark(), *[Message("m", source=source, sequence=n) for n, source in enumerate(sources)])
    place.apply(HighWaterMark(), Message("m", source="order-7", sequence=sortable(9)).part("stock"))
    (ledger,) = inspect(place, capsys)["ledgers"]
    marks = {(each["source"], *each["parts"]): each["mark"] for each in ledger["marks"]}
    assert marks == {("shop",): 0, ("order-7",): 1, ("a.b$c%\0é",): 2, ("order-7", "stock"): "#119"}
    assert place.run("inspect") == 0
    assert "source a.b$c%\\x00é: 2" in capsys.readouterr().out


def test_inspect_shows_events_effects_and_their_sizes(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = place.store(SeenIds(), clock=lambda: NOW, outbox=Outbox("shop"))
    place.write(store, M1, emit=[Event("Paid", {"n": 1}), Event("Sent", {})])
    assert isinstance(
        place.call(
            store,
            "begin_effect",
            Message("m3", source="bank", sequence=4).part("p"),
            "charge",
            lease=LEASE,
            key_valid_for=HOUR,
        ),
        Begun,
    )
    found = inspect(place, capsys)
    (outbox,), (effect,) = found["outboxes"], found["effects"]
    assert [(event["number"], event["type"], event["cause"]) for event in outbox["events"]] == [
        (1, "Paid", "m1"),
        (2, "Sent", "m1"),
    ]
    assert (outbox["sent"], outbox["due"] is None or isinstance(outbox["due"], str)) == (0, True)
    assert (effect["message"], effect["source"], effect["parts"], effect["sequence"]) == ("m3", "bank", ["p"], 4)
    assert (effect["ledger"], effect["until"], effect["lease_is_over"]) == ("ow_l", moment(NOW + 60), False)
    parts = found["ledgers"][0]["bytes"] + outbox["bytes"] + found["effect_bytes"] + found["token_bytes"]
    assert parts == found["ours"] < found["bytes"]
    monkeypatch.setattr("time.time", lambda: NOW + 61)
    assert place.run("inspect") == 0
    out = capsys.readouterr().out
    assert "2 events pending" in out
    assert "it is unknown whether the effect happened" in out


HASHED, READABLE, BY_SOURCE = SeenIds(), SeenIds(name="texts", readable=True), HighWaterMark(name="marks")
EVENT = cloudevent()({"body": json.dumps({"specversion": "1.0", "type": "Paid", "id": "m1", "source": "e", "data": {}})})


@pytest.mark.parametrize(
    ("ledger", "written", "hint"),
    [
        (HASHED, Message("m1", source="a"), "pass --source and --part if it has any."),
        (READABLE, Message("m0", source="a shop"), "The entity knows the sources 'a shop', but not ''."),
        (BY_SOURCE, Message("m1", source="a", sequence=2), "The entity knows the sources 'a', but not ''."),
    ],
)
def test_unknown_message_gets_a_hint(
    ledger: Any, written: Message, hint: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.apply(ledger, written) == ["Applied"]
    assert any(hint in each for each in inspect(place, capsys, "--message", "m1", "--sequence", "2")["hints"])
    assert place.run("inspect", "--message", "m1", "--sequence", "2") == 0
    assert hint in capsys.readouterr().out
    if ledger is not BY_SOURCE:  # which keeps no single messages
        assert place.run("forget", "--message", "m1", "--attribute", ledger.attribute) == 4
        assert hint in capsys.readouterr().err


def test_cloudevent_is_found_by_its_own_id_and_source(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.apply(HASHED, EVENT)
    assert answers(place, capsys, "m1", "--source", "e") == answers(place, capsys, EVENT.id, "--source", "e")
    assert place.run("forget", "--message", "m1", "--source", "e", "--yes") == 0
    assert place.apply(HASHED, EVENT) == ["Applied"]


def test_inspect_explains_how_a_tombstone_is_removed(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    store = place.store(SeenIds(), clock=lambda: NOW, tombstones=Tombstones(timedelta(days=30)))
    place.call(store, "delete", M1)
    assert inspect(place, capsys)["tombstone"]["at"] == moment(NOW)
    assert place.run("inspect", "--message", "m2") == 0
    out = capsys.readouterr().out
    assert "The database removes it by its TTL, by expiresAt" in out
    assert "Gone from SeenIds(14d)" in out
    assert place.run("forget", "--message", "m1") == 2
    assert "tombstone refuses every message" in capsys.readouterr().err


def test_inspect_reports_entity_without_ledger(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.put(n=1)
    assert place.run("inspect", "--message", "m1") == 0
    out = capsys.readouterr().out
    assert "The entity doesn't contain data of onewrite." in out
    assert "The entity doesn't have a ledger yet" in out
    assert place.run("inspect", entity="missing") == 3
    assert "There is no entity" in capsys.readouterr().err


def test_id_set_is_found_in_the_default_or_given_attribute(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.put(messageIDs={"m1", "m2"}, tags={"red"})
    (ledger,) = inspect(place, capsys)["ledgers"]
    assert (ledger["attribute"], ledger["kept"], ledger["sets"][0]["by_hand"]) == ("messageIDs", None, True)
    assert [each["id"] for each in inspect(place, capsys, "--attribute", "tags")["ledgers"][0]["sets"][0]["ids"]] == ["red"]
    assert answers(place, capsys, "m1", "--source", "any") == [("IdSet('messageIDs')", "Duplicate")]
    assert place.run("inspect") == 0
    assert "without a label, possibly a set of IDs that you keep yourself" in capsys.readouterr().out


def test_inspect_reads_ledger_that_has_moved(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.apply(SeenIds(), M1)
    place.apply(SeenIds(name="seen", previous=SeenIds()), M2)
    found = {each["attribute"]: each["moved_to"] for each in inspect(place, capsys)["ledgers"]}
    assert found == {"ow_l": "ow_seen:l", "ow_seen:l": None}
    assert answers(place, capsys, "m1") == [("SeenIds(14d)", "Duplicate")]
    assert place.run("inspect", "--message", "m1") == 0
    out = capsys.readouterr().out
    assert "which has moved to ow_seen:l" in out
    assert "ow_r" in out.split("The outcome of a delivery")[1]


def test_queried_message_is_shown_with_its_full_name(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.apply(SeenIds(), Message("b-1", source="s", sequence=3).part("hold"))
    options = ("--message", "b-1", "--source", "s", "--sequence", "3", "--part", "hold")
    assert place.run("inspect", *options) == 0
    assert (
        "The outcome of a delivery of message b-1 of source s, sequence 3, part hold:\n  Duplicate"
        in capsys.readouterr().out
    )
    assert inspect(place, capsys, *options)["hints"] == []


def test_forget_warns_that_events_are_emitted_again(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.write(place.store(SeenIds(), outbox=Outbox("shop")), M1, emit=[Event("Paid", {"n": 1})])
    assert place.run("forget", "--message", "m1") == 0
    assert "with new IDs and numbers. Consumers apply them again.\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "label", ["ow1 40000d", "ow1 numbers 500", "ow1 9999999999999d", f"ow1 {'9' * 5000}d", "ow1 > ", "ow1 > a.b", "ow1 14d"]
)
def test_damaged_ledger_is_not_reported_as_a_bug(label: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    sets: dict[str, Any] = {"ow_r3": ["a"]} if place.names_tokens else {"ow_r": {"r0": {}, "r3": Decimal128("1")}}
    places: dict[str, Any] = {"ow_@x": {3}} if place.names_tokens else {"ow_@": {"x": {"s1": [3]}}}
    place.put(ow_l=label, **sets, **places)
    for act, codes in ((("inspect", "--json", *SAME), {0}), (("forget", *SAME), {2, 4}), (("clear",), {0, 2})):
        assert place.run(*act) in codes
        assert "bug in onewrite" not in capsys.readouterr().err


def test_inspect_names_foreign_values_in_a_ledger(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.apply(SeenIds(), M1)
    place.apply(HighWaterMark(name="marks"), Message("m", source="s", sequence=1))
    stored = place.contents() or {}
    stored = {name: value for name, value in stored.items() if name not in ("id", "_id")}
    stored["marks"] = "the caller's own"
    if place.names_tokens:
        stored |= {"ow_r5": 1, "ow_all": 2, "ow_marks:@t": True, "ow_marks:@u": {1}, "ow_99999999999d_r1": 1}
    else:
        stored["ow_r"] |= {"r5": 1, "r9": [2]}
        stored |= {"ow_all": 2, "ow_99999999999d_r": {"r1": 1}}
        stored["ow_marks:@"] |= {"t": True, "u": [1]}
    place.put(**stored)
    found = inspect(place, capsys)["ledgers"]
    foreign = {each["place"] for ledger in found for each in ledger["foreign"]}
    dot = "" if place.names_tokens else "."
    assert {f"ow_marks:@{dot}t", f"ow_marks:@{dot}u", "ow_all", place.place("ow_r", "r5")} <= foreign
    assert place.run("inspect") == 0
    assert "which isn't a ledger's content" in capsys.readouterr().out


def test_inspect_reports_damaged_effects_outboxes_and_tombstones(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    mark = "PKFN90PGmAw"
    effects: dict[str, Any] = (
        {f"ow_effect_{mark}": 1, "ow_effects": {mark}} if place.names_tokens else {"ow_effects": {mark: 1}}
    )
    place.put(ow_o="ow1 outbox shop/orders", ow_events=[1], ow_tombstone=1, **effects)
    found = inspect(place, capsys)
    assert "Repair the entity" in found["effects"][0]["damaged"]
    assert "epair the entity" in found["outboxes"][0]["damaged"]
    assert "ow_tombstone" in found["tombstone"]["damaged"]
    assert place.run("inspect") == 0
    shown = capsys.readouterr().out
    assert shown.count("epair the entity") == 2
    assert "ow_tombstone of the entity isn't a tombstone" in shown


@pytest.mark.parametrize(
    ("source", "options", "expected"),
    [
        ("s", ("--sequence", "4"), ["Stale", "Stale"]),
        ("s", ("--sequence", "9"), ["Applied", "Deferred"]),
        ("s", (), ["InvalidMessage", "InvalidMessage"]),
        ("other", ("--sequence", "2"), ["Applied", "Deferred"]),
        ("s", ("--sequence", "#115"), ["LedgerMismatch", "InvalidMessage"]),
    ],
)
def test_inspect_predicts_outcome_of_a_delivery(
    source: str, options: tuple[str, ...], expected: list[str], place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.apply(HighWaterMark(), Message("m", source=source, sequence=5)) == ["Applied"]
    assert [outcome for _, outcome in answers(place, capsys, "m", "--source", "s", *options)] == expected
    assert place.run("inspect", "--message", "m", "--source", "s", *options) == 0
    assert f"  {expected[0]} from " in capsys.readouterr().out


def test_in_sequence_does_not_know_the_ledger_before(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.apply(SeenIds(), Message("m1", "s"))
    place.apply(HighWaterMark(previous=SeenIds()), Message("m2", "s", sequence=5))
    asked = ("m1", "--source", "s", "--sequence", "6")
    assert answers(place, capsys, *asked) == [("HighWaterMark()", "Duplicate"), ("InSequence(first=1)", "Applied")]


def begins(place: Place, ledger: Ledger) -> None:
    place.put(n=1)
    place.call(place.store(ledger, clock=lambda: NOW), "begin_effect", M1, "charge", lease=LEASE, key_valid_for=HOUR)


def test_ledger_without_data_can_be_queried(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.put(n=1, messageIDs={"m2"})
    assert answers(place, capsys, "m1", "--attribute", "ow_b:l") == [("", "Applied")]
    assert place.run("inspect", "--message", "m1", "--attribute", "ow_o") == 2


# --- forget -------------------------------------------------------------------------------------------------------------


def test_mark_is_removed_from_every_set_in_every_form(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    message, day = Message("m1", source="s"), timedelta(days=1)
    before = (SeenIds(), SeenIds(day, readable=True), SeenIds(None), SeenIds(None, readable=True), SeenIds(day, name="seen"))
    merged: dict[str, Any] = {}
    for n, ledger in enumerate(before):  # as one change of the ledger after the other leaves it
        place.apply(ledger, message, Message("m6"), entity=f"e{n}")
        merged |= place.contents(f"e{n}") or {}
    merged |= {"ow_l": "ow1 > ow_seen:l"}
    place.put(**{name: value for name, value in merged.items() if name not in ("id", "_id", "ow_seen:l")})
    last = SeenIds(name="seen", previous=before)
    assert place.apply(last, Message("m9"), message) == ["Applied", "Duplicate"]
    shown = output_of(capsys, lambda: place.run("forget", "--message", "m1", "--source", "s", "--json", "--yes"))
    assert len(shown["changes"]) == len(before)
    assert place.apply(last, message, message) == ["Applied", "Duplicate"]
    assert place.apply(last, Message("m6"), Message("m9")) == ["Duplicate"] * 2


def test_plain_id_is_forgotten_for_every_source(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.put(messageIDs={"m1", "m5", "@s/m1"})
    shown = output_of(capsys, lambda: place.run("forget", "--message", "m1", "--source", "s", "--json", "--yes"))
    assert len(shown["changes"]) == 2
    assert "counts for every source" in " ".join(shown["effects"])
    message = Message("m1", source="s")
    assert place.apply(IdSet("messageIDs"), message, message, Message("m5")) == ["Applied", "Duplicate", "Duplicate"]
    without_source = output_of(capsys, lambda: place.run("forget", "--message", "m5", "--json", "--yes"))
    assert "counts for every source" in " ".join(without_source["effects"])
    assert place.apply(IdSet("messageIDs"), Message("m5", source="s")) == ["Applied"]


def test_forget_is_refused_if_message_would_still_be_refused(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = SeenIds(previous=HighWaterMark())
    place.apply(HighWaterMark(), Message("m0", source="s", sequence=9))
    place.apply(ledger, Message("m1", source="s", sequence=10))
    stored = place.contents()
    assert place.run("forget", "--message", "m1", "--source", "s", "--sequence", "10") == 0
    assert place.run("forget", "--message", "m1", "--source", "s", "--sequence", "8", "--yes") == 2
    assert "would still be Stale" in capsys.readouterr().err
    assert place.run("forget", "--message", "m1", "--source", "s", "--yes") == 2
    assert "has no sequence" in capsys.readouterr().err
    assert place.contents() == stored


@pytest.mark.parametrize("ledger", [SeenIds(None), IdSet("messageIDs"), IdSet("handled")])
def test_forget_and_clear_are_refused_during_open_effect(
    ledger: Ledger, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    begins(place, ledger)
    for options in ((), ("--attribute", ledger.attribute)):
        assert place.run("forget", "--message", "m1", "--yes", *options) == 2
        assert "returns Busy, because a worker has begun an effect of it" in capsys.readouterr().err
    assert place.run("clear", "--yes") == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("name", ["messageIDs", "handled"])
def test_remaining_mark_is_reported_if_only_one_set_forgets(
    name: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    for act in (("forget", "--message", "m1", "--attribute", "ow_l"), ("clear",)):
        place.put("e", **{name: {"m1"}})
        looking = SeenIds(previous=IdSet(name))
        assert place.apply(SeenIds(), M1) + place.apply(looking, M1) == ["Applied", "Duplicate"]
        capsys.readouterr()
        assert place.run(*act, "--yes", "--json") == 0
        effects = " ".join(json.loads(capsys.readouterr().out)["effects"])
        assert (f"in {name} returns Duplicate, because {name} has it" in effects) == (act[0] == "forget")
        assert (f"Marks in {name!r} stay." in effects) == (act[0] == "clear")
        assert place.apply(looking, M1) == ["Duplicate"]


def test_forget_on_a_mark_is_refused_with_a_remedy(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.apply(HighWaterMark(), Message("m1", source="s", sequence=1))
    place.apply(HighWaterMark(name="more"), Message("m1", "s", sequence=1))
    assert place.run("forget", "--message", "m1", "--source", "s", "--attribute", "ow_l") == 2
    assert "onewrite set-mark --source s" in capsys.readouterr().err
    assert place.run("forget", "--message", "m1", "--attribute", "ow_more:l") == 2
    assert "onewrite set-mark --sequence N" in capsys.readouterr().err


def test_refused_forget_states_the_reason(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.apply(SeenIds(), M1)
    assert place.run("forget", "--message", "m2") == 4
    assert "No ledger" in capsys.readouterr().err
    place.apply(SeenIds(name="seen", previous=SeenIds()), M2)
    place.apply(SeenIds(name="other"), M2)
    for options, text in (
        (("--message", "m1", "--attribute", "ow_l"), "has moved to 'ow_seen:l'"),
        (("--message", "m2"), "with --attribute"),
        (("--message", "m2", "--attribute", "nothing"), "There is no ledger in 'nothing'"),
    ):
        assert place.run("forget", *options, "--yes") == 2
        assert text in capsys.readouterr().err
    assert place.run("forget", "--message", "m2", "--attribute", "ow_other:l", "--yes") == 0


def test_log_names_operator_and_change(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.apply(SeenIds(None, readable=True), M1)
    assert place.run("forget", "--message", "m1", "--yes", "--operator", "ann") == 0
    (record,) = [record for record in caplog.records if "Requested by" in record.message]
    assert "loses 'm1'" in record.message
    details = record.__dict__["onewrite"]
    assert (details["act"], details["operator"]) == ("forget", "ann")


# --- set-mark -----------------------------------------------------------------------------------------------------------


def test_mark_that_is_set_back_accepts_the_message(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    messages = [Message(f"m{n}", source="s", sequence=n) for n in range(1, 4)]
    assert place.apply(InSequence(), *messages) == ["Applied"] * 3
    shown = output_of(capsys, lambda: place.run("set-mark", "--sequence", "1", "--source", "s", "--yes", "--json"))
    assert shown["effects"][:2] == [
        "Sequences 2 to 3 of source 's': each takes effect again if it is redelivered.",
        "InSequence waits for 2 next.",
    ]
    assert "ow_t" not in (place.contents() or {})
    assert place.apply(InSequence(), *messages, messages[1]) == ["Duplicate", "Applied", "Applied", "Stale"]


def test_raised_mark_names_sequences_that_are_refused(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.apply(HighWaterMark(), Message("m", source="s", sequence=3).part("p"))
    shown = output_of(
        capsys, lambda: place.run("set-mark", "--sequence", "4", "--source", "s", "--part", "p", "--yes", "--json")
    )
    assert shown["effects"][0].startswith("Sequence 4 of source 's', part 'p': refused from now on")
    assert place.apply(HighWaterMark(), Message("m", source="s", sequence=4).part("p")) == ["Duplicate"]
    new = output_of(capsys, lambda: place.run("set-mark", "--source", "t", "--sequence", "7", "--yes", "--json"))
    assert new["effects"][0].startswith("Every sequence of source 't' up to 7 is refused")
    assert place.apply(HighWaterMark(), Message("m", "t", sequence=7)) == ["Duplicate"]


def test_set_mark_needs_a_source(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.apply(HighWaterMark(), Message("m", source="s", sequence=3))
    assert place.run("set-mark", "--sequence", "7", "--yes") == 2
    assert "Pass --source" in capsys.readouterr().err
    assert place.apply(HighWaterMark(), Message("m", source="s", sequence=4)) == ["Applied"]


def test_any_sequence_is_applied_after_mark_removal(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.apply(HighWaterMark(), Message("m", source="s", sequence=3), Message("m", source="t", sequence=3))
    assert place.run("set-mark", "--remove", "--source", "s", "--yes") == 0
    assert "Written." in capsys.readouterr().out
    assert place.apply(HighWaterMark(), Message("m", source="s", sequence=1), Message("m", source="t", sequence=1)) == [
        "Applied",
        "Stale",
    ]


@pytest.mark.parametrize(
    ("held", "value", "expected"),
    [
        (sortable(9), "12", sortable(12)),
        (sortable(9), sortable(3), sortable(3)),
        (sortable(9), "late", None),
        ("0009", "0010", "0010"),
        ("0009", "10", None),
        (9, "late", None),
        (9, str(10**40), None),
        (None, "00042", "00042"),
        (None, "text:42", "42"),
        (None, "42", 42),
        (None, "-7", -7),
    ],
)
def test_mark_is_set_as_written_in_the_old_format(
    held: int | str | None, value: str, expected: int | str | None, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    for source, sequence in (("other", 1), ("s", held)):
        if sequence is not None:
            place.apply(HighWaterMark(), Message("m", source=source, sequence=sequence))
    code = place.run("set-mark", "--source", "s", "--sequence", value, "--yes")
    assert code == (2 if expected is None else 0)
    capsys.readouterr()
    marks = {each["source"]: each["mark"] for each in inspect(place, capsys)["ledgers"][0]["marks"]}
    assert marks == {"other": 1, "s": held if expected is None else expected}


def test_invalid_set_mark_is_refused_with_the_reason(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    store = place.store(InSequence(), clock=lambda: NOW)
    place.write(store, Message("m1", source="s", sequence=1))
    place.apply(SeenIds(name="ids"), M1)
    for options, code, text in (
        (("--sequence", "1", "--source", "s"), 4, "is already 1"),
        (("--remove", "--source", "t"), 4, "is already absent"),
        ((), 2, "or --remove"),
        (("--sequence", "1", "--remove"), 2, "or --remove"),
        (("--sequence", "1", "--attribute", "ow_ids:l"), 2, "There is no ledger of marks"),
    ):
        assert place.run("set-mark", *options) == code
        assert text in capsys.readouterr().err
    place.call(store, "begin_effect", Message("m2", source="s", sequence=2), "charge", lease=LEASE, key_valid_for=HOUR)
    assert place.run("set-mark", "--sequence", "5", "--source", "s", "--yes") == 2
    assert "has an open effect" in capsys.readouterr().err
    assert place.run("set-mark", "--sequence", "5", "--source", "t", "--yes") == 0
    place.apply(HighWaterMark(name="more"), Message("m", source="s", sequence=1))
    assert place.run("set-mark", "--sequence", "5", "--source", "t") == 2
    assert "'ow_l' and 'ow_more:l'" in capsys.readouterr().err


def test_set_mark_does_not_overwrite_foreign_value(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    group: dict[str, Any] = {"ow_@s": [1]} if place.names_tokens else {"ow_@": {"s": [1]}}
    place.put(ow_l="ow1 marks", **group)
    assert place.run("set-mark", "--sequence", "5", "--source", "s", "--yes") == 2
    assert "which isn't a mark" in capsys.readouterr().err


# --- clear --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ledger", "effect"),
    [
        (SeenIds(), "2 ids are forgotten"),
        (SeenIds(None, readable=True), "2 ids are forgotten"),
        (HighWaterMark(), "Every sequence of source 's' up to 2"),
    ],
    ids=["14d", "all text", "marks"],
)
def test_cleared_ledger_is_empty(ledger: Ledger, effect: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    messages = [Message(f"m{n}", source="s", sequence=n) for n in (1, 2)]
    place.apply(ledger, *messages)
    key = (place.contents() or {}).keys() & {"id", "_id"}
    shown = output_of(capsys, lambda: place.run("clear", "--yes", "--json"))
    assert effect in " ".join(shown["effects"])
    assert (place.contents() or {}).keys() == {"n", *key}
    assert place.run("clear") == 2  # its label is gone as well
    assert place.apply(ledger, *messages) == ["Applied", "Applied"]


def test_cleared_ledger_keeps_the_label_of_its_new_place(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.apply(SeenIds(), M1)
    place.apply(SeenIds(name="seen", previous=SeenIds()), M2)
    assert place.run("clear") == 2
    assert "'ow_l', 'ow_seen:l'" in capsys.readouterr().err
    assert place.run("clear", "--attribute", "ow_l", "--yes") == 0
    assert place.apply(SeenIds(name="seen", previous=SeenIds()), M1, M2) == ["Applied", "Duplicate"]
    assert place.run("clear", "--attribute", "ow_l", "--yes") == 4
    assert "already empty" in capsys.readouterr().err


def test_clear_is_refused_without_a_ledger_label(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.put(messageIDs={"m1"})
    for options in ((), ("--attribute", "messageIDs")):
        assert place.run("clear", *options, "--yes") == 2
        assert "There is no ledger label" in capsys.readouterr().err


# --- all of them --------------------------------------------------------------------------------------------------------


def test_forgotten_write_is_not_reported_as_a_retry(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    if not place.names_tokens:
        pytest.skip("MongoDB recognises its own retries")
    store = name_calls(place.store(SeenIds(), clock=lambda: NOW), lambda: "the same call")
    first = {"ConditionExpression": "attribute_not_exists(n)"}
    assert isinstance(place.write(store, M1, **first), Applied)
    assert place.write(store, M1, **first) == Applied(M1, retried=True)
    assert place.run("forget", "--message", "m1", "--yes") == 0
    assert type(place.write(store, M1, **first)).__name__ == "Rejected"


def test_key_option_accepts_every_key_type(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inspect", *place.options, "--key"]
    if place.names_tokens:
        for wrong in ("o-1", "{}", "[1]", '{"id": {"B": "?"}}'):
            assert main([*arguments, wrong]) == 2
            assert "expected the whole key of an item as JSON" in capsys.readouterr().err
        assert main([*arguments, '{"id": {"S": "e"}}']) == 3
        capsys.readouterr()
        for wrong in ('{"id": {"B": "AAE="}}', '{"id": 7}', '{"other": "e"}', '{"id": "e", "other": "e"}'):
            assert main([*arguments, wrong]) == 2
            assert "--key doesn't name an item of the table" in capsys.readouterr().err
    else:
        for key in ('{"$oid": "0123456789abcdef01234567"}', '{"_id": 7}', "7", '"e"', "e"):
            assert main([*arguments, key]) == 3
            assert "There is no entity" in capsys.readouterr().err
        assert main([*arguments, "{"]) == 2
        place.put("a", n=1, m=2)
        for key in ('{"n": 1, "m": 2}', '{"$gt": ""}', '{"_id": {"$gt": ""}}'):
            assert main([*arguments, key]) == 3  # none is a filter
        place.put(cast("Any", {"n": 1, "m": 2}), text="x" * 40)
        for key in ('{"n": 1, "m": 2}', '{"_id": {"n": 1, "m": 2}}'):
            capsys.readouterr()
            assert main([*arguments, key, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)["bytes"] > 40


def test_long_lists_are_truncated_in_text_output(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    store = place.store(SeenIds(None, readable=True), clock=lambda: NOW, outbox=Outbox("shop"))
    for n in range(25):
        place.write(store, Message(f"m{n:02}"), emit=[Event("Paid", {})])
    assert place.run("inspect") == 0
    out = capsys.readouterr().out
    assert out.count("and 5 more, which --json shows") == 2
    assert len(json.dumps(inspect(place, capsys)["ledgers"][0]["sets"][0]["ids"])) > 25 * 10
    assert place.run("forget", "--message", "m01") == 0
    assert "... and 20 more" in capsys.readouterr().out
