"""Messages, keys derived from them, and a sortable text form of large numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha1
from typing import Any, ClassVar, cast
from uuid import UUID

from onewrite.errors import InvalidMessage

# Any fixed UUID would do. It keeps these derived keys apart from all other UUIDs.
_CHILDREN = UUID("6b1d2f0e-5f0a-4c5e-9d53-0f6f6e657772")
_MAX_DIGITS = 640  # the smallest limit that Python's int-to-text conversion can have, and a log line must show the number
_MAX_BITS = (10**_MAX_DIGITS - 1).bit_length() - 1
_empty_mapping = cast("Callable[[], Mapping[str, Any]]", dict)  # calling dict[str, Any] takes five times as long
_NAMESPACE_HASH = sha1(_CHILDREN.bytes, usedforsecurity=False)  # copying it takes half the time of making a new one


@dataclass(frozen=True, slots=True)
class Message:
    """A message that can be delivered more than once.

    - `id`: the same on every delivery, unique within its source
    - `source`: who numbers the messages, such as an aggregate, a partition, or a message group
    - `sequence`: the position within the source
    - `body`: the content, which onewrite does not read
    - `attributes`: data that the sender put next to the body, such as SQS's message attributes or Kafka's headers
    - `parts`: set by `part`
    - `system`: data from the transport itself, such as SQS's SenderId. No sender can change it.

    `Message.max_text_bytes` limits the id, the source, a text sequence, and a part's name, because a ledger can keep them in the
    entity. It is 2048 bytes of UTF-8, the size of DynamoDB's partition keys. If you need longer ones, set it once at the start.

    Examples:
        >>> Message("evt-1", source="order-7", sequence=3).child("charge")
        'a0669707-a242-5c1c-9d5b-76382555fbfc'
    """

    id: str
    source: str = ""
    sequence: int | str | None = None
    body: Any = field(default=None, hash=False, repr=False)
    attributes: Mapping[str, Any] = field(default_factory=_empty_mapping, hash=False, repr=False)
    parts: tuple[str, ...] = ()
    system: Mapping[str, Any] = field(default_factory=_empty_mapping, hash=False, repr=False)

    max_text_bytes: ClassVar[int] = 2048

    def __post_init__(self) -> None:
        id_, source, sequence, max_bytes = self.id, self.source, self.sequence, self.max_text_bytes
        if (
            type(id_) is type(source) is str
            and (sequence is None or (type(sequence) is int and sequence.bit_length() <= _MAX_BITS))
            and id_.isascii()
            and source.isascii()
            and 0 < len(id_) <= max_bytes
            and len(source) <= max_bytes
            and self.parts == ()
        ):
            return  # the common case, without a function call
        for name, text in (("id", id_), ("source", source)):
            _check_text(name, text)
        if not id_:
            raise InvalidMessage("Message.id is empty, and can't distinguish messages. Read the ID from the delivery.")
        if isinstance(sequence, str):
            _check_text("sequence", sequence)
        elif sequence is not None and type(sequence) is not int:
            raise InvalidMessage(
                f"Message.sequence: expected an int or a str, got a {type(sequence).__name__}. "
                "For a number that is too large for the database, pass onewrite.sortable(n)."
            )
        elif sequence is not None and sequence.bit_length() > _MAX_BITS:
            raise InvalidMessage(
                f"Message.sequence must have fewer than {_MAX_DIGITS} digits, because neither database can store a longer number. Pass onewrite.sortable(n)."
            )
        if not isinstance(cast("object", self.parts), tuple):
            raise InvalidMessage(
                f"Message.parts: expected a tuple, got a {type(self.parts).__name__}. Use message.part(name)."
            )
        for part in self.parts:
            _check_text("part", part)
        # Convert enum members that are strings to plain text, because an f-string would show the member's name.
        object.__setattr__(self, "id", str.__str__(id_))
        object.__setattr__(self, "source", str.__str__(source))
        object.__setattr__(self, "parts", tuple([str.__str__(part) for part in self.parts]))
        if isinstance(sequence, str):
            object.__setattr__(self, "sequence", str.__str__(sequence))

    def child(self, name: str) -> str:
        """Return a key to pass downstream. It is the same on every delivery, and differs for each name.

        It is derived from the id, and from the source and the parts if there are any. So two clients that choose the same
        Idempotency-Key get two keys.
        """
        if not self.source and not self.parts:
            text = f"{len(self.id)}:{self.id}" + name
        else:  # "of " keeps this text apart from that of a message without source and parts, which begins with a digit
            text = "of " + join_texts(self.id, self.source, *self.parts) + " " + name
        # The same as `str(uuid5(_CHILDREN, text))`, in a fraction of the time.
        sha = _NAMESPACE_HASH.copy()
        sha.update(text.encode())
        digest = bytearray(sha.digest())
        digest[6] = digest[6] & 0x0F | 0x50  # the version
        digest[8] = digest[8] & 0x3F | 0x80  # the variant
        digits = digest.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"

    def part(self, name: str) -> Message:
        """Return this message for a second write to the same entity, which would otherwise be a duplicate."""
        return replace(self, parts=(*self.parts, name))


def join_texts(*texts: str) -> str:
    """Return the texts as one, each with its length, because ("ab", "c") and ("a", "bc") must differ."""
    return "".join([f"{len(text)}:{text}" for text in texts])


def printable(text: str, max_length: int = 200) -> str:
    """Return the text for a log line: shortened, with every invisible character escaped.

    A sender can choose a message's id. A line break in it would start a log line that looks like onewrite's own.
    """
    line = text if len(text) <= max_length else f"{text[:max_length]}..."
    if line.isprintable():
        return line
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in line
    )


def full_name(message: Message) -> str:
    """Return the message's full name for a log line or an error. The ID of a CloudEvent doesn't repeat its source.

    >>> full_name(Message("evt-1", source="order-7", sequence=3).part("stock"))
    'message evt-1 of source order-7, sequence 3, part stock'
    >>> full_name(Message("7:order-7:evt-1", source="order-7"))
    'message evt-1 of source order-7'
    """
    own_id = message.id.removeprefix(f"{len(message.source)}:{message.source}:") if message.source else message.id
    source = f" of source {printable(message.source)}" if message.source else ""
    sequence = "" if message.sequence is None else f", sequence {printable(str(message.sequence))}"
    parts = "".join([f", part {printable(part)}" for part in message.parts])
    return f"message {printable(own_id)}{source}{sequence}{parts}"


def sort_by_sequence(messages: Sequence[Message | None]) -> list[int]:
    """Return the indexes of the messages in processing order, in which those of a source are sorted by their sequence.

    No source waits for all others, because each source keeps the positions that it has in the list.
    """
    keys_by_source: dict[str, list[tuple[str, int | str, int]]] = {}
    for index, message in enumerate(messages):
        if message is not None and message.sequence is not None:
            # Sort by type first, because numbers and strings can't be compared. The ledger refuses a source that has both.
            key = (type(message.sequence).__name__, message.sequence, index)
            keys_by_source.setdefault(message.source, []).append(key)
    order = list(range(len(messages)))
    for keys in keys_by_source.values():
        for (_, _, position), (_, _, index) in zip(keys, sorted(keys), strict=True):
            order[position] = index
    return order


SORTABLE_PREFIX = "#"  # distinguishes the text from plain digits


def sortable(n: int) -> str:
    """Return text that sorts as the number does, for numbers that no database holds (Kinesis: 56 digits).

    The digits follow their count, which follows its own length. The "#" distinguishes the text from plain digits.

    Examples:
        >>> sortable(9), sortable(10)
        ('#119', '#1210')
    """
    if type(n) is not int or n < 0:
        problem = "a negative number" if type(n) is int else f"a {type(n).__name__}"
        raise InvalidMessage(f"sortable(n): n is {problem}. Pass an int of 0 or more.")
    try:
        digits = str(n)
    except ValueError as error:  # Python refuses to convert more than some thousand digits
        raise InvalidMessage(
            "sortable(n): n has more digits than Python converts to text. Check where the number comes from."
        ) from error
    count = str(len(digits))
    return f"{SORTABLE_PREFIX}{len(count)}{count}{digits}"


def is_sortable(text: str) -> bool:
    """Whether `sortable` made this text."""
    return text.startswith(SORTABLE_PREFIX)


def _check_text(name: str, value: object) -> None:
    """Raise unless this is a text that a database can store and that isn't too long for a ledger. `name`: the message's field."""
    if not isinstance(value, str):
        raise InvalidMessage(
            f"Message.{name}: expected a str, got a {type(value).__name__}. Read it as text. If you convert it with str(), check for None "
            "first: str(None) is 'None', one text for every message that lacks the field."
        )
    try:
        length = len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidMessage(
            f"Message.{name} contains a lone surrogate, which no database can store. Decode the delivery with the correct charset."
        ) from error
    if length > Message.max_text_bytes:
        raise InvalidMessage(
            f"Message.{name} must have at most {Message.max_text_bytes} bytes, got {length}. A ledger can keep it in the entity. "
            "Pass a digest of it, for example hashlib.sha256(text.encode()).hexdigest()."
        )
