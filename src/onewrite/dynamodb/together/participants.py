"""What a guarded table contributes to a transaction: its writes, each as an action, and what a refused one means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from onewrite.copies import copied
from onewrite.dynamodb.folds import FoldFlows
from onewrite.dynamodb.together.unguarded import plain_put, plain_update
from onewrite.dynamodb.verdict import check_tokens, entity_of, judged, landed, of_creation, shows_effect
from onewrite.dynamodb.writing.attempt import Attempt
from onewrite.dynamodb.writing.layout import without_ledger
from onewrite.dynamodb.writing.request import guard_put, guard_update
from onewrite.dynamodb.writing.size import value_size
from onewrite.errors import ConfigurationError, EntityTooLarge, InvalidUpdate
from onewrite.event import Emission, Emit, copied_events
from onewrite.flow import Call, Flow
from onewrite.joint import numbered
from onewrite.label import TOMBSTONE
from onewrite.ledgers import NO_LEDGER
from onewrite.message import Message
from onewrite.missing import accepted, asked_of
from onewrite.outcome import Entity, Gone, Missing, Outcome, Rejected

PreparedMethod = Literal["updating", "putting", "recording"]

_EVERY_WRITE = {"ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"}
_ARGUMENTS: dict[PreparedMethod, set[str]] = {
    "updating": {"Key", "UpdateExpression", *_EVERY_WRITE},
    "putting": {"Item", *_EVERY_WRITE},
    "recording": {"Key", *_EVERY_WRITE},
}
_WHY = {
    "ReturnValues": "a transaction returns no items. Read them after it.",
    "finishes": "a transaction that is refused would leave the step open although its effect has happened. Finish it by a "
    "write of its own.",
}


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A guarded write that is not sent yet: give it to `transact`, together with others."""

    store: JointFlows = field(repr=False)
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
        held: Mapping[str, Any] = self.native.get("Key") or self.native.get("Item") or {}
        return {name: held[name] for name in names} if held.keys() >= {*names} else None


class Action(NamedTuple):
    """One write of a transaction. `call` is what would send it alone; no `attempt`: its store has no ledger."""

    place: int
    flows: JointFlows
    message: Message
    call: Call
    attempt: Attempt | None
    missing_ok: bool = False

    @property
    def request(self) -> dict[str, Any]:
        kind = "Put" if self.call.method == "put_item" else "Update"
        return {kind: {"TableName": self.table_name, **self.call.kwargs}}

    @property
    def table_name(self) -> str:
        return self.flows.table_name

    @property
    def key(self) -> Any:
        """The key as the client takes it; None for a put, which does not say what of its item is the key."""
        return self.call.kwargs.get("Key")

    def plain(self, item: Entity) -> Entity:
        return self.flows.plain(item)

    @property
    def counts(self) -> bool:
        """Do the messages behind this one wait until its mark has moved?"""
        return self.attempt is not None and self.attempt.entry.own.counts

    def refused(self, item: Entity | None, *, exact: bool = False) -> Outcome | Attempt:
        """Why its condition failed, given the item as it was then, if the transaction has not landed.

        An attempt: there is no reason, and this one is to be sent.
        """
        outcome: Outcome | Attempt
        if self.attempt is not None:
            attempt = self.attempt._replace(exact=exact or self.attempt.exact)
            outcome = judged(attempt, item or {}, entity_of(attempt, item))
        elif item is None:
            outcome = Missing(self.message)
        else:
            is_gone = TOMBSTONE in item
            outcome = Gone(self.message) if is_gone else Rejected(self.message, without_ledger(NO_LEDGER.terms, item))
        if isinstance(outcome, Attempt):
            self.flows.ask_exactly(exact=outcome.exact)
            return outcome
        if "Item" in self.call.kwargs:
            outcome = cast("Outcome", of_creation(outcome, self.plain(self.call.kwargs["Item"])))
        return numbered(accepted(outcome, missing_ok=self.missing_ok, counts=self.counts), self.place)

    @property
    def guarded(self) -> bool:
        return self.attempt is not None

    def shows_effect(self, item: Entity) -> bool:
        """Is the item one that this write may have left?"""
        return self.attempt is not None and shows_effect(self.attempt, item)

    def landed(self, item: Entity) -> bool:
        """Did an earlier try of this very transaction write to the item?"""
        return self.attempt is not None and landed(self.attempt, item)

    def too_large(self, held: Entity | None) -> EntityTooLarge:
        return self.flows.entity_too_large(self.call, None if self.attempt is None else self.attempt.emission, held)

    def check_tokens(self, held: Entity | None) -> None:
        if self.attempt is not None:
            check_tokens(self.attempt, held or {})


class JointFlows(FoldFlows):
    """The flows of a guarded table that may also take part in a transaction, with a ledger or without one."""

    @property
    def guards(self) -> bool:
        return self._ledger is not NO_LEDGER

    def prepared(self, method: PreparedMethod, native: Mapping[str, Any], emit: Emit) -> Prepared:
        native, missing_ok = asked_of(native)
        for name in native:
            if name not in _ARGUMENTS[method]:
                why = _WHY.get(name, f"it takes {', '.join(sorted(_ARGUMENTS[method]))} and emit.")
                raise InvalidUpdate(f"{method} takes no {name}: {why}")
        # It is sent later, and the caller may use all of these again before.
        return Prepared(self, method, copied(native), copied_events(emit), missing_ok)

    def alone(self, message: Message, prepared: Prepared) -> Flow[Outcome]:
        """The prepared write as one of its own. A refusal names its participant as in a transaction."""
        guard = guard_put if prepared.method == "putting" else guard_update
        native = {**prepared.native, "missing_ok": prepared.missing_ok}
        outcome = yield from self.write(message, native, guard, prepared.emit)
        return numbered(outcome, 0)

    def action(self, place: int, message: Message, prepared: Prepared, name: str, before: Attempt | None = None) -> Action:
        """The prepared write as a part of the call of that name, in the form of the one `before`."""
        puts = prepared.method == "putting"
        if self.guards:
            guard = guard_put if puts else guard_update
            attempt = self._attempt(message, prepared.native, prepared.emit, name, guard, place=place)
            if before is not None:
                attempt = attempt._replace(entry=attempt.entry.like(before.entry), turn=before.turn)
            return Action(place, self, message, self._call(attempt, prepared.native, guard), attempt, prepared.missing_ok)
        if prepared.emit is not None:
            raise ConfigurationError("This store has no outbox to emit into: emit in a store that has one.")
        call = (plain_put if puts else plain_update)(prepared.native, self._convert)
        return Action(place, self, message, call, None, prepared.missing_ok)

    def ask_exactly(self, *, exact: bool) -> None:
        """From now on ask for a step of the message's own, if one message has a step open: more will."""
        self._exact = self._exact or exact

    def plain(self, item: Entity) -> Entity:
        """An item that the client has read, in plain values."""
        return self._plain(item)

    def entity_too_large(self, call: Call, adds: Emission | None, held: Entity | None) -> EntityTooLarge:
        return self._too_large(call, adds, held)
