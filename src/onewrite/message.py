"""What is delivered at least once, and the text form of numbers that no database can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b, sha1
from typing import Any, ClassVar, cast
from uuid import UUID

from onewrite.errors import InvalidMessage

# Any fixed UUID would do: it keeps our derived keys apart from everybody else's.
_CHILDREN = UUID("6b1d2f0e-5f0a-4c5e-9d53-0f6f6e657772")
_MOST_DIGITS = 640  # Python turns so many into text, however its limit is set: a number must have a line in a log
_MOST_BITS = (10**_MOST_DIGITS - 1).bit_length() - 1
_empty_mapping = cast("Callable[[], Mapping[str, Any]]", dict)  # to call dict[str, Any] takes five times as long
_HASH_OF_NAMESPACE = sha1(_CHILDREN.bytes, usedforsecurity=False)  # a copy takes half the time of a new one


@dataclass(frozen=True, slots=True)
class Message:
    """One delivery. `id` is the same each time it is delivered; `source` numbers `sequence`.

    `attributes` are what the sender put beside the body, such as SQS's message attributes or Kafka's headers. `system` is what
    the transport itself says of the delivery, such as SQS's SenderId: no sender can write there.

    `longest_text` is how many bytes of UTF-8 the id, the source, a sequence and the name of a part may have, because a ledger
    may keep them in the entity. It is 2048, the longest partition key of DynamoDB, so what is a key somewhere can be an id.
    A program that needs longer ones sets `Message.longest_text` once, when it starts.

    Two writes of one message to one entity are two parts of it: give the second `message.part("stock")`.

    >>> Message("evt-1", source="order-7", sequence=3).child("charge")
    'a0669707-a242-5c1c-9d5b-76382555fbfc'
    """

    id: str
    source: str = ""
    sequence: int | str | None = None
    body: Any = field(default=None, hash=False)
    attributes: Mapping[str, Any] = field(default_factory=_empty_mapping, hash=False)
    parts: tuple[str, ...] = ()
    system: Mapping[str, Any] = field(default_factory=_empty_mapping, hash=False)

    longest_text: ClassVar[int] = 2048

    def __post_init__(self) -> None:
        id_, source, sequence = self.id, self.source, self.sequence
        if (
            type(id_) is type(source) is str
            and (sequence is None or (type(sequence) is int and sequence.bit_length() <= _MOST_BITS))
            and id_.isascii()
            and source.isascii()
            and 0 < len(id_) <= self.longest_text >= len(source)
            and self.parts == ()
        ):
            return  # nearly always
        for name, text in (("id", id_), ("source", source)):
            _check_text(name, text)
        if not id_:
            raise InvalidMessage("Message.id is empty: an empty id cannot tell two messages apart.")
        if isinstance(sequence, str):
            _check_text("sequence", sequence)
        elif sequence is not None and type(sequence) is not int:
            raise InvalidMessage(
                f"Message.sequence is a {type(sequence).__name__}, not an int or a str: "
                "for numbers too large for the database, use onewrite.sortable(n)."
            )
        elif sequence is not None and sequence.bit_length() > _MOST_BITS:
            raise InvalidMessage(
                f"Message.sequence has {_MOST_DIGITS} digits or more, and no database holds such a number: use onewrite.sortable(n)."
            )
        if not isinstance(cast("object", self.parts), tuple):
            raise InvalidMessage(f"Message.parts is a {type(self.parts).__name__}, not a tuple: use message.part(name).")
        for part in self.parts:
            _check_text("part", part)
        # The text of a member of an Enum, which in an f-string is the member's name.
        plain = {name: str.__str__(text) for name, text in (("id", id_), ("source", source))}
        plain |= {"sequence": str.__str__(sequence)} if isinstance(sequence, str) else {}
        for name, value in {**plain, "parts": tuple([str.__str__(part) for part in self.parts])}.items():
            object.__setattr__(self, name, value)

    def child(self, name: str) -> str:
        """A key to hand downstream: the same on every delivery, another for every name.

        It is derived from the id, and from the source and the parts where there are any: two callers that choose the same
        Idempotency-Key get two keys.
        """
        if not self.source and not self.parts:
            return _child(f"{len(self.id)}:{self.id}" + name)
        # The text of a message without source and parts begins with a digit. The space ends the last part.
        return _child("of " + join_texts(self.id, self.source, *self.parts) + " " + name)

    def part(self, name: str) -> Message:
        """The same message for another write of it to the same entity, which the ledger would otherwise take for a duplicate."""
        return replace(self, parts=(*self.parts, name))


def named_by(message: Message) -> str:
    """What tells the message from all others, its source, parts and id, as one text."""
    if message.parts:
        return join_texts(message.source, *message.parts, message.id)
    return f"{len(message.source)}:{message.source}{len(message.id)}:{message.id}"  # the same, in half the time


@lru_cache(maxsize=64)  # the mark of a message is the mark of its step as well
def digest_of(text: str) -> bytes:
    """What stands for a text where it is kept. 80 bits: with 10,000 marks in an entity, a fresh one is taken for one of them once in 10^20."""
    return blake2b(text.encode(), digest_size=10).digest()


def join_texts(*texts: str) -> str:
    """The texts as one, from which each can be read again: the lengths keep ("ab", "c") and ("a", "bc") apart."""
    return "".join([f"{len(text)}:{text}" for text in texts])


def _child(name: str) -> str:
    """The text of `uuid5(_CHILDREN, name)`, in a fraction of its time."""
    sha = _HASH_OF_NAMESPACE.copy()
    sha.update(name.encode())
    digest = bytearray(sha.digest())
    digest[6] = digest[6] & 0x0F | 0x50  # the version
    digest[8] = digest[8] & 0x3F | 0x80  # the variant
    digits = digest.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def printable(text: str, longest: int = 200) -> str:
    """The text as one line of a log may show it: at most so long, and with every character escaped that is no visible one.

    Whoever sends a message may choose its id. A line break in it would begin a line of the log that looks like one of ours.
    """
    line = text if len(text) <= longest else f"{text[:longest]}..."
    if line.isprintable():
        return line
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in line
    )


def full_name(message: Message) -> str:
    """Which message it is, for a line of a log or an error: with all that tells it from another one of the same id.

    >>> full_name(Message("evt-1", source="order-7", sequence=3).part("stock"))
    'message evt-1 of source order-7, sequence 3, part stock'
    """
    source = f" of source {printable(message.source)}" if message.source else ""
    sequence = "" if message.sequence is None else f", sequence {printable(str(message.sequence))}"
    return f"message {printable(message.id)}{source}{sequence}{''.join([f', part {printable(part)}' for part in message.parts])}"


def by_sequence(messages: Sequence[Message | None]) -> list[int]:
    """All places, in the order in which to take the messages: those of a source by their sequence.

    They are taken at the places that their source has, so no source is put off until the others are done.
    """
    of_source: dict[str, list[tuple[str, int | str, int]]] = {}
    for place, message in enumerate(messages):
        if message is not None and message.sequence is not None:
            # Numbers and texts cannot be compared, and a source that has both is refused by its ledger.
            sequence = (type(message.sequence).__name__, message.sequence, place)
            of_source.setdefault(message.source, []).append(sequence)
    order = list(range(len(messages)))
    for members in of_source.values():
        for (_, _, place), (_, _, number) in zip(members, sorted(members), strict=True):
            order[place] = number
    return order


def sortable(n: int) -> str:
    """Text that sorts as the number does, for numbers too long for a database (Kinesis: 56 digits).

    The digits are led by their count, and the count by its own. The "#" tells them from plain digits, which sort otherwise.

    >>> sortable(9), sortable(10)
    ('#119', '#1210')
    """
    if type(n) is not int or n < 0:
        problem = "a negative number" if type(n) is int else f"a {type(n).__name__}"
        raise InvalidMessage(f"sortable(n): n is {problem}, and only an int from 0 upwards has a sortable text.")
    try:
        digits = str(n)
    except ValueError as error:  # Python refuses to convert more than some thousand digits
        raise InvalidMessage("sortable(n): n has more digits than Python turns into text.") from error
    count = str(len(digits))
    return f"#{len(count)}{count}{digits}"


def is_sortable(text: str) -> bool:
    """Is this text as `sortable` makes it?"""
    return text.startswith("#")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidMessage(
            f"Message.{name} is a {type(value).__name__}, not a str: read it as text, or make one of it where it cannot be missing. "
            "str(None) is 'None', one text for every message that lacks the field."
        )
    length = len(value)
    if not value.isascii():
        try:
            length = len(value.encode())
        except UnicodeEncodeError as error:
            raise InvalidMessage(
                f"Message.{name} has a lone surrogate, which no database stores: decode the delivery with its right charset."
            ) from error
    if length > Message.longest_text:
        raise InvalidMessage(
            f"Message.{name} has {length} bytes, and at most {Message.longest_text} are allowed, because a ledger may keep it in "
            "the entity: give a digest of it instead, such as hashlib.sha256(text.encode()).hexdigest()."
        )
