"""What `inspect` predicts is what a delivery gets, and what `forget` lets in takes effect: over random entities, on both engines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from random import Random
from types import ModuleType
from typing import Any, cast

import pytest

from onewrite import HighWaterMark, IdSet, InSequence, Message, SeenIds, Tombstones, sortable
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.entry import list_earlier_ledgers
from onewrite.errors import OnewriteError
from tests.support.repairs import Place, stand_in_place

START = 1_790_000_000.0
DAY = 86_400.0
SETS = ("messageIDs", "handled")
SOURCES, PARTS = ("", "e", "a/b+c%", "s"), ((), ("stock",), ("p+q/", "r"))


@pytest.fixture(params=["dynamodb", "mongodb"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with stand_in_place(request.param, monkeypatch) as found:
        yield found


def first_ledger(chance: Random, name: str) -> Ledger:
    kinds: list[Any] = [
        lambda: SeenIds(timedelta(days=chance.choice((1, 14))), name=name),
        lambda: SeenIds(timedelta(days=2), name=name, readable=True),
        lambda: SeenIds(None, name=name, readable=chance.random() < 0.5),
        lambda: HighWaterMark(name=name),
        lambda: InSequence(name=name),
        lambda: InSequence(3, name=name),
        lambda: IdSet(chance.choice(SETS)),
    ]
    found: Ledger = chance.choice(kinds)()
    return found


def after(chance: Random, before: Ledger) -> Ledger | None:
    """A ledger that a store may have after this one; None where no store is made so."""
    name = chance.choice(("", "b"))
    kinds: list[Any] = [
        lambda: SeenIds(timedelta(days=chance.choice((1, 3, 14))), name=name, previous=before),
        lambda: SeenIds(None, name=name, readable=chance.random() < 0.5, previous=before),
        lambda: HighWaterMark(name=name, previous=before),
        lambda: InSequence(chance.choice((1, 5)), name=name),
        lambda: IdSet(chance.choice(SETS), previous=before),
    ]
    try:
        found: Ledger = chance.choice(kinds)()
    except OnewriteError:
        return None
    return found


def message(chance: Random, *, text: bool) -> Message:
    number = chance.randint(1, 12)
    sequence = (f"{number:05d}" if number % 2 else sortable(number)) if text else number
    found = Message(f"m{chance.randint(1, 6)}", source=chance.choice(SOURCES), sequence=sequence)
    for part in chance.choice(PARTS):
        found = found.part(part)
    return found


def options(asked: Message) -> list[str]:
    sequence = str(asked.sequence)
    parts = [word for part in asked.parts for word in ("--part", part)]
    text = sequence.isdigit() and isinstance(asked.sequence, str) and not sequence.startswith("0")
    return ["--source", asked.source, "--sequence", f"text:{sequence}" if text else sequence, *parts]


def delivered(place: Place, ledger: Ledger, asked: Message, now: float) -> str:
    try:
        return type(place.write(place.store(ledger, clock=lambda: now), asked)).__name__
    except OnewriteError as error:
        return type(error).__name__


def put_besides(place: Place, **fields: Any) -> None:
    """Put into the entity what another writer puts there."""
    stored = {name: value for name, value in (place.contents() or {}).items() if name not in ("id", "_id")}
    place.put(**stored | fields)


def happens(chance: Random, place: Place, ledger: Ledger, now: float, *, text: bool) -> bool:
    """What decides an answer besides ids and marks: an open effect, a tombstone, and what is damaged. Is it damaged?"""
    store = place.store(ledger, clock=lambda: now, tombstones=Tombstones(timedelta(days=30)))
    for _ in range(chance.choice((0, 0, 1, 2))):
        with suppress(OnewriteError):
            place.call(
                store,
                "begin_effect",
                message(chance, text=text),
                "charge",
                lease=timedelta(hours=12),
                key_valid_for=timedelta(0),
            )
    if chance.random() < 0.15:
        with suppress(OnewriteError):
            place.call(store, "delete", message(chance, text=text))
    elif chance.random() < 0.3 and ledger.attribute.startswith("ow_"):
        put_besides(place, **{ledger.attribute: chance.choice(("hello", 5, "ow2 x", "ow1 99999d", "ow1 numbers 500"))})
        return True
    return False


def is_kin(ledger: Ledger, answer: dict[str, Any]) -> bool:
    """May this answer be of that ledger, as far as labels tell?"""
    kind, told = type(ledger).__name__, answer["ledger"]
    if isinstance(ledger, IdSet):
        return bool(answer["attribute"] == ledger.attribute)
    return not told or (told.startswith(f"{kind}(") and (kind != "InSequence" or f"first={ledger.first}" in told))  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.few(4, each="place")
def test_predicted_outcome_matches_the_delivery(
    seed: int, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, now = Random(seed), START
    text = chance.random() < 0.2
    ledger = first_ledger(chance, chance.choice(("", "", "c")))
    if chance.random() < 0.5:
        place.put("e", messageIDs={f"m{chance.randint(1, 6)}" for _ in range(3)}, s="a/b+c%", n=1)
    module = ModuleType("oracle_of_stores")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for _ in range(chance.randint(1, 3)):
        for _ in range(chance.randint(1, 6)):
            now += chance.random() * DAY
            delivered(place, ledger, message(chance, text=text), now)
        ledger = after(chance, ledger) or ledger
    damaged = happens(chance, place, ledger, now, text=text)
    for _ in range(6):
        now += chance.random() * DAY
        monkeypatch.setattr("time.time", lambda at=now: at)
        asked, module.store = message(chance, text=text), place.store(ledger)  # type: ignore[attr-defined]
        if place.contents() is None:
            break
        about = ["--message", asked.id, *options(asked)]
        told: list[dict[str, Any]] = []
        for more in (["--ledger", "oracle_of_stores:store"], []):
            capsys.readouterr()
            assert place.run("inspect", *about, *more, "--json") == 0, capsys.readouterr().err
            told.append(json.loads(capsys.readouterr().out))
        outcome = delivered(place, ledger, asked, now)
        ((answer,), by_labels) = (each["predictions"] for each in told)
        assert answer["outcome"] == outcome, (ledger, asked, answer)
        by_all = [each["outcome"] for each in by_labels]
        # What a store looks into and nobody has written there shows in no label, and neither does InSequence's first number.
        if is_own := any(is_kin(ledger, each) and "has moved" not in each["why"] for each in by_labels):
            assert outcome in ("LedgerMismatch", "InvalidMessage", "Deferred", *by_all), (ledger, asked, outcome, by_labels)
        if outcome in ("Duplicate", "Busy", "Uncertain", "Gone") or (damaged and outcome == "LedgerMismatch"):
            is_in_sequence = isinstance(ledger, InSequence)
            assert is_in_sequence or is_own or outcome in by_all, (ledger, asked, outcome, by_labels)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.few(4, each="place")
def test_forgotten_message_takes_effect_once_more(
    seed: int, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, now = Random(seed), START
    first: list[Ledger] = [SeenIds(), SeenIds(None, readable=True), IdSet("messageIDs")]
    ledger = chance.choice(first)
    place.put("e", n=1, **({"messageIDs": {"m1", "m2"}} if chance.random() < 0.6 else {}))
    for _ in range(chance.randint(1, 3)):
        for _ in range(chance.randint(1, 5)):
            now += chance.random() * DAY
            delivered(place, ledger, message(chance, text=False), now)
        following = after(chance, ledger)
        if following is not None and following.layout != "marks":
            ledger = following
    carried = chance.random() < 0.4  # another set of ids holds the message too
    if carried:
        ledger = replace(cast("Any", ledger), previous=(*list_earlier_ledgers(ledger.previous), IdSet("carried")))
    monkeypatch.setattr("time.time", lambda: now)
    for _ in range(6):
        asked = message(chance, text=False)
        if delivered(place, ledger, asked, now) not in ("Duplicate", "Applied"):
            continue
        if carried:
            put_besides(place, carried={asked.id, "m0"})
        code = place.run("forget", "--message", asked.id, *options(asked), "--yes", "--attribute", ledger.attribute)
        told = capsys.readouterr()
        again = delivered(place, ledger, asked, now)
        is_restricted = f"IdSet('carried') in carried returns {again}" in told.out
        assert (again == "Applied") == (code == 0 and not is_restricted), (ledger, asked, told)
