"""What an entity remembers about messages. Pure: no engine, no clock, no I/O.

A ledger answers `entry(message, now)`: what must the entity lack, what does it gain, what may go? The engines write that in
their own language. Where a write is refused they look up what is stored, and `Entry.judge` says what that means.

What is stored is fixed by docs/format.md. Each ledger puts a label into the entity beside its marks, which says how the marks
are kept: a store that is set up otherwise would look in the wrong place and let a message in twice, so it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import NoReturn, Protocol, cast

from onewrite.entry import Advance, Change, Entry, Remember, Rule, Sets, Terms
from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.label import FORMAT, Label, Slot, check_attribute, label_slot, shows_plain_set
from onewrite.message import Message, together
from onewrite.ring import Ring, Window, ring_at, window

LONGEST_SQS_RETENTION = timedelta(days=14)
SLOTS = 6
_SKEW_SHARE = 56  # of the retention: six hours for 14 days, and still a minute for one hour
# 80 bits: with 10,000 marks in an entity, a fresh message is taken for one of them once in 10^20.
_HASH_BYTES = 10
_SHORTEST, _LONGEST = timedelta(seconds=1), timedelta(days=36_525)
_LATEST_CLOCK = 1e10  # the year 2286: a clock that shows more does not count seconds
DEFAULTS = ("messageIDs", "events")
_FEWER_SOURCES = "Split it, or make the larger part smaller: a ledger of marks grows with the number of sources alone."


class Ledger(Protocol):
    """What the engines, and other ledgers, need to know of a ledger."""

    @property
    def attribute(self) -> str: ...
    @property
    def also(self) -> Ledger | tuple[Ledger, ...]: ...
    @property
    def layout(self) -> str: ...
    @property
    def skew(self) -> timedelta | None: ...
    @property
    def terms(self) -> Terms: ...
    @property
    def remedy(self) -> str: ...
    def entry(self, message: Message, now: float) -> Entry: ...
    def look(self, message: Message, now: float) -> Change: ...


@dataclass(frozen=True, slots=True)
class SeenIds:
    """For any order and any id: the messages that were seen within `retention`, by source and id together.

    The default outlives every redelivery that SQS can make; as long as the queue and its dead letters keep a message is
    enough. `retention=None` never forgets, and so grows for ever. Each message costs 10 bytes, a hash, in every write of the
    entity for up to 1.6 times the retention; `readable=True` keeps the text of the ids instead.
    With both, the set is one as handlers keep it by hand: an id that stands in it alone counts for every source.

    `also` names the ledger that was used before: it is looked into as well, and no longer written. Consumers' clocks may be
    off by a 56th of the retention.
    """

    retention: timedelta | None = LONGEST_SQS_RETENTION
    attribute: str = DEFAULTS[0]
    readable: bool = False
    also: Ledger | tuple[Ledger, ...] = ()
    terms: Terms = field(init=False, repr=False, compare=False)
    _window: Window = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        retention = cast("object", self.retention)
        if retention is not None and not isinstance(retention, timedelta):
            raise ConfigurationError(
                f"SeenIds(retention={retention!r}): give a timedelta, as in timedelta(days=14), or None to never forget."
            )
        if self.retention is not None and not _SHORTEST <= self.retention <= _LONGEST:
            raise ConfigurationError(
                f"SeenIds(retention={self.retention!r}): an id is kept for a second at least, and a hundred years at most. Give None "
                "to never forget."
            )
        object.__setattr__(self, "terms", terms_of(self))
        kept = self.retention or LONGEST_SQS_RETENTION
        object.__setattr__(self, "_window", window(kept, kept / _SKEW_SHARE))

    @property
    def skew(self) -> timedelta | None:
        """How far consumers' clocks may be off; None if time does not matter."""
        return None if self.retention is None else self.retention / _SKEW_SHARE

    @property
    def remedy(self) -> str:
        """How the user can make an entity smaller that is too large."""
        return "Split it, or make the larger part smaller: the ledger by a shorter retention, and without readable=True."

    @property
    def layout(self) -> str:
        """How the marks are kept, as the label says it."""
        kept = "all" if self.retention is None else _duration(self.retention)
        return f"{kept} text" if self.readable else kept

    def entry(self, message: Message, now: float) -> Entry:
        """What a write of this message asks of the entity at `now`, in epoch seconds."""
        return Entry(self.terms, self.look(message, now), looks_of(self.terms, message, now))

    def look(self, message: Message, now: float) -> Remember:
        """The mark that must not be there."""
        check_call(message, now)
        if not self.readable:
            return Remember(self._sets(now), _hash(message))
        # A set that never forgets may have been kept by hand before, and then it holds plain ids.
        by_hand = self.retention is None and message.source and not message.parts
        return Remember(self._sets(now), _text(message), (message.id,) if by_hand else ())

    def _sets(self, now: float) -> Sets:
        if self.retention is None:
            return _unbounded(self.attribute, self.readable)
        return _bounded(self.attribute, self.retention, self.readable, ring_at(self._window, now, SLOTS))


