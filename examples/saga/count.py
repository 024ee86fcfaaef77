"""Count what became of the orders, in the databases of the three services and among the published events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saga.bad_day import BadDay, Stores
from saga.orders import ENDS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table


@dataclass(frozen=True, slots=True)
class Count:
    """The result of a day, in cents: `limits` is the customers' credit in the morning, `left` their credit now, and `spent` the value of shipped orders."""

    wanted: int
    placed: int
    confirmed: int
    refused: int
    shipped: int
    cancelled: int
    unfinished: int
    parcels: int
    limits: int
    left: int
    spent: int
    published: int
    out_of_order: int
    copies_published: int
    copies_dropped: int
    came_too_early: int
    crashes: int
    lost_answers: int

    @property
    def missing(self) -> int:
        """Cents that neither the customers nor the shop have. Negative if cents appeared from nowhere."""
        return self.limits - self.left - self.spent

    @property
    def adds_up(self) -> bool:
        everything_ended = self.placed == self.wanted and self.unfinished == 0
        return everything_ended and self.parcels == self.shipped and self.missing == 0 and self.out_of_order == 0


def count(stores: Stores, day: BadDay, *, wanted: int, limits: int) -> Count:
    orders = [*_items(stores.orders)]
    steps = [step for order in orders for step in order["steps"]]
    shipped = [order for order in orders if order["status"] == "SHIPPED"]
    published = day.published.values()
    copies = [count for each in published for count in each.copies.values()]  # of each event
    return Count(
        wanted=wanted,
        placed=len(orders),
        confirmed=steps.count("CONFIRMED"),
        refused=steps.count("REFUSED"),
        shipped=len(shipped),
        cancelled=steps.count("CANCELLED"),
        unfinished=sum(order["status"] not in ENDS for order in orders),
        parcels=sum(parcel.get("status") == "SENT" for parcel in _items(stores.parcels)),
        limits=limits,
        left=sum(account["available"] for account in stores.accounts.find()),
        spent=sum(int(order["cents"]) for order in shipped),
        published=len(copies),
        out_of_order=sum(each.out_of_order for each in published),
        copies_published=sum(copies) - len(copies),
        copies_dropped=day.counts["copies dropped"],
        came_too_early=day.counts["came too early"],
        crashes=day.counts["crashes"],
        lost_answers=day.counts["lost answers"],
    )


def _items(table: Table) -> Iterator[dict[str, Any]]:
    for page in table.meta.client.get_paginator("scan").paginate(TableName=table.name):
        yield from page["Items"]
