"""What a guarded table contributes to a transaction: its writes, each as an action, and what a refused one means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from boto3.dynamodb.conditions import ConditionBase
from boto3.dynamodb.types import Binary

from onewrite.core.event import Emit, copied_events, copy_of
from onewrite.core.flow import Call, Flow, settle_missing, split_missing_ok
from onewrite.core.inbox import Inbox
from onewrite.core.label import TOKEN, TOMBSTONE, is_ours
from onewrite.core.ledgers import NO_LEDGER
from onewrite.core.pipeline import pass_over
from onewrite.core.transaction import check_arguments, with_participant
from onewrite.core.write import Write, has_landed, judge, of_creation, shows_effect, token_of
from onewrite.dynamodb.dialect import build_put, build_update, possible_keys
from onewrite.dynamodb.expression import (
    OUR_PREFIXES,
    check_limits,
    mapping_of,
    read_condition,
    read_update,
    touches_ours,
    with_condition_text,
)
from onewrite.dynamodb.flows import KEY_ATTRIBUTES, Flows, TableAttempt
from onewrite.dynamodb.layout import image_of, without_ledger
from onewrite.dynamodb.size import value_size
from onewrite.dynamodb.values import Convert
from onewrite.errors import ConfigurationError, EntityTooLarge, InvalidUpdate
from onewrite.message import Message
from onewrite.outcome import Duplicate, Entity, Gone, Missing, Outcome, Rejected

PreparedMethod = Literal["updating", "putting", "recording"]

_EVERY_WRITE = {"ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"}
_ARGUMENTS: dict[PreparedMethod, set[str]] = {
    "updating": {"Key", "UpdateExpression", *_EVERY_WRITE},
    "putting": {"Item", *_EVERY_WRITE},
    "recording": {"Key", *_EVERY_WRITE},
}
_REASONS = {
    "ReturnValues": "a transaction returns no items. Read them after it.",
}


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A guarded write that is not sent yet: give it to `transact`, together with others."""

    store: Flows = field(repr=False)
    method: PreparedMethod
    native: Mapping[str, Any]
    emit: Emit = None
    missing_ok: bool = False

    @property
    def size(self) -> int:
        """The bytes of the values in it."""
        parts: list[Mapping[str, Any]] = [self.native.get(name) or {} for name in ("Item", "ExpressionAttributeValues")]
        return sum([value_size(value) for part in parts for value in part.values()])

    def key(self, names: Iterable[str]) -> dict[str, Any] | None:
        """What of it is the key, where these are its names; None where the whole item lacks one of them."""
        attributes: Mapping[str, Any] = self.native.get("Key") or self.native.get("Item") or {}
        return {name: attributes[name] for name in names} if attributes.keys() >= {*names} else None


