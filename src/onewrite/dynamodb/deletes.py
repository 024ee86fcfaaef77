"""Deletes from a table: first a guarded write that makes a tombstone of the item, then one that removes the rest of it.

One request could not do both. A put of a bare item would take the pending events along, and an expression that removes attributes has
to name them: those that the first request returns are exactly the ones that were there. A worker that dies between the two has
deleted the item, and whoever deletes it again removes the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from botocore.exceptions import ClientError

from onewrite.dynamodb.flows import code, send
from onewrite.dynamodb.steps import StepFlows
from onewrite.dynamodb.verdict import refused
from onewrite.dynamodb.writing.attempt import Attempt
from onewrite.dynamodb.writing.emit import stored_outbox
from onewrite.dynamodb.writing.expression import check_limits, merge_update, read_update
from onewrite.dynamodb.writing.layout import business
from onewrite.dynamodb.writing.request import guard_update
from onewrite.dynamodb.writing.size import value_size
from onewrite.dynamodb.writing.values import Convert
from onewrite.errors import EntityTooLarge, InvalidUpdate
from onewrite.flow import Call, Flow
from onewrite.label import STEPS, TOMBSTONE, has_pending, is_step
from onewrite.message import Message
from onewrite.missing import accepted
from onewrite.outcome import Applied, Busy, Entity, Outcome, Rejected, Uncertain, Unmet
from onewrite.step import read_step
from onewrite.tombstone import (
    Tombstone,
    Tombstones,
    made_with_tombstones,
    new_tombstone,
    read_tombstone,
    tombstone_name,
)

# An expression has 4096 bytes, and a placeholder such as "#a123," takes six of them.
_MOST_NAMES = 500
_MOST_AT_ONCE = 100  # in the first request, which has the ledger's part too


class DeleteFlows(StepFlows):
    """The flows of `StepFlows`, and those of deletes."""

    def delete(self, message: Message, native: Mapping[str, Any], emit: object = None) -> Flow[Outcome]:
        native, missing_ok = self._kept(native)
        _check(native)
        deletion = _Deletion(made_with_tombstones(self._tombstones), self.attempts())
        attempt = self._attempt(message, native, emit, self.attempts())._replace(burial=tombstone_name(deletion.name))
        outcome, item = yield from self._bury(attempt, {**native, "ReturnValues": "ALL_OLD"}, deletion)
        if isinstance(outcome, Applied):
            entity = self._deleted(item) if outcome.retried else outcome.entity
            outcome = replace(outcome, entity=entity if native.get("ReturnValues") == "ALL_OLD" else None)
        if TOMBSTONE in item:
            yield from self._clean_up(native["Key"], item)
        return accepted(outcome, missing_ok=missing_ok, counts=attempt.entry.own.counts)

    def _bury(self, attempt: Attempt, native: Mapping[str, Any], deletion: _Deletion) -> Flow[tuple[Outcome, Entity]]:
        """Make a tombstone of the item. Returns the answer, and the item as it is then."""
        call = self._call(attempt, native, deletion.guard)
        try:
            response = yield from send(call)
        except ClientError as error:
            held, unexplained = yield from self._refusal(error, call)
            outcome = _refused(attempt, held)
            if isinstance(outcome, Attempt):
                return (yield from self._bury(outcome, native, deletion))
            if unexplained is not None and isinstance(outcome, Unmet):
                smaller = self._smaller(deletion, unexplained, attempt, call, held)
                return (yield from self._bury(attempt, native, smaller))
            if isinstance(outcome, Rejected) and attempt.entry.own.counts:
                outcome = yield from self._record_refusal(outcome, native)
            return outcome, held or {}
        before = self._plain(dict(response.get("Attributes", {})))
        return self._applied(attempt.message, response), deletion.left_of(before)

    def _smaller(
        self, deletion: _Deletion, error: ClientError, attempt: Attempt, call: Call, held: Entity | None
    ) -> _Deletion:
        """A delete whose first request removes something already, because an item that is full has no room for a tombstone."""
        try:
            self._raise(error, attempt, call, held)
        except EntityTooLarge:
            kept = {*attempt.entity_key, deletion.tombstones.ttl_attribute}
            own = {name: value_size(value) for name, value in self.without_ledger(held or {}).items() if name not in kept}
            if deletion.removes or not own:
                raise
            return replace(deletion, removes=tuple(sorted(own, key=lambda name: (-own[name], name))[:_MOST_AT_ONCE]))

    def _deleted(self, item: Entity) -> Entity | None:
        """What was deleted, where it is still there."""
        own = self._own(item)
        return own if own.keys() - {*read_tombstone(item[TOMBSTONE]).key} else None

    def _own(self, item: Entity) -> Entity:
        """The attributes of a tombstone that are the caller's own."""
        own = business(self._ledger.terms, item)
        own.pop(read_tombstone(item[TOMBSTONE]).ttl, None)
        return own

    def _clean_up(self, key: Mapping[str, Any], left: Entity) -> Flow[None]:
        """Remove the caller's attributes, and let the database remove the tombstone later, unless events are pending.

        A relay that publishes the last of them sets the time then. Nobody can emit any more.
        """
        tombstone = read_tombstone(left[TOMBSTONE])
        names = [name for name in self._own(left) if name not in key]
        expires = tombstone.ttl not in left and not has_pending(left)
        chunks = [names[n : n + _MOST_NAMES] for n in range(0, len(names), _MOST_NAMES)]
        for chunk in chunks[:-1]:
            yield from self._change(key, tombstone, chunk, expires=False)
        if names or expires:
            yield from self._change(key, tombstone, chunks[-1] if chunks else [], expires=expires)

    def _change(self, key: Mapping[str, Any], tombstone: Tombstone, names: list[str], *, expires: bool) -> Flow[None]:
        removes = {f"#a{n}": name for n, name in enumerate(names)}
        clauses = {"REMOVE": ",".join(removes), "SET": "#ttl=:at" if expires else ""}
        values: dict[str, Any] = {":by": tombstone.by}
        if expires:
            values[":at"] = tombstone.expiry(self.clock())
        request = {
            **self._named({"Key": key}),
            "UpdateExpression": merge_update(None, clauses),
            # The database may have removed the tombstone by now, and another item have come in its place.
            "ConditionExpression": f"{TOMBSTONE}.#by=:by",
            "ExpressionAttributeNames": {**removes, "#by": "by", **({"#ttl": tombstone.ttl} if expires else {})},
            "ExpressionAttributeValues": self._convert(values),
        }
        call = Call("update_item", (), request)
        try:
            yield from send(call)
        except ClientError as error:
            if code(error) != "ConditionalCheckFailedException":
                raise


