"""Reads one item with all that is ours in it, and changes it only if it still is as it was read."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeGuard, cast

from botocore.exceptions import ClientError

from onewrite.dynamodb.expression import check_limits, merge_update
from onewrite.dynamodb.flows import code, send
from onewrite.dynamodb.layout import ATTEMPT_SLOTS, is_made_by, lookup, name_of
from onewrite.dynamodb.outboxes import origin
from onewrite.dynamodb.pages import Pages
from onewrite.dynamodb.placeholders import Placeholders
from onewrite.dynamodb.size import item_size
from onewrite.dynamodb.values import is_typed, plain, typed
from onewrite.errors import ConfigurationError
from onewrite.flow import Call, Flow
from onewrite.label import PREFIX, STEP, Slot, is_step
from onewrite.ledgers.seen_ids import KEPT
from onewrite.repair.image import Image, Layout, Plan

LAYOUT = Layout("DynamoDB", name_of, name_of, is_made_by, tokens=ATTEMPT_SLOTS, largest=10**38 - 1)

# Fields that one condition may ask about. It has 300 operators at most, of which each takes two, and 4 KB, of which each takes 16 bytes.
_MOST_AT_ONCE = 140
_FEWEST_AT_ONCE = 20
_OF_SOURCE = re.compile(rf"(?P<group>{PREFIX}@)(?P<key>.+)", re.DOTALL)
_IN_RING = re.compile(rf"(?P<prefix>{PREFIX}{KEPT})(?P<key>(?P<kind>[rt])\d)")
_LAST = re.compile(rf"{PREFIX}(?:[lo]|t\d)")


class Repairs:
    """The items of a table, as its plain client reads and writes them."""

    def __init__(self, client: Any, table_name: str) -> None:
        self.target = client
        self._table = {"TableName": table_name}

    def key(self, text: str) -> dict[str, Any]:
        """The typed key that is written as JSON: {"orderId": "o-1"}. Bytes are {"B": "base64"}, as in AWS's own tools."""
        try:
            found: object = json.loads(text, parse_float=Decimal)
            if isinstance(found, dict) and found:
                return typed({name: _key_value(value) for name, value in cast("dict[str, object]", found).items()})
        except (ValueError, NotBase64):
            pass
        raise ConfigurationError(f"""--key {text}: give the whole key of an item as JSON, as in '{{"orderId": "o-1"}}'.""")

    def read(self, key: Mapping[str, Any]) -> Flow[Image | None]:
        """The item of that typed key as it is now; None if there is none."""
        response = yield Call("get_item", (), {**self._table, "Key": dict(key), "ConsistentRead": True})
        return image_of(response["Item"], tuple(key)) if "Item" in response else None

    def calls(self, image: Image, plan: Plan) -> list[Call]:
        """The requests of a plan. There are several only where one cannot name all that is to be removed."""
        named = {**self._table, "Key": dict(image.key)}
        if plan.deletes:
            return [Call("delete_item", (), {**named, **_expressions(image, plan)})]
        return [Call("update_item", (), {**named, **_expressions(image, part)}) for part in _parts(plan)]

    def write(self, image: Image, plan: Plan) -> Flow[int]:
        """Send the requests, one by one, and stop at the first that meets a changed item. Returns how many were done."""
        calls = self.calls(image, plan)
        for done, call in enumerate(calls):
            try:
                yield from send(call)
            except ClientError as error:
                if code(error) != "ConditionalCheckFailedException":
                    raise
                return done
        return len(calls)

    def shown(self, call: Call) -> Any:
        """A request as JSON has it. Bytes are in base64, as in AWS's own tools."""
        return {call.method: json.loads(json.dumps(call.kwargs, default=lambda value: b64encode(value).decode()))}

    def count(self) -> Flow[int]:
        """About how many items there are."""
        return Pages(self._table, {}).count()

    def pages(self, size: int) -> ImagePages:
        return ImagePages(Pages(self._table, {"ConsistentRead": True, "Limit": size}))


