"""Which steps a schedule may take within its bounds. Pure.

A schedule is a sequence of steps. In each step, one delivery sends its next request, and a fault may befall that request. A
delivery that waits for several requests at once sends any of them next.
The first step of a delivery also starts it: what the handler does before its first request belongs to that step, and what
it does after a request belongs to the step of that request. Between two steps every delivery stands still.
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
from onewrite.testing.taps.traffic import ABORT, Request, is_dynamodb, is_transaction

# --- steps and bounds -------------------------------------------------------------------------------------------------

Reorder: TypeAlias = Literal[True, False, "within_source"]

MOST_DELIVERIES = 26  # of a message: a replay code has one letter for each


class Fault(StrEnum):
    """A fault of a request: the letter in replay codes, where it strikes, its words in a report, and what the driver raises."""

    words: str
    failure: Failure | None
    keeps_back: bool  # nothing of the request reaches the data

    def __new__(cls, letter: str, strikes: str = "", words: str = "", failure: Failure | None = None) -> Self:
        fault = str.__new__(cls, letter)
        fault._value_ = letter
        fault.words, fault.failure, fault.keeps_back = words, failure, strikes == "before"
        return fault

    NONE = ""
    CRASH_BEFORE = "B", "before"
    CRASH_AFTER = "A", "after", ", then CRASH"
    LOST = "L", "after", ", but the answer is lost", failures.LOST_RESPONSE
    LOST_IN_TIME = "M", "after", ", but the answer does not come in time", failures.TIMEOUT
    LOST_BY_SERVER = "E", "after", ", but the server answers that it has failed", failures.SERVER_FAILURE
    UNCONFIRMED = "Y", "after", ", but too few members have confirmed it in time", failures.UNCONFIRMED
    RETRIED = "R", "after"  # the answer is lost, and the driver sends the request again
    THROTTLED = "T", "before", "throttled", failures.THROTTLED
    SLOWED_DOWN = "G", "before", "throttled with another code", failures.SLOWED_DOWN
    LIMITED = "J", "before", "throttled with a third code", failures.LIMITED
    FAILED = "F", "before", "refused, because the server fails", failures.SERVER_FAILURE
    OVERLOAD = "Q", "before", "throttled, each time that this delivery sends it", failures.THROTTLED
    CONFLICT = "C", "before", "refused because of a transaction on the same entity"
    UNREACHABLE = "N", "before", "not sent, because no server is reached", failures.NO_SERVER
    NOT_CONNECTED = "K", "before", "not sent, because no server is reached in time", failures.NO_CONNECTION
    UNANSWERED = "H", "before", "lost on its way, and no answer comes in time", failures.TIMEOUT
    CUT_OFF = "P", "before", "lost on its way, and the connection closes", failures.LOST_RESPONSE
    OUTAGE = "O", "before", "not sent, because no server is reached as long as this delivery tries", failures.NO_SERVER
    UNPROCESSED = "U", "after", ", but the last part is left, which the answer says"  # of a batch
    FIRST_UNPROCESSED = "V", "after", ", but the first part is left, which the answer says"
    STALE = "S", "after", ", stale: an earlier write is missing"
    SLOW = "W", "before", "takes longer than a timer"  # which goes off before any pending request is answered
    NEVER_SENT = "X", "before", "cancelled, and never sent"
    BEGUN = "I"  # no fault, but an order: the delivery begins, and its first request stays pending
    RACED = "D"  # no fault, but an order: an upsert has looked for its document before the write of the step before

    @property
    def counts(self) -> bool:
        """Whether it uses up the bound on faults. The handler itself has cancelled a request that is never sent."""
        return self not in (Fault.NONE, Fault.NEVER_SENT, Fault.BEGUN, Fault.RACED)

    @property
    def kills(self) -> bool:
        return self in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)

    @property
    def lasts(self) -> bool:
        """Whether it befalls the same request each time that the delivery sends it."""
        return self in (Fault.OUTAGE, Fault.OVERLOAD)


# Faults that leave the same behind as another one: the driver raises another error, or raises it each time. Only the handler may make
# a difference, and a search follows one only if the handler does.
VARIANTS: Mapping[Fault, tuple[Fault, ...]] = {
    Fault.LOST: (Fault.LOST_IN_TIME, Fault.LOST_BY_SERVER, Fault.UNCONFIRMED),
    Fault.THROTTLED: (Fault.SLOWED_DOWN, Fault.LIMITED, Fault.FAILED, Fault.OVERLOAD),
    Fault.UNREACHABLE: (Fault.NOT_CONNECTED, Fault.UNANSWERED, Fault.CUT_OFF, Fault.OUTAGE),
}
LONGEST_OUTAGE = 10  # requests: one that lasted as long as the handler tries would have no end


class Delivery(NamedTuple):
    """One call of the handler: the number of the message, and which of its deliveries this is. Both count from 0."""

    message: int
    number: int


class ScheduleStep(NamedTuple):
    """One delivery sends a request, and the fault befalls it: that with this index among those that are pending in the delivery.

    `company` says which parts come with a delivery that begins: one of those that `Progress.companies` lists.
    """

    delivery: Delivery
    fault: Fault = Fault.NONE
    request_index: int = 0
    company: int = 0


Steps: TypeAlias = tuple[ScheduleStep, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of the schedules: `explore` says what each of them means."""

    deliveries: int = 2
    faults: int = 1
    reorder: Reorder = True
    concurrency: int = 2

    def __post_init__(self) -> None:
        check_count("deliveries", self.deliveries, 1)
        check_count("faults", self.faults, 0)
        check_count("concurrency", self.concurrency, 1)
        if self.deliveries > MOST_DELIVERIES:
            raise ConfigurationError(f"deliveries={self.deliveries}: a message has {MOST_DELIVERIES} deliveries at most.")
        if self.reorder is not True and self.reorder is not False and self.reorder != "within_source":
            raise ConfigurationError(f'reorder={self.reorder!r}: expected True, False, or "within_source".')

    def predecessors(self, sources: Sequence[AbstractSet[object]]) -> tuple[tuple[int, ...], ...]:
        """For each message, the messages that must be settled before it is first delivered."""
        if self.reorder is True:
            return tuple(() for _ in sources)
        everywhere = self.reorder is False
        return tuple(
            tuple(earlier for earlier in range(later) if everywhere or sources[earlier] & source)
            for later, source in enumerate(sources)
        )


