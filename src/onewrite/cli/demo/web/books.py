"""What the orders of one shop say, beside what they should say."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from onewrite.message import Message
from onewrite.outcome import Entity

_POINTS = 120  # of the drift: what a line as wide as a lane can show


@dataclass(slots=True)
class Books:
    """Amounts are in cents.

    A payment is due, once, as soon as it is written or its message is acknowledged, whichever comes first. What else the orders
    say is drift: a payment that is there twice, or one that is acknowledged and not there.
    """

    balance: int = 0
    expected: int = 0
    doubled: set[str] = field(default_factory=set[str])
    lost: set[str] = field(default_factory=set[str])
    _due: set[str] = field(default_factory=set[str])
    _acknowledged: set[str] = field(default_factory=set[str])
    _paid: dict[str, int] = field(default_factory=dict[str, int])
    _drifts: deque[int] = field(default_factory=lambda: deque(maxlen=_POINTS))

    @property
    def payments(self) -> int:
        """How many payments are due."""
        return len(self._due)

    @property
    def drift(self) -> int:
        return self.balance - self.expected

    @property
    def drifts(self) -> list[int]:
        """What the drift was, at each payment that became due, and what it is now."""
        return [*self._drifts, self.drift]

    def acknowledge(self, message: Message, order: Entity) -> int:
        self._acknowledged.add(message.id)
        return self.look(message, order)

    def look(self, message: Message, order: Entity) -> int:
        """Enter what the order says now, and return how often this payment is in it."""
        name, times = message.body["order"], list(order.get("journal", ())).count(message.id)
        paid = int(order.get("paidCents", 0))
        self.balance += paid - self._paid.get(name, 0)
        self._paid[name] = paid
        if (times or message.id in self._acknowledged) and message.id not in self._due:
            self._due.add(message.id)
            self.expected += message.body["amount"]
            self._drifts.append(self.drift)
        if times > 1:
            self.doubled.add(message.id)
        if times == 0 and message.id in self._acknowledged:
            self.lost.add(message.id)
        return times
