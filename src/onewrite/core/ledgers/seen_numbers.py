"""The ledger for sources that number their messages and are delivered in any order. Pure: no engine, no clock, no I/O.

How a ledger forgets exactly, never grows, and is never wrong twice
-------------------------------------------------------------------
Numbers are cut into blocks of one size B, and blocks use k slots in turn: block b lives in slot b mod k. A slot holds a tag, which is
its block, and those numbers of the block that were seen. The tag of a slot never goes down.

Promise: a number is either found where it was put, or its slot holds a newer block, and then it is refused unseen. So none is
applied twice, however late a copy comes.

A number n is refused although it is new only where block n // B + k was entered before it came. That block begins at least
(k - 1) * B + 1 above n. With k = (window - 1) // B + 2 this is more than the window: so whatever is at most the window below the
highest number is let in. Blocks of a quarter of the window make five slots at most, of which four are always full: what is kept beyond the
promise is a quarter.

A slot keeps whole numbers, and not their places in the block: so what an older block has left there is never taken for something else.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple, cast

from onewrite.core.label import PREFIX, Slot, check_name, label_of
from onewrite.core.ledgers.entry import Entry, Form, Number, Terms
from onewrite.core.ledgers.ledger import Ledger, check_message, looks_of, terms_of
from onewrite.core.ledgers.marks import OfSources, mark_slot
from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.message import Message, full_name

_NARROWEST = 4  # a block is a number then
_WIDEST = 10_000  # 60 KB of numbers, which DynamoDB bills in every write of the entity
_LONGEST_NAME = 14  # bytes of a source's text: it stands in ten names on DynamoDB
_HASH_BYTES = 10  # as a mark of SeenIds. It is one character longer than the longest text that stands there as it is
_LEAP = 10  # windows between two numbers of a source that are not likely to be both right


class Blocks(NamedTuple):
    """How many numbers make a block, and how many slots blocks use in turn."""

    size: int
    slots: int


def blocks_of(window: int) -> Blocks:
    size = -(-window // 4)
    return Blocks(size, (window - 1) // size + 2)


@dataclass(frozen=True, slots=True)
class SeenNumbers(OfSources):
    """For a source numbered by ints from 0 on, in any order: exact for each number at most `window` below the highest one applied.

    It recognises a copy after years and does not grow. A number further behind that is not known any more is `Stale`: maybe a copy,
    maybe a message that is lost now, so it is worth an alarm. What counts is the distance between numbers: a single message far ahead
    makes many `Stale`. No message is applied twice. Each source costs about 5 bytes for each number seen, and for at most 1.25 times
    `window` of them, in every write of the entity. Numbering that starts again needs a new `source`. `name` and `also` are as for `SeenIds`.
    """

    window: int = 500  # 100 in flight, out of order by as many, and a try of 30 seconds at 10 messages a second
    name: str = field(default="", kw_only=True)
    also: Ledger | tuple[Ledger, ...] = field(default=(), kw_only=True)
    attribute: str = field(init=False, repr=False, compare=False)
    terms: Terms = field(init=False, repr=False, compare=False)
    _blocks: Blocks = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(cast("object", self.window)) is not int or not _NARROWEST <= self.window <= _WIDEST:
            raise ConfigurationError(
                f"SeenNumbers(window={self.window!r}): give an int from {_NARROWEST} to {_WIDEST}, more than the numbers by which a "
                "message may be overtaken."
            )
        check_name(self.name)
        object.__setattr__(self, "attribute", label_of(self.name))
        object.__setattr__(self, "terms", terms_of(self))
        object.__setattr__(self, "_blocks", blocks_of(self.window))

    @property
    def layout(self) -> str:
        """How the numbers are kept, as the label says it."""
        return f"numbers {self.window}"

    def entry(self, message: Message, now: float) -> Entry:
        """What a write of this message asks of the entity."""
        return Entry(
            self.terms, self._number(message, "joins"), looks_of(self.terms, message, now) if self.terms.looks else ()
        )

    def look(self, message: Message, now: float) -> Number:  # noqa: ARG002  # as every ledger has it
        """The number that must not be there."""
        return self._number(message, "asks")

    def _number(self, message: Message, form: Form) -> Number:
        if type(message) is not Message:
            check_message(message)
        number = message.sequence
        if type(number) is not int or number < 0:
            raise InvalidMessage(
                f"The {full_name(message)} has sequence {number!r}, and SeenNumbers keeps ints from 0 on: take it from what the producer "
                "numbers, as with to_number(...) in json_body, or use SeenIds."
            )
        size, count = self._blocks
        place = _places(mark_slot(self.attribute, message), self.window, count)[number // size % count]
        return Number(*place, number, size, form)


@lru_cache(maxsize=1024)  # a process reads few sources, and each of them often
def _places(source: Slot, window: int, count: int) -> tuple[tuple[Slot, Slot], ...]:
    """The two parts of each slot of a source: its tag and its numbers.

    A "%w" cannot come from an escaped source, so a mark which another ledger keeps beside it never has such a name.
    """
    prefix = f"%w{window}={_short(source.key)}"
    return tuple([(Slot(source.group, f"{prefix}.t{n}"), Slot(source.group, f"{prefix}.s{n}")) for n in range(count)])


def _short(text: str) -> str:
    """The text itself where it is short, otherwise a hash: the ledger is paid for in every write."""
    data = text.encode()
    if len(data) <= _LONGEST_NAME:
        return text
    return f"#{urlsafe_b64encode(blake2b(data, digest_size=_HASH_BYTES).digest()).rstrip(b'=').decode()}"


# --- a number that is far ahead of all others ----------------------------------------------------------------------------

_TAG = re.compile(rf"(?P<source>{PREFIX}@\.?%w(?P<window>\d+)=.*)\.t(?P<slot>\d)", re.DOTALL)


class Leap(NamedTuple):
    """A slot whose block is so far ahead of the others that all other numbers of the slot may be `Stale` for long.

    `remedy` is the tag with which the slot takes numbers again, and none twice.
    """

    name: str
    number: int  # the first of its block
    highest: int  # the last of the block before it
    remedy: int


def source_of(name: str) -> str:
    """A name that all slots of a source have in common, and no other name of the ledger."""
    return name.rpartition(".")[0] if "@%w" in name else name


def leaps(entries: Iterable[tuple[str, object]]) -> list[Leap]:
    """What is too far ahead among the names of a ledger and what they hold."""
    tags: dict[tuple[str, int], dict[int, int]] = {}
    for name, value in entries:
        match = _TAG.fullmatch(name)
        if match is not None and type(value) is int:
            tags.setdefault((match["source"], int(match["window"])), {})[value] = int(match["slot"])
    return [leap for (source, window), slots in tags.items() for leap in _ahead(source, blocks_of(window), slots)]


def _ahead(source: str, blocks: Blocks, slots: dict[int, int]) -> list[Leap]:
    size, count = blocks
    tags = sorted(slots)
    cluster = tags[:1]
    for tag in tags[1:]:
        if tag - cluster[-1] > 4 * _LEAP:
            break
        cluster.append(tag)
    ahead, top = tags[len(cluster) :], cluster[-1]
    if len(ahead) >= len(cluster):  # the source has gone on, and these are what is left of before
        return []
    return [
        Leap(f"{source}.t{slots[tag]}", tag * size, (top + 1) * size - 1, top + 1 + (slots[tag] - top - 1) % count)
        for tag in ahead
    ]
