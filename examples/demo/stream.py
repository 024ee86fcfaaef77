"""Payments that are sent to the three handlers alike. A seed decides everything that happens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from itertools import count
from random import Random
from typing import Any

from demo.handlers import HANDLERS
from demo.lane import Copy, Lane
from demo.shops import Shop
from demo.words import Incident, LogLine, log_line
from onewrite import Message

_PACE = 5  # turns between two payments; a delivery takes three or four
_FULL = 6  # copies in one queue before the sender waits: more do not fit on the page
_SENT_AGAIN = 3  # turns until the second copy of a payment is sent, at most
_PAYMENTS_PER_ORDER = 10  # so that no order grows for ever
_AMOUNTS = range(500, 5_500, 500)  # in cents
_LOG_LINES = 40  # for a page that is opened later


class PaymentStream:
    """The sender and the three lanes. Without `payments` the sender never stops."""

    def __init__(self, open_shop: Callable[[str], Shop], seed: int = 1, payments: int | None = None) -> None:
        self._chance, self._payments = Random(seed), payments
        self._now = self._sent = self._next = 0
        self._waits = False
        self._copies, self._lines = count(1), count(1)
        self._latest: dict[str, Any] | None = None
        self._log: deque[LogLine] = deque(maxlen=_LOG_LINES)
        self.lanes = {
            name: Lane(name, open_shop(f"shop{place}"), seed, self._add_line) for place, name in enumerate(HANDLERS)
        }

    @property
    def is_done(self) -> bool:
        return self._sent == self._payments and all(lane.is_idle for lane in self.lanes.values())

    def turn(self, *, duplicates: int = 20, crashes: int = 2) -> None:
        """Go on by a second. So many percent of the payments are sent twice, and a worker dies at so many percent of its steps."""
        self._now += 1
        is_due = self._now >= self._next and self._sent != self._payments
        self._waits = is_due and any(len(lane.pending(self._now)) >= _FULL for lane in self.lanes.values())
        if is_due and not self._waits:
            self._send(duplicates)
        for lane in self.lanes.values():
            lane.turn(self._now, crashes / 100)

    def view(self) -> dict[str, Any]:
        """Return all that a page shows."""
        return {
            "turn": self._now,
            "sent": self._latest,
            "waits": self._waits,
            "lanes": [lane.view(self._now) for lane in self.lanes.values()],
            "log": [asdict(line) for line in self._log],
        }

    def _send(self, duplicates: int) -> None:
        self._next = self._now + _PACE
        self._sent += 1
        number, amount = self._sent, self._chance.choice(_AMOUNTS)
        order = f"order-{1 + (number - 1) // _PAYMENTS_PER_ORDER}"
        message = Message(f"payment-{number}", body={"number": number, "order": order, "amount": amount})
        twice = self._chance.random() * 100 < duplicates
        again = self._now + self._chance.randint(1, _SENT_AGAIN)  # drawn in any case: the amounts stay the same
        for due in [self._now, again] if twice else [self._now]:
            copy_number = next(self._copies)
            for lane in self.lanes.values():
                lane.send(Copy(copy_number, message, due))
        self._latest = {"payment": number, "amount": amount, "twice": twice}
        if twice:
            self._add_line("", Incident.SENT_TWICE, message)

    def _add_line(self, lane: str, incident: Incident, message: Message) -> None:
        self._log.append(log_line(next(self._lines), lane, incident, message))
