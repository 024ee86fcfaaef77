"""What an entity remembers about messages. Pure: no engine, no clock, no I/O.

A ledger answers two questions. `entry(message, now)`: what must the entity lack, what does it gain, what may go? And
`Entry.judge(...)`: given what is stored, what does the ledger say about this message? The engines spell the first answer
in their own language, and bring the second what they found.

How a bounded `SeenIds` forgets without reading, failing or growing
--------------------------------------------------------------------
Time is cut into generations of one width W. A mark goes into the slot of its writer's present generation.

Promise: an id recorded at true time T is recognised at true time T' <= T + R by every consumer whose clock is off by at
most S. The writer's clock showed w, |w - T| <= S; the reader's shows r, |r - T'| <= S. Hence

    r - R - 2S  <=  w  <=  r + 2S

so a reader that looks at every generation which touches that window, its *live* generations, always finds the mark. The
window is R + 4S long. With W = (R + 4S) / 2 it touches three generations, never more. S is R/56: six hours for the default
of 14 days, about a minute for an hour.

A generation that is not live for some consumer holds no mark that anybody still needs (else, by the same line, it would be
live), so each write also removes every slot that is not live. What is forgotten last is R + 2S + W old: 1.6 R.

Three generations need three different slots; there are six. Generation g lives in slot floor(1.519 g) mod 6: it is one or
two slots after the one before, so any three in a row differ. Why not g mod 6? One slot cannot be emptied and written in one
request, so an entity that slept and woke in step with the ring would always wake to the same slot, and that slot would grow
by a burst each time. Steps of uneven length keep no rhythm for long: simulated over thirty years, an entity with a burst
every P days, P from 16 to 400, keeps three or four bursts as a rule, 15 at most, and 24 of 37 at P = 296, the worst. What
is left in the present slot from long ago is never mistaken for a fresh mark, because a mark carries the lap of its
generation.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, Protocol, TypeAlias, cast

from onewrite.errors import ConfigurationError, InvalidMessage, LedgerMismatch
from onewrite.message import Message
from onewrite.outcome import Deferred, Duplicate, Entity, Stale

Mark: TypeAlias = str | bytes
Rule: TypeAlias = Literal["below", "absent", "next"]
Stored: TypeAlias = Mapping[str, object]
Refusal: TypeAlias = Duplicate | Stale | Deferred

LONGEST_SQS_RETENTION = timedelta(days=14)
_SKEW_SHARE = 56  # of the retention: six hours for 14 days, and still a minute for one hour
_LIVE = 3  # generations that the window of a reader can touch
SLOTS = tuple([f"r{n}" for n in range(6)])
_STRIDE = 6_524_557_312  # 1.519 in 32-bit fixed point; picked from 60 at random for keeping the fewest leftovers
_UUID_LENGTH = 36
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """The slots as one moment sees them. A live one comes with the place of its lap in `laps`, and so does `slot`."""

    slot: str
    place: int
    live: tuple[tuple[str, int], ...]
    drops: tuple[str, ...]
    laps: tuple[int, ...]


FOREVER = Ring("", 0, (("", 0),), (), ())  # one set that no time empties, whose marks carry no lap


@dataclass(frozen=True, slots=True)
class Remember:
    """Put `mark` into the set in `slot`, provided that no set in `lacks` holds it; drop the sets in `ring.drops`."""

    marks: tuple[Mark, ...]  # the same id, as each lap of the ring spells it
    ring: Ring

    @property
    def slot(self) -> str:
        return self.ring.slot

    @property
    def mark(self) -> Mark:
        return self.marks[self.ring.place]

    @property
    def lacks(self) -> tuple[tuple[str, Mark], ...]:
        return tuple([(slot, self.marks[place]) for slot, place in self.ring.live])

    @property
    def forgets(self) -> bool:
        """Is the slot dropped one day, so that an engine may keep small change beside the mark?"""
        return self.ring is not FOREVER

    def judge(self, message: Message, stored: Stored, *, entity: Entity | None = None) -> Refusal | None:
        held = [(_marks(stored[slot], type(mark)), mark) for slot, mark in self.lacks if slot in stored]
        return Duplicate(message, entity) if any(mark in marks for marks, mark in held) else None


@dataclass(frozen=True, slots=True)
class Advance:
    """Move the mark in `slot` to `mark`, provided that it is now below it, absent, or the one before (`rule`)."""

    slot: str
    mark: int | str
    rule: Rule
    first: int = 0  # where a source begins, for "absent" and "next"

    def judge(self, message: Message, stored: Stored, *, entity: Entity | None = None) -> Refusal | None:
        if self.slot not in stored:
            return self._judge_unknown_source(message, entity)
        held = stored[self.slot]
        if isinstance(held, str) and isinstance(self.mark, str):  # noqa: SIM114  # text does not compare with ints
            is_below = held < self.mark
        elif type(held) is int and isinstance(self.mark, int):
            is_below = held < self.mark
        else:
            raise LedgerMismatch(
                f"The mark of source {message.source!r} is {held!r}, and this message's sequence is {self.mark!r}: they do "
                "not compare. Keep one type for each source, or give the ledger an attribute of its own."
            )
        if held == self.mark:
            return Duplicate(message, entity)
        if not is_below:
            return Stale(message, held, entity)
        if self.rule == "below" or isinstance(held, str) or held + 1 == self.mark:
            return None
        return Deferred(message, held + 1, entity)

    def _judge_unknown_source(self, message: Message, entity: Entity | None) -> Refusal | None:
        if self.rule != "next":
            return None
        if isinstance(self.mark, int) and self.mark < self.first:
            return Stale(message, self.first - 1, entity)
        return Deferred(message, self.first, entity)


Entry: TypeAlias = Remember | Advance


class Ledger(Protocol):
    """What the engines need to know of a ledger."""

    @property
    def attribute(self) -> str: ...

    def entry(self, message: Message, now: float) -> Entry: ...


@dataclass(frozen=True, slots=True)
class SeenIds:
    """For any order and any id: the ids that were seen within `retention`.

    The default outlives every redelivery that SQS can make. `retention=None` never forgets, and so grows for ever.
    `digest=True` keeps 16 bytes of each id (a UUID exactly, anything else hashed) instead of its text.

    Each id costs its bytes, plus a few for its lap, in every write of the entity for up to 1.6 times the retention.
    Consumers' clocks may be off by a 56th of the retention.
    """

    retention: timedelta | None = LONGEST_SQS_RETENTION
    attribute: str = "messageIDs"
    digest: bool = False

    def __post_init__(self) -> None:
        _check_attribute(self.attribute)
        if self.retention is not None and self.retention < timedelta(seconds=1):
            raise ConfigurationError(f"SeenIds(retention={self.retention!r}): an id is kept for a second at least.")

    def entry(self, message: Message, now: float) -> Remember:
        """What a write of this message asks of the entity at `now`, in epoch seconds."""
        mark = _digest(message.id) if self.digest else message.id
        if self.retention is None:
            return Remember((mark,), FOREVER)
        ring = _ring_at(self.retention, now)
        if isinstance(mark, str):
            return Remember(tuple([f"{lap}:{mark}" for lap in ring.laps]), ring)
        return Remember(tuple([b"%d:%s" % (lap, mark) for lap in ring.laps]), ring)


@dataclass(frozen=True, slots=True)
class HighWaterMark:
    """For a source that is delivered in order: its highest sequence. What is not above the mark is not applied."""

    attribute: str = "events"

    def __post_init__(self) -> None:
        _check_attribute(self.attribute)

    def entry(self, message: Message, now: float) -> Advance:  # noqa: ARG002  # a mark knows no time
        """What a write of this message asks of the entity."""
        if message.sequence is None:
            raise InvalidMessage(
                f"Message {message.id!r} has no sequence, and HighWaterMark compares nothing else: take it from what the "
                "producer numbers, or use SeenIds."
            )
        return Advance(source_slot(message.source), message.sequence, "below")


@dataclass(frozen=True, slots=True)
class InSequence:
    """For a source that numbers its messages `first`, `first + 1`, ...: the last one applied. A gap is `Deferred`."""

    first: int = 1
    attribute: str = "events"

    def __post_init__(self) -> None:
        _check_attribute(self.attribute)
        if type(self.first) is not int:
            raise ConfigurationError(f"InSequence(first={self.first!r}): numbering starts at an int.")

    def entry(self, message: Message, now: float) -> Advance:  # noqa: ARG002  # a mark knows no time
        """What a write of this message asks of the entity."""
        if not isinstance(message.sequence, int):
            raise InvalidMessage(
                f"Message {message.id!r} has sequence {message.sequence!r}, and InSequence counts in ints: number the "
                "messages of a source one by one, or use HighWaterMark."
            )
        rule: Rule = "absent" if message.sequence == self.first else "next"
        return Advance(source_slot(message.source), message.sequence, rule, self.first)


# "%", because it escapes; ".", "$" and NUL, because MongoDB gives them a meaning in a path.
_ESCAPES = str.maketrans({"%": "%25", ".": "%2E", "$": "%24", "\0": "%00"})


ONLY = "@"  # the slot of who names no source


def source_slot(source: str) -> str:
    """A field name for any text. The "@" keeps it from being empty, or all digits (an index, to MongoDB)."""
    return ONLY + source.translate(_ESCAPES)


def _ring_at(retention: timedelta, now: float) -> Ring:
    behind, ahead, width = _window(retention)
    moment = int(now * 1_000_000)
    return _ring((moment - behind) // width, moment // width, (moment + ahead) // width)


@lru_cache(maxsize=64)
def _window(retention: timedelta) -> tuple[int, int, int]:
    """How far a reader looks behind and ahead, and the width of a generation, in microseconds."""
    span = retention // _MICROSECOND
    skew = span // _SKEW_SHARE
    # A microsecond of slack at both ends, for the rounding of float clocks.
    behind, ahead = span + 2 * skew + 1, 2 * skew + 1
    return behind, ahead, -(-(behind + ahead) // (_LIVE - 1))


@lru_cache(maxsize=64)  # it changes a few times in a retention, and is asked for at every write
def _ring(oldest: int, present: int, newest: int) -> Ring:
    live = [_place(generation) for generation in range(oldest, newest + 1)]
    laps = tuple(dict.fromkeys([lap for _, lap in live]))
    held = {slot for slot, _ in live}
    drops = tuple([slot for slot in SLOTS if slot not in held])
    here, now = _place(present)
    return Ring(here, laps.index(now), tuple([(slot, laps.index(lap)) for slot, lap in live]), drops, laps)


def _place(generation: int) -> tuple[str, int]:
    """The slot and the lap of a generation."""
    lap, place = divmod(generation * _STRIDE >> 32, len(SLOTS))
    return SLOTS[place], lap


def _digest(text: str) -> bytes:
    if len(text) == _UUID_LENGTH:
        try:
            exact = uuid.UUID(text)
        except ValueError:
            pass
        else:
            if str(exact) == text:  # other spellings of a UUID are other ids
                return exact.bytes
    return blake2b(text.encode(), digest_size=16).digest()


def _marks(held: object, kind: type[Mark]) -> frozenset[Mark]:
    if isinstance(held, frozenset):
        marks = cast("frozenset[Mark]", held)
        if all(isinstance(mark, kind) for mark in marks):
            return marks
    raise LedgerMismatch(
        f"The ledger's set of ids is a {type(cast('object', held)).__name__} here, or holds something other than {kind.__name__}: another "
        "writer uses its attribute, or `digest` was changed. Give the ledger an attribute of its own."
    )


_FORBIDDEN = frozenset("$\0")


def _check_attribute(attribute: object) -> None:
    if not isinstance(attribute, str) or not attribute or attribute == "_id" or _FORBIDDEN & set(attribute):
        raise ConfigurationError(f"attribute={attribute!r}: name a field of the entity that nothing else uses.")
