"""The flows of a guarded table, which both of its classes run. A flow yields its requests, and doesn't know the client.

DynamoDB returns the item with a failed condition. One request is therefore enough to know why a write was refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn, cast

from botocore.exceptions import ClientError

from onewrite.core.effect import Effect
from onewrite.core.engine import Engine, FinalWrite, Landed, Native, Refusal
from onewrite.core.features.effects import Claim, finish
from onewrite.core.features.event import Outbox, make_emitter
from onewrite.core.features.tombstone import Tombstones, check_store_tombstones
from onewrite.core.flow import (
    MISSING_OK,
    NOTHING_FINAL,
    REJECTED_OK,
    Call,
    Flow,
    Wait,
    split_final_refusals,
)
from onewrite.core.judging import judge_creation
from onewrite.core.label import OUTBOX, TOMBSTONE, plain
from onewrite.core.ledgers import Ledger, check_ledger
from onewrite.core.ledgers.entry import Advance, Entry
from onewrite.core.ledgers.seen_ids import hash_message
from onewrite.core.pipeline import make_write, send_write
from onewrite.core.values import copy_value
from onewrite.core.write import EffectPart, Emission, Image, Size, Unreadable, Write, make_too_large_error
from onewrite.dynamodb.dialect import RequestBuilder, build_change, build_update, check_marks
from onewrite.dynamodb.expression import LEGACY, ExpressionTooLong, Placeholders, check_names, make_table_error, read_mapping
from onewrite.dynamodb.layout import canonical, locate_effect, read_image, without_ledger
from onewrite.dynamodb.native import UpdateItemArguments
from onewrite.dynamodb.values import (
    MAX_ITEM_BYTES,
    check_low_level_client,
    measure_item,
    measure_value,
    plain_values,
    readable_values,
    sendable,
    shorten_long_numbers,
    typed_values,
)
from onewrite.errors import ConfigurationError, EntityTooLarge, InvalidResponse, InvalidUpdate
from onewrite.message import Message
from onewrite.outcome import Applied, Entity, Gone, Missing, Outcome
from onewrite.stores import check_awaited

# A transaction locks an item for milliseconds. After a conflict, nothing was written, and botocore doesn't retry.
_CONFLICT = "TransactionConflictException"
_REFUSED = "ConditionalCheckFailedException"
_CONFLICT_WAITS = (0.025, 0.05, 0.1, 0.2, 0.4)
MAX_KEY_ATTRIBUTES = 2  # the limit of a table's primary key
# The maximum number of messages in one write. The conditions for that many ids leave room for a typical condition of the caller. A
# source's mark takes the same room for any number of messages, but the caller's update might not.
_MAX_IDS, _MAX_NUMBERED = 40, 1000
_NO_RECORD = (
    "put_item with rejected_ok=True is refused with InSequence, which couldn't remember the refusal. A put_item doesn't show which attributes "
    "are the key. Omit rejected_ok, or create the item with an update_item whose condition is attribute_not_exists."
)
_MAX_REMOVED = 100  # attributes that the first request of a delete removes, in addition to the ledger's part


class Flows(Engine):
    """A guarded table without its client: the flows of its methods, and its requests."""

    final_write = FinalWrite(
        "update_item",
        UpdateItemArguments.__required_keys__
        | UpdateItemArguments.__optional_keys__
        | LEGACY  # The guarded write raises a more helpful error for these and for an Item.
        | {"emit", "Item", "ReturnValuesOnConditionCheckFailure"},
        '{"UpdateExpression": "SET charge = :c", "ExpressionAttributeValues": {":c": charge}}',
    )
    has_token = True
    entity_argument = "Key"
    too_much = (ExpressionTooLong, EntityTooLarge)

    def __init__(
        self,
        table: Any,
        ledger: Ledger,
        table_name: str | None,
        clock: Callable[[], float],
        name_call: Callable[[], str],
        *,
        outbox: Outbox | None = None,
        tombstones: Tombstones | None = None,
        typed: bool = False,
        is_async: bool,
    ) -> None:
        _check_wiring(table, table_name, is_async=is_async)
        check_ledger(ledger)
        super().__init__(ledger, clock, name_call, emitter=make_emitter(outbox, ledger.terms.attribute), is_async=is_async)
        check_store_tombstones(tombstones, self.is_taken)
        self.tombstones = tombstones
        self.target, self.table = find_client(table, table_name)
        self.full_name: str = table_name or table.name
        self.typed = typed  # whether callers pass and receive typed values
        # A Table's own client accepts and returns plain values, like the Table.
        self.has_typed_client = table_name is not None
        self.convert = typed_values if self.has_typed_client else sendable
        self.table_client = None if self.has_typed_client else self.target

    # --- the methods ---------------------------------------------------------------------------------------------------

    def write(
        self,
        message: Message,
        native: Native,
        build: RequestBuilder = build_update,
        *,
        emit: object = None,
        finishes: Claim | None = None,
    ) -> Flow[Outcome]:
        """Write the message's effect. `build` builds the request, an update or a put."""
        if finishes is not None:
            return finish(self, message, native, finishes, emit=emit)
        final = NOTHING_FINAL
        if MISSING_OK in native or REJECTED_OK in native:
            native, final = split_final_refusals(native)
        if self.is_async:
            native = copy_value(native)
        write = make_write(self, (message,), native.get("Key", {}), emit=emit)
        if final.rejected_ok and "Item" in native and write.entry.own.requires_predecessor:
            raise InvalidUpdate(_NO_RECORD)
        return send_write(TableAttempt(self, write, native, build), final)

    def remember(
        self, message: Message, *, emit: object = None, finishes: Claim | None = None, **native: Any
    ) -> Flow[Outcome]:
        if "UpdateExpression" in native or "Item" in native:
            raise InvalidUpdate("remember changes only the ledger. For a business change, use update_item or put_item.")
        return self.write(message, native, emit=emit, finishes=finishes)

    def get_item(self, **native: Any) -> Flow[Entity | None]:
        """Return the entity without its ledger, or None if it doesn't exist or was deleted."""
        address = self.build_address({**native, **_add_tombstone_projection(native)})
        item = (yield from send(Call("get_item", (), address), self.table_client)).get("Item")
        return None if item is None or TOMBSTONE in item else self.without_ledger(self.make_plain_item(item))

    # --- the engine's interface ----------------------------------------------------------------------------------------

    def is_taken(self, name: str) -> bool:
        return not self.without_ledger({name: 0})

    def keep(self, native: Native) -> Native:
        return copy_value(native) if self.is_async else native

    def read_key(self, native: Native) -> Mapping[str, Any]:
        key: Mapping[str, Any] = native.get("Key", {})
        return key

    def canonical(self, key: object) -> Hashable:
        return canonical(key)

    def make_attempt(self, write: Write, native: Native) -> TableAttempt:
        return TableAttempt(self, write, native, build_update)

    def limit_messages(self, entry: Entry) -> int:
        return _MAX_NUMBERED if isinstance(entry.own, Advance) else _MAX_IDS

    def check_marks(self, entry: Entry) -> None:
        check_marks(entry)

    def make_begin_attempt(self, write: Write, native: Native) -> TableAttempt:
        """Return the begin of an effect. Raise if the call would change anything else."""
        for name in ("UpdateExpression", "ReturnValues", "Item"):
            if name in native:
                raise InvalidUpdate(
                    f"begin_effect changes only the effect. Pass {name} to the write that finishes the effect."
                )
        return TableAttempt(self, write, native, build_change)

    def change_effect(
        self, write: Write, native: Native, ledger: str, fence: str, change: Effect | Mapping[str, Any]
    ) -> TableAttempt:
        """Return the update of the effect's attribute. Its fence is the only condition."""
        placeholders = Placeholders()
        effect = placeholders.name(locate_effect(hash_message(write.message, ledger)))
        condition = f"{effect}.{placeholders.name('fence')}={placeholders.value(fence)}"
        if isinstance(change, Effect):
            sets = [f"{effect}={placeholders.value(change.as_fields())}"]
        else:
            sets = [f"{effect}.{placeholders.name(name)}={placeholders.value(value)}" for name, value in change.items()]
        request = {
            **self.table,
            "Key": self.convert(write.key),
            "UpdateExpression": f"SET {','.join(sets)}",
            "ConditionExpression": condition,
            **placeholders.arguments(typed=self.has_typed_client),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        return TableAttempt(self, write, native, build_change, Call("update_item", (), request))

    def read(self, key: Mapping[str, Any], native: Native, entry: Entry | None = None) -> Flow[Image]:  # noqa: ARG002  # the call names the item
        """Read the current item, consistently."""
        for name in ("ProjectionExpression", "AttributesToGet"):
            if name in native:
                raise InvalidUpdate(f"This call needs the whole entity, because it reads the ledger. Omit {name}.")
        request = {"ConsistentRead": True, **self.build_address(native)}
        response = yield from send(Call("get_item", (), request), self.table_client)
        return self.read_image(self._make_readable_item(response.get("Item")))

    # --- one write and its refusal -----------------------------------------------------------------------------------

    def read_returned_entity(self, response: Mapping[str, Any]) -> Entity | None:
        """Return the entity in the response to an update, or None if there is none or it can't be read."""
        item = self._make_readable_item(response.get("Attributes"))
        self.watch.weigh(item or {})
        return None if item is None or isinstance(item, Unreadable) else self.without_ledger(item)

    def diagnose(self, error: ClientError, write: Write, call: Call) -> Flow[Refusal]:
        """Return the refusal, with the item that caused it. Raise the error if it isn't a refusal, or if no item shows its cause."""
        code = read_error_code(error)
        if code == _REFUSED:
            # Even a Table returns typed values here, because boto3 doesn't convert the parts of an error.
            return Refusal(write, self.read_image(readable_values(cast("Any", error.response.get("Item")))))
        is_mistyped = code == "ValidationException" and is_mistyped_text(read_error_text(error))
        if not (_is_too_large(error) or is_mistyped):
            raise error
        # This might be a redelivery, because DynamoDB checks the size and some types before the condition.
        if "Item" not in call.kwargs:  # a put doesn't show which attributes are the key
            with suppress(ClientError):  # the error of the write is more useful
                return Refusal(write, self.read_image((yield from self.look(call.kwargs["Key"]))), error)
        self.raise_failure(error, write, call, self.read_image(None))

    def raise_failure(self, error: ClientError, write: Write, call: Call, image: Image) -> NoReturn:
        """Raise the error, or an explanation if the item would be too large."""
        if _is_too_large(error):
            raise self.make_too_large_error(call, write.emission, image) from error
        raise error

    def make_too_large_error(self, call: Call, adds: Emission | None, image: Image) -> EntityTooLarge:
        """Return the error for an item that would be too large. `adds` contains the events that the write would have added."""
        is_put = "Item" in call.kwargs  # the item already contains the events
        item: Mapping[str, Any] = self.make_plain_item(call.kwargs["Item"]) if is_put else image.fields
        new_events = measure_value(adds.events) if adds is not None and adds.events and not is_put else 0
        total, caller = measure_item(item), measure_item(self.without_ledger(item))
        outbox = measure_item({name: item[name] for name in OUTBOX if name in item})
        size = Size(total, caller, outbox, new_events)
        return make_too_large_error(f"DynamoDB's {MAX_ITEM_BYTES} bytes", size, self.ledger.remedy)

    def read_image(self, item: Mapping[str, Any] | None) -> Image:
        image = read_image(self.ledger.terms, item)
        self.watch.weigh(image.fields)
        return image

    def _make_readable_item(self, item: Entity | None) -> Entity | None:
        return readable_values(item) if self.has_typed_client else item

    def look(self, key: Mapping[str, Any]) -> Flow[Entity | None]:
        """Return the current item, or None if there is none.

        This doesn't need the permission to read: DynamoDB refuses an update whose condition is never true, and returns the item.
        """
        request = {
            **self.table,
            "Key": key,
            "ConditionExpression": f"attribute_exists({TOMBSTONE}) AND attribute_not_exists({TOMBSTONE})",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        try:
            yield from send(Call("update_item", (), request))
        except ClientError as error:
            if read_error_code(error) != _REFUSED:
                raise
            return readable_values(cast("Any", error.response.get("Item")))
        return None  # unreachable on DynamoDB, because the condition is never true

    def build_address(self, native: Native) -> dict[str, Any]:
        """Return the arguments of a read, including the table's name if it's needed."""
        if "TableName" in native:
            raise make_table_error()
        check_names(read_mapping(native, "Key"))
        key = {"Key": typed_values(native["Key"])} if self.has_typed_client and "Key" in native else {}
        return {**self.table, **native, **key}

    def without_ledger(self, item: Mapping[str, Any]) -> Entity:
        return without_ledger(self.ledger.terms, item)

    def make_plain_item(self, item: Entity) -> Entity:
        return plain_values(item) if self.has_typed_client else item


class TableAttempt:
    """A ready-to-send write of a guarded table. `build` builds its request, unless `call` is the request."""

    def __init__(self, flows: Flows, write: Write, native: Native, build: RequestBuilder, call: Call | None = None) -> None:
        self.flows, self.write, self.native, self.build = flows, write, native, build
        self.call = call or build(write, native, flows.convert)
        self.call.kwargs.update(flows.table)

    def send(self) -> Flow[Landed | Refusal]:
        """Send the write. If it was refused, return the refusal with the item that caused it."""
        flows, write, call = self.flows, self.write, self.call
        try:
            try:
                response = check_response((yield call), call)
            except (ClientError, ArithmeticError) as error:
                if isinstance(error, ClientError) and read_error_code(error) == _REFUSED:
                    raise
                # If boto3 couldn't parse a number in the response, the write has happened. DynamoDB then refuses the retry, and the token in the
                # item shows that.
                response = yield from send_again(error, call, flows.table_client)
        except ClientError as error:
            return (yield from flows.diagnose(error, write, call))
        watch, now = flows.watch, write.now  # now and then, compare the clock with DynamoDB's
        if not watch.since < now < watch.until:
            watch.start_pause(now)
            date = response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
            with suppress(TypeError, ValueError):  # an unreadable date must not fail the write
                watch.compare(now, flows.clock(), int(parsedate_to_datetime(date).timestamp()))
        return Landed(flows.read_returned_entity(response) if "Attributes" in response else None, response)

    def try_send(self) -> Flow[bool]:
        return (yield from try_send(self.call))

    def raise_failure(self, refusal: Refusal) -> Flow[None]:
        yield from ()
        if refusal.failure is not None:
            self.flows.raise_failure(cast("ClientError", refusal.failure), self.write, self.call, refusal.image)

    def retry(self, refusal: Refusal, attempts: int) -> Flow[TableAttempt | None]:  # noqa: ARG002  # the refusal contains the item
        """Return the next attempt of a delete that was too large, or None for a refusal. Raise any other failure."""
        yield from ()
        failure, burial = cast("ClientError | None", refusal.failure), self.write.burial
        if failure is None:
            return None
        if burial is None or burial.removes or not _is_too_large(failure):
            self.flows.raise_failure(failure, self.write, self.call, refusal.image)
        attributes = self.flows.without_ledger(refusal.image.fields)
        kept = {*self.write.key, burial.ttl}  # every delete already removes the expiry time
        sizes = {name: measure_value(value) for name, value in attributes.items() if name not in kept}
        if not sizes:
            self.flows.raise_failure(failure, self.write, self.call, refusal.image)
        # The first request of the delete already removes some attributes, because a full item has no room for a tombstone.
        largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:_MAX_REMOVED]
        write = self.write._replace(burial=burial._replace(removes=tuple(largest)))
        return TableAttempt(self.flows, write, self.native, self.build)

    def with_effect(self, effect: EffectPart) -> TableAttempt:
        """Return the attempt with this effect instead of its own."""
        return TableAttempt(self.flows, self.write._replace(effect=effect), self.native, self.build)

    def make_ledger_write(self) -> Flow[TableAttempt | None]:
        """Return the write that remembers the message and changes nothing else, or None if its key isn't known."""
        yield from ()
        if "Item" in self.call.kwargs:  # put_item doesn't show which attributes are the key
            return None
        flows, key = self.flows, self.write.key
        return TableAttempt(flows, make_write(flows, self.write.messages, key), flows.name_key(key), build_change)

    def show(self, outcome: Outcome) -> Outcome:
        """Return the outcome, with its entity only if the caller's `ReturnValues` requests it."""
        kwargs = self.call.kwargs
        if "Item" in kwargs:
            caller_item = self.flows.without_ledger(self.flows.make_plain_item(kwargs["Item"]))
            outcome = judge_creation(outcome, caller_item, max_keys=MAX_KEY_ATTRIBUTES)
        return_values = kwargs.get("ReturnValues")
        if isinstance(outcome, Applied) and return_values != "ALL_NEW":
            return replace(outcome, entity=None)
        # UPDATED_NEW and UPDATED_OLD request changed attributes, and a refused write didn't change any.
        if return_values in ("UPDATED_NEW", "UPDATED_OLD") and not isinstance(outcome, Missing | Gone):
            return replace(outcome, entity=None)
        return outcome


def _add_tombstone_projection(native: Mapping[str, Any]) -> dict[str, Any]:
    """Return the caller's projection extended by the tombstone, which shows that an item is deleted. Raise if it names the ledger."""
    names: Mapping[str, Any] = native.get("ExpressionAttributeNames") or {}
    projection, attributes = native.get("ProjectionExpression"), native.get("AttributesToGet")
    roots = [re.split(r"[.\[]", path.strip())[0] for path in projection.split(",")] if isinstance(projection, str) else []
    check_names([*[names.get(root, root) for root in roots], *(attributes or ())])
    if projection and isinstance(projection, str):
        return {"ProjectionExpression": f"{plain(projection)},{TOMBSTONE}"}
    return {"AttributesToGet": [*attributes, TOMBSTONE]} if attributes else {}


def find_client(table: Any, table_name: str | None) -> tuple[Any, dict[str, Any]]:
    """Return the object that sends the requests, and their argument for the table's name.

    In boto3, threads can share a client but not a Table. A Table therefore only supplies its name and its client. A stand-in for a
    Table that has no client is used directly.
    """
    if table_name is not None:
        return table, {"TableName": table_name}
    client = getattr(getattr(table, "meta", None), "client", None)
    return (table, {}) if client is None else (client, {"TableName": table.name})


def _check_wiring(table: object, table_name: str | None, *, is_async: bool) -> None:
    """Raise unless the caller passed a Table, or a low-level client with a table's name, of the store's own kind."""
    has_name = isinstance(getattr(table, "name", None), str)
    if not has_name and not table_name:
        raise ConfigurationError("A low-level client can access every table. Pass the table's name with table_name=.")
    if has_name and table_name:
        raise ConfigurationError("A Table has a name already. Omit table_name, or pass the low-level client.")
    if table_name:
        check_low_level_client(table)
    check_awaited(table, "update_item", is_async=is_async)


def send(call: Call, table_client: Any = None) -> Flow[Mapping[str, Any]]:
    """Send the request.

    If the response can contain an item, pass a Table's client as `table_client`, because boto3 raises for some numbers.
    """
    try:
        return check_response((yield call), call)
    except (ClientError, ArithmeticError) as error:
        return (yield from send_again(error, call, table_client))


def check_response(response: Any, call: Call) -> Mapping[str, Any]:
    """Return the response. Raise `InvalidResponse` if it came by HTTP, but not from DynamoDB.

    botocore takes any status below 300 for a success, and a body that isn't JSON for an empty one. A login page, an empty 200, or a 204
    of a proxy would then count as a write that happened. Only DynamoDB, and every server that stands in for it, sends a request ID. A refusal
    needs no check, because it has an error code of DynamoDB's. A stand-in without HTTP, such as botocore's Stubber, has no headers.
    """
    metadata = response.get("ResponseMetadata")
    if metadata is not None and "RequestId" not in metadata and "HTTPHeaders" in metadata:
        raise InvalidResponse(
            f"The response to {call.method} isn't DynamoDB's. It has HTTP status {metadata.get('HTTPStatusCode')} and no x-amzn-RequestId. "
            "The outcome is unknown. The message isn't settled, and its redelivery will show the outcome. Check the endpoint URL, and any proxy between "
            "this process and DynamoDB. If this is a stand-in for DynamoDB, add the header x-amzn-RequestId to its responses."
        )
    return cast("Mapping[str, Any]", response)


def send_again(error: Exception, call: Call, table_client: Any) -> Flow[Mapping[str, Any]]:
    """Send the request again after a conflict with a transaction, or after boto3 raised for a number. Raise any other error."""
    waits = iter(_CONFLICT_WAITS)
    while True:
        wait = next(waits, None) if isinstance(error, ClientError) and read_error_code(error) == _CONFLICT else None
        if wait is not None:
            yield Wait(wait)
        elif isinstance(error, ArithmeticError) and table_client is not None:
            shorten_long_numbers(table_client)
            table_client = None  # shortening them again wouldn't help
        else:
            raise error
        try:
            return check_response((yield call), call)
        except (ClientError, ArithmeticError) as next_error:
            error = next_error


def try_send(call: Call) -> Flow[bool]:
    """Send a conditional write, and return whether its condition was true."""
    try:
        yield from send(call)
    except ClientError as error:
        if read_error_code(error) != _REFUSED:
            raise
        return False
    return True


def ask_key_names(table: Mapping[str, Any]) -> Flow[tuple[str, ...]]:
    """Return the names of the table's key attributes."""
    description = yield from send(Call("describe_table", (), dict(table)))
    return tuple([part["AttributeName"] for part in description["Table"]["KeySchema"]])


def read_error_code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")


def read_error_text(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Message", "")


def _is_too_large(error: ClientError) -> bool:
    # All invalid requests have the same code. Only the message shows the cause.
    return read_error_code(error) == "ValidationException" and is_too_large_text(read_error_text(error))


def is_too_large_text(text: str) -> bool:
    return "Item size" in text


def is_mistyped_text(text: str) -> bool:
    """Whether the error is about an attribute with a wrong type. That can be one of the ledger's attributes."""
    return "data type" in text
