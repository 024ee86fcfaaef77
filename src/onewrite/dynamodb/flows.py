"""The flows of a guarded table, which both of its classes run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn, TypeAlias, cast

from botocore.exceptions import ClientError

from onewrite.clock import checked_clock
from onewrite.copies import copied
from onewrite.dynamodb.verdict import check_tokens, judged, of_creation, refused
from onewrite.dynamodb.writing.attempt import Attempt, new_attempt
from onewrite.dynamodb.writing.layout import held_of, without_ledger
from onewrite.dynamodb.writing.request import checked_key, guard_put, guard_record, guard_update, touches_ours
from onewrite.dynamodb.writing.size import LARGEST_ITEM, item_size, value_size
from onewrite.dynamodb.writing.values import Convert, plain, sendable, typed
from onewrite.errors import ConfigurationError, EntityTooLarge, InvalidUpdate
from onewrite.event import (
    Emission,
    Outbox,
    check_ledgerless,
    emission,
    emitter_of,
    nothing_emitted,
)
from onewrite.flow import Call, Flow, Wait, check_awaited
from onewrite.label import OURS, OUTBOX, TOMBSTONE
from onewrite.ledgers import NO_LEDGER, Ledger, check_ledger
from onewrite.message import Message
from onewrite.missing import MISSING_OK, accepting, asked_of
from onewrite.outcome import Applied, Entity, Gone, Missing, Outcome, Rejected, Unmet
from onewrite.tombstone import Tombstones, check_store_tombstones
from onewrite.too_large import Size, too_large
from onewrite.watch import Watch

# A transaction holds an item for milliseconds. botocore does not retry a conflict with one, and nothing was written.
_CONFLICT_WAITS = (0.025, 0.05, 0.1, 0.2, 0.4)

Guard: TypeAlias = Callable[[Attempt, Mapping[str, Any], Convert], Call]


class Flows:
    """One method for each method of the public classes: each compiles a request and returns a flow."""

    def __init__(
        self,
        table: Any,
        ledger: Ledger | None,
        table_name: str | None,
        clock: Callable[[], float],
        attempts: Callable[[], str],
        *,
        outbox: Outbox | None = None,
        tombstones: Tombstones | None = None,
        awaited: bool,
    ) -> None:
        check_ledgerless(ledger, outbox)
        self._ledger: Ledger = NO_LEDGER if ledger is None else ledger
        _check_wiring(table, self._ledger, table_name, awaited=awaited)
        self._emitter = emitter_of(outbox, self._ledger.terms.attribute)
        self.target, self._table = client_of(table, table_name)
        self.awaited, self.clock, self.attempts = awaited, checked_clock(clock), attempts
        self._outbox, self._tombstones = outbox, tombstones
        self._nothing = None if outbox is None else nothing_emitted(outbox)
        self.table_name: str = table_name or table.name
        self._watch = Watch(self._ledger.skew)
        self._exact = False  # do writes ask for a step of their own message? Until one has been met they ask for any.
        # A Table's own client takes and gives plain values, as the Table does.
        self._typed = table_name is not None
        self._convert = typed if self._typed else sendable
        check_store_tombstones(tombstones, lambda name: not self.without_ledger({name: 0}))

    def write(
        self, message: Message, native: Mapping[str, Any], guard: Guard = guard_update, emit: object = None
    ) -> Flow[Outcome]:
        native, missing_ok = self._kept(native)
        attempt = self._attempt(message, native, emit, self.attempts(), guard)
        flow = self._send(attempt, native, guard)
        return accepting(flow, counts=attempt.entry.own.counts) if missing_ok else flow

    def _send(self, attempt: Attempt, native: Mapping[str, Any], guard: Guard) -> Flow[Outcome]:
        message, call = attempt.message, self._call(attempt, native, guard)
        try:
            try:
                response = yield call
            except ClientError as error:
                response = yield from insist(error, call)
        except ClientError as error:
            outcome = yield from self._explain(error, attempt, call)
            if isinstance(outcome, Attempt):
                self._exact = self._exact or outcome.exact  # where one message has a step open, more will
                return (yield from self._send(outcome, native, guard))
            if isinstance(outcome, Rejected) and attempt.entry.own.counts:
                return (yield from self._record_refusal(outcome, native))
            return outcome
        if self._watch.wants_clock(attempt.now):
            self._look_at_clock(attempt.now, response)
        return self._applied(message, response)

    def _applied(self, message: Message, response: Mapping[str, Any]) -> Applied:
        attributes = response.get("Attributes")
        return Applied(message, None if attributes is None else self._entity(attributes), response=response)

    def _kept(self, native: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
        """As `asked_of`. While an asynchronous call waits for an answer, other tasks may use its arguments again."""
        missing_ok = False
        if MISSING_OK in native:
            native, missing_ok = asked_of(native)
        return (copied(native) if self.awaited else native), missing_ok

    def record(self, message: Message, native: Mapping[str, Any], emit: object = None) -> Flow[Outcome]:
        if "UpdateExpression" in native or "Item" in native:
            raise InvalidUpdate("record changes nothing but the ledger: for a business change use update_item or put_item.")
        return self.write(message, native, emit=emit)

    def seen(self, message: Message, native: Mapping[str, Any]) -> Flow[Outcome]:
        check_reads_all(native, "seen")
        now = self.clock()
        attempt = new_attempt(message, self._ledger.entry(message, now), "", now, entity_key=native.get("Key", {}))
        item = yield from self._read({"ConsistentRead": True, **self._named(native)})
        entity = None if item is None or TOMBSTONE in item else self._without_ledger(item)
        outcome = judged(attempt, item or {}, entity)
        return Applied(message, entity) if isinstance(outcome, Attempt | Unmet) else outcome

    def get(self, native: Mapping[str, Any]) -> Flow[Entity | None]:
        item = yield from self._read(self._named({**native, **_showing_tombstone(native)}))
        return None if item is None or TOMBSTONE in item else self._without_ledger(item)

    def without_ledger(self, item: Mapping[str, Any]) -> Entity:
        return without_ledger(self._ledger.terms, item)

    def _call(self, attempt: Attempt, native: Mapping[str, Any], guard: Guard) -> Call:
        return guard(attempt, {**self._table, **native}, self._convert)

    def _attempt(
        self,
        message: Message,
        native: Mapping[str, Any],
        emit: object,
        name: str,
        guard: Guard = guard_update,
        *,
        place: int = 0,
    ) -> Attempt:
        """`name` and `place`: which call it is of, and which of the call's writes."""
        now = self.clock()
        entry = self._ledger.entry(message, now)
        if guard is guard_put:
            entry = entry.asking
        emitted = (
            self._nothing
            if emit is None
            else emission(self._emitter, message, emit, now, f"{self.table_name} {name} {place}")
        )
        key: Mapping[str, Any] = native.get("Key", {})
        return new_attempt(message, entry, name, now, emitted, exact=self._exact, entity_key=key)

    def _explain(self, error: ClientError, attempt: Attempt, call: Call) -> Flow[Outcome | Attempt]:
        returned = call.kwargs.get("ReturnValues")
        held, unexplained = yield from self._refusal(error, call)
        judged = attempt if unexplained is None else attempt._replace(exact=True)
        outcome = refused(judged, held, shows=returned == "ALL_NEW")
        if unexplained is not None and isinstance(outcome, Unmet):
            self._raise(unexplained, attempt, call, held)
        if "Item" in call.kwargs:
            outcome = of_creation(outcome, self._plain(call.kwargs["Item"]))
        # Who asks for what the write has changed alone is shown no more by a refusal.
        if returned in ("UPDATED_NEW", "UPDATED_OLD") and not isinstance(outcome, Attempt | Missing | Gone):
            return replace(outcome, entity=None)
        return outcome

    def _refusal(self, error: ClientError, call: Call) -> Flow[tuple[Entity | None, ClientError | None]]:
        """The item that refused, and the error to raise where nothing in the item is the reason."""
        if code(error) == "ConditionalCheckFailedException":
            # Even a Table gives typed values here: boto3 does not convert the members of an error.
            item = cast("Mapping[str, Any] | None", error.response.get("Item"))
            held = None if item is None else plain(item)
            self._look_at_ledger(held or {})
            return held, None
        if not (_is_too_large(error) or _is_mistyped(error)):
            raise error
        # DynamoDB looks at the size, and at some types, before the condition: this may be a redelivery.
        return (yield from self._held(call)), error

    def _raise(self, error: ClientError, attempt: Attempt, call: Call, held: Entity | None) -> NoReturn:
        if _is_too_large(error):
            raise self._too_large(call, attempt.emission, held) from error
        check_tokens(attempt, held or {})
        raise error

    def _held(self, call: Call) -> Flow[Entity | None]:
        """The stored item, or None where it cannot be read: put_item does not say which part of Item is the key."""
        if "Item" in call.kwargs:
            return None
        try:
            return (yield from self._read({**self._table, "Key": call.kwargs["Key"], "ConsistentRead": True}))
        except ClientError:  # the caller may be allowed to write only
            return None

    def _record_refusal(self, outcome: Rejected, native: Mapping[str, Any]) -> Flow[Outcome]:
        """Move the mark over a message that the caller's condition refused: those behind it wait for that."""
        if "Item" in native:  # put_item does not say which part of it is the key
            return Rejected(outcome.message, outcome.entity, settled=False)
        attempt = self._attempt(outcome.message, native, None, self.attempts())
        call = self._call(attempt, native, guard_record)
        try:
            yield from send(call)
        except ClientError as error:
            found = yield from self._explain(error, attempt, call)
            if isinstance(found, Attempt):
                self._exact = True
                return (yield from self._record_refusal(outcome, native))
            if isinstance(found, Rejected):
                return replace(found, settled=False)
            return outcome if isinstance(found, Applied) else found
        return outcome

    def _too_large(self, call: Call, adds: Emission | None, held: Entity | None) -> EntityTooLarge:
        puts = "Item" in call.kwargs  # with its events in it
        item: Entity = self._plain(call.kwargs["Item"]) if puts else held or {}
        emitted = value_size([*adds.events]) if adds is not None and adds.events and not puts else 0
        total, own = item_size(item), item_size(self.without_ledger(item))
        outbox = item_size({name: item[name] for name in OUTBOX if name in item})
        size = Size(total, own, outbox, emitted)
        return too_large(f"DynamoDB's {LARGEST_ITEM} bytes", size, self._ledger.remedy)

    def _read(self, request: dict[str, Any]) -> Flow[Entity | None]:
        response = yield Call("get_item", (), request)
        item: Entity | None = response.get("Item")
        return None if item is None else self._plain(item)

    def _named(self, native: Mapping[str, Any]) -> dict[str, Any]:
        key = {"Key": typed(checked_key(native))} if self._typed and "Key" in native else {}
        return {**self._table, **native, **key}

    def _entity(self, attributes: Mapping[str, Any]) -> Entity:
        item = self._plain(dict(attributes))
        return self._without_ledger(item)

    def _without_ledger(self, item: Entity) -> Entity:
        self._look_at_ledger(item)
        return self.without_ledger(item)

    def _plain(self, item: Entity) -> Entity:
        return plain(item) if self._typed else item

    def _look_at_ledger(self, item: Entity) -> None:
        held = held_of(self._ledger.terms, item)
        self._watch.ledger(sum([_roughly(name, value) for name, value in held.attributes.items()]), held.sources)
        self._watch.numbers(held.tags)

    def _look_at_clock(self, now: float, response: Mapping[str, Any]) -> None:
        date = response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date:
            self._watch.clock(now, parsedate_to_datetime(date).timestamp())


