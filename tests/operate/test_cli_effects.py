"""The `effects` verb: which effects are open in a table or a collection, of every ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from onewrite import Applied, Begun, Busy, HighWaterMark, InSequence, Message, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.core.values import moment
from onewrite.operate import effects, main
from tests.support.repairs import Place, stand_in_place

START = 1_790_000_000.0
LEASE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LEDGERS: list[Ledger] = [SeenIds(), HighWaterMark(name="marks"), InSequence(name="sequence")]


@pytest.fixture(params=["dynamodb", "mongodb"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr("time.time", lambda: START + 3600)
    with stand_in_place(request.param, monkeypatch) as found:
        yield found


def guarded(place: Place, ledger: Ledger, at: float) -> Any:
    return place.store(ledger, clock=lambda: at)


def begin(place: Place, n: int, ledger: Ledger | None = None, *, source: str = "bank", at: float = START) -> Begun:
    """Begin an effect in an entity of its own."""
    place.put(f"e{n}")
    message = Message(f"m{n}", source=source, sequence=1)
    store = guarded(place, ledger or SeenIds(), at)
    effect = store.begin_effect(message, "charge", **place.address(f"e{n}"), lease=LEASE, key_valid_for=HOUR)
    assert isinstance(effect, Begun)
    return effect


def listed(capsys: pytest.CaptureFixture[str], place: Place, *options: str) -> Any:
    code = main(["effects", *place.options, "--json", *options])
    found = json.loads(capsys.readouterr().out)
    assert code == (5 if found["open"] or found["damaged"] else 0)
    return found


def test_effects_of_every_ledger_are_listed_oldest_first(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    begun = {n: begin(place, n, ledger, at=START - n) for n, ledger in enumerate(LEDGERS)}
    place.put("without an effect", n=1)
    found = listed(capsys, place)
    assert (found["open"], found["damaged"]) == (3, 0)
    assert [effect["message"] for effect in found["effects"]] == ["m2", "m1", "m0"]
    assert [effect["ledger"] for effect in found["effects"]] == ["ow_sequence:l", "ow_marks:l", "ow_l"]
    first, effect = found["effects"][0], begun[2]
    assert json.loads(first["entity"]).popitem()[1] == "e2"
    assert (first["key"], first["source"], first["sequence"], first["parts"]) == (effect.key, "bank", 1, [])
    assert (first["begun"], first["until"]) == (moment(effect.since), moment(effect.until))


def test_finished_effect_is_not_listed(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    effect = begin(place, 1)
    assert isinstance(
        guarded(place, SeenIds(), START).remember(effect.message, **place.address("e1"), finishes=effect), Applied
    )
    assert listed(capsys, place) == {"open": 0, "damaged": 0, "effects": []}
    assert main(["effects", *place.options]) == 0
    assert capsys.readouterr().out == "No effect is open.\n"


def test_older_than_limits_the_list(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    begin(place, 1, at=START)
    begin(place, 2, at=START + 3000)
    begin(place, 3, at=START + 3900)  # by a worker whose clock is ahead
    assert [effect["message"] for effect in listed(capsys, place)["effects"]] == ["m1", "m2", "m3"]
    assert [effect["message"] for effect in listed(capsys, place, "--older-than", "600")["effects"]] == ["m1", "m2"]
    assert [effect["message"] for effect in listed(capsys, place, "--older-than", "601")["effects"]] == ["m1"]
    assert main(["effects", *place.options, "--older-than", "1e8"]) == 0
    assert capsys.readouterr().out == "No open effect is that old. 3 effects were begun later.\n"


def test_effects_on_every_page_are_listed(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    for n in range(4):
        place.put(f"large{n}", text="x" * 390_000)  # a page of a scan has a megabyte
    for n in range(7):
        begin(place, n, at=START - n)
    assert [effect["message"] for effect in listed(capsys, place)["effects"]] == [f"m{n}" for n in reversed(range(7))]


def test_unlisted_effects_are_counted(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "_MAX_LISTED", 2)
    for n in range(4):
        begin(place, n, at=START - n)
    found = listed(capsys, place)
    assert (found["open"], [effect["message"] for effect in found["effects"]]) == (4, ["m3", "m2"])
    assert main(["effects", *place.options]) == 5
    *lines, last = capsys.readouterr().out.splitlines()
    assert (len(lines), last) == (2, "2 more were begun later.")


def test_effect_line_is_complete_without_control_characters(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    effect = begin(place, 1, source="\x1b[31mbank\n")
    assert main(["effects", *place.options]) == 5
    (line,) = capsys.readouterr().out.splitlines()
    entity = '{"_id": "e1"}' if "--collection" in place.options else '{"id": "e1"}'
    assert line == (
        f"1:00:00  begun {moment(START)}, lease until {moment(START + 60)}  message m1 of \\x1b[31mbank\\n  "
        f"key {effect.key}  in ow_l of {entity}"
    )
    begin(place, 2, source="")
    assert main(["effects", *place.options]) == 5
    assert "message m2  key" in capsys.readouterr().out


def test_released_unsent_effect_is_shown(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    effect = begin(place, 1, HighWaterMark())
    store = guarded(place, HighWaterMark(), START + 5)
    store.release_effect(effect, sent=False)
    later = guarded(place, HighWaterMark(), START + 90)
    (busy,) = later.open_effects(**place.address("e1"))
    assert busy == Busy(effect.message, START + 90)
    assert main(["effects", *place.options]) == 5
    assert f"until {moment(START + 5)}, not sent  " in capsys.readouterr().out
    (found,) = listed(capsys, place)["effects"]
    assert found["unsent"]
    assert main(["inspect", *place.options, "--key", found["entity"]]) == 0
    out = capsys.readouterr().out
    assert "released" in out
    assert "it is unknown" not in out


@pytest.mark.parametrize("held", [{"ow_effects": "x"}, {"ow_effects": ["x"]}])
def test_damaged_entity_does_not_hide_others(place: Place, held: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    begin(place, 1)
    place.put("damaged", **held)
    assert main(["effects", *place.options, "--json"]) == 5
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["open"], found["damaged"], len(found["effects"])) == (1, 1, 1)
    assert 'id": "damaged"}: The entity has other values' in err
    assert main(["effects", *place.options, "--older-than", "1e8"]) == 5
    assert "1 effect was begun later." in capsys.readouterr().out


def test_damaged_effect_alone_is_not_reported_as_no_effect(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.put("damaged", ow_effects="x")
    assert main(["effects", *place.options]) == 5
    assert capsys.readouterr().out == ""
