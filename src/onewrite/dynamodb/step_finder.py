"""Finds the steps that are open in a table, whatever ledger their finish writes. It reads the whole table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

from boto3.dynamodb.types import Binary

from onewrite.dynamodb.outboxes import origin
from onewrite.dynamodb.pages import Pages
from onewrite.dynamodb.values import plain, raw
from onewrite.flow import Flow
from onewrite.label import STEP, STEPS, is_step
from onewrite.step import FoundStep, found_step


class StepFinder:
    """Goes through a table once, by a plain client.

    The names of steps cannot be known before, so whole items are read. Reads are eventually consistent, at half the price: what was
    begun within the last second may be missed, and what was finished then may still be shown.
    """

    def __init__(self, client: Any, table_name: str) -> None:
        self.target = client
        self._pages = Pages({"TableName": table_name}, {"FilterExpression": f"attribute_exists({STEPS})"})

    def next(self) -> Flow[list[FoundStep] | None]:
        """The steps of the next page, which may have none; None at the end."""
        page = yield from self._pages.next()
        return None if page is None else [found for item in page["Items"] for found in self._steps(item)]

    def _steps(self, item: Mapping[str, Any]) -> Iterator[FoundStep]:
        names = [name for name in item if name in self._pages.key_names or name == STEPS or is_step(name)]
        held = plain({name: item[name] for name in names})
        entity, marks = origin({name: held[name] for name in self._pages.key_names}), held[STEPS]
        if not isinstance(marks, AbstractSet):
            yield found_step(entity, marks)
            return
        for mark in sorted([_hex(mark) for mark in cast("AbstractSet[object]", marks)]):
            yield found_step(entity, held.get(f"{STEP}{mark}"))


def _hex(mark: object) -> str:
    return raw(mark).hex() if isinstance(mark, Binary) else ""
