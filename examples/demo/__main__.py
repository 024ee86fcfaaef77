"""Three handlers under duplicates and crashes: `python -m demo` compares them, and `python -m demo --web` shows them on a page."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial

from demo.handlers import ONEWRITE
from demo.lane import Lane
from demo.shops import DynamoShop, MongoShop, Shop
from demo.stream import PaymentStream
from demo.web import serve

PAYMENTS = 100
_WIDTHS = (19, 12, 22, 13, 4)


def main() -> None:
    for shop in (DynamoShop, MongoShop):
        with ExitStack() as shops:
            compare(shop.engine, partial(_open, shop, shops))


def _open(kind: Callable[[str], Shop], shops: ExitStack, name: str) -> Shop:
    return shops.enter_context(closing(kind(name)))


def compare(engine: str, open_shop: Callable[[str], Shop]) -> None:
    stream = PaymentStream(open_shop, payments=PAYMENTS)
    while not stream.is_done:
        stream.turn(duplicates=20, crashes=7)
    print(f"{PAYMENTS} payments on {engine}\n")
    print(_line(["handler", "deliveries", "requests a payment", "added twice", "lost"]))
    for lane in stream.lanes.values():
        print(_line(_cells(lane)))
    print()
    account = stream.lanes[ONEWRITE].account
    if account.doubled or account.lost:
        sys.exit("The row of onewrite must end with two zeros: this is a bug in onewrite.")


def _cells(lane: Lane) -> list[str]:
    account = lane.account
    requests = f"{lane.requests / account.payments:.2f}"
    return [lane.name, f"{lane.deliveries}", requests, f"{account.doubled}", f"{account.lost}"]


def _line(cells: list[str]) -> str:
    return "".join([f"{cell:{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)]).rstrip()


if __name__ == "__main__":
    if sys.argv[1:] == ["--web"]:
        serve(DynamoShop)
    else:
        main()