@dataclass(slots=True)
class _Deletion:
    """One delete, whose name no other call has: how its first request is made, and what that leaves."""

    tombstones: Tombstones
    name: str
    removes: tuple[str, ...] = ()  # attributes that the first request removes, where the item has no room for a tombstone
    _set: dict[str, Any] = field(default_factory=dict[str, Any])  # what the first request sets beside the ledger

    def guard(self, attempt: Attempt, native: Mapping[str, Any], convert: Convert) -> Call:
        """Compile the first request. The time at which the item itself would expire does not count any more."""
        tombstone = new_tombstone(self.tombstones, attempt.now, self.name, list(native.get("Key", {}))).stored()
        emission = attempt.emission
        self._set = {TOMBSTONE: tombstone, **({} if emission is None or not emission.events else stored_outbox(emission))}
        # Asks whether any message has a step open.
        call = guard_update(attempt._replace(exact=False), native, convert)
        request = call.kwargs
        removes = {"#ow_t": self.tombstones.ttl_attribute, **{f"#ow_r{n}": name for n, name in enumerate(self.removes)}}
        ours = {"SET": f"{TOMBSTONE}=:ow_t", "REMOVE": ",".join(removes)}
        update = merge_update(read_update(request["UpdateExpression"]), ours)
        check_limits("UpdateExpression", update)
        names = {**request.get("ExpressionAttributeNames", {}), **removes}
        values = {**request["ExpressionAttributeValues"], **convert({":ow_t": tombstone})}
        changed = {
            "UpdateExpression": update,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        return Call("update_item", (), {**request, **changed})

    def left_of(self, before: Entity) -> Entity:
        """The item as the first request has left it, given what was there before."""
        left = {**before, **self._set}
        left.pop(self.tombstones.ttl_attribute, None)
        return left


def _refused(attempt: Attempt, item: Entity | None) -> Outcome | Attempt:
    """Why no tombstone was made. A step of any message keeps the item alive, also where its lease is over.

    An attempt: nothing keeps it, and this one is to be sent.
    """
    held = item or {}
    outcome = refused(attempt._replace(exact=True), item, shows=False)
    if STEPS in held and isinstance(outcome, Attempt | Rejected | Busy | Uncertain):
        entity = None if isinstance(outcome, Attempt) else outcome.entity
        return Busy(attempt.message, _until(held, attempt.now), entity)
    return outcome


def _until(item: Entity, now: float) -> float:
    """When the last of the open steps of an item may be over."""
    steps = [read_step(value) for name, value in item.items() if is_step(name)]
    return max([step.until for step in steps], default=now)


def _check(native: Mapping[str, Any]) -> None:
    for name in ("UpdateExpression", "Item"):
        if name in native:
            raise InvalidUpdate(f"delete_item takes no {name}: it removes the whole item.")
    if native.get("ReturnValues", "NONE") not in {"NONE", "ALL_OLD"}:
        raise InvalidUpdate(
            f"delete_item returns ALL_OLD or NONE, and ReturnValues is {native['ReturnValues']!r}: nothing else is there any more."
        )
