"""Payments without an end, sent to the three handlers alike, and all that the page shows of it. The seed decides what happens."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import count
from random import Random
from typing import Any

from onewrite.cli.demo.comparison import HANDLERS
from onewrite.cli.demo.shops import OpenShop
from onewrite.cli.demo.simulation import Clock, Copy
from onewrite.cli.demo.web.commands import Change, Command, Kill, Settings, Step
from onewrite.cli.demo.web.lane import Lane
from onewrite.cli.demo.web.words import Remark, What, remark
from onewrite.message import Message

_PACE = 5  # turns between two payments: a delivery takes three or four
_FULL = 6  # copies that wait in one queue before the sender waits too: more would not fit on the page
_SENT_AGAIN = 3  # turns until a payment that is sent twice is sent again, at most
_PAYMENTS_PER_ORDER = 10  # so that no order grows without end
_AMOUNTS = range(500, 5_500, 500)  # in cents
_REMEMBERED = 40  # remarks, for a page that is opened later


class Stream:
    """Goes on by one turn of every worker at each `tick`, and does what it is told."""

    def __init__(self, open_shop: OpenShop, seed: int) -> None:
        self._open_shop, self._seed = open_shop, seed
        self._names = count()
        self.settings = Settings()
        self._sent: Mapping[str, Any] | None = None  # the latest payment
        self._begin()

    def tick(self) -> None:
        self._ticks += 1
        self._clock.now += 1
        now = self._clock.now
        if now >= self._next and all(len(lane.waiting(now)) < _FULL for lane in self._lanes.values()):
            self._send(now)
        for lane in self._lanes.values():
            for what, message in lane.turn(now, self.settings.crashes / 100):
                self._remark(lane.name, what, message)

    def obey(self, command: Command) -> None:
        match command:
            case Change():
                self.settings = command.of(self.settings)
            case Kill(lane=name):
                for lane in [self._lanes[name]] if name else self._lanes.values():
                    lane.kill()
            case Step():
                self.tick()
            case _:
                self._begin()

    def view(self) -> Mapping[str, Any]:
        """All that a page needs, whenever it was opened."""
        now = self._clock.now
        return {
            "run": self._run,
            "tick": self._ticks,
            "sent": self._sent,
            "waits": now >= self._next,
            "settings": asdict(self.settings),
            "lanes": [lane.view(now) for lane in self._lanes.values()],
            "remarks": [{"number": number, **asdict(each)} for number, each in self._remarks],
        }

    def _begin(self) -> None:
        """In new shops, whose names nobody has used."""
        self._run = next(self._names)
        self._clock = Clock()
        self._chance = Random(f"{self._seed}/payments")
        self._ticks, self._payments, self._copies = 0, 0, count(1)
        self._next = self._clock.now + 1
        self._sent = None
        self._remarks: deque[tuple[int, Remark]] = deque(maxlen=_REMEMBERED)
        self._remarked = count(1)
        self._lanes = {
            name: Lane(name, self._open_shop(f"shop-{self._run}-{place}", self._clock), self._seed)
            for place, name in enumerate(HANDLERS)
        }

    def _send(self, now: float) -> None:
        self._next = now + _PACE
        self._payments += 1
        number, amount = self._payments, self._chance.choice(_AMOUNTS)
        order = f"order-{1 + (number - 1) // _PAYMENTS_PER_ORDER}"
        body = {"number": number, "order": order, "field": "paidCents", "amount": amount}
        message = Message(f"payment-{number}", body=body)
        twice = self._chance.random() * 100 < self.settings.duplicates
        again = now + self._chance.randint(1, _SENT_AGAIN)  # drawn in any case, so that a slider does not change the amounts
        self._add(message, [now, again] if twice else [now])
        self._sent = {"payment": number, "amount": amount, "twice": twice}
        if twice:
            self._remark("", What.SENT_TWICE, message)

    def _add(self, message: Message, moments: Sequence[float]) -> None:
        for due in moments:
            number = next(self._copies)
            for lane in self._lanes.values():
                lane.send(Copy(number, message, due))

    def _remark(self, lane: str, what: What, message: Message) -> None:
        self._remarks.append((next(self._remarked), remark(lane, what, message)))
