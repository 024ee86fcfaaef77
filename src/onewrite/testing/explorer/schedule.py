"""The possible steps of a schedule within its bounds. Pure.

A schedule is a sequence of steps. In each step, one delivery sends its next request, and a fault can affect that request. A
delivery that waits for several requests at once can send any of them next.
The first step of a delivery also starts it, and includes the handler's work before its first request. The handler's work after
a request belongs to that request's step. Between two steps, every delivery is paused.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from itertools import count, islice
from typing import Literal, NamedTuple, Self, TypeAlias
from zlib import crc32

from onewrite.errors import ConfigurationError
from onewrite.testing.taps import failures
from onewrite.testing.taps.aws import is_batch
from onewrite.testing.taps.failures import Failure
from onewrite.testing.taps.mongodb_methods import count_operations
from onewrite.testing.taps.traffic import ABORT, Request, is_dynamodb, is_transaction

# --- steps and bounds -------------------------------------------------------------------------------------------------

Reorder: TypeAlias = Literal[True, False, "within_source"]

MAX_DELIVERIES = 26  # per message, because a replay code has one letter for each delivery


class Fault(StrEnum):
    """A fault of a request: its letter in replay codes, when it strikes, its words in a report, and the driver's error."""

    words: str
    failure: Failure | None
    is_kept_back: bool  # whether the request has no effect on the data

    def __new__(cls, letter: str, strikes: str = "", words: str = "", failure: Failure | None = None) -> Self:
        fault = str.__new__(cls, letter)
        fault._value_ = letter
        fault.words, fault.failure, fault.is_kept_back = words, failure, strikes == "before"
        return fault

    NONE = ""
    CRASH_BEFORE = "B", "before"
    CRASH_AFTER = "A", "after", ", then CRASH"
    LOST = "L", "after", ", but the response is lost", failures.LOST_RESPONSE
    LOST_IN_TIME = "M", "after", ", but the response doesn't arrive in time", failures.TIMEOUT
    LOST_BY_SERVER = "E", "after", ", but the server reports a failure", failures.SERVER_FAILURE
    UNCONFIRMED = "Y", "after", ", but too few members confirm it in time", failures.UNCONFIRMED
    RETRIED = "R", "after"  # the response is lost, and the driver retries the request
    THROTTLED = "T", "before", "throttled", failures.THROTTLED
    SLOWED_DOWN = "G", "before", "throttled with another code", failures.SLOWED_DOWN
    LIMITED = "J", "before", "throttled with a third code", failures.LIMITED
    FAILED = "F", "before", "refused, because the server fails", failures.SERVER_FAILURE
    UNAVAILABLE = "Z", "before", "not served, because the service or the connection pool is exhausted", failures.UNAVAILABLE
    OVERLOAD = "Q", "before", "throttled whenever this delivery sends it", failures.THROTTLED
    CONFLICT = "C", "before", "refused because of a transaction on the same entity"
    UNREACHABLE = "N", "before", "not sent, because no server is reachable", failures.NO_SERVER
    NOT_CONNECTED = "K", "before", "not sent, because the connection times out", failures.NO_CONNECTION
    UNANSWERED = "H", "before", "lost on its way, and the response times out", failures.TIMEOUT
    CUT_OFF = "P", "before", "lost on its way, and the connection closes", failures.LOST_RESPONSE
    OUTAGE = "O", "before", "not sent, because no server is reachable during this delivery", failures.NO_SERVER
    UNPROCESSED = "U", "after", ", but the last part is left, as the response says"  # for batches
    FIRST_UNPROCESSED = "V", "after", ", but the first part is left, as the response says"
    STARVED = "=", "after", ", but the last part is left, and is left again in this delivery"
    # For MongoDB's writes of several documents, which aren't atomic.
    CUT_SHORT = "+", "after", ", but the server fails before the last part of the write", failures.LOST_RESPONSE
    CUT_EARLY = "-", "after", ", but the server fails after the first part of the write", failures.LOST_RESPONSE
    STALE = "S", "after", ", stale: an earlier write is missing"
    SLOW = "W", "before", "takes longer than a timer"  # the timer fires before any response
    NEVER_SENT = "X", "before", "cancelled, and never sent"
    BEGUN = "I"  # not a fault but an order: the delivery begins, and its first request stays pending
    RACED = "D"  # not a fault but an order: an upsert looked for its document before the previous step's write

    @property
    def is_counted(self) -> bool:
        """Whether the fault counts toward the bound on faults.

        `NEVER_SENT` doesn't, because the handler itself cancelled the request. A batch that is left in part doesn't, because it isn't a
        failure: DynamoDB does it under load.
        """
        return self not in (Fault.NONE, Fault.NEVER_SENT, Fault.BEGUN, Fault.RACED) and not self.is_partial

    @property
    def is_partial(self) -> bool:
        """Whether DynamoDB leaves a part of a batch unprocessed, which it does once to each request of a delivery, or repeatedly."""
        return self in (Fault.UNPROCESSED, Fault.FIRST_UNPROCESSED, Fault.STARVED)

    @property
    def is_crash(self) -> bool:
        return self in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)

    @property
    def is_lost(self) -> bool:
        """Whether the request takes effect, at least in part, but the driver raises an error."""
        return self.failure is not None and not self.is_kept_back

    @property
    def is_lasting(self) -> bool:
        """Whether the fault affects the same request each time that the delivery sends it."""
        return self in (Fault.OUTAGE, Fault.OVERLOAD, Fault.STARVED)