def _showing_tombstone(native: Mapping[str, Any]) -> dict[str, Any]:
    """The caller's choice of attributes, which would otherwise hide that the item was deleted."""
    names: Mapping[str, Any] = native.get("ExpressionAttributeNames") or {}
    if chosen := native.get("ProjectionExpression"):
        for path in str(chosen).split(","):
            root = re.split(r"[.\[]", path.strip())[0]
            if str(names.get(root, root)).startswith(OURS):
                raise touches_ours(names.get(root, root))
        return {"ProjectionExpression": f"{chosen},{TOMBSTONE}"}
    attributes = native.get("AttributesToGet")
    for name in attributes or ():
        if str(name).startswith(OURS):
            raise touches_ours(name)
    return {"AttributesToGet": [*attributes, TOMBSTONE]} if attributes else {}


def check_reads_all(native: Mapping[str, Any], verb: str) -> None:
    """Raise if a read that needs the whole item is to leave something out."""
    for name in ("ProjectionExpression", "AttributesToGet"):
        if name in native:
            raise InvalidUpdate(f"{verb} needs the whole entity to find the ledger in it: leave out {name}.")


def client_of(table: Any, table_name: str | None) -> tuple[Any, dict[str, Any]]:
    """What the requests go to, and the table's name as they say it.

    boto3 lets threads share a client, and not a Table. So a Table supplies its name and its client. What stands in for a Table and has no
    client is asked itself.
    """
    if table_name is not None:
        return table, {"TableName": table_name}
    client = getattr(getattr(table, "meta", None), "client", None)
    return (table, {}) if client is None else (client, {"TableName": table.name})