class TakenStep(NamedTuple):
    """A step that was taken: the request that it sent, and how it left its delivery."""

    step: ScheduleStep
    request: Request | None  # None: the delivery ended without a request
    key: Hashable  # equal for requests that are the same
    has_ended: bool
    settled_parts: tuple[int, ...]  # the parts of its message that its delivery has settled
    faults: tuple[Fault, ...] = ()  # those that may befall the request at this place
    # Which of its requests the delivery may send here instead; only where this is the first of them.
    others: tuple[int, ...] = ()
    cancelled: bool = False  # nobody waited for the request any more
    outage: Fault = Fault.NONE  # the earlier fault that has befallen the request again

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
    parts: tuple[tuple[int, ...], ...]  # for each message the numbers of its parts, which are settled one by one
    start_counts: tuple[int, ...]  # for each message, how many of its deliveries have started
    settled_parts: tuple[int, ...] = ()  # the parts that are settled, in the order in which they were
    open: tuple[Delivery, ...] = ()  # the deliveries that have started and not ended
    faults: int = 0

    @classmethod
    def at_start(cls, bounds: Bounds, sources: Sequence[AbstractSet[object]], counts: Sequence[int] | None = None) -> Self:
        """`sources` has the sources of each message, and `counts` the number of its parts, if they have more than one."""
        numbers = count()
        parts = tuple(tuple(islice(numbers, parts)) for parts in counts or [1] * len(sources))
        return cls(bounds, bounds.predecessors(sources), parts, (0,) * len(sources))

    def able(self) -> list[Delivery]:
        """Return the deliveries that can take the next step, sorted by message."""
        new_deliveries = [
            delivery
            for message, number in enumerate(self.start_counts)
            if number < self.bounds.deliveries and self._may_start(delivery := Delivery(message, number))
        ]
        return sorted([*self.open, *new_deliveries])

    def allows(self, step: ScheduleStep) -> bool:
        if step.fault.counts and self.faults >= self.bounds.faults:
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
        return Progress(
            self.bounds,
            self.predecessors,
            self.parts,
            start_counts,
            (*self.settled_parts, *[part for part in taken_step.settled_parts if part not in self.settled_parts]),
            tuple(still_open if taken_step.has_ended else [*still_open, delivery]),
            self.faults + fault.counts,
        )

    @property
    def is_legal_end(self) -> bool:
        """Whether no delivery is in progress and every message is settled. Then a broker can have nothing left to deliver."""
        return not self.open and len(self.settled_parts) == sum(map(len, self.parts))

    def is_settled(self, message: int) -> bool:
        return set(self.parts[message]) <= set(self.settled_parts)

    def may_overlap(self, delivery: Delivery, other: Delivery) -> bool:
        """Whether a delivery may be in progress here together with another one, which takes the next step."""
        open_deliveries = {*self.open, other}
        return delivery in open_deliveries or (
            len(open_deliveries) < self.bounds.concurrency and self._has_its_turn(delivery)
        )

    def companies(self, message: int, lanes: Sequence[Hashable | None] | None) -> list[tuple[int, ...]]:
        """Return the groups of parts that a new delivery can bring: the unsettled parts, and for a duplicate all parts.

        With `lanes`, which has the lane of each part, redelivered parts come together, each alone, or without the first. Parts of one lane keep their
        order. Without `lanes` all come together.
        """
        rest = tuple(part for part in self.parts[message] if part not in self.settled_parts) or self.parts[message]
        if lanes is None or not self.start_counts[message] or len(rest) == 1:
            return [rest]
        lane_of = dict(zip(self.parts[message], lanes, strict=True))

        def keeps_order(company: Sequence[int]) -> bool:
            last = max(company)
            return all(
                part in company or lane_of[part] is None or lane_of[part] != lane_of[last] for part in rest if part < last
            )

        return list(filter(keeps_order, dict.fromkeys([rest, *[(part,) for part in rest], rest[1:]])))

    def _may_start(self, delivery: Delivery) -> bool:
        return len(self.open) < self.bounds.concurrency and self._has_its_turn(delivery)

    def _has_its_turn(self, delivery: Delivery) -> bool:
        """Whether the messages that must be settled before its message are settled."""
        return delivery.number > 0 or all(map(self.is_settled, self.predecessors[delivery.message]))