class Action(NamedTuple):
    """One write of a transaction. `call` is what would send it alone; no `write`: its store has no ledger.

    The item of a message in an inbox has the `token` of the call instead. It is there if the message was processed.
    """

    place: int | None  # among the participants
    flows: Flows
    message: Message
    call: Call
    key: Any  # as the client takes it; None for a put, which does not say what of its item is the key
    write: Write | None = None
    missing_ok: bool = False
    token: bytes | None = None

    @property
    def request(self) -> dict[str, Any]:
        kind = "Put" if self.call.method == "put_item" else "Update"
        return {kind: {"TableName": self.table_name, **self.call.kwargs}}

    @property
    def table_name(self) -> str:
        return self.flows.full_name

    @property
    def counts(self) -> bool:
        """Do the messages behind this one wait until its mark has moved?"""
        return self.write is not None and self.write.entry.own.counts

    def refusal(self, item: Entity | None) -> Outcome | None:
        """Why its condition failed, given the item as it was then, if the transaction has not landed. None: the inbox has forgotten the message."""
        if self.token is not None:
            return None if item is None else Duplicate(self.message)
        outcome: Outcome
        terms = NO_LEDGER.terms if self.write is None else self.write.entry.terms
        if self.write is not None:
            outcome = judge(self.write, image_of(terms, item))
        elif item is None:
            outcome = Missing(self.message)
        else:
            is_gone = TOMBSTONE in item
            outcome = Gone(self.message) if is_gone else Rejected(self.message, without_ledger(terms, item))
        if "Item" in self.call.kwargs:
            own_item = without_ledger(terms, self.flows.plain_item(self.call.kwargs["Item"]))
            outcome = of_creation(outcome, own_item, keys=KEY_ATTRIBUTES)
        return with_participant(settle_missing(outcome, missing_ok=self.missing_ok, counts=self.counts), self.place)

    def pass_over(self, entity: Entity | None) -> Flow[Outcome | None]:
        flows, write = self.flows, self.write
        if write is None or not write.entry.also:
            return None
        key = write.key or (yield from flows.ask_key(flows.plain_item(self.call.kwargs["Item"])))
        item = entity or (yield from flows.read_item({**flows.address({"Key": key}), "ConsistentRead": True}))
        attempt = TableAttempt(flows, write._replace(key=key), {}, build_update, self.call)
        return (yield from pass_over(attempt, flows.image_of(item)))

    @property
    def is_guarded(self) -> bool:
        return self.write is not None or self.token is not None

    def shows_effect(self, item: Entity) -> bool:
        """Is the item one that this write may have left?"""
        if self.token is not None:
            return bool(item)
        return self.write is not None and shows_effect(self.write, image_of(self.write.entry.terms, item))

    def has_landed(self, item: Entity) -> bool:
        """Did an earlier try of this very transaction write to the item?"""
        if self.token is not None:
            return item.get(TOKEN) == Binary(self.token)
        return self.write is not None and has_landed(self.write, image_of(self.write.entry.terms, item))

    def too_large(self, item: Entity | None) -> EntityTooLarge:
        image = self.flows.image_of(item)
        return self.flows.too_large(self.call, None if self.write is None else self.write.emission, image)


def prepare(flows: Flows, method: PreparedMethod, native: Mapping[str, Any], emit: Emit) -> Prepared:
    """The write, with all that its transaction needs."""
    native, missing_ok = split_missing_ok(native)
    check_arguments(method, native, _ARGUMENTS[method], _REASONS)
    for name in ("Key", "Item", "ExpressionAttributeNames", "ExpressionAttributeValues"):
        mapping_of(native, name)
    # It is sent later, and the caller may use all of these again before.
    return Prepared(flows, method, copy_of(native), copied_events(emit), missing_ok)


def write_alone(message: Message, participant: Prepared) -> Flow[Outcome]:
    """The prepared write as one of its own. A refusal names its participant as in a transaction."""
    guard = build_put if participant.method == "putting" else build_update
    native = {**participant.native, "missing_ok": participant.missing_ok}
    outcome = yield from participant.store.write(message, native, guard, emit=participant.emit)
    return with_participant(outcome, 0)


def action(place: int, message: Message, participant: Prepared, name: str) -> Action:
    """The prepared write as a part of the call of that name."""
    flows, native, puts = participant.store, participant.native, participant.method == "putting"
    if flows.guards:
        write = flows.new_write(message, native.get("Key", {}), emit=participant.emit, name=name, place=place)
        call = (build_put if puts else build_update)(write, native, flows.convert)
        return Action(place, flows, message, call, call.kwargs.get("Key"), write, participant.missing_ok)
    if participant.emit is not None:
        raise ConfigurationError("This store has no outbox to emit into: emit in a store that has one.")
    call = (plain_put if puts else plain_update)(native, flows.convert)
    return Action(place, flows, message, call, call.kwargs.get("Key"), missing_ok=participant.missing_ok)


# --- a store without a ledger --------------------------------------------------------------------------------------


Native = Mapping[str, Any]


