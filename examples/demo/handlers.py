"""Three ways to add a payment to an order.

A handler is a generator that stops after each of its requests, because a worker can die there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TypeAlias

from demo.shops import Shop
from onewrite import Message


class Result(StrEnum):
    """What a request did."""

    WRITTEN = "written"
    CLAIMED = "claimed"
    KNOWN = "known"


Handler: TypeAlias = Callable[[Shop, Message], Iterator[Result]]


def plain_write(shop: Shop, message: Message) -> Iterator[Result]:
    """Trust that each message arrives once."""
    shop.write(message)
    yield Result.WRITTEN


def claim_then_write(shop: Shop, message: Message) -> Iterator[Result]:
    """Store the id in a table of seen ids, then write. The check and the mark are one conditional request."""
    if not shop.claim(message):
        yield Result.KNOWN
        return
    yield Result.CLAIMED
    shop.write(message)
    yield Result.WRITTEN


def guarded_write(shop: Shop, message: Message) -> Iterator[Result]:
    """Make the check, the mark, and the effect one request."""
    yield Result.WRITTEN if shop.guarded_write(message) else Result.KNOWN


PLAIN, CLAIM, ONEWRITE = "plain write", "claim, then write", "onewrite"
HANDLERS: dict[str, Handler] = {PLAIN: plain_write, CLAIM: claim_then_write, ONEWRITE: guarded_write}
