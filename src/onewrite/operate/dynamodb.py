"""A table as the verbs see it: images of its items, a scan, and writes that land only on an unchanged item."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any, cast

from botocore.exceptions import ClientError

from onewrite.core.flow import Call, Flow
from onewrite.core.label import EFFECT, EFFECTS, PREFIX, Slot
from onewrite.core.ledgers.ring import SLOTS
from onewrite.core.ledgers.seen_ids import RING_LAYOUT
from onewrite.dynamodb.expression import Placeholders, check_limits, merge_update
from onewrite.dynamodb.flows import ask_key_names, read_error_code, read_error_text, send
from onewrite.dynamodb.layout import locate_slot, lookup, read_slot
from onewrite.dynamodb.size import measure_item
from onewrite.dynamodb.values import is_typed, plain_values, read_bytes, typed_values
from onewrite.errors import ConfigurationError
from onewrite.operate.image import Edit, EntityImage, Layout

# The maximum number of fields in one condition. DynamoDB allows 300 operators, two per field, and 4 KB, 16 bytes per field.
_MAX_FIELDS = 140
_MIN_FIELDS = 20
_LAST = re.compile(rf"{PREFIX}[lot]")
_LEDGER_NAMES = rf"(?:l|{RING_LAYOUT}r[0-{len(SLOTS) - 1}]|allt?|@.*)"


def _spell_raw(value: Mapping[str, Any]) -> str | None:
    if "N" not in value:
        return value.get("S")
    number = Decimal(value["N"])
    return str(int(number)) if number == int(number) else None


LAYOUT = Layout("DynamoDB", locate_slot, locate_slot, _LEDGER_NAMES, _spell_raw, has_token=True, max_number=10**38 - 1)


class TableStore:
    """The items of a table, read with its plain client."""

    where = "--region or --endpoint-url"

    def __init__(self, client: Any, table_name: str) -> None:
        self.target, self.name = client, table_name
        self._table = {"TableName": table_name}

    def parse_key(self, text: str) -> dict[str, Any]:
        """Return the typed key of a JSON text: {"orderId": "o-1"}. Bytes are {"B": "base64"}, as in AWS's tools."""
        try:
            key: object = json.loads(text, parse_float=Decimal)
            if isinstance(key, dict) and key:
                return typed_values({name: _read_key_value(value) for name, value in cast("dict[str, object]", key).items()})
        except (ValueError, TypeError, ArithmeticError):
            pass  # refused below, as a key that isn't a mapping is
        raise ConfigurationError(
            f"""--key {text}: expected the whole key of an item as JSON, for example '{{"orderId": "o-1"}}', with bytes as """
            '{"B": "base64"}.'
        )

    def read(self, key: Mapping[str, Any]) -> Flow[EntityImage | None]:
        """Return the item with this typed key, or None."""
        try:
            response = yield from send(Call("get_item", (), {**self._table, "Key": dict(key), "ConsistentRead": True}))
        except ClientError as error:
            if read_error_code(error) != "ValidationException":
                raise
            raise ConfigurationError(
                f"--key doesn't name an item of the table {self.name}: {read_error_text(error).removesuffix('.')}. Pass each of the "
                "table's key attributes, with its type."
            ) from error
        return make_image(response["Item"], tuple(key)) if "Item" in response else None

    def scan(self, attribute: str) -> TableScan:
        return TableScan(self.name, attribute)

    def calls(self, image: EntityImage, edit: Edit) -> list[Call]:
        """Return the requests of an edit. There are several only if one can't name every removed field."""
        target = {**self._table, "Key": dict(image.key)}
        return [Call("update_item", (), {**target, **_make_expressions(image, part)}) for part in _split_edit(edit)]

    def write(self, image: EntityImage, edit: Edit) -> Flow[int]:
        """Send the requests one by one, until one finds a changed item. Return the number of successful requests."""
        calls = self.calls(image, edit)
        for index, call in enumerate(calls):
            try:
                yield from send(call)
            except ClientError as error:
                if read_error_code(error) != "ConditionalCheckFailedException":
                    raise
                return index
        return len(calls)

    def to_json(self, call: Call) -> Any:
        """Return a request as JSON, with bytes in base64, as in AWS's tools."""
        return {call.method: json.loads(json.dumps(call.kwargs, default=lambda value: b64encode(value).decode()))}


