"""What the orders of one shop say, beside what they should say."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum, auto
from functools import partial
from itertools import count
from math import ceil
from random import Random
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from onewrite.message import Message
from onewrite.operate.demo.comparison import (
    CLAIM,
    HANDLERS,
    ONEWRITE,
    PLAIN,
    Broker,
    Copy,
    RequestResult,
    SimulatedClock,
    SimulatedWorker,
    Turn,
)
from onewrite.operate.demo.shops import OpenShop, Shop
from onewrite.outcome import Entity

# --- What the orders of one shop say, beside what they should say ---------------------------------------------------------


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
    _amounts: dict[str, int] = field(default_factory=dict[str, int])
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
        amount = int(order.get("paidCents", 0))
        self.balance += amount - self._amounts.get(name, 0)
        self._amounts[name] = amount
        if (times or message.id in self._acknowledged) and message.id not in self._due:
            self._due.add(message.id)
            self.expected += message.body["amount"]
            self._drifts.append(self.drift)
        if times > 1:
            self.doubled.add(message.id)
        if times == 0 and message.id in self._acknowledged:
            self.lost.add(message.id)
        return times


# --- What the page can ask for. A command comes as JSON, and is checked here ----------------------------------------------


@dataclass(frozen=True, slots=True)
class Settings:
    """`speed` is in turns a second. `duplicates` is how many of a hundred messages are sent twice, and `crashes` at how many of a
    hundred steps a worker dies."""

    speed: int = 3
    duplicates: int = 20
    crashes: int = 2
    running: bool = True


RANGES = MappingProxyType({"speed": (1, 12), "duplicates": (0, 60), "crashes": (0, 30)})


@dataclass(frozen=True, slots=True)
class Change:
    """Settings that are to change, by name."""

    values: Mapping[str, Any]

    def of(self, settings: Settings) -> Settings:
        return replace(settings, **self.values)


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the worker of this handler, or of each."""

    lane: str | None


@dataclass(frozen=True, slots=True)
class SingleTurn:
    """Go on by one turn."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Begin anew, with the same settings."""


Command: TypeAlias = Change | Kill | SingleTurn | Restart


def command(name: str, body: object) -> Command:
    """What is asked for by this name. Raises LookupError for a name that is not known, and ValueError for a body that is wrong."""
    if name not in ("settings", "kill", "step", "restart"):
        raise LookupError(name)
    if not isinstance(body, dict):
        raise ValueError("The body must be a JSON object.")  # noqa: TRY004  # one kind of error for whatever a body may be
    values = cast("dict[str, object]", body)
    if name == "settings":
        return _change(values)
    if name == "kill":
        return _kill(values)
    if values:
        raise ValueError(f"{name} takes no values.")
    return SingleTurn() if name == "step" else Restart()


def _change(values: Mapping[str, object]) -> Change:
    for name, value in values.items():
        if name == "running":
            if not isinstance(value, bool):
                raise ValueError("running must be true or false.")
        elif name not in RANGES:
            raise ValueError(f"There is no setting {name!r}.")
        elif type(value) is not int or not RANGES[name][0] <= value <= RANGES[name][1]:
            raise ValueError("{} must be a whole number from {} to {}.".format(name, *RANGES[name]))
    return Change(values)


def _kill(values: Mapping[str, object]) -> Kill:
    lane = values.get("lane")
    if set(values) != {"lane"} or not (lane is None or lane in list(HANDLERS)):
        raise ValueError(f"lane must be null or one of {', '.join(HANDLERS)}.")
    return Kill(cast("str | None", lane))


# --- What the page says: what has happened, and why -----------------------------------------------------------------------


ABOUT = MappingProxyType(
    {
        PLAIN: "Adds each payment that comes to its order.",
        CLAIM: "Stores the id in a table of seen ids, then adds the payment.",
        ONEWRITE: "Adds payment and id in one request, if the order lacks the id.",
    }
)