def faults_for(request: Request | None) -> tuple[Fault, ...]:
    """Return the faults that make a difference to this request, wherever it is sent.

    A process that dies after a read, after a write that touches no entity, or before the commit of what it has written,
    leaves the same behind as one that dies before it. A lost answer to such a request is the same as a server that cannot be
    reached. The handler sees a second answer only where the driver sends the request again without telling the server that
    it is the same request. botocore does that; the retryable writes of pymongo do not. pymongo hides what comes of an abort.
    """
    if request is None:
        return ()
    if request.method == ABORT:
        return (Fault.CRASH_BEFORE,)
    if request.is_uncommitted:
        return (Fault.CRASH_BEFORE, Fault.LOST)
    conflict = (Fault.CONFLICT,) if is_transaction(request) else ()
    partial = (Fault.UNPROCESSED, Fault.FIRST_UNPROCESSED) if is_batch(request) else ()
    if not request.writes or request.keys == ():
        return (Fault.CRASH_BEFORE, Fault.LOST, Fault.THROTTLED, *conflict, *partial)
    retries = (Fault.RETRIED,) if is_dynamodb(request) else ()
    refusals = (Fault.THROTTLED, *conflict, Fault.UNREACHABLE, *partial)
    return (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST, *retries, *refusals)


def variants_of(fault: Fault, request: Request) -> tuple[Fault, ...]:
    """Return the faults that leave the same state as this one, so only the handler can make a difference."""
    # Of a read nothing is left behind, so a lost answer is the same as a server that is not reached.
    reaches_nothing = fault is Fault.LOST and not (request.writes or request.is_uncommitted)
    others = (Fault.UNREACHABLE, *VARIANTS[Fault.UNREACHABLE]) if reaches_nothing else ()
    # MongoDB has no third code, and DynamoDB has no members that confirm a write.
    is_confirmed = request.writes and not (is_dynamodb(request) or request.is_uncommitted)
    exists = {Fault.LIMITED: is_dynamodb(request), Fault.UNCONFIRMED: is_confirmed}
    variants = [variant for variant in VARIANTS.get(fault, ()) if exists.get(variant, True)]
    return *variants, *others


