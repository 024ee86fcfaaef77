"""A table for the verbs: images of its items, a scan, and writes that change only an unchanged item."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any, cast

from botocore.exceptions import ClientError

from onewrite.core.flow import Call, run
from onewrite.core.label import EFFECT, EFFECTS, Slot
from onewrite.core.ledgers.ring import SLOTS
from onewrite.core.ledgers.seen_ids import RING_LAYOUT
from onewrite.dynamodb.expression import Placeholders, check_limits, format_update
from onewrite.dynamodb.flows import ask_key_names, read_error_code, read_error_text, send, try_send
from onewrite.dynamodb.layout import locate_slot, lookup, read_slot
from onewrite.dynamodb.values import is_typed, measure_item, plain_values, read_bytes, typed_values
from onewrite.errors import ConfigurationError
from onewrite.operate.image import Edit, EntityImage, Layout

_LEDGER_NAMES = rf"(?:l|{RING_LAYOUT}r[0-{len(SLOTS) - 1}]|allt?|@.*)"
LAYOUT = Layout("DynamoDB", locate_slot, locate_slot, _LEDGER_NAMES, has_token=True, max_number=10**38 - 1)


class TableStore:
    """The items of a table."""

    where = "--region or --endpoint-url"

    def __init__(self, client: Any, table_name: str) -> None:
        self.target, self.name = client, table_name

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

    def read(self, key: Mapping[str, Any]) -> EntityImage | None:
        """Return the item with this typed key, or None."""
        call = Call("get_item", (), {"TableName": self.name, "Key": dict(key), "ConsistentRead": True})
        try:
            response = run(send(call), self.target)
        except ClientError as error:
            if read_error_code(error) != "ValidationException":
                raise
            raise ConfigurationError(
                f"--key doesn't name an item of the table {self.name}: {read_error_text(error).removesuffix('.')}. Pass each of the "
                "table's key attributes, with its type."
            ) from error
        return make_image(response["Item"], tuple(key)) if "Item" in response else None

    def list_pages(self, attribute: str) -> Iterator[list[EntityImage]]:
        """Yield the items that have the attribute, page by page."""
        names = {"#a": attribute}
        yield from scan_table(
            self.target, self.name, FilterExpression="attribute_exists(#a)", ExpressionAttributeNames=names
        )

    def compile_edit(self, image: EntityImage, edit: Edit) -> Call:
        """Return the request of an edit."""
        words = Placeholders()
        conditions = [
            f"{words.name(name)}={words.value(image.raw[name])}"
            if name in image.raw
            else f"attribute_not_exists({words.name(name)})"
            for name in edit.as_read
        ]
        clauses = {
            "SET": [
                f"{words.name(locate_slot(slot))}={words.value(typed_values({'': mark})[''])}" for slot, mark in edit.sets
            ],
            "REMOVE": [words.name(name) for name in (*edit.removes, *map(locate_slot, edit.unsets))],
            "DELETE": [f"{words.name(locate_slot(slot))} {words.value({'SS': [*members]})}" for slot, members in edit.drops],
        }
        update, condition = format_update(clauses), " AND ".join(conditions)
        check_limits("ConditionExpression", condition, "change the entity's ledgers in your own code")
        check_limits("UpdateExpression", update, "remove sources with `onewrite set-mark --remove` first")
        expressions = {"UpdateExpression": update, "ConditionExpression": condition, **words.arguments(typed=False)}
        return Call("update_item", (), {"TableName": self.name, "Key": dict(image.key), **expressions})

    def write(self, call: Call) -> bool:
        """Send the request, and return whether the item was unchanged."""
        return run(try_send(call), self.target)

    def export_call(self, call: Call) -> Any:
        """Return a request as JSON, with bytes in base64, as in AWS's tools."""
        return {call.method: json.loads(json.dumps(call.kwargs, default=lambda value: b64encode(value).decode()))}


def scan_table(client: Any, table_name: str, *, keys: Sequence[str] = (), **request: Any) -> Iterator[list[EntityImage]]:
    """Yield a table's items, page by page. `keys` are the names of the table's key attributes, if they are known.

    The reads are eventually consistent, at half the price: a write of the last second can be missing.
    """
    table = {"TableName": table_name}
    key_names, start = tuple(keys) or run(ask_key_names(table), client), dict[str, Any]()
    while True:
        page = run(send(Call("scan", (), {**table, **request, **start})), client)
        yield [make_image(item, key_names) for item in page["Items"]]
        if not page.get("LastEvaluatedKey"):
            return
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


def make_image(item: Mapping[str, Any], key_names: Sequence[str]) -> EntityImage:
    """Return the image of an item of typed values. It is sorted, because the same item must produce the same requests."""
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
    """Return the open effects by their marks. Foreign content in their place is an effect without a mark."""
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