class OfSources:
    """What the ledgers of numbered messages have in common."""

    __slots__ = ()

    @property
    def skew(self) -> timedelta | None:
        """None: time does not matter."""
        return None

    @property
    def remedy(self) -> str:
        """How the user can make an entity smaller that is too large."""
        return _FEWER_SOURCES


@dataclass(frozen=True, slots=True)
class HighWaterMark(OfSources):
    """For a source that is delivered in order: its highest sequence. What is not above the mark is not applied.

    Each source costs its name and its mark in every write of the entity, for ever. `also` is as for `SeenIds`.
    """

    attribute: str = DEFAULTS[1]
    also: Ledger | tuple[Ledger, ...] = ()
    terms: Terms = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", terms_of(self))

    @property
    def layout(self) -> str:
        return "marks"

    def entry(self, message: Message, now: float) -> Entry:
        """What a write of this message asks of the entity."""
        return Entry(self.terms, self.look(message, now), looks_of(self.terms, message, now))

    def look(self, message: Message, now: float) -> Advance:
        """The mark that must be below the message's sequence."""
        check_call(message, now)
        if message.sequence is None:
            raise InvalidMessage(
                f"Message {message.id!r} has no sequence, and HighWaterMark compares nothing else: take it from what the "
                "producer numbers, or use SeenIds."
            )
        return Advance(mark_slot(self.attribute, message), message.sequence, "below")


@dataclass(frozen=True, slots=True)
class InSequence(OfSources):
    """For a source that numbers its messages `first`, `first + 1`, ...: the last one that was done. A gap is `Deferred`.

    A message that the caller's own condition refuses moves the mark too, in a second request: else all that follow it would
    wait for it for ever. `also` is as for `SeenIds`.
    """

    first: int = 1
    attribute: str = DEFAULTS[1]
    also: Ledger | tuple[Ledger, ...] = ()
    terms: Terms = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.first) is not int:
            raise ConfigurationError(f"InSequence(first={self.first!r}): numbering starts at an int.")
        self._check_before(_before(self.also))
        object.__setattr__(self, "terms", terms_of(self))

    def _check_before(self, before: Sequence[Ledger]) -> None:
        """Refuse a ledger that would wait for ever for a message that was done already, because its mark stands elsewhere."""
        if any(each.layout == self.layout and each.attribute != self.attribute for each in before):
            raise ConfigurationError(
                f"InSequence(attribute={self.attribute!r}) would wait for message {self.first} of a source whose mark stands in another "
                "attribute: keep the attribute of the ledger before, whose marks it continues."
            )
        if before and self.first == 1 and not any(each.layout == self.layout for each in before):
            raise ConfigurationError(
                "InSequence(also=...) would wait for message 1 of every source, which the ledger before may hold already: say with first= "
                "where to go on; or change to HighWaterMark(also=...) first, whose marks InSequence continues as they are."
            )

    @property
    def layout(self) -> str:
        return "marks"  # as for HighWaterMark: the last sequence of each source, so that one may follow the other

    def entry(self, message: Message, now: float) -> Entry:
        """What a write of this message asks of the entity."""
        look = self.look(message, now)
        rule: Rule = "first" if message.sequence == self.first else "next"
        return Entry(self.terms, Advance(look.slot, look.mark, rule, self.first), looks_of(self.terms, message, now))

    def look(self, message: Message, now: float) -> Advance:
        """The mark that must be below the message's sequence."""
        check_call(message, now)
        if not isinstance(message.sequence, int):
            raise InvalidMessage(
                f"Message {message.id!r} has sequence {message.sequence!r}, and InSequence counts in ints: number the "
                "messages of a source one by one, or use HighWaterMark."
            )
        return Advance(mark_slot(self.attribute, message), message.sequence, "below")


