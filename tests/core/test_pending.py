"""What a relay reads of an entity's outbox: when it is due, what takes the place of an event, and what a source says of a key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onewrite import ConfigurationError
from onewrite.core.pending import SKIPPED_TYPE, Box, PendingEvent, key_parts

EARLY, LATE = "2026-11-22T08:00:00.000Z", "2026-11-22T09:00:00.000Z"
OUTBOX = "shop/orders"


def event(number: int) -> PendingEvent:
    return PendingEvent(f"e{number}", "OrderPaid", "1", EARLY, f"nonce{number}", "m1")


def box(*numbers: int, due: str | None = None) -> Box:
    return Box({"id": "o-1"}, f"{OUTBOX}/id=S:o-1", events=tuple(event(number) for number in numbers), due=due)


def test_a_sweep_takes_what_was_not_postponed_from_the_time_of_its_first_event_on() -> None:
    assert (box(1).is_due(EARLY), box(1).is_due("2026-11-22T07:59:59.999Z")) == (True, False)


def test_a_sweep_takes_what_was_postponed_when_that_time_has_come() -> None:
    assert (box(1, due=LATE).is_due(LATE), box(1, due=LATE).is_due(EARLY)) == (True, False)


def test_a_sweep_of_all_that_is_pending_takes_what_was_postponed_and_nothing_without_an_event() -> None:
    assert (box(1, due=LATE).is_due(None), box().is_due(None), box().is_due(LATE)) == (True, False, False)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_event_that_takes_the_place_of_another_leaves_all_others_where_they_are(place: int) -> None:
    before = box(1, 2, 3)
    skipped = event(place + 1).replacement({"id": "o-1"})
    after = before.with_event(place, skipped)
    types = [event.type for event in after.events]
    assert types == [SKIPPED_TYPE if number == place else "OrderPaid" for number in range(3)]
    assert after == replace(before, events=after.events)
    assert [event.nonce for event in after.events] == ["nonce1", "nonce2", "nonce3"]


# --- the key of an entity, from the source of its events ---------------------------------------------------------------


@pytest.mark.parametrize("life", ["", "/0011223344556677"], ids=["with no incarnation", "with an incarnation"])
@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("id=S:o-1", [("id", "S", "o-1")]),
        ("id=N:7/at=S:", [("id", "N", "7"), ("at", "S", "")]),
        ("a%2Fb%3D=S:c%2Fd=e:f", [("a/b=", "S", "c%2Fd=e:f")]),  # the value is for whoever knows its type
    ],
)
def test_a_source_says_the_key_of_its_entity(key: str, parts: list[tuple[str, str, str]], life: str) -> None:
    assert key_parts(f"{OUTBOX}/{key}{life}", OUTBOX) == parts


@pytest.mark.parametrize(
    "source",
    [
        "",
        OUTBOX,
        f"{OUTBOX}/",
        f"{OUTBOX}/0011223344556677",
        f"{OUTBOX}/id=S:o-1/0011223344556677/0011223344556677",
        f"{OUTBOX}/id=o-1",
        f"{OUTBOX}/id=s:o-1",
        f"{OUTBOX}/=S:o-1",
        "shop/id=S:o-1",
        "id=S:o-1",
    ],
)
def test_what_is_no_source_of_the_outbox_names_no_key(source: str) -> None:
    with pytest.raises(ConfigurationError, match="is no source of the outbox"):
        key_parts(source, OUTBOX)
