"""The ledgers for messages in any order: they store each message. Pure: no engine, no clock, no I/O."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from math import inf
from typing import cast

from onewrite.core.label import (
    Slot,
    check_attribute,
    check_name,
    make_label_name,
    make_name_prefix,
    plain,
    read_ledger_name,
)
from onewrite.core.ledgers.entry import Entry, Ledger, Remember, Sets, Terms, check_message, make_entry, make_terms
from onewrite.core.ledgers.ring import Ring, SetCache, Window, find_next_change, find_ring, make_window
from onewrite.errors import ConfigurationError
from onewrite.message import Message, join_texts

MAX_SQS_RETENTION = timedelta(days=14)
_SKEW_SHARE = 56  # clocks can be off by this part of the retention: six hours of 14 days, and a minute of one hour
_MIN_RETENTION, _MAX_RETENTION = timedelta(seconds=1), timedelta(days=36_525)


class _IdLedger:
    """The part that the ledgers of single messages share."""

    __slots__ = ()

    @property
    def remedy(self) -> str:
        """The advice for an entity that is too large."""
        return "Split the entity, or shrink its larger part. To shrink the ledger, use a shorter retention, and drop readable=True."


@dataclass(frozen=True, slots=True)
class SeenIds(_IdLedger):
    """Stores the messages of the last `retention`, by source and ID, in any order.

    The default outlives every redelivery that SQS can make. A retention as long as the queue and its dead-letter queue keep a message is
    enough. With `retention=None`, the ledger never forgets, and grows forever. Each message adds a hash of 11 characters to the entity for up to
    1.6 times the retention and two hours; `readable=True` stores the ID instead.

    If two services write to one entity, give each ledger its own `name`, which is part of all names that it stores. `previous` is the ledger
    that you used before. It's still read, but no longer written. Consumers' clocks can be off by 1/56 of the retention, and a write can take
    effect up to an hour after its call.
    """

    retention: timedelta | None = MAX_SQS_RETENTION
    name: str = field(default="", kw_only=True)
    readable: bool = field(default=False, kw_only=True)
    previous: Ledger | tuple[Ledger, ...] = field(default=(), kw_only=True)
    attribute: str = field(init=False, repr=False, compare=False)
    terms: Terms = field(init=False, repr=False, compare=False)
    _window: Window = field(init=False, repr=False, compare=False)
    _cache: SetCache = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        retention = cast("object", self.retention)
        if retention is not None and not isinstance(retention, timedelta):
            raise ConfigurationError(
                f"SeenIds(retention={retention!r}): expected a timedelta, for example timedelta(days=14), or None to never forget."
            )
        if self.retention is not None and not _MIN_RETENTION <= self.retention <= _MAX_RETENTION:
            raise ConfigurationError(
                f"SeenIds(retention={self.retention!r}): must be between a second and a hundred years. Pass None to never forget."
            )
        check_name(self.name)
        object.__setattr__(self, "attribute", make_label_name(self.name))
        object.__setattr__(self, "terms", make_terms(self))
        span = self.retention or MAX_SQS_RETENTION  # a ledger that never forgets doesn't use its window
        object.__setattr__(self, "_window", make_window(span, span / _SKEW_SHARE))
        object.__setattr__(self, "_cache", SetCache())

    @property
    def skew(self) -> timedelta | None:
        """The tolerated error of consumers' clocks; None if time doesn't matter."""
        return None if self.retention is None else self.retention / _SKEW_SHARE

    @property
    def layout(self) -> str:
        """The layout of the marks, which the label names."""
        duration = "all" if self.retention is None else _format_duration(self.retention)
        return f"{duration} text" if self.readable else duration

    def entry(self, message: Message, now: float) -> Entry:
        """Return the ledger's entry for a write of this message at `now`, in epoch seconds."""
        if type(message) is not Message:
            check_message(message)
        since, until, sets = self._cache.last
        moment = int(now * 1_000_000)
        if not since <= moment < until:
            sets = self._find_sets(moment)
        own = Remember(sets, _format_message(message) if self.readable else hash_message(message))
        return make_entry(self.terms, own, message, now)

    def _find_sets(self, moment: int) -> Sets:
        """Return the sets at this moment, and cache them until the ring changes."""
        if self.retention is None:
            sets, until = _make_unbounded_sets(self.attribute, self.readable), inf
        else:
            sets = _make_bounded_sets(self.attribute, self.retention, self.readable, find_ring(self._window, moment))
            until = find_next_change(self._window, moment)
        self._cache.last = moment, until, sets
        return sets