class ImagePages:
    """Goes through a table once. It reads consistently, so that nothing is passed over."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def next(self) -> Flow[list[Image] | None]:
        """The items of the next page, which may have none; None at the end."""
        page = yield from self._pages.next()
        return None if page is None else [image_of(item, self._pages.key_names) for item in page["Items"]]


def image_of(item: Mapping[str, Any], key_names: Sequence[str]) -> Image:
    """The image of an item of typed values. It is put in order, so that the same item always makes the same requests."""
    item = {name: _ordered(item[name]) for name in sorted(item)}
    fields = plain(item)
    sizes = {name: item_size({name: value}) for name, value in fields.items()}
    slots = {_slot_of(name): name for name in fields}
    held = lookup(fields)
    key = {name: item[name] for name in sorted(key_names)}
    return Image(
        LAYOUT,
        key,
        origin(plain(key)),
        fields={name: held(Slot(name)) for name in fields},
        slots={slot: held(slot) for slot in slots},
        lookup=held,
        steps={name.removeprefix(STEP): fields[name] for name in fields if is_step(name)},
        sizes=sizes,
        slot_sizes={slot: sizes[name] for slot, name in slots.items()},
        size=sum(sizes.values()),
        raw=item,
    )


def _ordered(value: Mapping[str, Any]) -> Mapping[str, Any]:
    ((kind, held),) = value.items()
    return {kind: sorted(held)} if kind in ("SS", "NS", "BS") else value


def _slot_of(name: str) -> Slot:
    """The slot that stands in the attribute of that name, if it is one of a ledger; else the name itself."""
    if found := _OF_SOURCE.fullmatch(name):
        return Slot(found["group"], found["key"])
    found = _IN_RING.fullmatch(name)
    return Slot(name) if found is None else Slot(found["prefix"] + found["kind"], found["key"])


def _key_value(value: object) -> object:
    if not is_typed(value):
        return b64decode(value["B"], validate=True) if _is_bytes(value) else value
    return plain({"": cast("dict[str, Any]", value)})[""]


def _is_bytes(value: object) -> TypeGuard[dict[str, str]]:
    return isinstance(value, dict) and [*cast("dict[str, object]", value)] == ["B"]


def _parts(plan: Plan) -> list[Plan]:
    """The plan in as many requests as it takes. Labels and tokens go last: until then they say whose the rest is."""
    if len(plan.as_read) <= _MOST_AT_ONCE:
        return [plan]
    first = [name for name in plan.removes if not _LAST.fullmatch(name)]
    always = tuple([name for name in plan.as_read if name not in first])
    room = max(_FEWEST_AT_ONCE, _MOST_AT_ONCE - len(always))
    chunks = [tuple(first[n : n + room]) for n in range(0, len(first), room)]
    last = tuple([name for name in plan.removes if name not in first])
    parts = [Plan((*always, *chunk), chunk) for chunk in chunks]
    return [*parts, Plan(always, last)] if last else parts


def _expressions(image: Image, plan: Plan) -> dict[str, Any]:
    """The condition, and the update, of one request."""
    words = Placeholders()
    conditions: list[str] = []
    for name in plan.as_read:
        if name in image.raw:
            conditions.append(f"{words.name(name)}={words.value(image.raw[name])}")
        else:
            conditions.append(f"attribute_not_exists({words.name(name)})")
    removes = [words.name(name) for name in (*plan.removes, *map(name_of, plan.unsets))]
    deletes = [f"{words.name(name_of(slot))} {words.value(_typed_set(members))}" for slot, members in plan.drops]
    sets = [f"{words.name(name_of(slot))}={words.value(typed({'': mark})[''])}" for slot, mark in plan.sets]
    clauses = {"SET": ",".join(sets), "REMOVE": ",".join(removes), "DELETE": ",".join(deletes)}
    update = {} if plan.deletes else {"UpdateExpression": merge_update(None, clauses)}
    condition = " AND ".join(conditions)
    check_limits("ConditionExpression", condition, "this entity has too many ledgers for it")
    return {
        **update,
        "ConditionExpression": condition,
        "ExpressionAttributeNames": words.names,
        "ExpressionAttributeValues": words.values,
    }


def _typed_set(members: Sequence[str | bytes | int]) -> dict[str, Any]:
    if isinstance(members[0], int):
        return {"NS": [*map(str, members)]}
    return {"SS" if isinstance(members[0], str) else "BS": [*members]}