class Incident(Enum):
    SENT_TWICE = auto()
    DROPPED = auto()
    DOUBLED = auto()
    LOST = auto()
    DIED_EARLY = auto()
    DIED_CLAIMED = auto()
    DIED_WRITTEN = auto()
    DIED_KNOWN = auto()


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the page's log. `lane` is empty where it is about the sender."""

    lane: str
    mood: str
    text: str
    why: str


_MOODS = MappingProxyType({Incident.DOUBLED: "bad", Incident.LOST: "bad", Incident.DROPPED: "good"})
_TEXTS = MappingProxyType(
    {
        Incident.SENT_TWICE: "Payment {n} is sent twice.",
        Incident.DROPPED: "Payment {n} is redelivered, and is dropped.",
        Incident.DOUBLED: "Payment {n} is added once more: {amount} too much.",
        Incident.LOST: "Payment {n} is dropped, and was never added: {amount} are lost.",
        Incident.DIED_EARLY: "The worker dies before its first request for payment {n}.",
        Incident.DIED_CLAIMED: "The worker dies between the two requests for payment {n}.",
        Incident.DIED_WRITTEN: "The worker dies after it has added payment {n}, before it acknowledges the message.",
        Incident.DIED_KNOWN: "The worker dies before it acknowledges payment {n}, which it was going to drop.",
    }
)
_WHYS = MappingProxyType(
    {
        Incident.SENT_TWICE: "The sender did not hear that its message had arrived, and sent it again. Both copies have the same id.",
        Incident.DOUBLED: "The write adds to whatever the order says. Nothing in the order tells that this payment is in it already.",
        Incident.LOST: "An earlier worker stored the id and died before it added the payment. To everyone after it, the payment looks done.",
        Incident.DIED_EARLY: "Nothing was written. The queue delivers the message again, and no handler is harmed.",
        Incident.DIED_CLAIMED: "The id is stored, and the payment is not added. When the queue delivers the message again, it will look like a duplicate.",
        Incident.DIED_KNOWN: "The queue delivers it once more, and it will be dropped once more.",
    }
)
_WHYS_OF_A_LANE = MappingProxyType(
    {
        (
            PLAIN,
            Incident.DIED_WRITTEN,
        ): "The queue has heard nothing, and will deliver the message again. The handler will not notice.",
        (
            CLAIM,
            Incident.DIED_WRITTEN,
        ): "The queue will deliver the message again. Its id is stored and its payment is added, so dropping it will be right.",
        (
            ONEWRITE,
            Incident.DIED_WRITTEN,
        ): "The queue will deliver the message again. The order got the id together with the payment, and will refuse it.",
        (
            CLAIM,
            Incident.DROPPED,
        ): "Its id is in the table of seen ids. That table costs one more request for every message that is new.",
        (
            ONEWRITE,
            Incident.DROPPED,
        ): "The order itself holds the id, so the condition of the write fails. There is no second table to ask.",
    }
)
_ACTIVITIES = MappingProxyType(
    {
        RequestResult.WRITTEN: "payment {n} is added",
        RequestResult.CLAIMED: "the id of payment {n} is stored",
        RequestResult.KNOWN: "payment {n} is known: drop it",
    }
)


def remark(lane: str, incident: Incident, message: Message) -> LogLine:
    body = message.body
    text = _TEXTS[incident].format(n=body["number"], amount=f"€{body['amount'] // 100}")
    why = _WHYS_OF_A_LANE.get((lane, incident)) or _WHYS[incident]
    return LogLine(lane, _MOODS.get(incident, ""), text, why)


def activity(turn: Turn, result: RequestResult | None, number: int | None, *, dead: bool) -> str:
    """What a worker has just done."""
    if dead:
        return "dead, another one is coming"
    if turn is Turn.WENT_ON and result:
        return _ACTIVITIES[result].format(n=number)
    if turn is Turn.ENDED:
        return f"payment {number} is acknowledged"
    return f"payment {number} is received" if turn is Turn.RECEIVED else "waits for a message"


# --- One handler at work: its queue, its worker, its requests, and what comes of them -------------------------------------


