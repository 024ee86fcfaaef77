"""Keys that the producer put into the body."""

from __future__ import annotations

from decimal import Decimal

from onewrite.identity.attributes import message
from onewrite.identity.expression import Expression
from onewrite.identity.record import OneMessage, ParseFloat, Record, decoder, parsed
from onewrite.message import Message


def json_body(
    *, id: str, source: str | None = None, sequence: str | None = None, parse_float: ParseFloat = Decimal
) -> OneMessage:
    """The key is in the JSON body, where JMESPath expressions find it.

    Stable: as stable as what the producer puts there. An order's number stays the same in a redelivery, in a second message
    from a producer that sends twice, after a redrive from a dead-letter queue, and through SNS and EventBridge. Not stable:
    what the producer makes anew each time that it sends, such as the time, or a UUID that it makes for each retry.

    `id` and `source` must find a text that is not empty or a whole number, of which 7 and "7" are the same; `sequence` an int or
    such a text. A list is a key of several fields, each of which must be there and which stay apart: `[customerId, orderId]`. If an
    expression finds nothing or something else, the record fails.

    An expression may choose among fields, as `deliveryId || orderId` does, but not make up a value for a record that lacks them:
    a literal, `join`, `length` and the like are a ConfigurationError, and `to_string` of what is missing fails the record. A number with
    a fraction or an exponent is no key, unless `parse_float` makes a text or an int of it. JMESPath can neither compare nor add
    Decimals: an expression that does either needs `parse_float=float`.

    On a DynamoDB stream the body is the change, as in "NewImage.orderId.S". The key of an envelope can be read too:
    `json_body(id="id")` takes EventBridge's own id, which stays the same however often EventBridge delivers the event.

    >>> record = {"messageId": "b1", "body": '{"order": {"no": "o-7"}, "version": 3}'}
    >>> message = json_body(id="order.no", sequence="version")(record)
    >>> message.id, message.sequence, message.body
    ('o-7', 3, {'order': {'no': 'o-7'}, 'version': 3})
    """
    decode = decoder(parse_float)
    the_id = Expression.of("id", id)
    the_source = None if source is None else Expression.of("source", source)
    the_sequence = None if sequence is None else Expression.of("sequence", sequence)

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
