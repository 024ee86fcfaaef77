"""Keys in a JSON body, found by dotted paths, lists of paths, and functions of the record.

A record that lacks a field of its key fails. Otherwise all such records would share one key: the first would take effect,
and the others would be dropped as its copies. The fields of a composite key stay apart: "x-y" with "z" isn't the key "x" with
"y-z".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.identity.record import (
    WHOLE_NUMBER,
    OneMessage,
    ParseFloat,
    Record,
    describe_type,
    make_decoder,
    make_message,
    make_refusal,
    parse_body,
    require_text,
)
from onewrite.message import Message, join_texts

Field: TypeAlias = str | Callable[[Record], Any]
"""A dotted path in the body, or a function of the record, whose "body" is the parsed body."""

# JMESPath and JSONPath give these signs a meaning. A space or comma separates two fields.
_OTHER_SYNTAX = re.compile(r"""[\s,\[\](){}|&*?!<>='"`]""")
_NO_NAMES = frozenset({"", "$", "@"})  # the root of a JSONPath, and JMESPath's name for the whole body
_REMEDY = (
    "Write a dotted path such as 'detail.order.id', or a list of paths for a composite key. For anything else,"
    " pass a function of the record, for example lambda record: record['body']['lines'][0]['id']."
)


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A path to a whole number, possibly written as text."""

    path: str


def number(path: str) -> WholeNumber:
    """Return a `sequence` for `json_body` that reads an integer or decimal text at the path: "10" is 10.

    As text, "10" would sort before "9". The text can have a sign. Anything else, such as "7.0", " 7", or "1_000", fails the
    record.
    """
    return WholeNumber(path)


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A field of a key, with its name for errors."""

    subject: str
    find: Callable[[Record], Any]

    @classmethod
    def make(cls, name: str, field: object) -> _Lookup:
        """Return the lookup of a path or of a function of the record. `name`: the argument of `json_body`, for errors."""
        if isinstance(field, str):
            return cls._make_at_path(name, field)
        if not callable(field):
            raise ConfigurationError(f"{name}={field!r}: expected a path as a str, or a function of the record. {_REMEDY}")
        subject = f"the {name}, function {getattr(field, '__qualname__', type(field).__name__).rpartition('<locals>.')[2]}"

        def call(record: Record) -> Any:
            try:
                return field(record)
            except InvalidMessage:  # the function's own refusal
                raise
            except Exception as error:
                problem = type(error).__name__  # the error's own text can quote content
            raise make_refusal(record, f"{subject} raised {problem}.")

        return cls(subject, call)

    @classmethod
    def _make_at_path(cls, name: str, path: str) -> _Lookup:
        """Return the lookup of a path with dots. A missing field is None."""
        names = path.split(".")
        if _OTHER_SYNTAX.search(path) or not _NO_NAMES.isdisjoint(names):
            raise ConfigurationError(f"{name}={path!r} isn't a dotted path. {_REMEDY}")
        subject = f"the {name}, path {path!r}"

        def walk(record: Record) -> Any:
            value = record["body"]
            for member in names:
                if isinstance(value, list):
                    raise make_refusal(
                        record,
                        f"{subject}: the path leads through an array. Read the field with a function of the record instead.",
                    )
                value = cast("Mapping[str, Any]", value).get(member) if isinstance(value, Mapping) else None
            return value

        return cls(subject, walk)

    def read_text(self, record: Record) -> str:
        """Return a string as it is, or an integer in decimal digits: 7 and "7" are the same key. Raise for any other value."""
        value = self.find(record)
        if isinstance(value, str) and value:
            return str.__str__(value)
        if type(value) is int:
            with suppress(ValueError):  # Python doesn't convert integers of more than some thousand digits
                return str(value)
        raise make_refusal(
            record, f"{self.subject}: expected a non-empty string or an integer, got {_describe_type(value)}."
        )

    def read_sequence(self, record: Record) -> int | str:
        """Return an int or a non-empty string. Raise for any other value."""
        value = self.find(record)
        return value if type(value) is int else require_text(record, self.subject, value)

    def read_whole_number(self, record: Record) -> int:
        """Return an int, also from a string of digits. Raise for any other value."""
        value = self.find(record)
        if type(value) is int:
            return value
        if isinstance(value, str) and WHOLE_NUMBER.fullmatch(value):
            return int(value)
        has_text = isinstance(value, str) and value != ""
        description = "a string with other characters than digits" if has_text else _describe_type(value)
        raise make_refusal(record, f"{self.subject}: expected an integer in decimal digits, got {description}.")


def _describe_type(value: object) -> str:
    """Return JSON's name for a value's type, and why a number isn't accepted."""
    return "a number with a fraction or an exponent" if isinstance(value, float | Decimal) else describe_type(value)


def _make_key_reader(name: str, field: object) -> Callable[[Record], str]:
    """Return a function that reads an id or a source from a record."""
    if isinstance(field, WholeNumber):
        raise ConfigurationError(
            f"{name}=number({field.path!r}): number() is for a sequence, because it maps different texts to one number."
            f" Pass {name}={field.path!r}."
        )
    if not isinstance(field, list | tuple):
        return _Lookup.make(name, field).read_text
    fields = cast("Sequence[object]", field)
    if not fields:
        raise ConfigurationError(f"{name}={field!r}: the list is empty. {_REMEDY}")
    lookups = [_Lookup.make(f"{name}[{index}]", member) for index, member in enumerate(fields)]
    return lambda record: join_texts(*[lookup.read_text(record) for lookup in lookups])


def _make_sequence_reader(field: object) -> Callable[[Record], int | str]:
    """Return the function that reads the sequence of a record."""
    if isinstance(field, WholeNumber):
        return _Lookup.make("sequence", field.path).read_whole_number
    if isinstance(field, list | tuple):
        raise ConfigurationError(
            f"sequence={field!r}: expected one field, got a list. Pass the path of one number or string, for example 'version'."
        )
    return _Lookup.make("sequence", field).read_sequence


def json_body(
    *,
    id: Field | Sequence[Field],
    source: Field | Sequence[Field] | None = None,
    sequence: Field | WholeNumber | None = None,
    parse_float: ParseFloat = Decimal,
) -> OneMessage:
    """Return an identity that reads the key from the JSON body, at a dotted path, at several paths, or with a function.

    Stable: if the producer's value is. An order's number survives a redelivery, a repeated send, a redrive from a
    dead-letter queue, and the delivery through SNS or EventBridge. Not stable: a value that the producer creates for each send,
    such as a time or a new UUID.

    - `"detail.order.id"` reads a field of the body. An `id` or `source` must be a non-empty string or an integer; 7 and "7"
      are the same. A `sequence` must be an int or a non-empty string. Anything else fails the record.
    - `["customerId", "orderId"]` is a composite id or source. Every field must exist.
    - `number("version")` is a sequence whose digits can be written as text.
    - A `sequence` needs a `source`, because numbers count within a source. If all messages come from one producer, name it:
      `source=lambda record: "orders"`.
    - A function reads anything else: an array's element, a name with a dot, a choice of fields. It takes the record, whose
      `record["body"]` is parsed, and returns a string or an int. If it raises, the record fails. Don't return a made-up
      value for a missing field: all such records would be one message.

    A number with a fraction or an exponent can't be a key, unless `parse_float` turns it into a string or an int.

    On a DynamoDB stream the body is the change, as in "NewImage.orderId.S". You can also read an envelope's key:
    `json_body(id="id")` reads EventBridge's own id, which stays the same on every delivery by EventBridge.

    >>> record = {"messageId": "b1", "body": '{"event": "e-1", "order": {"no": "o-7"}, "version": "3"}'}
    >>> message = json_body(id="event", source="order.no", sequence=number("version"))(record)
    >>> message.id, message.source, message.sequence
    ('e-1', 'o-7', 3)
    """
    decode = make_decoder(parse_float)
    read_id = _make_key_reader("id", id)
    read_source = None if source is None else _make_key_reader("source", source)
    read_sequence = None if sequence is None else _make_sequence_reader(sequence)
    if sequence is not None and source is None:
        raise ConfigurationError(
            f"json_body(sequence={sequence!r}) needs a source=, because numbers count within a source: two producers "
            "that both count from 1 would lose messages to each other. Pass the path of the producer's name, or a "
            'constant: source=lambda record: "orders".'
        )

    def identify(record: Record) -> Message:
        body = parse_body(record, decode)
        parsed = {**record, "body": body}
        return make_message(
            record,
            read_id(parsed),
            source="" if read_source is None else read_source(parsed),
            sequence=None if read_sequence is None else read_sequence(parsed),
            body=body,
        )

    return identify