class TableScan:
    """A single pass over a table, page by page. With `attribute`, only items that have it count."""

    def __init__(
        self, table_name: str, attribute: str | None = None, *, size: int | None = None, keys: Sequence[str] = ()
    ) -> None:
        self._keys = tuple(keys)
        self._table = {"TableName": table_name}
        # The start of the next page: empty at the start of the table, and None after its end.
        self._start: Mapping[str, Any] | None = {}
        # Reads are eventually consistent, at half the price. A write of the last second can be missed.
        self._request: dict[str, Any] = {} if size is None else {"Limit": size}
        if attribute is not None:
            self._request |= {"FilterExpression": "attribute_exists(#a)", "ExpressionAttributeNames": {"#a": attribute}}

    def next(self) -> Flow[list[EntityImage] | None]:
        """Return the items of the next page, possibly none, or None at the end."""
        if self._start is None:
            return None
        if not self._keys:
            self._keys = yield from ask_key_names(self._table)
        start = {"ExclusiveStartKey": self._start} if self._start else {}
        page = yield from send(Call("scan", (), {**self._table, **self._request, **start}))
        self._start = page.get("LastEvaluatedKey") or None
        return [make_image(item, self._keys) for item in page["Items"]]


def make_image(item: Mapping[str, Any], key_names: Sequence[str]) -> EntityImage:
    """Return the image of an item of typed values. It is sorted, so that the same item always produces the same requests."""
    item = {name: _sort_members(item[name]) for name in sorted(item)}
    values = plain_values(item)
    sizes = {name: measure_item({name: value}) for name, value in values.items()}
    names_by_slot = {read_slot(name): name for name in values}
    item_lookup = lookup(values)
    key = {name: item[name] for name in sorted(key_names)}
    return EntityImage(
        LAYOUT,
        key,
        format_key(plain_values(key)),
        fields={name: item_lookup(Slot(name)) for name in values},
        slots={slot: item_lookup(slot) for slot in names_by_slot},
        lookup=item_lookup,
        effects=_read_effects(values),
        sizes=sizes,
        slot_sizes={slot: sizes[name] for slot, name in names_by_slot.items()},
        size=sum(sizes.values()),
        raw=item,
    )


def _sort_members(value: Mapping[str, Any]) -> Mapping[str, Any]:
    ((kind, members),) = value.items()
    return {kind: sorted(members)} if kind in ("SS", "NS", "BS") else value


def _read_effects(fields: Mapping[str, Any]) -> dict[str, object]:
    """Return the open effects by their marks. If the set contains something else, show it as an effect without a mark."""
    marks: object = fields.get(EFFECTS, frozenset[object]())
    if not isinstance(marks, AbstractSet):
        return {"": marks}
    names = [mark if isinstance(mark, str) else "" for mark in cast("AbstractSet[object]", marks)]
    return {name: fields.get(f"{EFFECT}{name}") for name in sorted(names)}


def format_key(key: Mapping[str, Any]) -> str:
    """Return a key of plain values as `--key` takes it."""

    def encode(value: Any) -> object:
        if isinstance(value, Decimal):
            return int(value) if value == int(value) else {"N": str(value)}  # a JSON float would lose digits
        return {"B": b64encode(read_bytes(value)).decode()}

    return json.dumps(dict(key), default=encode)


def _read_key_value(value: Any) -> object:
    match value:
        case {"B": str(text)}:
            return b64decode(text, validate=True)
        case _:
            return plain_values({"": value})[""] if is_typed(value) else value


def _split_edit(edit: Edit) -> list[Edit]:
    """Return the edit in as few requests as possible. Labels and the token go last, because they identify the rest."""
    if len(edit.as_read) <= _MAX_FIELDS:
        return [edit]
    first_names = [name for name in edit.removes if not _LAST.fullmatch(name)]
    always = tuple([name for name in edit.as_read if name not in first_names])
    room = max(_MIN_FIELDS, _MAX_FIELDS - len(always))
    chunks = [tuple(first_names[n : n + room]) for n in range(0, len(first_names), room)]
    last_names = tuple([name for name in edit.removes if name not in first_names])
    parts = [Edit((*always, *chunk), chunk) for chunk in chunks]
    return [*parts, Edit(always, last_names)] if last_names else parts


def _make_expressions(image: EntityImage, edit: Edit) -> dict[str, Any]:
    """Return the condition and the update of one request."""
    words = Placeholders()
    conditions: list[str] = []
    for name in edit.as_read:
        if name in image.raw:
            conditions.append(f"{words.name(name)}={words.value(image.raw[name])}")
        else:
            conditions.append(f"attribute_not_exists({words.name(name)})")
    removes = [words.name(name) for name in (*edit.removes, *map(locate_slot, edit.unsets))]
    deletes: list[str] = []
    for slot, members in edit.drops:
        deletes.append(f"{words.name(locate_slot(slot))} {words.value({'SS': [*members]})}")
    sets = [f"{words.name(locate_slot(slot))}={words.value(typed_values({'': mark})[''])}" for slot, mark in edit.sets]
    clauses = {"SET": sets, "REMOVE": removes, "DELETE": deletes}
    condition = " AND ".join(conditions)
    check_limits("ConditionExpression", condition, "this entity has too many ledgers for one condition")
    return {
        "UpdateExpression": merge_update(None, clauses),
        "ConditionExpression": condition,
        **words.arguments(typed=False),
    }
