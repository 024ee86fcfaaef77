"""What a guarded table contributes to a transaction: its writes, each as an action, and what a refused one means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onewrite.core.event import Emit, copied_events, copy_value
from onewrite.core.flow import Call, Flow, split_missing_ok
from onewrite.core.inbox import Inbox
from onewrite.core.judging import has_landed, shows_effect
from onewrite.core.label import TOKEN
from onewrite.core.ledgers.ledger import UNGUARDED
from onewrite.core.pipeline import make_token, pass_over
from onewrite.core.transaction import PreparedWrite, TransactionWrite, check_prepared, with_participant
from onewrite.core.write import NO_STEP, StepPart, Write
from onewrite.dynamodb.dialect import build_put, build_update
from onewrite.dynamodb.expression import read_mapping
from onewrite.dynamodb.flows import KEY_ATTRIBUTES, Flows, TableAttempt
from onewrite.dynamodb.size import value_size
from onewrite.errors import EntityTooLarge, InvalidUpdate
from onewrite.message import Message
from onewrite.outcome import Duplicate, Entity, Outcome

_EVERY_WRITE = {"ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"}
_ARGUMENTS = {
    "updating": {"Key", "UpdateExpression", *_EVERY_WRITE},
    "putting": {"Item", *_EVERY_WRITE},
    "recording": {"Key", *_EVERY_WRITE},
}
_REASONS = {"ReturnValues": "a transaction returns no items. Read them after it."}


class Prepared(PreparedWrite[Flows]):
    """A guarded write that is not sent yet: give it to `transact`, together with others."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """The bytes of the values in it."""
        parts: list[Mapping[str, Any]] = [self.native.get(name) or {} for name in ("Item", "ExpressionAttributeValues")]
        return sum([value_size(value) for part in parts for value in part.values()])

    def key(self, names: Iterable[str]) -> dict[str, Any] | None:
        """Return its key, given the key's names. None if the item lacks one of them."""
        attributes: Mapping[str, Any] = self.native.get("Key") or self.native.get("Item") or {}
        return {name: attributes[name] for name in names} if attributes.keys() >= {*names} else None


@dataclass(frozen=True, slots=True, eq=False)
class Action(TransactionWrite):
    """One write of a transaction. `call` is what would send it alone; `key` is as the client takes it, and None for a put."""

    flows: Flows
    call: Call
    key: Any

    @property
    def request(self) -> dict[str, Any]:
        kind = "Put" if self.call.method == "put_item" else "Update"
        return {kind: {"TableName": self.flows.full_name, **self.call.kwargs}}

    def judge_item(self, item: Entity | None) -> Outcome | None:
        """Return why its condition failed, given the item as it was then. None: it is to be sent again."""
        if self.place is None:
            return None if item is None else Duplicate(self.write.message)
        creation = None
        if "Item" in self.call.kwargs:
            creation = self.flows.without_ledger(self.flows.plain_item(self.call.kwargs["Item"]))
        return self.judge(self.flows.read_image(item), self.write.now, creation, KEY_ATTRIBUTES)

    def pass_over(self, entity: Entity | None) -> Flow[Outcome | None]:
        if not self.write.entry.also:
            return None
        flows = self.flows
        key = self.write.key or (yield from flows.ask_key(flows.plain_item(self.call.kwargs["Item"])))
        item = entity or (yield from flows.look(flows.convert(key)))
        attempt = TableAttempt(flows, self.write._replace(key=key), {}, build_update, self.call)
        return (yield from pass_over(attempt, flows.read_image(item)))

    @property
    def is_guarded(self) -> bool:
        return self.write.token is not None

    def shows_effect(self, item: Entity | None) -> bool:
        """Whether the item is one that this write may have left."""
        return self.is_guarded and bool(item) and shows_effect(self.write, self.flows.read_image(item))

    def has_landed(self, item: Entity | None) -> bool:
        """Whether an earlier attempt of this very transaction wrote to the item."""
        return has_landed(self.write, self.flows.read_image(item))

    def too_large(self, item: Entity | None) -> EntityTooLarge:
        return self.flows.too_large(self.call, self.write.emission, self.flows.read_image(item))


def prepare(flows: Flows, method: str, native: Mapping[str, Any], emit: Emit) -> Prepared:
    """Return the write, with all that its transaction needs."""
    native, missing_ok = split_missing_ok(native)
    check_prepared(method, native, _ARGUMENTS[method], _REASONS)
    for name in ("Key", "Item", "ExpressionAttributeNames", "ExpressionAttributeValues"):
        read_mapping(native, name)
    return Prepared(flows, method, copy_value(native), copied_events(emit), missing_ok)


def write_alone(message: Message, participant: Prepared) -> Flow[Outcome]:
    """Send the prepared write as one of its own. A refusal names its participant as in a transaction."""
    guard = build_put if participant.creates else build_update
    native = {**participant.native, "missing_ok": participant.missing_ok}
    outcome = yield from participant.store.write(message, native, guard, emit=participant.emit)
    return with_participant(outcome, 0)


def make_action(place: int, message: Message, participant: Prepared, name: str, steps: dict[int | None, StepPart]) -> Action:
    """Return the prepared write as one of the transaction of that name."""
    flows, native = participant.store, participant.native
    write = participant.new_write(message, native.get("Key", {}), name, place, steps)
    call = (build_put if participant.creates else build_update)(write, native, flows.convert)
    if not (participant.creates or call.kwargs["UpdateExpression"]):
        raise InvalidUpdate("A store without a ledger has nothing to record: give the write an UpdateExpression.")
    return Action(place, write, participant.missing_ok, steps, flows, call, call.kwargs.get("Key"))


def inbox_flows(inbox: Inbox, store: Flows) -> Flows:
    """Return the inbox as a store, for a transaction with this one."""
    clock = inbox.clock or store.clock
    return Flows(inbox.store, None, inbox.table_name, clock, store.attempts, is_async=store.is_async)


def inbox_actions(inbox: Inbox, store: Flows, message: Message, name: str) -> list[Action]:
    """Return what remembers the message in the inbox, as writes of the transaction of that name in this store."""
    flows, token = inbox_flows(inbox, store), make_token(name)
    now, actions = flows.clock(), list[Action]()
    other_attributes = {inbox.ttl_attribute: int(inbox.expires(now)), TOKEN: token}
    for mark in inbox.marks(message):
        key = flows.convert({inbox.key: mark})
        request = {
            "Item": {**key, **flows.convert(other_attributes)},
            "ConditionExpression": "attribute_not_exists(#id)",
            "ExpressionAttributeNames": {"#id": inbox.key},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        write = Write(message, {inbox.key: mark}, now, UNGUARDED, NO_STEP, token=token)
        actions.append(Action(None, write, False, {}, flows, Call("put_item", (), request), key))  # a field's value
    return actions
