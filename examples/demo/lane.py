"""One handler at work: its queue, its worker, and what its orders say. Time is simulated: a turn is a second."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil
from random import Random
from typing import Any

from demo.handlers import CLAIM, HANDLERS, ONEWRITE, PLAIN, Result
from demo.shops import Shop
from demo.words import ABOUT, DEATHS, DOING, Incident
from onewrite import Message

VISIBILITY = 12  # turns until the queue delivers an unacknowledged copy again; a delivery takes three or four
_AWAY = 4  # turns until another worker replaces a dead one: enough for an eye to see the gap
_POINTS = 120  # of the drift: as many as a line of a lane's width can show
# The result after which a death does most harm.
_MOST_HARMFUL = {PLAIN: Result.WRITTEN, CLAIM: Result.CLAIMED, ONEWRITE: Result.WRITTEN}


@dataclass(slots=True)
class Copy:
    """One copy of a message. The queue can deliver it from `due` on."""

    number: int
    message: Message
    due: float
    receives: int = 0

    def view(self, now: float) -> dict[str, Any]:
        body = self.message.body
        hidden = max(0, ceil(self.due - now))  # seconds until the queue delivers it again
        return {
            "copy": self.number,
            "payment": body["number"],
            "amount": body["amount"],
            "again": self.receives > 0,
            "hidden": hidden,
        }


@dataclass(slots=True)
class Account:
    """What the orders say, next to what they should say, in cents.

    A payment is due as soon as it is written or its message is acknowledged. Any other amount in the orders is drift: a payment
    that was added twice, or one that is acknowledged and missing.
    """

    _orders: dict[str, dict[str, Any]] = field(default_factory=dict)
    _due: dict[str, Message] = field(default_factory=dict)
    _drifts: deque[int] = field(default_factory=lambda: deque(maxlen=_POINTS))

    def read(self, message: Message, order: dict[str, Any]) -> int:
        """Enter the order as it is now, and return how often the payment is in it."""
        self._orders[message.body["order"]] = order
        times = self._times_added()[message.id]
        if times:
            self.expect(message)
        return times

    def expect(self, message: Message) -> None:
        if message.id not in self._due:
            self._due[message.id] = message
            self._drifts.append(self.drift)

    def is_lost(self, message: Message) -> bool:
        return message.id in self._due and not self._times_added()[message.id]

    @property
    def balance(self) -> int:
        return sum(int(order.get("cents", 0)) for order in self._orders.values())

    @property
    def expected(self) -> int:
        return sum(message.body["amount"] for message in self._due.values())

    @property
    def drift(self) -> int:
        return self.balance - self.expected

    @property
    def payments(self) -> int:
        return len(self._due)

    @property
    def doubled(self) -> int:
        return sum(times > 1 for times in self._times_added().values())

    @property
    def lost(self) -> int:
        return len(self._due.keys() - self._times_added())

    @property
    def drifts(self) -> list[int]:
        """The drift at each payment that became due, and the drift now."""
        return [*self._drifts, self.drift]

    def _times_added(self) -> Counter[str]:
        return Counter([entry for order in self._orders.values() for entry in order.get("journal", ())])


class Lane:
    """A handler with a queue and one worker at a time. Every lane gets the same copies of messages."""

    def __init__(self, name: str, shop: Shop, seed: int, log: Callable[[str, Incident, Message], None]) -> None:
        self.name = name
        self.account = Account()
        self.deliveries = self.requests = self.dropped = 0
        self._shop, self._seed, self._log = shop, seed, log
        self._copies: list[Copy] = []  # in the queue, and in the worker's hand
        self._copy: Copy | None = None  # in the worker's hand
        self._steps: Iterator[Result] = iter(())
        self._fate = Random(seed)
        self._result: Result | None = None  # of the worker's latest request for the copy
        self._away = 0  # turns until there is a worker again
        self._is_doomed = False
        # What happened at the latest turn.
        self._doing = "waits for a message"
        self._request: Result | None = None
        self._acknowledged: int | None = None

    def send(self, copy: Copy) -> None:
        self._copies.append(copy)

    def kill(self) -> None:
        """Let the worker die at the next moment at which a death does most harm."""
        self._is_doomed = True

    @property
    def is_idle(self) -> bool:
        return not self._copies

    def pending(self, now: float) -> list[Copy]:
        """Return the copies that have arrived, without the one in the worker's hand."""
        copies = [copy for copy in self._copies if copy is not self._copy and (copy.receives or copy.due <= now)]
        return sorted(copies, key=_delivery_order)

    def turn(self, now: float, crash: float) -> None:
        """Receive a copy, send a request, or acknowledge. `crash` is the chance that the worker dies instead."""
        self._request = self._acknowledged = None
        if self._away:
            self._away -= 1
            self._doing = "dead, another one is coming" if self._away else "waits for a message"
        elif self._copy is None:
            self._receive(now)
        elif self._must_die(crash):
            self._die(self._copy)
        else:
            before = self._shop.requests
            result = next(self._steps, None)
            self.requests += self._shop.requests - before
            if result is None:
                self._acknowledge(self._copy)
            else:
                self._note(result, self._copy.message)

    def _must_die(self, crash: float) -> bool:
        if self._is_doomed:  # not by chance before its moment
            return self._result is _MOST_HARMFUL[self.name]
        return self._fate.random() < crash

    def _receive(self, now: float) -> None:
        copies = sorted([copy for copy in self._copies if copy.due <= now], key=_delivery_order)
        if not copies:
            self._doing = "waits for a message"
            return
        self._copy = copy = copies[0]
        copy.due = now + VISIBILITY
        copy.receives += 1
        self.deliveries += 1
        self._steps, self._result = HANDLERS[self.name](self._shop, copy.message), None
        # The moment of a death depends on the copy alone, so that each handler dies at the same deliveries.
        self._fate = Random(f"{self._seed}/{copy.number}/{copy.receives}")
        self._doing = f"payment {copy.message.body['number']} is received"

    def _note(self, result: Result, message: Message) -> None:
        self._result = self._request = result
        self._doing = DOING[result].format(n=message.body["number"])
        times = self.account.read(message, self._shop.order(message.body["order"]))  # not counted: no handler needs it
        if result is Result.WRITTEN and times > 1:
            self._log(self.name, Incident.DOUBLED, message)
        if result is Result.KNOWN and times:
            self.dropped += 1
            self._log(self.name, Incident.DROPPED, message)

    def _acknowledge(self, copy: Copy) -> None:
        message, was_lost = copy.message, self.account.is_lost(copy.message)
        self._copies.remove(copy)
        self._copy, self._acknowledged = None, copy.number
        self._doing = f"payment {message.body['number']} is acknowledged"
        self.account.expect(message)
        if self.account.is_lost(message) and not was_lost:
            self._log(self.name, Incident.LOST, message)

    def _die(self, copy: Copy) -> None:
        self._copy, self._away, self._is_doomed = None, _AWAY, False
        self._doing = "dead, another one is coming"
        self._log(self.name, DEATHS[self._result], copy.message)

    def view(self, now: float) -> dict[str, Any]:
        account, copy = self.account, self._copy
        return {
            "name": self.name,
            "about": ABOUT[self.name],
            "queue": [waiting.view(now) for waiting in self.pending(now)],
            "worker": {
                "dead": self._away > 0,
                "doomed": self._is_doomed,
                "copy": copy.view(now) if copy else None,
                "doing": self._doing,
            },
            "request": self._request,
            "acknowledged": self._acknowledged,
            "balance": account.balance,
            "expected": account.expected,
            "drifts": account.drifts,
            "doubled": account.doubled,
            "lost": account.lost,
            "dropped": self.dropped,
            "perMessage": self.requests / account.payments if account.payments else None,
        }


def _delivery_order(copy: Copy) -> tuple[float, int]:
    return copy.due, copy.number