def plain_update(native: Native, convert: Convert) -> Call:
    """The caller's update. What is left of a deleted entity refuses it too."""
    native = _checked_native(native)
    if not native.get("UpdateExpression"):
        raise InvalidUpdate("A store without a ledger has nothing to record: give the write an UpdateExpression.")
    condition = _join_conditions([f"attribute_not_exists({TOMBSTONE})"], native)
    return Call("update_item", (), {**_request(native, convert), "ConditionExpression": condition})


def plain_put(native: Native, convert: Convert) -> Call:
    """A put that creates an item, and never replaces one."""
    native = _checked_native(native)
    item: Mapping[str, Any] = native.get("Item") or {}
    if not item:
        raise InvalidUpdate("put_item needs the Item to create.")
    keys = {f"#ow_k{n}": name for n, name in enumerate(possible_keys(item))}
    condition = _join_conditions([f"attribute_not_exists({key})" for key in keys], native)
    names: Mapping[str, str] = native.get("ExpressionAttributeNames") or {}
    kwargs = {**_request(native, convert), "Item": convert(item), "ConditionExpression": condition}
    return Call("put_item", (), {**kwargs, "ExpressionAttributeNames": {**names, **keys}})


def _checked_native(native: Native) -> Native:
    """The call with its condition as text, which touches nothing of ours."""
    if isinstance(native.get("ConditionExpression"), ConditionBase):
        native = with_condition_text(native)
    names: Mapping[str, str] = native.get("ExpressionAttributeNames") or {}
    for root in _roots(native):
        if is_ours(names.get(root, root)):
            raise touches_ours(names.get(root, root))
    values: Mapping[str, Any] = native.get("ExpressionAttributeValues") or {}
    for placeholder in (*names, *values):
        if placeholder.startswith(OUR_PREFIXES):
            raise InvalidUpdate(f"The placeholder {placeholder} begins as our own do: give it another name.")
    return native


def _roots(native: Native) -> Iterable[str]:
    """The attributes that the call names."""
    yield from native.get("Item") or native.get("Key") or ()
    if native.get("UpdateExpression"):
        yield from read_update(native["UpdateExpression"]).roots
    if native.get("ConditionExpression"):
        yield from read_condition(native["ConditionExpression"]).roots


def _join_conditions(our_conditions: list[str], native: Native) -> str:
    user_condition = native.get("ConditionExpression")
    text = " AND ".join([*our_conditions, read_condition(user_condition).text] if user_condition else our_conditions)
    check_limits("ConditionExpression", text)
    return text


def _request(native: Native, convert: Convert) -> dict[str, Any]:
    names = ("Key", "ExpressionAttributeValues")
    values = {name: convert(native[name]) for name in names if native.get(name)}
    return {**native, **values, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


# --- a message's item in an inbox ----------------------------------------------------------------------------------


def inbox_flows(inbox: Inbox, store: Flows) -> Flows:
    """The inbox as a store, for a transaction with this one."""
    clock = inbox.clock or store.clock
    return Flows(inbox.store, None, inbox.table_name, clock, store.attempts, is_async=store.is_async)


def inbox_actions(inbox: Inbox, store: Flows, message: Message, name: str) -> list[Action]:
    """What remembers the message in the inbox, as parts of the call of that name in this store."""
    flows, token = inbox_flows(inbox, store), token_of(name)
    other_attributes = {inbox.ttl_attribute: int(inbox.expires(flows.clock())), TOKEN: token}
    actions: list[Action] = []
    for mark in inbox.marks(message):
        key = flows.convert({inbox.key: mark})
        request = {
            "Item": {**key, **flows.convert(other_attributes)},
            "ConditionExpression": "attribute_not_exists(#id)",
            "ExpressionAttributeNames": {"#id": inbox.key},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        actions.append(Action(None, flows, message, Call("put_item", (), request), key, token=token))
    return actions
