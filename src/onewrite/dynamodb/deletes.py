"""Deletes from a table: first a guarded write that makes a tombstone of the item, then one that removes the rest of it.

One request could not do both. A put of a bare item would take the pending events along, and an expression that removes attributes has
to name them: those that the first request returns are exactly the ones that were there. A worker that dies between the two has
deleted the item, and whoever deletes it again removes the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from onewrite.core.engine import Landed
from onewrite.core.flow import Call, Flow, split_missing_ok
from onewrite.core.judging import settle_missing
from onewrite.core.label import OUTBOX, TOMBSTONE, has_pending
from onewrite.core.pipeline import Settled, conclude, judge_write, new_write, settle
from onewrite.core.tombstone import Tombstone, new_tombstone, read_tombstone, require_tombstones
from onewrite.core.write import Burial, NoStepAtAll
from onewrite.dynamodb.expression import merge_update
from onewrite.dynamodb.flows import Flows, lands
from onewrite.errors import InvalidUpdate
from onewrite.message import Message
from onewrite.outcome import Applied, Entity, Outcome

# An expression has 4096 bytes, and a placeholder such as "#a123," takes six of them.
_MAX_NAMES = 500


def delete(flows: Flows, message: Message, *, emit: object = None, **arguments: Any) -> Flow[Outcome]:
    native, missing_ok = split_missing_ok(arguments)
    native = flows.keep(native)
    _check(native)
    name, key = flows.name_call(), flows.read_key(native)
    tombstones = require_tombstones(flows.tombstones)
    write = new_write(flows, message, key, NoStepAtAll(), emit=emit, name=name)
    burial = Burial(new_tombstone(tombstones, write.now, name, list(key)))
    attempt = flows.attempt(write._replace(burial=burial), {**native, "ReturnValues": "ALL_OLD"})
    flow: Flow[Settled[Outcome]] = settle(attempt, judge_write)
    settled = yield from flow
    outcome, item = yield from _read_result(flows, settled)
    if isinstance(outcome, Applied):
        entity = outcome.entity
        if outcome.retried:  # what was deleted, where it is still there
            attributes = _caller_attributes(flows, item)
            entity = attributes if attributes.keys() - {*read_tombstone(item[TOMBSTONE]).key} else None
        outcome = replace(outcome, entity=entity if native.get("ReturnValues") == "ALL_OLD" else None)
    if TOMBSTONE in item:
        yield from _clean_up(flows, native["Key"], item)
    return settle_missing(outcome, write, missing_ok=missing_ok)


def _read_result(flows: Flows, settled: Settled[Outcome]) -> Flow[tuple[Outcome, Mapping[str, Any]]]:
    """Return the outcome, and the item as it is then."""
    verdict, write = settled.result, settled.attempt.write
    if settled.refusal is not None:
        if isinstance(verdict, Landed):
            return Applied(write.message, verdict.entity, retried=True), settled.refusal.image.fields
        return (yield from conclude(settled)), settled.refusal.image.fields
    landed, burial = cast("Landed", verdict), cast("Burial", write.burial)
    rest = {
        **flows.plain_item(dict(landed.response.get("Attributes", {}))),
        TOMBSTONE: burial.tombstone.as_fields(),
    }
    if write.emission is not None and write.emission.events:
        rest |= {OUTBOX.label: write.emission.label, OUTBOX.events: [*write.emission.events]}
    rest.pop(burial.tombstone.ttl, None)
    return Applied(write.message, landed.entity, response=landed.response), rest


def _caller_attributes(flows: Flows, item: Mapping[str, Any]) -> Entity:
    """Return the attributes of a tombstone that are the caller's own."""
    # With its tombstone, the item would show its key alone.
    attributes = flows.without_ledger({name: value for name, value in item.items() if name != TOMBSTONE})
    attributes.pop(read_tombstone(item[TOMBSTONE]).ttl, None)
    return attributes


def _clean_up(flows: Flows, key: Mapping[str, Any], rest: Mapping[str, Any]) -> Flow[None]:
    """Remove the caller's attributes, and let the database remove the tombstone later, unless events are pending.

    A relay that publishes the last of them sets the time then. Nobody can emit any more.
    """
    tombstone = read_tombstone(rest[TOMBSTONE])
    names = [name for name in _caller_attributes(flows, rest) if name not in key]
    expires = tombstone.ttl not in rest and not has_pending(rest)
    chunks = [names[n : n + _MAX_NAMES] for n in range(0, len(names), _MAX_NAMES)]
    for chunk in chunks[:-1]:
        yield from _change(flows, key, tombstone, chunk, expires=False)
    if names or expires:
        yield from _change(flows, key, tombstone, chunks[-1] if chunks else [], expires=expires)


def _change(flows: Flows, key: Mapping[str, Any], tombstone: Tombstone, names: list[str], *, expires: bool) -> Flow[None]:
    removes = {f"#a{n}": name for n, name in enumerate(names)}
    clauses = {"REMOVE": ",".join(removes), "SET": "#ttl=:at" if expires else ""}
    values: dict[str, Any] = {":by": tombstone.by}
    if expires:
        values[":at"] = tombstone.expiry(flows.clock())
    request = {
        **flows.table,
        "Key": flows.convert(key),
        "UpdateExpression": merge_update(None, clauses),
        # The database may have removed the tombstone by now, and another item have come in its place.
        "ConditionExpression": f"{TOMBSTONE}.#by=:by",
        "ExpressionAttributeNames": {**removes, "#by": "by", **({"#ttl": tombstone.ttl} if expires else {})},
        "ExpressionAttributeValues": flows.convert(values),
    }
    yield from lands(Call("update_item", (), request))


def _check(native: Mapping[str, Any]) -> None:
    for name in ("UpdateExpression", "Item"):
        if name in native:
            raise InvalidUpdate(f"delete_item takes no {name}: it removes the whole item.")
    if native.get("ReturnValues", "NONE") not in {"NONE", "ALL_OLD"}:
        raise InvalidUpdate(
            f"delete_item returns ALL_OLD or NONE, and ReturnValues is {native['ReturnValues']!r}: nothing else is there any more."
        )