# Variants of a fault have the same effect on the store, but the driver raises a different error, or raises it repeatedly. A search
# follows a variant only if the handler reacts to it differently.
VARIANTS: Mapping[Fault, tuple[Fault, ...]] = {
    Fault.LOST: (Fault.LOST_IN_TIME, Fault.LOST_BY_SERVER, Fault.UNCONFIRMED),
    Fault.THROTTLED: (Fault.SLOWED_DOWN, Fault.LIMITED, Fault.FAILED, Fault.UNAVAILABLE, Fault.OVERLOAD),
    Fault.UNREACHABLE: (Fault.NOT_CONNECTED, Fault.UNANSWERED, Fault.CUT_OFF, Fault.OUTAGE),
    Fault.UNPROCESSED: (Fault.STARVED,),
}
MAX_OUTAGE = 10  # in requests: without a limit, a handler could retry forever


class Delivery(NamedTuple):
    """One call of the handler: the number of its message, and the number of the delivery of that message. Both count from 0."""

    message: int
    number: int


class ScheduleStep(NamedTuple):
    """One delivery sends the pending request with this index, and the fault affects it.

    For a delivery that begins, `batch` is the index of the parts that it brings, in the list that `Progress.list_batches` returns.
    """

    delivery: Delivery
    fault: Fault = Fault.NONE
    request_index: int = 0
    batch: int = 0


