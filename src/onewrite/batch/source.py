"""The description of an event source, and its response format."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.identity import Skip

Identifier: TypeAlias = str | tuple[str, int]
"""A record's name in the response, as a string, or as a partition and an offset. It is "" if the record has no readable name."""
Response: TypeAlias = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of event.

    - `name`: for errors and logs
    - `origins`: the valid values of `eventSource` in its records. A record without one, as in a test, is accepted too.
    - `records`: returns an event's records, each with its lane, or None for another kind of event
    - `identifier`: returns a record's name in the response
    - `sent_at`: returns a record's send time in epoch seconds, or NaN
    - `attempt`: returns the number of this delivery, or None if the source doesn't count deliveries
    - `restarts`: whether the source repeats everything from the first failure on, instead of only the failed records
    - `raises`: whether redelivery takes an exception, because Lambda reads no response of this source
    - `named_as_in_pipes`: whether EventBridge Pipes uses the same identifier as Lambda. For streams it uses the eventID, and
      for Kafka it reads no response.
    - `screen`: returns a `Skip` for a record that no function needs. It can raise InvalidMessage.
    - `decodes`: whether a Powertools model decodes the records, and so loses their original content
    - `takes_any_object`: whether a record can be any object that the identity understands
    """

    name: str
    origins: frozenset[str]
    records: Callable[[Any], Iterable[tuple[Hashable, Any]] | None]
    identifier: Callable[[Any], Identifier]
    sent_at: Callable[[Any], float]
    attempt: Callable[[Any], int | None] = lambda _: None
    restarts: bool = False
    raises: bool = False
    named_as_in_pipes: bool = False
    screen: Callable[[dict[str, Any]], Skip | None] = lambda _: None
    decodes: bool = False
    takes_any_object: bool = False

    def open(self, event: object) -> tuple[list[Any], list[Hashable]]:
        """Return an event's records and their lanes.

        Raise ConfigurationError for another kind of event, because any response would report some of its records as done.
        EventBridge Pipes sends a list of records, each of which names its source.
        """
        dump = getattr(event, "model_dump", None)  # of a model that Powertools has made of the event
        if callable(dump) and self.decodes:
            raise ConfigurationError(
                f"This event of {self.name} was parsed by a model that decodes its records. Remove @event_parser and "
                "validate message.body in the function."
            )
        plain: object = dump(by_alias=True, exclude_unset=True) if callable(dump) else event
        if plain == [] or not isinstance(plain, Mapping | list):
            raise self._make_refusal("is an empty list" if plain == [] else f"is a {type(plain).__name__}")
        batch = cast("Mapping[str, Any] | list[Any]", plain)
        laned_records = self.records(batch)
        if laned_records is None:
            raise self._make_refusal("has no records of this source")
        if "window" in batch:
            raise ConfigurationError(
                "This event is from a tumbling window. Lambda keeps the window's state outside the database, so a batch "
                "that arrives twice would count twice there. Set TumblingWindowInSeconds to 0 and keep the sum in an "
                "entity."
            )
        records: list[Any] = []
        lanes: list[Hashable] = []
        # An event names its source in each record, as EventSource for SNS, or once for all records.
        event_source = None if isinstance(batch, list) else batch.get("eventSource")
        for lane, record in laned_records:
            origin = field_at(record, "eventSource") or field_at(record, "EventSource") or event_source
            is_origin_valid = isinstance(origin, str) and origin in self.origins
            # A test's event can omit the source. A list could then be of any source.
            if not is_origin_valid and (origin is not None or isinstance(batch, list)):
                raise self._make_refusal(f"has a record of {origin!r}")
            records.append(record)
            lanes.append(lane)
        return records, lanes

    def is_response_read(self, event: object) -> bool:
        """Whether the sender of this event reads the failed records from the response. Otherwise only an exception redelivers."""
        return not self.raises and (self.named_as_in_pipes or not isinstance(event, list))

    def response(self, records: Iterable[Any]) -> Response:
        """Return the response that requests redelivery of these records.

        A record without a name gets an empty one, which makes Lambda redeliver the whole batch. If the response left it out,
        the record would count as done.
        """
        identifiers = [*dict.fromkeys(map(self.identifier, records))]
        if not identifiers:
            return {"batchItemFailures": []}
        if self.restarts:  # the first one is enough, because later records are redelivered with it
            identifiers = identifiers[:1] + [identifier for identifier in identifiers[1:] if identifier]
        return {"batchItemFailures": [{"itemIdentifier": _format_identifier(identifier)} for identifier in identifiers]}

    def _make_refusal(self, reason: str) -> ConfigurationError:
        """Return the error for an event that isn't a batch of this source."""
        return ConfigurationError(
            f"This event isn't a batch of {self.name}: it {reason}. Nothing was processed. Use the decorator of the "
            "event's own source."
        )


def _format_identifier(identifier: Identifier) -> object:
    """Return a record's name as the response has it: a string, or for Kafka an object of the partition and the offset."""
    if isinstance(identifier, str):
        return identifier
    partition, offset = identifier
    return {"partition": partition, "offset": offset}


def field_at(record: Any, *path: str) -> Any:
    """Return the value at a path of keys in a record, or None if any part is missing."""
    for key in path:
        if not isinstance(record, dict):
            return None
        record = cast("dict[str, Any]", record).get(key)
    return record
