"""The key that the producer put into the body."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from onewrite.errors import ConfigurationError
from onewrite.extras import installed_by
from onewrite.identity.record import Identity, ParseFloat, Record, decoder, message, parsed, refusal, text
from onewrite.message import Message


def json_body(
    *, id: str, source: str | None = None, sequence: str | None = None, parse_float: ParseFloat = Decimal
) -> Identity:
    """The key is in the JSON body, and JMESPath expressions say where.

    Stable: as stable as what the producer puts there. An order's number survives a redelivery, a producer that sends twice,
    a redrive from a dead-letter queue, SNS and EventBridge. Not stable: what the producer makes anew each time that it
    sends, such as the time, or a UUID that it draws within its retry.

    `id` and `source` lead to texts with something in them, `sequence` to an int or such a text. What leads nowhere, or to
    something else, fails the record. `to_string(...)` makes an id of a number. JMESPath neither compares nor adds Decimals:
    an expression that has to needs `parse_float=float`.

    On a DynamoDB stream the body is the change: "NewImage.orderId.S". The key of an envelope is there to read, too:
    `json_body(id="id")` takes EventBridge's own, which stays the same however often that event is delivered.

    >>> record = {"messageId": "b1", "body": '{"order": {"no": "o-7"}, "version": 3}'}
    >>> message = json_body(id="order.no", sequence="version")(record)
    >>> message.id, message.sequence, message.body
    ('o-7', 3, {'order': {'no': 'o-7'}, 'version': 3})
    """
    decode = decoder(parse_float)
    the_id = _Expression.of("id", id)
    the_source = None if source is None else _Expression.of("source", source)
    the_sequence = None if sequence is None else _Expression.of("sequence", sequence)

    def identify(record: Record) -> Message:
        body = parsed(record, decode)
        return message(
            record,
            the_id.text(record, body),
            source="" if the_source is None else the_source.text(record, body),
            sequence=None if the_sequence is None else the_sequence.position(record, body),
            body=body,
        )

    return identify


@dataclass(frozen=True, slots=True)
class _Expression:
    """A compiled JMESPath expression, and what errors call it."""

    what: str
    expression: str
    search: Callable[[Any], Any]

    @classmethod
    def of(cls, name: str, expression: object) -> _Expression:
        if not isinstance(expression, str):
            raise ConfigurationError(f"{name}={expression!r}: a JMESPath expression is a str.")
        return cls(f"the {name}, JMESPath {expression!r},", expression, _compiled(name, expression))

    def text(self, record: Record, body: object) -> str:
        found = self._find(record, body)
        if isinstance(found, int | float | Decimal) and not isinstance(found, bool):
            raise refusal(
                record, f"{self.what} is a number, where a text is needed: to_string({self.expression}) makes it one."
            )
        return text(record, self.what, found)

    def position(self, record: Record, body: object) -> int | str:
        found = self._find(record, body)
        return found if type(found) is int else text(record, self.what, found)

    def _find(self, record: Record, body: object) -> Any:
        try:
            return self.search(body)
        except Exception as error:
            problem = type(error).__name__
        raise refusal(record, f"{self.what} cannot be computed from this body ({problem}).")


def _compiled(name: str, expression: str) -> Callable[[Any], Any]:
    with installed_by("aws", "json_body"):
        # Here, because who takes no key out of a body does without it. It comes without types.
        import jmespath  # type: ignore[import-untyped]  # noqa: PLC0415
        from jmespath.exceptions import JMESPathError, JMESPathTypeError  # type: ignore[import-untyped]  # noqa: PLC0415
    try:
        search: Callable[[Any], Any] = jmespath.compile(expression).search
        with suppress(JMESPathTypeError):  # there is no body yet; a function that does not exist shows already
            search(None)
    except JMESPathError as error:
        raise ConfigurationError(f"{name}={expression!r} is no JMESPath expression: {error}") from error
    return search