Steps: TypeAlias = tuple[ScheduleStep, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of the schedules. `explore` documents each of them."""

    deliveries: int = 2
    faults: int = 1
    reorder: Reorder = True
    concurrency: int = 2

    def __post_init__(self) -> None:
        check_count("deliveries", self.deliveries, 1)
        check_count("faults", self.faults, 0)
        check_count("concurrency", self.concurrency, 1)
        if self.deliveries > MAX_DELIVERIES:
            raise ConfigurationError(f"deliveries={self.deliveries}: a message has {MAX_DELIVERIES} deliveries at most.")
        if self.reorder is not True and self.reorder is not False and self.reorder != "within_source":
            raise ConfigurationError(f'reorder={self.reorder!r}: expected True, False, or "within_source".')

    def predecessors(self, sources: Sequence[AbstractSet[object]]) -> tuple[tuple[int, ...], ...]:
        """Return, for each message, the messages that must be settled before its first delivery."""
        if self.reorder is True:
            return tuple(() for _ in sources)
        everywhere = self.reorder is False
        return tuple(
            tuple(earlier for earlier in range(later) if everywhere or sources[earlier] & source)
            for later, source in enumerate(sources)
        )


class TakenStep(NamedTuple):
    """A step that was taken, its request, and its effect on its delivery."""

    step: ScheduleStep
    request: Request | None  # None if the delivery ended without a request
    key: Hashable  # equal for equal requests
    has_ended: bool
    settled_parts: tuple[int, ...] = ()  # the parts of the message that the delivery settled
    faults: tuple[Fault, ...] = ()  # the faults that could affect the request here
    # Indexes of the requests that the delivery could send here instead. Empty unless the step's own request has index 0.
    others: tuple[int, ...] = ()
    cancelled: bool = False  # whether the handler had cancelled the request
    outage: Fault = Fault.NONE  # the lasting fault that affected the request again

    @property
    def alternatives(self) -> list[ScheduleStep]:
        """Return the other steps that the delivery can take here, now that its request is known."""
        if self.step.fault:
            return []
        return [
            *(self.step._replace(fault=other) for other in self.faults),
            *(self.step._replace(request_index=other) for other in self.others),
        ]


class Progress(NamedTuple):
    """The progress of a schedule. It determines which steps can come next."""

    bounds: Bounds
    predecessors: tuple[tuple[int, ...], ...]
    parts: tuple[tuple[int, ...], ...]  # for each message, the numbers of its parts, which are settled one by one
    start_counts: tuple[int, ...]  # for each message, the number of its deliveries that have started
    settled_parts: tuple[int, ...] = ()  # in the order in which they were settled
    open: tuple[Delivery, ...] = ()  # the deliveries that have started and haven't ended
    faults: int = 0

    @classmethod
    def at_start(cls, bounds: Bounds, sources: Sequence[AbstractSet[object]], counts: Sequence[int]) -> Self:
        """Return the progress before the first step.

        `sources` contains the sources of each message. `counts` contains the number of its parts.
        """
        numbers = count()
        parts = tuple(tuple(islice(numbers, parts)) for parts in counts)
        return cls(bounds, bounds.predecessors(sources), parts, (0,) * len(sources))

    def list_able(self) -> list[Delivery]:
        """Return the deliveries that can take the next step, sorted by message."""
        new_deliveries = [
            delivery
            for message, number in enumerate(self.start_counts)
            if number < self.bounds.deliveries and self._may_start(delivery := Delivery(message, number))
        ]
        return sorted([*self.open, *new_deliveries])

    def can_take(self, step: ScheduleStep) -> bool:
        if step.fault.is_counted and self.faults >= self.bounds.faults:
            return False
        message, number = step.delivery
        if step.delivery in self.open:
            return True
        return number == self.start_counts[message] < self.bounds.deliveries and self._may_start(step.delivery)

    def after(self, taken_step: TakenStep) -> Progress:
        """Return the progress after this step."""
        delivery, fault, *_ = taken_step.step
        still_open = [other for other in self.open if other != delivery]
        start_counts = self.start_counts
        if delivery not in self.open:
            start_counts = (*start_counts[: delivery.message], delivery.number + 1, *start_counts[delivery.message + 1 :])
        return self._replace(
            start_counts=start_counts,
            settled_parts=tuple(dict.fromkeys([*self.settled_parts, *taken_step.settled_parts])),
            open=tuple(still_open if taken_step.has_ended else [*still_open, delivery]),
            faults=self.faults + fault.is_counted,
        )

    @property
    def is_legal_end(self) -> bool:
        """Whether no delivery is in progress and every message is settled, so that a broker might have nothing left to deliver."""
        return not self.open and len(self.settled_parts) == sum(map(len, self.parts))

    def is_settled(self, message: int) -> bool:
        return set(self.parts[message]) <= set(self.settled_parts)

    def may_overlap(self, delivery: Delivery, other: Delivery) -> bool:
        """Whether a delivery can be in progress here while the other delivery takes the next step."""
        open_deliveries = {*self.open, other}
        return delivery in open_deliveries or (
            len(open_deliveries) < self.bounds.concurrency and self._has_its_turn(delivery)
        )

    def list_batches(self, message: int, lanes: Sequence[Hashable | None] | None) -> list[tuple[int, ...]]:
        """Return the sets of parts that a new delivery can bring. Normally that's the unsettled parts; for a duplicate, all parts.

        Pass `lanes`, one per part, if a redelivery can also bring each part alone, or all parts but the first. Parts of one lane
        keep their order. Without `lanes`, all parts come together.
        """
        rest = tuple(part for part in self.parts[message] if part not in self.settled_parts) or self.parts[message]
        if lanes is None or not self.start_counts[message] or len(rest) == 1:
            return [rest]
        lane_of = dict(zip(self.parts[message], lanes, strict=True))

        def keeps_order(batch: Sequence[int]) -> bool:
            last = max(batch)
            return all(
                part in batch or lane_of[part] is None or lane_of[part] != lane_of[last] for part in rest if part < last
            )

        return list(filter(keeps_order, dict.fromkeys([rest, *[(part,) for part in rest], rest[1:]])))

    def _may_start(self, delivery: Delivery) -> bool:
        return len(self.open) < self.bounds.concurrency and self._has_its_turn(delivery)

    def _has_its_turn(self, delivery: Delivery) -> bool:
        """Whether the messages that must be settled before this delivery are settled."""
        return delivery.number > 0 or all(map(self.is_settled, self.predecessors[delivery.message]))


def list_faults(request: Request) -> tuple[Fault, ...]:
    """Return the faults that make a difference to this request at any point.

    A crash after a read, after a write that doesn't touch an entity, or after an uncommitted write leaves the same state as a
    crash before the request. A lost response to such a request has the same effect as an unreachable server. The handler sees a
    second response only if the driver retries the request without marking it as a retry. botocore does that; pymongo's retryable
    writes don't. pymongo hides the result of an abort.
    """
    if request.method == ABORT:
        return (Fault.CRASH_BEFORE,)
    if request.is_uncommitted:
        return (Fault.CRASH_BEFORE, Fault.LOST)
    conflict = (Fault.CONFLICT,) if is_transaction(request) else ()
    partial = (Fault.UNPROCESSED, Fault.FIRST_UNPROCESSED) if is_batch(request) else ()
    if not request.writes or request.keys == ():
        return (Fault.CRASH_BEFORE, Fault.LOST, Fault.THROTTLED, *conflict, *partial)
    retries = (Fault.RETRIED,) if is_dynamodb(request) else ()
    cuts = (Fault.CUT_EARLY, Fault.CUT_SHORT)[
        : max(count_operations(request) - 1, 0)
    ]  # two operations can be cut at one place only
    refusals = (Fault.THROTTLED, *conflict, Fault.UNREACHABLE, *partial)
    return (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST, *cuts, *retries, *refusals)


def list_variants(fault: Fault, request: Request) -> tuple[Fault, ...]:
    """Return the faults that leave the same state as this one, so only the handler can make a difference."""
    # A read has no effect, so a lost response to a read is the same as an unreachable server.
    reaches_nothing = fault is Fault.LOST and not (request.writes or request.is_uncommitted)
    others = (Fault.UNREACHABLE, *VARIANTS[Fault.UNREACHABLE]) if reaches_nothing else ()
    # MongoDB doesn't have a third throttling code, and DynamoDB doesn't have replica set members that confirm a write.
    is_confirmed = request.writes and not (is_dynamodb(request) or request.is_uncommitted)
    exists = {Fault.LIMITED: is_dynamodb(request), Fault.UNCONFIRMED: is_confirmed}
    variants = [variant for variant in VARIANTS.get(fault, ()) if exists.get(variant, True)]
    return *variants, *others


def check_count(name: str, value: object, minimum: int) -> None:
    """Raise unless the value of this argument is an int of at least `least`."""
    if type(value) is not int or value < minimum:
        raise ConfigurationError(f"{name}={value!r}: expected an int of {minimum} or more.")


# --- replay codes -----------------------------------------------------------------------------------------------------
#
# A replay code is a short string from which a schedule can be run again, such as `1.9c2f.1aA1b.a4be`.
#
# A code has four parts, separated by dots: the format's version, a checksum of the messages' names, the steps, and a checksum of the
# first three parts. A step consists of these, in this order: the message's number; a letter for the delivery; if several requests are
# pending, the index of the request (nothing for the first, `b` for the second, `z` for the 26th, `zb` for the 27th); if the step begins
# a delivery of some records only, `_` and their numbers in the same encoding; and the letter of the fault, if there is one.

_VERSION = "1"
_OWN_PROCESSES = "p"  # before the steps, if each delivery has its own process
_LETTERS = 25  # after the letter a, which means 0
_FAULT = f"[{re.escape(''.join(Fault))}]?"
_REQUEST_INDEX = "z*[b-z]?"
_COMPANY = f"(?:_{_REQUEST_INDEX})?"
_STEP = re.compile(f"([1-9][0-9]*)([a-z])({_REQUEST_INDEX})({_COMPANY})({_FAULT})", re.ASCII)
_AFTER_VERSION = re.compile(
    rf"([0-9a-f]{{4}})\.({_OWN_PROCESSES}?(?:[1-9][0-9]*[a-z]{_REQUEST_INDEX}{_COMPANY}{_FAULT})*)\.([0-9a-f]{{4}})",
    re.ASCII,
)


def encode(steps: Steps, names: Sequence[str], *, own_processes: bool = False) -> str:
    """Return the replay code for these steps. `names` are the names of the messages."""
    mark = _OWN_PROCESSES if own_processes else ""
    body = f"{_VERSION}.{_compute_checksum('/'.join(names))}.{mark}{''.join(map(_encode_step, steps))}"
    return f"{body}.{_compute_checksum(body)}"


def decode(code: str, names: Sequence[str]) -> Steps:
    """Return the steps of a replay code. Raise `ConfigurationError` if it isn't valid, or belongs to other messages."""
    checksum, steps, _ = read(code)
    if checksum != _compute_checksum("/".join(names)) or any(step.delivery.message >= len(names) for step in steps):
        raise ConfigurationError(
            f"{code!r} is the replay code of a schedule of other messages than {', '.join(names)}: use it in the test that "
            "reported it."
        )
    return steps


def read(code: str) -> tuple[str, Steps, bool]:
    """Return the checksum of the messages' names, the steps, and whether each delivery runs in its own process.

    Raise `ConfigurationError` if the code isn't valid.
    """
    version, _, rest = str(code).strip().partition(".")
    match = _AFTER_VERSION.fullmatch(rest)
    if not version.isdecimal() or match is None:
        raise ConfigurationError(f"{code!r} isn't a replay code: copy it whole from the report of a counterexample.")
    if version != _VERSION:
        raise ConfigurationError(
            f"{code!r} was made by another version of onewrite: explore again to get a new replay code."
        )
    names_checksum, steps, checksum = match.groups()
    if checksum != _compute_checksum(f"{version}.{names_checksum}.{steps}"):
        raise ConfigurationError(f"{code!r} is mistyped: copy it whole from the report of a counterexample.")
    return names_checksum, _decode_steps(steps), steps.startswith(_OWN_PROCESSES)


def _decode_steps(text: str) -> Steps:
    return tuple(
        ScheduleStep(
            Delivery(int(message) - 1, ord(letter) - ord("a")),
            Fault(fault),
            _read_letters(index_letters),
            _read_letters(batch_letters.removeprefix("_")),
        )
        for message, letter, index_letters, batch_letters, fault in _STEP.findall(text)
    )


def _encode_step(step: ScheduleStep) -> str:
    (message, number), fault, index, batch = step
    batch_letters = f"_{_format_letters(batch)}" if batch else ""
    return f"{message + 1}{chr(ord('a') + number)}{_format_letters(index)}{batch_letters}{fault.value}"


def _format_letters(number: int) -> str:
    rows, last = divmod(number, _LETTERS)
    return "z" * rows + (chr(ord("a") + last) if last else "")


def _read_letters(letters: str) -> int:
    return sum(ord(letter) - ord("a") for letter in letters)


def _compute_checksum(text: str) -> str:
    return f"{crc32(text.encode('utf-8', 'surrogatepass')) & 0xFFFF:04x}"