class _NoLedger:
    """Stands where a store has none. Nothing is guarded there, so that whatever would be is refused."""

    attribute = layout = remedy = ""
    also = ()
    skew = None
    terms = Terms("", (), frozenset(), (), None, (), ())

    def entry(self, message: Message, now: float) -> NoReturn:  # noqa: ARG002  # as every ledger has it
        raise ConfigurationError(
            "This store has no ledger, so that nothing would tell a redelivery from a fresh message: give it one, or write to it "
            "in transact(message, [store.updating(...), ...], inbox=Inbox(...))."
        )

    look = entry


NO_LEDGER = _NoLedger()


def check_ledger(ledger: object) -> None:
    """Raise unless this is a ledger that a store may use."""
    if isinstance(ledger, type):
        raise ConfigurationError(f"{ledger.__name__} is the class, and a store needs a ledger: write {ledger.__name__}().")
    if not all(hasattr(ledger, name) for name in ("entry", "look", "layout", "terms")):
        raise ConfigurationError(f"{ledger!r} is no ledger: give SeenIds(), SeenNumbers(), HighWaterMark() or InSequence().")


# --- slots and sets ---------------------------------------------------------------------------------------------------

# "%" is the escape character itself; ".", "$" and NUL mean something in a path of MongoDB.
_ESCAPES = str.maketrans({"%": "%25", ".": "%2E", "$": "%24", "\0": "%00"})


def mark_slot(attribute: str, message: Message) -> Slot:
    """Where the mark of the message's source stands. Two sources, or two parts of one, never share it."""
    return _mark_slot(attribute, message.source, message.parts)


@lru_cache(maxsize=1024)  # a process reads few sources, and each of them often
def _mark_slot(attribute: str, source: str, parts: tuple[str, ...]) -> Slot:
    # Escaped text has two hexadecimal digits behind each "%", so "%+" and a lone "%" cannot come from a source.
    escaped = [f"%+{part.translate(_ESCAPES)}" for part in parts]
    return Slot(f"{attribute}@", source.translate(_ESCAPES) + "".join(escaped) or "%")


@lru_cache(maxsize=256)
def _bounded(attribute: str, retention: timedelta, readable: bool, ring: Ring) -> Sets:  # noqa: FBT001  # a field's value
    group = f"{attribute}_{_duration(retention)}{'t' if readable else ''}"
    live, dead = ([Slot(group, slot) for slot in slots] for slots in (ring.live, ring.dead))
    return Sets(Slot(group, ring.present), tuple(live), tuple(dead), str if readable else bytes)


@lru_cache(maxsize=64)
def _unbounded(attribute: str, readable: bool) -> Sets:  # noqa: FBT001  # a field's value
    slot = Slot(attribute) if readable else Slot(f"{attribute}_all")
    return Sets(slot, (slot,), (), str if readable else bytes)


