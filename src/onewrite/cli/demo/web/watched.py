"""A shop that keeps its last answer, so that a page can show what each request came to."""

from __future__ import annotations

from enum import StrEnum

from onewrite.cli.demo.shops import Shop
from onewrite.message import Message
from onewrite.outcome import Entity


class Answer(StrEnum):
    """What a request of a handler came to."""

    WRITTEN = "written"
    CLAIMED = "claimed"
    KNOWN = "known"


class Watched:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.answer: Answer | None = None

    @property
    def requests(self) -> int:
        return self._shop.requests

    def write(self, message: Message) -> None:
        self._shop.write(message)
        self.answer = Answer.WRITTEN

    def claim(self, message: Message) -> bool:
        new = self._shop.claim(message)
        self.answer = Answer.CLAIMED if new else Answer.KNOWN
        return new

    def guarded_write(self, message: Message) -> bool:
        new = self._shop.guarded_write(message)
        self.answer = Answer.WRITTEN if new else Answer.KNOWN
        return new

    def order(self, name: str) -> Entity:
        return self._shop.order(name)
