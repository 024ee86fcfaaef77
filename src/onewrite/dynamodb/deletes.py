"""Deletes from a table: a guarded write turns the item into a tombstone, and a second request removes the other attributes.

One request can't do both. A put of an empty item would erase the pending events, and an update must name the attributes that it
removes, which only the first response shows. If a worker crashes between the two requests, the item counts as deleted, and the
next delete removes the other attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from onewrite.core.engine import Landed
from onewrite.core.features.tombstone import Tombstone, make_tombstone, read_tombstone, require_tombstones
from onewrite.core.flow import Call, FinalRefusals, Flow, split_final_refusals
from onewrite.core.judging import judge_write
from onewrite.core.label import OUTBOX, TOMBSTONE, has_pending
from onewrite.core.pipeline import Settled, conclude, make_write, settle
from onewrite.core.write import Burial, NoEffectAtAll
from onewrite.dynamodb.expression import Placeholders, format_update
from onewrite.dynamodb.flows import Flows, try_send
from onewrite.errors import InvalidUpdate
from onewrite.message import Message
from onewrite.outcome import Applied, Entity, Outcome

# An expression can have 4,096 bytes, and a placeholder such as "#n123," takes six bytes.
_MAX_NAMES = 500


def delete(flows: Flows, message: Message, *, emit: object = None, **arguments: Any) -> Flow[Outcome]:
    """Turn the item into a tombstone, remove its other attributes, and return the outcome."""
    native, final = split_final_refusals(arguments)
    native = flows.keep(native)
    _check_arguments(native)
    name, key = flows.name_call(), flows.read_key(native)
    tombstones = require_tombstones(flows.tombstones)
    write = make_write(flows, (message,), key, NoEffectAtAll(), emit=emit, name=name)
    burial = make_tombstone(tombstones, write.now, name, list(key)).as_burial()
    attempt = flows.make_attempt(write._replace(burial=burial), {**native, "ReturnValues": "ALL_OLD"})
    flow: Flow[Settled[Outcome]] = settle(attempt, judge_write)
    settled = yield from flow
    outcome, item = yield from _read_result(flows, settled, final)
    if isinstance(outcome, Applied):
        entity = outcome.entity
        if outcome.retried:  # the first response is lost. Return the attributes that aren't removed yet, if any
            attributes = _read_caller_attributes(flows, item)
            entity = attributes if attributes.keys() - {*read_tombstone(item[TOMBSTONE]).key} else None
        outcome = replace(outcome, entity=entity if native.get("ReturnValues") == "ALL_OLD" else None)
    if TOMBSTONE in item:
        yield from _clean_up(flows, native["Key"], item)
    return outcome


def _read_result(flows: Flows, settled: Settled[Outcome], final: FinalRefusals) -> Flow[tuple[Outcome, Mapping[str, Any]]]:
    """Return the outcome, and the item after the request. The response shows the item before it.

    Of the events, the item can lack earlier ones: `delete` only needs to know whether any are pending.
    """
    verdict, write = settled.result, settled.attempt.write
    if settled.refusal is not None:
        if isinstance(verdict, Landed):  # the image already shows this call's own write, whose response was lost
            return Applied(write.message, verdict.entity, retried=True), settled.refusal.image.fields
        return (yield from conclude(settled, final)), settled.refusal.image.fields
    landed, burial = cast("Landed", verdict), cast("Burial", write.burial)
    attributes = {
        **flows.make_plain_item(dict(landed.response.get("Attributes", {}))),
        TOMBSTONE: burial.fields,
    }
    if write.emission is not None and write.emission.events:
        attributes |= {OUTBOX.label: write.emission.label, OUTBOX.events: [*write.emission.events]}
    attributes.pop(burial.ttl, None)  # the request removed the item's own expiry time
    return Applied(write.message, landed.entity, response=landed.response), attributes


def _read_caller_attributes(flows: Flows, item: Mapping[str, Any]) -> Entity:
    """Return the caller's own attributes in a tombstone."""
    # Hide the tombstone, because `without_ledger` returns only the key of a deleted item.
    attributes = flows.without_ledger({name: value for name, value in item.items() if name != TOMBSTONE})
    attributes.pop(read_tombstone(item[TOMBSTONE]).ttl, None)
    return attributes


def _clean_up(flows: Flows, key: Mapping[str, Any], item: Mapping[str, Any]) -> Flow[None]:
    """Remove the caller's attributes, and set the tombstone's expiry time unless events are pending.

    If events are pending, the relay sets the time when it publishes the last one. No write can emit further events.
    """
    tombstone = read_tombstone(item[TOMBSTONE])
    names = [name for name in _read_caller_attributes(flows, item) if name not in key]
    is_expiring = tombstone.ttl not in item and not has_pending(item)
    while len(names) > _MAX_NAMES:
        yield from _remove_attributes(flows, key, tombstone, names[:_MAX_NAMES], is_expiring=False)
        names = names[_MAX_NAMES:]
    if names or is_expiring:
        yield from _remove_attributes(flows, key, tombstone, names, is_expiring=is_expiring)


def _remove_attributes(
    flows: Flows, key: Mapping[str, Any], tombstone: Tombstone, names: list[str], *, is_expiring: bool
) -> Flow[None]:
    """Remove the attributes, and set the tombstone's expiry time if `is_expiring`."""
    placeholders = Placeholders()
    # DynamoDB might have removed the tombstone by now, and a new item might have the same key.
    condition = f"{TOMBSTONE}.{placeholders.name('by')}={placeholders.value(tombstone.by)}"
    clauses = {"REMOVE": [*map(placeholders.name, names)]}
    if is_expiring:
        clauses["SET"] = [f"{placeholders.name(tombstone.ttl)}={placeholders.value(tombstone.expiry(flows.clock()))}"]
    request = {
        **flows.table,
        "Key": flows.convert(key),
        "UpdateExpression": format_update(clauses),
        "ConditionExpression": condition,
        **placeholders.arguments(typed=flows.has_typed_client),
    }
    yield from try_send(Call("update_item", (), request))


def _check_arguments(native: Mapping[str, Any]) -> None:
    """Raise for an argument that a delete doesn't accept."""
    for name in ("UpdateExpression", "Item"):
        if name in native:
            raise InvalidUpdate(f"delete_item doesn't accept {name}, because it removes the whole item. Omit it.")
    if native.get("ReturnValues", "NONE") not in {"NONE", "ALL_OLD"}:
        raise InvalidUpdate(
            f"ReturnValues={native['ReturnValues']!r}: expected 'ALL_OLD' or 'NONE', because a deleted item has no new attributes."
        )
