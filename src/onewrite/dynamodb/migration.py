"""What a migration asks of a table: see onewrite/migration/visit.py. It reads the whole table, and writes one item a request."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, cast

from botocore.exceptions import ClientError

from onewrite.clock import random_name
from onewrite.dynamodb.flows import Flows, code, says_too_large, send, text_of
from onewrite.dynamodb.layout import lookup, name_of
from onewrite.dynamodb.outboxes import origin
from onewrite.dynamodb.pages import Pages
from onewrite.dynamodb.request import Words, constants, fits_labels
from onewrite.dynamodb.size import LARGEST_ITEM, item_size
from onewrite.dynamodb.values import Members, plain, typed
from onewrite.errors import EntityTooLarge
from onewrite.flow import Call, Flow
from onewrite.label import TOMBSTONE, whose
from onewrite.ledgers import HighWaterMark
from onewrite.ledgers.entry import Advance
from onewrite.migration.plan import CarryIds, CarryMark, Drop, Found, Step, dropped_by, sets_of
from onewrite.migration.visit import Page
from onewrite.outcome import Gone, Unmet

_ROOM = 1024  # for the tokens of attempts, and for what consumers add meanwhile


class MigrationStore:
    """A table, by a plain client. `attribute`: only items that have it are looked at; None for all."""

    def __init__(
        self,
        client: Any,
        table_name: str,
        attribute: str | None,
        *,
        clock: Callable[[], float],
        position: object = None,
    ) -> None:
        self.target = client
        self._table, self._name, self._attribute = {"TableName": table_name}, table_name, attribute
        self._clock = clock
        # What a write has put there a moment ago must not be missed: a later run would be needed to find it.
        request: dict[str, Any] = {"ConsistentRead": True}
        if attribute is not None:
            request |= {"FilterExpression": "attribute_exists(#a)", "ExpressionAttributeNames": {"#a": attribute}}
        self._pages = Pages(self._table, request, None if position is None else _from_json(position))

    @property
    def position(self) -> object:
        return None if self._pages.start is None else _as_json(self._pages.start)

    def total(self) -> Flow[int]:
        return self._pages.count()

    def next(self) -> Flow[Page | None]:
        page = yield from self._pages.next()
        if page is None:
            return None
        items = [plain(item) for item in page["Items"]]
        return Page([self._found(item) for item in items if TOMBSTONE not in item], page["ScannedCount"])

    def look(self, found: Found) -> Flow[Found | None]:
        response = yield Call("get_item", (), {**self._table, "Key": typed(found.key), "ConsistentRead": True})
        item = plain(response.get("Item", {}))
        if not item or TOMBSTONE in item or (self._attribute is not None and self._attribute not in item):
            return None
        return self._found(item)

    def _found(self, item: Mapping[str, Any]) -> Found:
        key = {name: item[name] for name in self._pages.key_names}
        return Found(origin(key), key, item, lookup(item), item_size(item))

    def write(self, found: Found, step: Step) -> Flow[bool]:
        if isinstance(step, CarryMark):
            return (yield from self._record(found, step))
        try:
            yield from send(Call("update_item", (), {**self._table, "Key": typed(found.key), **request_of(step)}))
        except ClientError as error:
            if code(error) == "ConditionalCheckFailedException":
                return False
            if says_too_large(text_of(error)):
                raise EntityTooLarge(
                    "The entity has grown meanwhile, and has no room for both now. Run it again."
                ) from error
            raise
        return True

    def _record(self, found: Found, step: CarryMark) -> Flow[bool]:
        ledger = HighWaterMark(name=whose(step.entry.terms.attribute))
        flows = Flows(self.target, ledger, self._name, self._clock, random_name, awaited=False)
        outcome = yield from flows.record(step.message, {"Key": found.key, **_unchanged(step)})
        return not isinstance(outcome, Unmet | Gone)

    def size_after(self, found: Found, step: Step) -> int:
        return item_size(after(found.held, step))

    def fits(self, found: Found, step: Step) -> bool:
        return self.size_after(found, step) + _ROOM <= LARGEST_ITEM


def request_of(step: CarryIds | Drop) -> dict[str, Any]:
    """The arguments of `update_item` beside the key."""
    words, labels, drop = Words(), step.entry.terms.labels, dropped_by(step)
    old, values = words.short(step.attribute), cast("dict[str, Any]", constants(step.entry.terms))
    asked = [f"attribute_exists({old})", f"attribute_not_exists({TOMBSTONE})", *fits_labels(step.entry.terms, words)]
    clauses = {"SET": [f"{words(name_of(label.slot))}=:ow_l{n}" for n, label in enumerate(labels)]}
    removed: list[str] = []
    if isinstance(step, CarryIds):
        clauses["ADD"] = [f"{words(name_of(sets_of(step).present))} :ow_s"]
        removed += [words(name_of(slot)) for slot in step.entry.dead]
        values[":ow_s"] = Members(step.marks)
    if drop is not None:
        asked.append(f"{old}=:ow_r")
        removed.append(old)
        values[":ow_r"] = drop.read
    if isinstance(step, Drop):
        asked.extend(_still_carried(step, words))
    update = {**clauses, "REMOVE": removed} if removed else clauses
    return {
        "UpdateExpression": " ".join([f"{name} {','.join(parts)}" for name, parts in update.items()]),
        "ConditionExpression": " AND ".join(asked),
        "ExpressionAttributeNames": words.names,
        "ExpressionAttributeValues": typed(values),
    }


def _still_carried(step: Drop, words: Words) -> list[str]:
    """A mark only rises, and a set loses nothing that is needed, unless somebody takes the whole ledger away meanwhile."""
    labelled = f"attribute_exists({words(name_of(step.entry.terms.labels[0].slot))})"
    own = step.entry.own
    return [labelled, f"{words.short(name_of(own.slot))}>=:ow_r"] if isinstance(own, Advance) else [labelled]


def _unchanged(step: CarryMark) -> dict[str, Any]:
    return {
        "ConditionExpression": "#old = :old",
        "ExpressionAttributeNames": {"#old": step.attribute},
        "ExpressionAttributeValues": {":old": step.read},
    }


def after(item: Mapping[str, Any], step: Step) -> dict[str, Any]:
    """The item as it is after the step, but for the tokens of attempts."""
    entry, drop = step.entry, dropped_by(step)
    changed = {**item, **{name_of(label.slot): label.text for label in entry.terms.labels}}
    if isinstance(step, CarryIds):
        name = name_of(sets_of(step).present)
        changed[name] = {*cast("set[Any]", item.get(name, ())), *step.marks}
    elif isinstance(step, CarryMark):
        changed[name_of(cast("Advance", entry.own).slot)] = step.read
    gone = entry.dead if isinstance(step, CarryIds) else []
    removed = {name_of(slot) for slot in gone} | ({step.attribute} if drop is not None else set[str]())
    return {name: value for name, value in changed.items() if name not in removed}


def _as_json(key: Mapping[str, Any]) -> object:
    return {
        name: [kind, b64encode(value).decode() if kind == "B" else value]
        for name, each in key.items()
        for kind, value in each.items()
    }


def _from_json(position: object) -> dict[str, Any]:
    found = cast("Mapping[str, tuple[str, str]]", position)
    return {name: {kind: b64decode(value) if kind == "B" else value} for name, (kind, value) in found.items()}
