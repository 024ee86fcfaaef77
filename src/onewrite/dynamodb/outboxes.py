"""The outboxes of a table, for a relay. A relay reads an item's outbox, and changes it only if it hasn't changed since.

The list indexes of a REMOVE are in descending order. DynamoDB applies them all to the original list. An emulator that removes the
elements one by one then removes the same ones.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias, cast
from urllib.parse import quote, unquote

from boto3.dynamodb.types import Binary
from botocore.exceptions import ClientError

from onewrite.core.features.event import Outbox
from onewrite.core.features.pending import Box, BrokenOutbox, PendingEvent, Search, parse_source, read_box, try_read
from onewrite.core.flow import Call, Flow
from onewrite.core.label import OUTBOX, TOMBSTONE
from onewrite.core.values import copy_value
from onewrite.dynamodb.expression import Placeholders
from onewrite.dynamodb.flows import ask_key_names, find_client, read_error_code, read_error_text, send
from onewrite.dynamodb.layout import canonical, format_number, normalize
from onewrite.dynamodb.values import is_typed, plain_values, read_bytes, typed_values
from onewrite.errors import ConfigurationError

Key: TypeAlias = Mapping[str, Any]

_MAX_INDEX_KEYS = 4  # two attributes of the table's key, and two of the index's own key


class Outboxes:
    """The outboxes of a table's items."""

    def __init__(self, table: object, table_name: str | None, outbox: Outbox) -> None:
        self.target, self.table = find_client(table, table_name)
        self.outbox = outbox
        self.has_typed_client = table_name is not None
        # A Table's own client, because boto3 raises for some numbers in its responses.
        self.table_client = None if self.has_typed_client else self.target

    def entity(self, filter: object, key: object) -> Key:
        """Return the item's key. The caller can pass plain or typed values to any store."""
        if filter is not None or not isinstance(key, Mapping) or not key:
            raise ConfigurationError("An entity in a table is identified by its key. Pass Key={...}.")
        return self.read_notified(cast("Key", copy_value(key)))  # A copy, because it's part of the published events.

    def canonical(self, key: Key) -> Hashable:
        """Return a value that is equal for two keys of the same item."""
        return canonical(key)

    def read_notified(self, entity: Key) -> Key:
        """Return the key of the item that a notification names, which has plain values, or typed values if it's from a stream."""
        key = {name: _decode_value(value) for name, value in entity.items()}
        return plain_values(key) if key and all(is_typed(value) for value in key.values()) else key

    def read_source(self, source: str) -> Key:
        """Return the key of the item whose events have that source."""
        try:
            return {part.name: _PARSERS[part.kind](part.value) for part in parse_source(source, self.outbox.name)}
        except (KeyError, ValueError, ArithmeticError) as error:
            raise ConfigurationError(f"{source!r} doesn't identify an item of a table.") from error

    def read(self, key: Key) -> Flow[Box]:
        """Return the item's outbox, which is unused if the item doesn't exist."""
        request = {
            **self._build_address(key),
            "ConsistentRead": True,
            "ProjectionExpression": ",".join((*OUTBOX, TOMBSTONE)),
        }
        response = yield from send(Call("get_item", (), request))
        item: Mapping[str, Any] = response.get("Item", {})
        return self._make_box(key, plain_values(item) if self.has_typed_client else item)

    def clear(self, box: Box, count: int, now: float) -> Flow[Box | None]:
        """Remove the first `count` events, which were sent. Return None, or the current box if it has changed."""
        placeholders = Placeholders()
        sets = [
            f"{OUTBOX.sent_count}={placeholders.value(box.base + count)}",
            f"{OUTBOX.incarnation}={placeholders.value(box.life)}",
        ]
        conditions = self._match_read_box(box, placeholders, count - 1)
        if count == len(box.events):
            conditions.append(f"size({OUTBOX.events})={placeholders.value(count)}")
            removes = [OUTBOX.events, OUTBOX.due, OUTBOX.shard]
            if box.tombstone is None:
                conditions.append(f"attribute_not_exists({TOMBSTONE})")
            else:  # the database removes the deleted item with its last event, unless it was deleted again since
                conditions.append(f"{TOMBSTONE}.{placeholders.name('by')}={placeholders.value(box.tombstone.by)}")
                sets.append(f"{placeholders.name(box.tombstone.ttl)}={placeholders.value(box.tombstone.expiry(now))}")
        else:
            removes = [f"{OUTBOX.events}[{place}]" for place in reversed(range(count))]
            # Set the due time even if this relay has no index, because another relay can use one.
            sets.append(f"{OUTBOX.due}={placeholders.value(box.events[count].time)}")
        return (yield from self._change(box.entity, placeholders, sets, removes, conditions))

    def postpone(self, box: Box, due: str) -> Flow[Box | None]:
        """Postpone the entity's next sweep to `due`, if the oldest event is still the same."""
        placeholders = Placeholders()
        sets = [f"{OUTBOX.due}={placeholders.value(due)}"]
        return (yield from self._change(box.entity, placeholders, sets, [], self._match_read_box(box, placeholders, 0)))

    def replace(self, box: Box, place: int, event: PendingEvent) -> Flow[Box | None]:
        """Replace an event, and make the entity due for the next sweep."""
        placeholders = Placeholders()
        sets = [f"{OUTBOX.events}[{place}]={placeholders.value(event.as_fields())}"]
        sets.append(f"{OUTBOX.due}={placeholders.value(box.events[0].time)}")
        return (yield from self._change(box.entity, placeholders, sets, [], self._match_read_box(box, placeholders, place)))

    def restart(self, box: Box, incarnation: str) -> Flow[Box | None]:
        """Restart the count of sent events at zero, under a new source."""
        placeholders = Placeholders()
        sets = [
            f"{OUTBOX.sent_count}={placeholders.value(0)}",
            f"{OUTBOX.incarnation}={placeholders.value(incarnation)}",
        ]
        conditions = self._match_read_box(box, placeholders, 0 if box.events else None)
        return (yield from self._change(box.entity, placeholders, sets, [], conditions))

    def finder(self, before: str | None, share: Callable[[], float]) -> Finder:
        """Return a search for pending events that are due `before` that time, or for all pending events if it's None.

        Each page is in a random order, so that two relays don't publish the events of the same entities. `share` draws the order.
        """
        return Finder(self, before, share)

    def _match_read_box(self, box: Box, placeholders: Placeholders, place: int | None) -> list[str]:
        """Return the conditions that the item's outbox hasn't changed since it was read, up to the event at `place`.

        The count alone isn't enough, because the new events of an item that is deleted and created again have the same counts.
        """
        fields = ((OUTBOX.sent_count, box.sent_count), (OUTBOX.incarnation, box.incarnation))
        conditions = [
            f"attribute_not_exists({name})" if value is None else f"{name}={placeholders.value(value)}"
            for name, value in fields
        ]
        if place is not None:
            nonce = f"{OUTBOX.events}[{place}].{placeholders.name('nonce')}"
            conditions.append(f"{nonce}={placeholders.value(box.events[place].nonce)}")
        return conditions

    def _change(
        self, key: Key, placeholders: Placeholders, sets: list[str], removes: list[str], conditions: list[str]
    ) -> Flow[Box | None]:
        """Change the outbox, and return None, or return the current box if a condition is false."""
        update = f"SET {','.join(sets)}" + (f" REMOVE {','.join(removes)}" if removes else "")
        request = {
            **self._build_address(key),
            "UpdateExpression": update,
            "ConditionExpression": " AND ".join(conditions),
            **placeholders.arguments(typed=self.has_typed_client),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        try:
            yield from send(Call("update_item", (), request))
        except ClientError as error:
            if read_error_code(error) != "ConditionalCheckFailedException":
                raise
            return self._make_box(key, plain_values(cast("Mapping[str, Any]", error.response.get("Item", {}))))
        return None

    def _make_box(self, key: Key, item: Mapping[str, Any]) -> Box:
        fields = {name: normalize(item[name]) for name in (*OUTBOX, TOMBSTONE) if name in item}
        return read_box(self.outbox.label, key, f"{self.outbox.name}/{format_key(key)}", fields)

    def _build_address(self, key: Key) -> dict[str, Any]:
        return {**self.table, "Key": typed_values(key) if self.has_typed_client else dict(key)}


class Finder:
    """A search through the keys of items with pending events, page by page, which reads each item's outbox.

    Without an index, it scans the whole table for the same items.
    """

    def __init__(self, boxes: Outboxes, before: str | None, share: Callable[[], float]) -> None:
        self._boxes, self._before, self._share = boxes, before, share
        self._keys: deque[Key] = deque()
        self._has_more = True
        self._start: Mapping[str, Any] | None = None
        self._key_names: tuple[str, ...] = ()

    def next(self) -> Flow[Box | BrokenOutbox | Search | None]:
        """Return the next outbox, or None at the end. Each step is one request."""
        if not self._keys:
            return Search.CONTINUES if (yield from self._turn_page()) else None
        box = yield from try_read(self._boxes.read, self._keys.popleft())
        if isinstance(box, BrokenOutbox) and self._boxes.outbox.index is not None and _is_key_error(box.error):
            raise self._make_index_error()
        # An outbox might have been cleared or postponed since, because the index is updated after the table.
        return box if isinstance(box, BrokenOutbox) or box.is_due(self._before) else Search.CONTINUES

    def count_remaining(self) -> Flow[int]:
        """Return the number of items on the rest of this page."""
        return len(self._keys)
        yield  # a flow without a request

    def _turn_page(self) -> Flow[bool]:
        """Read more keys, and return whether there was another page."""
        if not self._has_more:
            return False
        outbox, placeholders = self._boxes.outbox, Placeholders()
        if outbox.index is not None:
            # The index contains only pending items. A query would need to know the number of shards that all writers use.
            request: dict[str, Any] = {"IndexName": outbox.index}
            if self._before is not None:
                request["FilterExpression"] = f"{OUTBOX.due}<={placeholders.value(self._before)}"
        else:
            if not self._key_names:
                self._key_names = yield from ask_key_names(self._boxes.table)
            condition = f"attribute_exists({OUTBOX.events})"
            if self._before is not None:
                condition += f" AND (attribute_not_exists({OUTBOX.due}) OR {OUTBOX.due}<={placeholders.value(self._before)})"
            projection = ",".join([placeholders.name(name) for name in self._key_names])
            request = {"FilterExpression": condition, "ProjectionExpression": projection, "ConsistentRead": True}
        request |= {**self._boxes.table, **placeholders.arguments(typed=self._boxes.has_typed_client)}
        if self._start is not None:
            request["ExclusiveStartKey"] = self._start
        page = yield from send(Call("scan", (), request), self._boxes.table_client)
        for item in sorted(page["Items"], key=lambda _: self._share()):
            key = plain_values(item) if self._boxes.has_typed_client else item
            if outbox.index is not None and (len(key) > _MAX_INDEX_KEYS or OUTBOX.events in key):
                raise self._make_index_error()
            self._keys.append({name: value for name, value in key.items() if name not in (OUTBOX.due, OUTBOX.shard)})
        self._start = page.get("LastEvaluatedKey")
        self._has_more = bool(self._start)
        return True

    def _make_index_error(self) -> ConfigurationError:
        return ConfigurationError(
            f"The index {self._boxes.outbox.index!r} projects more than the keys. Create one with the projection KEYS_ONLY."
        )


def _is_key_error(error: Exception) -> bool:
    """Whether the error is about a key that doesn't match the table's.

    If an index shows a further attribute next to a one-attribute key, the two look like a key of two attributes.
    """
    return (
        isinstance(error, ClientError)
        and read_error_code(error) == "ValidationException"
        and "key" in read_error_text(error)
    )


def format_key(key: Key) -> str:
    """Return the item's key as part of a URI: each attribute with its type, in alphabetical order."""
    return "/".join([f"{_quote(name)}={_format_value(key[name])}" for name in sorted(key)])


def _format_value(value: object) -> str:
    """Return a key attribute's value with its type, as part of a URI."""
    match value:
        case str():
            return f"S:{_quote(value)}"
        case int() | Decimal() if not isinstance(value, bool):
            return f"N:{format_number(value)}"
        case bytes() | bytearray() | Binary():
            return f"B:{urlsafe_b64encode(read_bytes(value) if isinstance(value, Binary) else value).decode()}"
        case _:
            raise ConfigurationError(
                f"A {type(value).__name__} can't be part of a key: DynamoDB accepts strings, numbers, and bytes."
            )


def _parse_number(text: str) -> object:
    """Return a number of a source. A large one, such as 1E+125, is written out there with more digits than DynamoDB accepts."""
    return plain_values({"": {"N": text}})[""]


# The functions that parse the result of `_format_value`, by type.
_PARSERS: dict[str, Callable[[str], object]] = {"S": unquote, "N": _parse_number, "B": urlsafe_b64decode}


def _decode_value(value: Any) -> Any:
    """Return a key attribute. Decode a binary value, which Lambda passes as a Base64 string."""
    match value:
        case {"B": str(text)}:
            return {"B": b64decode(text)}
        case _:
            return value


def _quote(text: str) -> str:
    return quote(text, safe="")