@dataclass(frozen=True, slots=True)
class IdSet(_IdLedger):
    """Stores IDs as strings in a set in your own attribute, as handlers often do by hand: the textbook's `messageIDs`.

    It never forgets, and grows forever. It has no label. Only stores with this ledger, or with this ledger in `previous`, know that the
    set contains IDs. onewrite can't detect a change from this ledger to a different one or back. Pass the previous ledger as `previous`, and
    don't run a consumer without it. The set contains the ID, or `@source/id` for a message with a source. A plain ID counts for every source.
    """

    attribute: str
    previous: Ledger | tuple[Ledger, ...] = field(default=(), kw_only=True)
    terms: Terms = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_attribute(self.attribute)
        object.__setattr__(self, "attribute", plain(self.attribute))
        object.__setattr__(self, "terms", make_terms(self))

    @property
    def skew(self) -> timedelta | None:
        """None, because time doesn't matter."""
        return None

    @property
    def layout(self) -> str:
        return "plain"

    def entry(self, message: Message, now: float) -> Entry:
        """Return the ledger's entry for a write of this message."""
        if type(message) is not Message:
            check_message(message)
        text = _format_message(message)
        aliases: tuple[str, ...] = ()
        if not message.parts and text != message.id:
            # An ID that was stored without a source counts for every source. Your own handlers store it as it is, even if it begins
            # with "@". This ledger then writes "@/ID", and looks for both.
            without_source = (message.id, f"@/{message.id}") if message.id.startswith("@") else (message.id,)
            aliases = tuple([spelling for spelling in without_source if spelling != text])
        own = Remember(_make_plain_sets(self.attribute), text, aliases)
        return make_entry(self.terms, own, message, now)


# --- where the marks are stored --------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _make_bounded_sets(attribute: str, retention: timedelta, readable: bool, ring: Ring) -> Sets:  # noqa: FBT001  # a field's value
    """Return the sets of a ledger that forgets, one for each slot of the ring."""
    # The default settings aren't part of the names, because every write is charged for its names.
    is_usual = retention == MAX_SQS_RETENTION and not readable
    prefix = "" if is_usual else f"{_format_duration(retention)}{'t' if readable else ''}_"
    group = f"{make_name_prefix(attribute)}{prefix}r"
    live, dead = ([Slot(group, slot) for slot in slots] for slots in (ring.live, ring.dead))
    return Sets(Slot(group, ring.present), tuple(live), tuple(dead), has_hashes=not readable)


@lru_cache(maxsize=64)
def _make_unbounded_sets(attribute: str, readable: bool) -> Sets:  # noqa: FBT001  # a field's value
    slot = Slot(f"{make_name_prefix(attribute)}all{'t' if readable else ''}")
    return Sets(slot, (slot,), (), has_hashes=not readable)


@lru_cache(maxsize=64)
def _make_plain_sets(attribute: str) -> Sets:
    return Sets(Slot(attribute), (Slot(attribute),), ())


# The part of a set's name between the prefix and the slot, if the settings aren't the usual ones.
RING_LAYOUT = r"(?:\d+(?:d|h|m|s|us)t?_)?"

# The units of a label's retention, the largest first.
UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "us": timedelta(microseconds=1),
}


def _format_duration(span: timedelta) -> str:
    """Return the duration in the largest unit that divides it: 14d, 36h, 90s."""
    unit = next(unit for unit, length in UNITS.items() if not span % length)
    return f"{span // UNITS[unit]}{unit}"


# --- the marks --------------------------------------------------------------------------------------------------------


_HASH_BYTES = 8
UNNAMED = make_label_name("")  # under this ledger, an effect has the hash of its message


def hash_message(message: Message, ledger: str = UNNAMED) -> str:
    """Return the hash of the message, or of the message's effect under that ledger: 64 bits in 11 characters of URL-safe base64.

    A new hash is one of 3,000 others by chance once in 6 * 10^15. Under a ledger without a name, an effect has the hash of its message.
    """
    if message.parts:
        text = join_texts(message.source, *message.parts, message.id)
    else:
        text = f"{len(message.source)}:{message.source}{len(message.id)}:{message.id}"  # the same as join_texts, in half the time
    digest = blake2b(f"{_make_prefix(ledger)}{text}".encode(), digest_size=_HASH_BYTES).digest()
    return urlsafe_b64encode(digest)[:-1].decode()  # without the padding


@lru_cache(maxsize=64)
def _make_prefix(ledger: str) -> str:
    name = read_ledger_name(ledger)
    return f"in {join_texts(name)}" if name else ""  # other hashed texts begin with a digit


_QUOTES = str.maketrans({"%": "%25", "/": "%2F", "+": "%2B"})


def _format_message(message: Message) -> str:
    """Return the id, or @source+part/id if the message has a source or parts. An id that begins with "@" becomes "@/id"."""
    if not message.source and not message.parts and not message.id.startswith("@"):
        return message.id
    return f"@{'+'.join([part.translate(_QUOTES) for part in (message.source, *message.parts)])}/{message.id}"