def check_count(name: str, value: object, least: int) -> None:
    """Raise unless the value of this argument is an int that is large enough."""
    if type(value) is not int or value < least:
        raise ConfigurationError(f"{name}={value!r}: expected an int of {least} or more.")


# --- replay codes -----------------------------------------------------------------------------------------------------
#
# A schedule written as a short text, its replay code, so it can be run again: `1.9c2f.1aA1b.a4be`.
#
# A replay code has four parts: the version of this format, a checksum of the messages' names, the steps, and a checksum of
# all that stands before it. A step is written as the number of its message, a letter for its delivery and, if there is one,
# the letter of its fault. Where the delivery waits for several requests at once, letters between these two say which of them it
# is: none for the first, `b` for the second, `z` for the 26th, `zb` for the 27th. `_` and such letters say which records a delivery brings
# that begins with the step.

_VERSION = "1"
_OWN_PROCESSES = "p"  # before the steps, if each delivery is in a process of its own
_LETTERS = 25  # behind the letter a, which stands for 0
_FAULT = f"[{''.join(Fault)}]?"
_REQUEST_INDEX = "z*[b-z]?"
_COMPANY = f"(?:_{_REQUEST_INDEX})?"
_STEP = re.compile(f"([1-9][0-9]*)([a-z])({_REQUEST_INDEX})({_COMPANY})({_FAULT})", re.ASCII)
_AFTER_VERSION = re.compile(
    rf"([0-9a-f]{{4}})\.({_OWN_PROCESSES}?(?:[1-9][0-9]*[a-z]{_REQUEST_INDEX}{_COMPANY}{_FAULT})*)\.([0-9a-f]{{4}})",
    re.ASCII,
)


def encode(steps: Steps, names: Sequence[str], *, own_processes: bool = False) -> str:
    """Return the replay code of these steps. `names` are those of the messages."""
    mark = _OWN_PROCESSES if own_processes else ""
    body = f"{_VERSION}.{_checksum('/'.join(names))}.{mark}{''.join(map(_encode_step, steps))}"
    return f"{body}.{_checksum(body)}"


def decode(code: str, names: Sequence[str]) -> Steps:
    """Return the steps of a replay code. Raise `ConfigurationError` if it isn't one, or if it belongs to other messages."""
    checksum, steps, _ = read(code)
    if checksum != _checksum("/".join(names)) or any(step.delivery.message >= len(names) for step in steps):
        raise ConfigurationError(
            f"{code!r} is the replay code of a schedule of other messages than {', '.join(names)}: use it in the test that "
            "reported it."
        )
    return steps


def read(code: str) -> tuple[str, Steps, bool]:
    """Return the checksum of the messages' names, the steps, and whether each delivery is in a process of its own.

    Raise `ConfigurationError` if it isn't a replay code.
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
    if checksum != _checksum(f"{version}.{names_checksum}.{steps}"):
        raise ConfigurationError(f"{code!r} is mistyped: copy it whole from the report of a counterexample.")
    return names_checksum, _decode_steps(steps), steps.startswith(_OWN_PROCESSES)


def _decode_steps(text: str) -> Steps:
    return tuple(
        ScheduleStep(
            Delivery(int(message) - 1, ord(letter) - ord("a")),
            Fault(fault),
            _number(index_letters),
            _number(company.removeprefix("_")),
        )
        for message, letter, index_letters, company, fault in _STEP.findall(text)
    )


def _encode_step(step: ScheduleStep) -> str:
    (message, number), fault, index, company = step
    brings = f"_{_letters(company)}" if company else ""
    return f"{message + 1}{chr(ord('a') + number)}{_letters(index)}{brings}{fault.value}"


def _letters(number: int) -> str:
    rows, last = divmod(number, _LETTERS)
    return "z" * rows + (chr(ord("a") + last) if last else "")


def _number(letters: str) -> int:
    return sum(ord(letter) - ord("a") for letter in letters)


def _checksum(text: str) -> str:
    return f"{crc32(text.encode('utf-8', 'surrogatepass')) & 0xFFFF:04x}"
