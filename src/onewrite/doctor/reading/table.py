"""Reads a table of DynamoDB: how it is set up, and some of its items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from onewrite.doctor.facts import Clock, Entity, Fact, Index, Sample, Table, Unread
from onewrite.doctor.reading.asking import Question, Reader
from onewrite.doctor.reading.entity import entity_of, kept_in, terms_of
from onewrite.dynamodb.layout import business, held_of
from onewrite.dynamodb.outboxes import origin
from onewrite.dynamodb.size import LARGEST_ITEM, item_size
from onewrite.dynamodb.values import plain
from onewrite.flow import Call
from onewrite.ledgers import NO_LEDGER

_CUT = 0.5  # seconds: an answer says its time in whole seconds, the rest being cut off


class OfTable(NamedTuple):
    """What was read of a table."""

    table: Table | Unread
    clock: Fact[Clock] = None
    expiry: Fact[tuple[str, ...]] = None
    sample: Fact[Sample] = None


def read_table(name: str, most: int, clock: Callable[[], float]) -> Reader[OfTable]:
    """`most`: how many items are read at the most."""
    what, named = f"the table {name}", {"TableName": name}
    before = clock()
    reply = yield Question(what, "dynamodb:DescribeTable", Call("describe_table", (), named))
    after = clock()
    if isinstance(reply, Unread):
        refused = reply.permission is not None  # else the other requests would fail in the same way, one after the other
        expiry = (yield from _read_expiry(name)) if refused else reply
        return OfTable(reply, reply, expiry, reply)
    table, expiry = _table(reply["Table"]), (yield from _read_expiry(name))
    return OfTable(table, _clock(reply, before, after), expiry, (yield from _read_sample(table, expiry, most, clock)))


def _table(found: Mapping[str, Any]) -> Table:
    indexes = [*found.get("GlobalSecondaryIndexes", ()), *found.get("LocalSecondaryIndexes", ())]
    here = str(found.get("TableArn", "")).split(":")[3:4]
    regions = sorted({each["RegionName"] for each in found.get("Replicas", ())}.difference(here))
    return Table(
        found["TableName"],
        _key(found),
        tuple([_index(each) for each in indexes]),
        tuple(regions),
        found.get("MultiRegionConsistency") == "STRONG",
    )


def _key(found: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple([part["AttributeName"] for part in found["KeySchema"]])


def _index(found: Mapping[str, Any]) -> Index:
    projection = found.get("Projection", {})
    included = None if projection.get("ProjectionType") == "ALL" else frozenset(projection.get("NonKeyAttributes", ()))
    return Index(found["IndexName"], _key(found), included)


def _clock(reply: Mapping[str, Any], before: float, after: float) -> Clock | None:
    date = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if not date:
        return None
    server = parsedate_to_datetime(date).timestamp() + _CUT
    return Clock(server - (before + after) / 2, (after - before) / 2 + _CUT)


def _read_expiry(name: str) -> Reader[tuple[str, ...] | Unread]:
    call = Call("describe_time_to_live", (), {"TableName": name})
    reply = yield Question(f"TTL of the table {name}", "dynamodb:DescribeTimeToLive", call)
    if isinstance(reply, Unread):
        return reply
    found = reply["TimeToLiveDescription"]
    return (found["AttributeName"],) if found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") else ()


def _read_sample(
    table: Table, expiry: tuple[str, ...] | Unread, most: int, clock: Callable[[], float]
) -> Reader[Sample | Unread]:
    items: list[Mapping[str, Any]] = []
    start: dict[str, Any] = {}
    while True:
        call = Call("scan", (), {"TableName": table.name, "Limit": most - len(items), **start})
        reply = yield Question(f"the items of the table {table.name}", "dynamodb:Scan", call)
        if isinstance(reply, Unread):
            return reply
        items.extend(reply["Items"])
        last = reply.get("LastEvaluatedKey")
        if not last or len(items) >= most:
            break
        start = {"ExclusiveStartKey": last}
    ttl = expiry[0] if isinstance(expiry, tuple) and expiry else None
    entities = tuple([_entity(plain(item), table.keys, ttl) for item in items])
    return Sample(entities, table.keys, LARGEST_ITEM, clock())


def _entity(item: Mapping[str, Any], keys: tuple[str, ...], ttl: str | None) -> Entity:
    expires = item.get(ttl) if ttl is not None else None
    return entity_of(
        origin({name: item[name] for name in keys}),
        item,
        own=frozenset(business(NO_LEDGER.terms, item)),
        ledgers={kept: frozenset(held_of(terms_of(kept), item).attributes) for kept in kept_in(item)},
        sizes={name: item_size({name: value}) for name, value in item.items()},
        total=item_size(item),
        expires=float(expires) if isinstance(expires, Decimal) else None,
    )