_AWAY = 4  # turns until another worker takes the place of a dead one: so many that an eye sees the gap

# After which answer a death does harm, or would do it to another handler in this place.
_HURTS = MappingProxyType({PLAIN: RequestResult.WRITTEN, CLAIM: RequestResult.CLAIMED, ONEWRITE: RequestResult.WRITTEN})
_DIED = MappingProxyType(
    {
        None: Incident.DIED_EARLY,
        RequestResult.CLAIMED: Incident.DIED_CLAIMED,
        RequestResult.WRITTEN: Incident.DIED_WRITTEN,
        RequestResult.KNOWN: Incident.DIED_KNOWN,
    }
)


class HandlerLane:
    """A handler with one worker and a queue of its own, into which the same copies are sent as into the others'."""

    def __init__(self, name: str, shop: Shop, seed: int) -> None:
        self.name = name
        self.books = Books()
        self._shop = shop
        self._broker = Broker()
        self._worker = SimulatedWorker(self._broker, partial(HANDLERS[name], shop), seed, settled=lambda: None)
        self._requests = self._dropped = self._away = 0
        self._turn, self._copy_at_turn = Turn.WAITED, self._worker.copy
        self._doomed = False

    def send(self, copy: Copy) -> None:
        self._broker.add(copy)

    def kill(self) -> None:
        """Let the worker die at the next moment between two requests at which a death can do harm."""
        self._doomed = True

    def turn(self, now: float, crash: float) -> list[tuple[Incident, Message]]:
        """Go on by one step, and tell what is worth a remark. A doomed worker does not die before its moment."""
        if self._away:
            self._away -= 1
            self._turn = Turn.WAITED
            return []
        copy, before = self._worker.copy, self._shop.requests
        if copy and self._doomed and self._worker.result is _HURTS[self.name]:
            self._worker.die()
            self._turn, self._doomed = Turn.DIED, False
        else:
            self._turn = self._worker.turn(now, 0 if self._doomed else crash)
        self._requests += self._shop.requests - before
        self._copy_at_turn = copy = copy or self._worker.copy
        return [(incident, copy.message) for incident in self._remarks(copy)] if copy else []

    def waiting(self, now: float) -> list[Copy]:
        """The copies that have arrived, without the one in hand."""
        copies = self._broker.waiting()
        return [copy for copy in copies if copy is not self._worker.copy and (copy.receives or copy.due <= now)]

    def view(self, now: float) -> dict[str, Any]:
        books, copy = self.books, self._worker.copy
        return {
            "name": self.name,
            "about": ABOUT[self.name],
            "queue": [copy_view(waiting_copy, now) for waiting_copy in self.waiting(now)],
            "worker": self._worker_view(copy, now),
            "request": self._worker.result if self._turn is Turn.WENT_ON else None,
            "acknowledged": self._copy_at_turn.number if self._copy_at_turn and self._turn is Turn.ENDED else None,
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
        number = self._copy_at_turn.message.body["number"] if self._copy_at_turn else None
        return {
            "dead": dead,
            "doomed": self._doomed,
            "copy": copy_view(copy, now) if copy else None,
            "doing": activity(self._turn, self._worker.result, number, dead=dead),
        }

    def _remarks(self, copy: Copy) -> Sequence[Incident]:
        match self._turn:
            case Turn.WENT_ON:
                return self._remarks_on_answer(copy.message)
            case Turn.ENDED:
                return self._remarks_on_acknowledgement(copy.message)
            case Turn.DIED:
                self._away = _AWAY
                return [_DIED[self._worker.result]]
            case _:
                return []

    def _remarks_on_answer(self, message: Message) -> Sequence[Incident]:
        times = self.books.look(message, self._order(message))
        if self._worker.result is RequestResult.WRITTEN and times > 1:
            return [Incident.DOUBLED]
        if self._worker.result is RequestResult.KNOWN and times:
            self._dropped += 1
            return [Incident.DROPPED]
        return []

    def _remarks_on_acknowledgement(self, message: Message) -> Sequence[Incident]:
        was_lost = message.id in self.books.lost
        self.books.acknowledge(message, self._order(message))
        return [Incident.LOST] if message.id in self.books.lost and not was_lost else []

    def _order(self, message: Message) -> Entity:
        """Read without counting: no handler makes this request."""
        return self._shop.order(message.body["order"])


def copy_view(copy: Copy, now: float) -> dict[str, Any]:
    """`hidden` is the number of seconds until a copy that was delivered, and not acknowledged, is redelivered."""
    return {
        "copy": copy.number,
        "payment": copy.message.body["number"],
        "amount": copy.message.body["amount"],
        "again": copy.receives > 0,
        "hidden": max(0, ceil(copy.due - now)),
    }


# --- Payments without an end, sent to the three handlers alike, and all that the page shows of it. The seed decides what happens


_PACE = 5  # turns between two payments: a delivery takes three or four
_FULL = 6  # copies that wait in one queue before the sender waits too: more would not fit on the page
_SENT_AGAIN = 3  # turns until a payment that is sent twice is sent again, at most
_PAYMENTS_PER_ORDER = 10  # so no order grows without end
_AMOUNTS = range(500, 5_500, 500)  # in cents
_MOST_REMARKS = 40  # remarks, for a page that is opened later


class PaymentStream:
    """Goes on by one turn of every worker at each `tick`, and does what it is told."""

    def __init__(self, open_shop: OpenShop, seed: int) -> None:
        self._open_shop, self._seed = open_shop, seed
        self._names = count()
        self.settings = Settings()
        self._latest_payment: Mapping[str, Any] | None = None  # the latest payment
        self._begin()

    def tick(self) -> None:
        self._ticks += 1
        self._clock.now += 1
        now = self._clock.now
        if now >= self._next and all(len(lane.waiting(now)) < _FULL for lane in self._lanes.values()):
            self._send(now)
        for lane in self._lanes.values():
            for incident, message in lane.turn(now, self.settings.crashes / 100):
                self._remark(lane.name, incident, message)

    def obey(self, command: Command) -> None:
        match command:
            case Change():
                self.settings = command.of(self.settings)
            case Kill(lane=name):
                for lane in [self._lanes[name]] if name else self._lanes.values():
                    lane.kill()
            case SingleTurn():
                self.tick()
            case _:
                self._begin()

    def view(self) -> Mapping[str, Any]:
        """All that a page needs, whenever it was opened."""
        now = self._clock.now
        return {
            "run": self._run,
            "tick": self._ticks,
            "sent": self._latest_payment,
            "waits": now >= self._next,
            "settings": asdict(self.settings),
            "lanes": [lane.view(now) for lane in self._lanes.values()],
            "remarks": [{"number": number, **asdict(line)} for number, line in self._remarks],
        }

    def _begin(self) -> None:
        """In new shops, whose names nobody has used."""
        self._run = next(self._names)
        self._clock = SimulatedClock()
        self._chance = Random(f"{self._seed}/payments")
        self._ticks, self._payments, self._copies = 0, 0, count(1)
        self._next = self._clock.now + 1
        self._latest_payment = None
        self._remarks: deque[tuple[int, LogLine]] = deque(maxlen=_MOST_REMARKS)
        self._remark_numbers = count(1)
        self._lanes = {
            name: HandlerLane(name, self._open_shop(f"shop-{self._run}-{place}", self._clock), self._seed)
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
        again = now + self._chance.randint(1, _SENT_AGAIN)  # drawn in any case, so a slider does not change the amounts
        self._add(message, [now, again] if twice else [now])
        self._latest_payment = {"payment": number, "amount": amount, "twice": twice}
        if twice:
            self._remark("", Incident.SENT_TWICE, message)

    def _add(self, message: Message, moments: Sequence[float]) -> None:
        for due in moments:
            number = next(self._copies)
            for lane in self._lanes.values():
                lane.send(Copy(number, message, due))

    def _remark(self, lane: str, incident: Incident, message: Message) -> None:
        self._remarks.append((next(self._remark_numbers), remark(lane, incident, message)))
