"""The possible steps of a schedule within its bounds. Pure.

A schedule is a sequence of steps. In each step, one delivery sends its next request, and a fault can affect that request. A
delivery that waits for several requests at once can send any of them next.
The first step of a delivery also starts it, and includes the handler's work before its first request. The handler's work after
a request belongs to that request's step. Between two steps, every delivery is paused.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import count, islice
from typing import Literal, NamedTuple, Self, TypeAlias
from zlib import crc32

from onewrite.errors import ConfigurationError
from onewrite.testing.taps.fault import Fault
from onewrite.testing.taps.traffic import Request

# --- steps and bounds -------------------------------------------------------------------------------------------------

Reorder: TypeAlias = Literal[True, False, "within_source"]

MAX_DELIVERIES = 26  # per message, because a replay code has one letter for each delivery


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
_OWN_PROCESSES = "p"  # comes before the steps, if each delivery has its own process
_LETTERS = 25  # the number of letters after a, which means 0
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
        raise ConfigurationError(f"{code!r} isn't a replay code. Copy it whole from the report of a counterexample.")
    if version != _VERSION:
        raise ConfigurationError(
            f"{code!r} was made by a different version of onewrite. Explore again to get a new replay code."
        )
    names_checksum, steps, checksum = match.groups()
    if checksum != _compute_checksum(f"{version}.{names_checksum}.{steps}"):
        raise ConfigurationError(f"{code!r} is mistyped. Copy it whole from the report of a counterexample.")
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
