"""Keys that the producer put into the body."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from onewrite.errors import ConfigurationError
from onewrite.extras import installed_by
from onewrite.identity.attributes import message
from onewrite.identity.record import OneMessage, ParseFloat, Record, decoder, parsed, refusal, text
from onewrite.message import Message


def json_body(
    *, id: str, source: str | None = None, sequence: str | None = None, parse_float: ParseFloat = Decimal
) -> OneMessage:
    """The key is in the JSON body, where JMESPath expressions find it.

    Stable: as stable as what the producer puts there. An order's number stays the same in a redelivery, in a second message
    from a producer that sends twice, after a redrive from a dead-letter queue, and through SNS and EventBridge. Not stable:
    what the producer makes anew each time that it sends, such as the time, or a UUID that it makes for each retry.

    `id` and `source` must find texts that are not empty, and `sequence` an int or such a text. If an expression finds nothing
    or something else, the record fails. `to_string(...)` makes an id of a number. JMESPath can neither compare nor add
    Decimals: an expression that does either needs `parse_float=float`.

    On a DynamoDB stream the body is the change, as in "NewImage.orderId.S". The key of an envelope can be read too:
    `json_body(id="id")` takes EventBridge's own id, which stays the same however often EventBridge delivers the event.

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
            raise ConfigurationError(f"{name}={expression!r}: give a JMESPath expression, as a str.")
        return cls(f"the {name}, JMESPath {expression!r},", expression, _compiled(name, expression))

    def text(self, record: Record, body: object) -> str:
        found = self._find(record, body)
        if isinstance(found, int | float | Decimal) and not isinstance(found, bool):
            raise refusal(
                record, f"{self.what} is a number, but a text is needed: to_string({self.expression}) makes it one."
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
        # Imported here, because the other identities do without it. It has no types.
        import jmespath  # type: ignore[import-untyped]  # noqa: PLC0415
        from jmespath.exceptions import JMESPathError, JMESPathTypeError  # type: ignore[import-untyped]  # noqa: PLC0415
    try:
        search: Callable[[Any], Any] = jmespath.compile(expression).search
        with suppress(JMESPathTypeError):  # There is no body yet, but a function that does not exist is found now.
            search(None)
    except JMESPathError as error:
        raise ConfigurationError(f"{name}={expression!r} is not a valid JMESPath expression: {error}") from error
    return search
