"""Dotted paths, lists of paths, and functions of a record, which find an id, a source, or a sequence in a JSON body.

A key comes from the record. A record that lacks a field of its key fails: if records shared a key, the first would take effect,
and the others would be deleted as its copies. The parts of a key of several fields stay apart: "x-y" with "z" is another key
than "x" with "y-z".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.identity.record import OneMessage, ParseFloat, Record, decoder, kind, message, parse_body, refusal, text
from onewrite.message import Message, join_texts

Field: TypeAlias = str | Callable[[Record], Any]
"""A dotted path in the body, or a function of the record, whose "body" is the parsed body."""

_WHOLE = re.compile("[+-]?[0-9]{1,129}")  # as many digits as a sequence number of Kinesis may have
# JMESPath and JSONPath use these signs for more than a field, and a space or a comma stands between two fields.
_SIGN_OF_ANOTHER_SYNTAX = re.compile(r"""[\s,\[\](){}|&*?!<>='"`]""")
_NO_NAMES = frozenset({"", "$", "@"})  # what begins a JSONPath, and JMESPath's name for the whole body
_REMEDY = (
    "Write the names of the fields with dots between them, for example 'detail.order.id', or a list of such paths for a key of several "
    "fields. For anything else pass a function of the record, for example lambda record: record['body']['lines'][0]['id']."
)


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """A path to a whole number, which may be written as text."""

    path: str


def number(path: str) -> WholeNumber:
    """Return a `sequence` for `json_body` that reads the whole number at the path, also if it is text: "10" is 10.

    As text, "10" comes before "9". Only decimal digits are read, with a sign or without: "7.0", " 7", and "1_000" fail the record.
    """
    return WholeNumber(path)


@dataclass(frozen=True, slots=True)
class _Lookup:
    """A field of a key, and its name in errors."""

    subject: str
    find: Callable[[Record], Any]

    @classmethod
    def of(cls, name: str, field: object) -> _Lookup:
        if isinstance(field, str):
            return cls._of_path(name, field)
        if not callable(field):
            raise ConfigurationError(f"{name}={field!r}: expected a path as a str, or a function of the record. {_REMEDY}")
        subject = f"the {name}, function {getattr(field, '__qualname__', type(field).__name__)},"

        def call(record: Record) -> Any:
            try:
                return field(record)
            except InvalidMessage:
                raise
            except Exception as error:
                problem = type(error).__name__  # The text of the error may quote the content.
            raise refusal(record, f"{subject} raised {problem}.")

        return cls(subject, call)

    @classmethod
    def _of_path(cls, name: str, path: str) -> _Lookup:
        names = path.split(".")
        if _SIGN_OF_ANOTHER_SYNTAX.search(path) or not _NO_NAMES.isdisjoint(names):
            raise ConfigurationError(f"{name}={path!r} isn't a dotted path. {_REMEDY}")
        subject = f"the {name}, path {path!r},"

        def walk(record: Record) -> Any:
            value = record["body"]
            for each in names:
                if isinstance(value, list):
                    raise refusal(
                        record, f"{subject} leads through an array. Read it with a function of the record instead of a path."
                    )
                value = cast("Mapping[str, Any]", value).get(each) if isinstance(value, Mapping) else None
            return value

        return cls(subject, walk)

    def text(self, record: Record) -> str:
        """Return a string as it is, and a whole number in decimal digits: 7 and "7" are the same key."""
        value = self.find(record)
        if isinstance(value, str) and value:
            return str.__str__(value)
        if type(value) is int:
            with suppress(ValueError):  # Python refuses to write more than some thousand digits
                return str(value)
        raise refusal(record, f"{self.subject} is {_kind(value)}, but a text that is not empty or a whole number is needed.")

    def position(self, record: Record) -> int | str:
        value = self.find(record)
        return value if type(value) is int else text(record, self.subject, value)

    def whole_number(self, record: Record) -> int:
        value = self.find(record)
        if type(value) is int:
            return value
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            return int(value)
        found = "a text of anything but a whole number" if isinstance(value, str) and value else _kind(value)
        raise refusal(record, f"{self.subject} is {found}, but a whole number in decimal digits is needed.")


def _kind(value: object) -> str:
    return "a number with a fraction or an exponent" if isinstance(value, float | Decimal) else kind(value)


def _key_reader(name: str, field: object) -> Callable[[Record], str]:
    """Return what reads an id or a source."""
    if isinstance(field, WholeNumber):
        raise ConfigurationError(
            f"{name}=number({field.path!r}): number() makes one number of different texts, and is for a sequence. A {name} is read as it is: "
            f"{name}={field.path!r}."
        )
    if not isinstance(field, list | tuple):
        return _Lookup.of(name, field).text
    fields = cast("Sequence[object]", field)
    if not fields:
        raise ConfigurationError(f"{name}={field!r}: the list is empty. {_REMEDY}")
    parts = [_Lookup.of(f"{name}[{index}]", each) for index, each in enumerate(fields)]
    return lambda record: join_texts(*[part.text(record) for part in parts])


def _sequence_reader(field: object) -> Callable[[Record], int | str]:
    if isinstance(field, WholeNumber):
        return _Lookup.of("sequence", field.path).whole_number
    if isinstance(field, list | tuple):
        raise ConfigurationError(
            f"sequence={field!r}: a list has no place in an order. Pass the path of one number or text, for example 'version'."
        )
    return _Lookup.of("sequence", field).position


def json_body(
    *,
    id: Field | Sequence[Field],
    source: Field | Sequence[Field] | None = None,
    sequence: Field | WholeNumber | None = None,
    parse_float: ParseFloat = Decimal,
) -> OneMessage:
    """The key is in the JSON body, at a dotted path, at several paths, or where a function of the record finds it.

    Stable: as stable as what the producer puts there. An order's number stays the same in a redelivery, in a second message
    from a producer that sends twice, after a redrive from a dead-letter queue, and through SNS and EventBridge. Not stable:
    what the producer makes anew each time that it sends, such as the time, or a UUID that it makes for each retry.

    - `"detail.order.id"` reads a field of the body. `id` and `source` must be a text that is not empty or a whole number, of
      which 7 and "7" are the same; `sequence` an int or such a text. If the field is missing or something else, the record fails.
    - `["customerId", "orderId"]` is an id or a source of several fields. Each of them must be there, and they stay apart.
    - `number("version")` is a sequence whose digits may be written as text.
    - A `sequence` needs a `source`, because it counts within one. If all messages come from one producer, name it:
      `source=lambda record: "orders"`.
    - A function reads anything else: an element of an array, a name with a dot, a choice of fields. It takes the record, of
      which `record["body"]` is parsed, and returns the text or the number. If it raises, the record fails. Never let it make
      up a value for a record that lacks the field: all such records would be one message.

    A number with a fraction or an exponent is no key, unless `parse_float` makes a text or an int of it.

    On a DynamoDB stream the body is the change, as in "NewImage.orderId.S". The key of an envelope can be read too:
    `json_body(id="id")` takes EventBridge's own id, which stays the same however often EventBridge delivers the event.

    >>> record = {"messageId": "b1", "body": '{"event": "e-1", "order": {"no": "o-7"}, "version": "3"}'}
    >>> message = json_body(id="event", source="order.no", sequence=number("version"))(record)
    >>> message.id, message.source, message.sequence
    ('e-1', 'o-7', 3)
    """
    decode = decoder(parse_float)
    read_id = _key_reader("id", id)
    read_source = None if source is None else _key_reader("source", source)
    read_sequence = None if sequence is None else _sequence_reader(sequence)
    if sequence is not None and source is None:
        raise ConfigurationError(
            f"json_body(sequence={sequence!r}) has no source: a sequence counts within a source, and two producers that both count from 1 "
            "would lose messages to each other. Give source= the path of whatever numbers the messages, or a constant, as in "
            'source=lambda record: "orders".'
        )

    def identify(record: Record) -> Message:
        body = parse_body(record, decode)
        parsed = {**record, "body": body}
        return message(
            record,
            read_id(parsed),
            source="" if read_source is None else read_source(parsed),
            sequence=None if read_sequence is None else read_sequence(parsed),
            body=body,
        )

    return identify
