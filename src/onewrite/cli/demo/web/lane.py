"""One handler at work: its queue, its worker, its requests, and what comes of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil
from types import MappingProxyType
from typing import Any

from onewrite.cli.demo.comparison import CLAIM, HANDLERS, ONEWRITE, PLAIN
from onewrite.cli.demo.shops import Shop
from onewrite.cli.demo.simulation import Broker, Copy, Turn, Worker
from onewrite.cli.demo.web.books import Books
from onewrite.cli.demo.web.watched import Answer, Watched
from onewrite.cli.demo.web.words import ABOUT, What, doing
from onewrite.message import Message
from onewrite.outcome import Entity

_AWAY = 4  # turns until another worker takes the place of a dead one: so many that an eye sees the gap

# After which answer a death does harm, or would do it to another handler in this place.
_HURTS = MappingProxyType({PLAIN: Answer.WRITTEN, CLAIM: Answer.CLAIMED, ONEWRITE: Answer.WRITTEN})
_DIED = MappingProxyType(
    {
        None: What.DIED_EARLY,
        Answer.CLAIMED: What.DIED_CLAIMED,
        Answer.WRITTEN: What.DIED_WRITTEN,
        Answer.KNOWN: What.DIED_KNOWN,
    }
)


class Lane:
    """A handler with one worker and a queue of its own, into which the same copies are sent as into the others'."""

    def __init__(self, name: str, shop: Shop, seed: int) -> None:
        self.name = name
        self.books = Books()
        self._shop = Watched(shop)
        self._broker = Broker()
        self._worker = Worker(self._broker, partial(HANDLERS[name], self._shop), seed, settled=lambda: None)
        self._requests = self._dropped = self._away = 0
        self._turn, self._turned = Turn.WAITED, self._worker.copy
        self._doomed = False

    def send(self, copy: Copy) -> None:
        self._broker.add(copy)

    def kill(self) -> None:
        """Let the worker die at the next moment between two requests at which a death can do harm."""
        self._doomed = True

    def turn(self, now: float, crash: float) -> list[tuple[What, Message]]:
        """Go on by one step, and tell what is worth a remark. A doomed worker does not die before its moment."""
        if self._away:
            self._away -= 1
            self._turn = Turn.WAITED
            return []
        copy, before = self._worker.copy, self._shop.requests
        if copy and self._doomed and self._shop.answer is _HURTS[self.name]:
            self._worker.die()
            self._turn, self._doomed = Turn.DIED, False
        else:
            self._turn = self._worker.turn(now, 0 if self._doomed else crash)
        self._requests += self._shop.requests - before
        self._turned = copy = copy or self._worker.copy
        return [(what, copy.message) for what in self._remarks(copy)] if copy else []

    def waiting(self, now: float) -> list[Copy]:
        """The copies that have arrived, without the one in hand."""
        copies = self._broker.waiting()
        return [copy for copy in copies if copy is not self._worker.copy and (copy.receives or copy.due <= now)]

    def view(self, now: float) -> dict[str, Any]:
        books, copy = self.books, self._worker.copy
        return {
            "name": self.name,
            "about": ABOUT[self.name],
            "queue": [copy_view(each, now) for each in self.waiting(now)],
            "worker": self._worker_view(copy, now),
            "request": self._shop.answer if self._turn is Turn.WENT_ON else None,
            "acknowledged": self._turned.number if self._turned and self._turn is Turn.ENDED else None,
            "balance": books.balance,
            "expected": books.expected,
            "drifts": books.drifts,
            "doubled": len(books.doubled),
            "lost": len(books.lost),
            "dropped": self._dropped,
            "perMessage": self._requests / books.payments if books.payments else None,
        }

    def _worker_view(self, copy: Copy | None, now: float) -> dict[str, Any]:
        dead = self._away > 0
        number = self._turned.message.body["number"] if self._turned else None
        return {
            "dead": dead,
            "doomed": self._doomed,
            "copy": copy_view(copy, now) if copy else None,
            "doing": doing(self._turn, self._shop.answer, number, dead=dead),
        }

    def _remarks(self, copy: Copy) -> Sequence[What]:
        match self._turn:
            case Turn.WENT_ON:
                return self._answered(copy.message)
            case Turn.ENDED:
                return self._acknowledged(copy.message)
            case Turn.DIED:
                self._away = _AWAY
                return [_DIED[self._shop.answer]]
            case _:
                self._shop.answer = None  # A delivery begins.
                return []

    def _answered(self, message: Message) -> Sequence[What]:
        times = self.books.look(message, self._order(message))
        if self._shop.answer is Answer.WRITTEN and times > 1:
            return [What.DOUBLED]
        if self._shop.answer is Answer.KNOWN and times:
            self._dropped += 1
            return [What.DROPPED]
        return []

    def _acknowledged(self, message: Message) -> Sequence[What]:
        known = message.id in self.books.lost
        self.books.acknowledge(message, self._order(message))
        return [What.LOST] if message.id in self.books.lost and not known else []

    def _order(self, message: Message) -> Entity:
        """Read without counting: no handler makes this request."""
        return self._shop.order(message.body["order"])


def copy_view(copy: Copy, now: float) -> dict[str, Any]:
    """`hidden` is the number of seconds until a copy that was delivered, and not acknowledged, comes again."""
    return {
        "copy": copy.number,
        "payment": copy.message.body["number"],
        "amount": copy.message.body["amount"],
        "again": copy.receives > 0,
        "hidden": max(0, ceil(copy.due - now)),
    }
