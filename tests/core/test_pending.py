"""What a relay reads of an entity's outbox: when it is due, what takes the place of an event, and what a source says of a key."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from boto3.dynamodb.types import Binary
from bson import ObjectId

from onewrite import ConfigurationError, LedgerMismatch, Outbox
from onewrite.core.features.pending import Box, PendingEvent, parse_source, read_box
from onewrite.core.values import seconds

EARLY, LATE = "2026-11-22T08:00:00.000Z", "2026-11-22T09:00:00.000Z"
OUTBOX = "shop/orders"


def event(number: int) -> PendingEvent:
    return PendingEvent(f"e{number}", "OrderPaid", "1", EARLY, f"nonce{number}", "m1")


def box(*numbers: int, due: str | None = None) -> Box:
    return Box({"id": "o-1"}, f"{OUTBOX}/id=S:o-1", events=tuple(event(number) for number in numbers), due=due)


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        ("o-é", "o-é"),
        (7, 7),
        (Decimal("7.0"), 7),
        (Decimal("0.5"), "0.5"),
        (b"\xff\x00", "_wA="),
        (Binary(b"\xff\x00"), "_wA="),
        ({"shop": ObjectId("65f0a1b2c3d4e5f60718293a")}, {"shop": "65f0a1b2c3d4e5f60718293a"}),
    ],
    ids=repr,
)
def test_skipped_events_replacement_names_its_key(part: object, shown: object) -> None:
    assert json.loads(event(1).replacement({"id": part}).body) == {"type": "OrderPaid", "entity": {"id": shown}}


# --- what is read of an entity --------------------------------------------------------------------------------------------

EVENT: dict[str, object] = {**event(1).as_fields()}
LABEL = {"ow_o": Outbox(OUTBOX).label}


@pytest.mark.parametrize(
    "fields",
    [
        *[{"ow_sent": 7}, {"ow_life": "nonce1"}, {"ow_sent": None}, {"ow_sent": 7, "ow_life": 1}],
        *[{"ow_sent": wrong, "ow_life": "nonce1"} for wrong in (-1, True, "7")],
        {"ow_due": LATE, "ow_events": []},
        *[{"ow_due": wrong, "ow_events": [EVENT]} for wrong in ("late", 7, "1969-12-31T23:59:59.999Z")],
        {"ow_events": "text"},
        {"ow_events": [EVENT, "text"]},
        {"ow_events": [{**EVENT, "body": None}]},
        {"ow_events": [{**EVENT, "time": "late"}]},
    ],
    ids=repr,
)
def test_foreign_value_in_the_outbox_field_is_a_mismatch(fields: dict[str, object]) -> None:
    with pytest.raises(LedgerMismatch, match="outbox"):
        read_box(LABEL["ow_o"], {"id": "o-1"}, "origin", {**LABEL, **fields})


def test_event_is_not_postponed_if_writers_clock_was_ahead() -> None:
    assert not box(1, due=EARLY).is_postponed(seconds(EARLY) - 3600)


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
def test_source_contains_the_key_of_its_entity(key: str, parts: list[tuple[str, str, str]], life: str) -> None:
    assert parse_source(f"{OUTBOX}/{key}{life}", OUTBOX) == parts


@pytest.mark.parametrize(
    "source",
    [
        OUTBOX,
        f"{OUTBOX}/0011223344556677",
        f"{OUTBOX}/id=S:o-1/0011223344556677/0011223344556677",
        f"{OUTBOX}/id=o-1",
        "shop/id=S:o-1",
    ],
)
def test_key_is_not_read_from_a_foreign_source(source: str) -> None:
    with pytest.raises(ConfigurationError, match="isn't a source of the outbox"):
        parse_source(source, OUTBOX)