def _check_wiring(table: object, ledger: object, table_name: str | None, *, awaited: bool) -> None:
    named = isinstance(getattr(table, "name", None), str)
    if not named and not table_name:
        raise ConfigurationError("A low-level client serves every table: say which one with table_name=.")
    if named and table_name:
        raise ConfigurationError("A Table knows its own name: leave out table_name, or give the low-level client.")
    check_ledger(ledger)
    check_awaited(table, "update_item", awaited=awaited)


def _roughly(name: str, value: Any) -> int:
    """The approximate size of an attribute in bytes: one member of a set stands for all of them."""
    if isinstance(value, AbstractSet):
        members = cast("AbstractSet[Any]", value)
        return len(name) + len(members) * value_size(next(iter(members)))
    return len(name) + value_size(value)


def send(call: Call) -> Flow[Mapping[str, Any]]:
    """Send the request, again after a conflict with a transaction."""
    try:
        return cast("Mapping[str, Any]", (yield call))
    except ClientError as error:
        return (yield from insist(error, call))


def insist(error: ClientError, call: Call) -> Flow[Mapping[str, Any]]:
    """Send the request again after a conflict with a transaction, and raise any other error."""
    for wait in _CONFLICT_WAITS:
        if code(error) != "TransactionConflictException":
            break
        yield Wait(wait)
        try:
            return cast("Mapping[str, Any]", (yield call))
        except ClientError as again:
            error = again
    raise error


def code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")


def text_of(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Message", "")


def _is_too_large(error: ClientError) -> bool:
    # The code is that of any invalid request: only the text says what is wrong.
    return code(error) == "ValidationException" and says_too_large(text_of(error))


def says_too_large(text: str) -> bool:
    return "size" in text and "exceeded the maximum allowed size" in text


def _is_mistyped(error: ClientError) -> bool:
    return code(error) == "ValidationException" and says_mistyped(text_of(error))


def says_mistyped(text: str) -> bool:
    """Did an attribute have another type than the request needs? It may be one of the ledger's."""
    return "data type" in text
