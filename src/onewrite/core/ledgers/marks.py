"""The ledgers for sources that number their messages and are delivered in order: the last mark of each source. Pure.

`InSequence` and `HighWaterMark` keep the same, so one may follow the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache

from onewrite.core.label import Slot, check_name, make_label_name, make_name_prefix
from onewrite.core.ledgers.entry import Advance, Entry, Rule, Terms
from onewrite.core.ledgers.ledger import Ledger, check_message, list_earlier_ledgers, make_looks, make_terms
from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.message import Message, full_name

_FEWER_SOURCES = "Split it, or make the larger part smaller: a ledger of marks grows with the number of sources alone."


class _MarkLedger:
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
class HighWaterMark(_MarkLedger):
    """For a source that is delivered in order: its highest sequence. What is not above the mark is not applied.

    Each source costs its name and its mark in every write of the entity, forever. `name` and `also` are as for `SeenIds`.
    """

    name: str = field(default="", kw_only=True)
    also: Ledger | tuple[Ledger, ...] = field(default=(), kw_only=True)
    attribute: str = field(init=False, repr=False, compare=False)
    terms: Terms = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "attribute", make_label_name(self.name))
        object.__setattr__(self, "terms", make_terms(self))

    @property
    def layout(self) -> str:
        return "marks"

    def entry(self, message: Message, now: float) -> Entry:
        """Return what a write of this message asks of the entity."""
        if type(message) is not Message:
            check_message(message)
        if message.sequence is None:
            raise InvalidMessage(
                f"The {full_name(message)} has no sequence, and HighWaterMark compares nothing else: take it from what the "
                "producer numbers, or use SeenIds."
            )
        _check_source(message, "HighWaterMark")
        own = Advance(mark_slot(self.attribute, message.source, message.parts), message.sequence, "below")
        return Entry(self.terms, own, make_looks(self.terms, message, now) if self.terms.earlier_entries else ())


@dataclass(frozen=True, slots=True)
class InSequence(_MarkLedger):
    """For a source that numbers its messages `first`, `first + 1`, ...: the last one that was done. A gap is `Deferred`, and a lower number is `Stale`.

    A message that the caller's own condition refuses moves the mark too, in a second request: otherwise all that follow it would
    wait for it forever. So does one that a ledger in `also=` holds, when its turn comes; until then it is `Deferred`. `name` and `also`
    are as for `SeenIds`.
    """

    first: int = 1
    name: str = field(default="", kw_only=True)
    also: Ledger | tuple[Ledger, ...] = field(default=(), kw_only=True)
    attribute: str = field(init=False, repr=False, compare=False)
    terms: Terms = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.first) is not int:
            raise ConfigurationError(f"InSequence(first={self.first!r}): numbering starts at an int.")
        check_name(self.name)
        object.__setattr__(self, "attribute", make_label_name(self.name))
        self._check_before(list_earlier_ledgers(self.also))
        object.__setattr__(self, "terms", make_terms(self))

    def _check_before(self, ledgers: Sequence[Ledger]) -> None:
        """Refuse a ledger that would wait forever for a message that was done already, because its mark stands elsewhere."""
        if any(ledger.layout == self.layout and ledger.attribute != self.attribute for ledger in ledgers):
            raise ConfigurationError(
                f"InSequence(name={self.name!r}) would wait for message {self.first} of a source whose mark stands in the ledger of another "
                "name: keep the name of the ledger before, whose marks it continues."
            )
        if ledgers and self.first == 1 and not any(ledger.layout == self.layout for ledger in ledgers):
            raise ConfigurationError(
                "InSequence(also=...) would wait for message 1 of every source, which the ledger before may hold already: say with first= "
                "where to go on, which counts for every source; or change to HighWaterMark(also=...) first, whose marks InSequence continues as they "
                "are. If you deliver all messages again from 1 on, add HighWaterMark() to also=."
            )

    @property
    def layout(self) -> str:
        return "marks"  # as for HighWaterMark: the last sequence of each source, so one may follow the other

    def entry(self, message: Message, now: float) -> Entry:
        """Return what a write of this message asks of the entity."""
        if type(message) is not Message:
            check_message(message)
        if not isinstance(message.sequence, int):
            raise InvalidMessage(
                f"The {full_name(message)} has sequence {message.sequence!r}, and InSequence counts in ints: number the "
                "messages of a source one by one, or use HighWaterMark."
            )
        _check_source(message, "InSequence")
        rule: Rule = "first" if message.sequence == self.first else "next"
        own = Advance(mark_slot(self.attribute, message.source, message.parts), message.sequence, rule, self.first)
        return Entry(self.terms, own, make_looks(self.terms, message, now) if self.terms.earlier_entries else ())


def _check_source(message: Message, ledger: str) -> None:
    """Raise if the message doesn't say who numbers it: under one mark, two producers' first messages would be one message."""
    if not message.source:
        raise InvalidMessage(
            f"The {full_name(message)} has no source, and {ledger} keeps one mark per source: without it, two producers that both "
            "count from 1 would lose messages to each other. Name whoever numbers the messages, as in "
            f"Message({message.id!r}, source='orders', sequence={message.sequence!r}), or json_body(..., source='orderId')."
        )


# --- where the marks stand --------------------------------------------------------------------------------------------

# "%" is the escape character itself; ".", "$" and NUL mean something in a path of MongoDB.
_ESCAPES = str.maketrans({"%": "%25", ".": "%2E", "$": "%24", "\0": "%00"})


@lru_cache(maxsize=1024)  # a process reads few sources, and each of them often
def mark_slot(attribute: str, source: str, parts: tuple[str, ...]) -> Slot:
    """Return the slot of a source's mark. Two sources, or two parts of one, never share it."""
    # Escaped text has two hexadecimal digits behind each "%", so "%+" and a lone "%" cannot come from a source.
    part_texts = [f"%+{part.translate(_ESCAPES)}" for part in parts]
    return Slot(f"{make_name_prefix(attribute)}@", source.translate(_ESCAPES) + "".join(part_texts))
