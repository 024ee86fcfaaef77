"""The ledgers for numbered messages in order: they store the last mark of each source. Pure.

`InSequence` and `HighWaterMark` store the same data. You can change from one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache

from onewrite.core.label import Slot, check_name, make_label_name, make_name_prefix
from onewrite.core.ledgers.entry import Advance, Entry, Ledger, Rule, Terms, check_message, make_entry, make_terms
from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.message import Message, full_name

_FEWER_SOURCES = "Split the entity, or shrink its larger part. A ledger of marks grows only with the number of sources."


class _MarkLedger:
    """The part that the ledgers of numbered messages share."""

    __slots__ = ()

    @property
    def layout(self) -> str:
        return "marks"

    @property
    def skew(self) -> timedelta | None:
        """None, because time doesn't matter."""
        return None

    @property
    def remedy(self) -> str:
        """The advice for an entity that is too large."""
        return _FEWER_SOURCES


@dataclass(frozen=True, slots=True)
class HighWaterMark(_MarkLedger):
    """Stores the highest sequence of each source, for sources that are delivered in order. A message at or below the mark isn't applied.

    Each source adds its name and its mark to the entity forever. `name` and `previous` are as for `SeenIds`.
    """

    name: str = field(default="", kw_only=True)
    previous: Ledger | tuple[Ledger, ...] = field(default=(), kw_only=True)
    attribute: str = field(init=False, repr=False, compare=False)
    terms: Terms = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "attribute", make_label_name(self.name))
        object.__setattr__(self, "terms", make_terms(self))

    def entry(self, message: Message, now: float) -> Entry:
        """Return the ledger's entry for a write of this message."""
        if type(message) is not Message:
            check_message(message)
        if message.sequence is None:
            raise InvalidMessage(
                f"The {full_name(message)} has no sequence, but HighWaterMark compares sequences. Pass the number that the producer "
                "assigned, or use SeenIds."
            )
        _check_source(message, "HighWaterMark")
        own = Advance(locate_mark(self.attribute, message.source, message.parts), message.sequence, "below")
        return make_entry(self.terms, own, message, now)


@dataclass(frozen=True, slots=True)
class InSequence(_MarkLedger):
    """Stores the last number of each source, for sources that number their messages `first`, `first + 1`, and so on.

    A message after a gap is `Deferred`, a number below the mark is `Stale`, and a number below `first` is `InvalidMessage`. A message that the caller's own condition refuses moves the mark
    too, in a second request; otherwise all later messages would wait for it forever. `name` is as for `SeenIds`. To change from a different
    ledger, use `HighWaterMark(previous=...)` first: `InSequence` continues its marks.
    """

    first: int = 1
    name: str = field(default="", kw_only=True)
    attribute: str = field(init=False, repr=False, compare=False)
    terms: Terms = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.first) is not int:
            raise ConfigurationError(f"InSequence(first={self.first!r}): expected an int, the first number of each source.")
        check_name(self.name)
        object.__setattr__(self, "attribute", make_label_name(self.name))
        object.__setattr__(self, "terms", make_terms(self))

    @property
    def previous(self) -> tuple[()]:
        """No ledger, because an `InSequence` continues the marks of a `HighWaterMark`, which can have earlier ledgers."""
        return ()

    def entry(self, message: Message, now: float) -> Entry:
        """Return the ledger's entry for a write of this message."""
        if type(message) is not Message:
            check_message(message)
        if not isinstance(message.sequence, int):
            raise InvalidMessage(
                f"The {full_name(message)} has sequence {message.sequence!r}: expected an int, because InSequence counts. Number the "
                "messages of a source one by one, or use HighWaterMark."
            )
        if message.sequence < self.first:
            raise InvalidMessage(
                f"The {full_name(message)}, is below {self.first}, from which InSequence(first={self.first}) counts. It would never take effect. If "
                f"the producer's first number is {message.sequence}, pass InSequence(first={message.sequence}). Otherwise, fix the producer or the "
                "identity."
            )
        _check_source(message, "InSequence")
        rule: Rule = "first" if message.sequence == self.first else "next"
        own = Advance(locate_mark(self.attribute, message.source, message.parts), message.sequence, rule, self.first)
        return make_entry(self.terms, own, message, now)


def _check_source(message: Message, ledger: str) -> None:
    """Raise if the message has no source. Under one mark, the first messages of two producers would be one message."""
    if not message.source:
        raise InvalidMessage(
            f"The {full_name(message)} has no source, but {ledger} keeps one mark per source. If two producers both counted from 1, "
            "messages of one would be dropped as duplicates of the other's. Pass a source, for example "
            f"Message({message.id!r}, source='orders', sequence={message.sequence!r}), or json_body(..., source='orderId')."
        )


# --- the slot of a mark -----------------------------------------------------------------------------------------------

# "%" is the escape character; ".", "$", and NUL have a meaning in MongoDB's paths.
_ESCAPES = str.maketrans({"%": "%25", ".": "%2E", "$": "%24", "\0": "%00"})


@lru_cache(maxsize=1024)  # a process reads few sources, each of them often
def locate_mark(attribute: str, source: str, parts: tuple[str, ...]) -> Slot:
    """Return the slot of a source's mark. Two sources, or two parts of one, never share it."""
    # In escaped text, two hexadecimal digits follow each "%". A source therefore never contains "%+".
    part_texts = [f"%+{part.translate(_ESCAPES)}" for part in parts]
    return Slot(f"{make_name_prefix(attribute)}@", source.translate(_ESCAPES) + "".join(part_texts))