# From the largest to the smallest, as the label names them.
UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "us": timedelta(microseconds=1),
}


def _duration(span: timedelta) -> str:
    """The duration in the largest unit that divides it: 14d, 36h, 90s."""
    unit = next(unit for unit, length in UNITS.items() if not span % length)
    return f"{span // UNITS[unit]}{unit}"


# --- marks ------------------------------------------------------------------------------------------------------------


def _hash(message: Message) -> bytes:
    return blake2b(together(message.source, *message.parts, message.id).encode(), digest_size=_HASH_BYTES).digest()


_QUOTES = str.maketrans({"%": "%25", "/": "%2F", "+": "%2B"})


def _text(message: Message) -> str:
    """The id alone where there is no more to say; else @source+part/id. An id that begins with "@" is led by "@/"."""
    if not message.source and not message.parts and not message.id.startswith("@"):
        return message.id
    return f"@{'+'.join([part.translate(_QUOTES) for part in (message.source, *message.parts)])}/{message.id}"


# --- what all entries of a ledger have in common ----------------------------------------------------------------------


def terms_of(ledger: Ledger) -> Terms:
    every = (ledger, *_before(ledger.also))
    for each in every:
        check_attribute(each.attribute)
    kept: dict[str, dict[str, Ledger]] = {}
    for each in every:
        kept.setdefault(each.attribute, {}).setdefault(f"{FORMAT} {each.layout}", each)
    attributes = tuple(kept)
    plain = frozenset([attribute for attribute, texts in kept.items() if any(map(shows_plain_set, texts))])
    others = DEFAULTS if ledger.attribute in DEFAULTS else ()
    return Terms(
        ledger.attribute,
        attributes,
        plain,
        labels=tuple([_label(ledger.attribute, each, tuple(kept[each]), attributes) for each in kept]),
        no_label=tuple([label_slot(each) for each in others if each not in attributes]),
        no_set=Slot(ledger.attribute) if isinstance(ledger, SeenIds) and ledger.attribute not in plain else None,
        looks=tuple([each.look for texts in kept.values() for each in texts.values() if each is not ledger]),
    )


def _label(own: str, attribute: str, texts: tuple[str, ...], attributes: tuple[str, ...]) -> Label:
    """A ledger that moved leaves a label at its old attribute, so that a store that knows no other is refused.

    It is accepted at the new one as well, so that a deployment can be taken back.
    """
    moved = tuple([f"{FORMAT} > {other}" for other in attributes if other != attribute])
    text = texts[0] if attribute == own else f"{FORMAT} > {own}"
    return Label(label_slot(attribute), text, tuple(dict.fromkeys([text, *texts, *moved])), texts[0])


def _before(also: object) -> list[Ledger]:
    """The ledgers before this one, and those before them."""
    ledgers = cast("tuple[object, ...]", also if isinstance(also, tuple) else (also,))
    for ledger in ledgers:
        check_ledger(ledger)
    named = cast("tuple[Ledger, ...]", ledgers)
    return [each for ledger in named for each in (ledger, *_before(ledger.also))]


def looks_of(terms: Terms, message: Message, now: float) -> tuple[Change, ...]:
    return tuple([look(message, now) for look in terms.looks]) if terms.looks else ()


# --- misuse -----------------------------------------------------------------------------------------------------------


def check_call(message: object, now: float) -> None:
    if not isinstance(message, Message):
        raise InvalidMessage(
            f"A guarded write takes a Message, and got a {type(message).__name__}. message.child() is a key for others; for a "
            "second write of one message to one entity give it message.part(name)."
        )
    if not 0 <= now <= _LATEST_CLOCK:
        raise ConfigurationError(
            f"The clock shows {now!r}, which is no time in seconds since 1970: give a clock like time.time, not one that counts "
            "milliseconds. A ledger would forget within minutes under it."
        )
