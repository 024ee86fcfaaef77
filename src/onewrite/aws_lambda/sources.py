"""What the event of each source looks like: its records, their lanes, their names in the answer, and when they were sent.

Anything may be missing from a record, or be of another type: that is one poisonous record, and no reason to fail here.
An event that is no batch of its source at all is refused instead. An answer to it could only mean that all is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError

# The text of an SQS or stream record, (topic-partition, offset) of a Kafka record; "" where it has none.
Identifier: TypeAlias = str | tuple[str, int]
Response: TypeAlias = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of event. `origins`: what its records say of themselves; a record written by hand may say nothing."""

    name: str
    origins: frozenset[str]
    records: Callable[[Mapping[str, Any]], Iterable[tuple[Hashable, Any]] | None]  # with the lane of each
    identifier: Callable[[Any], Identifier]
    sent: Callable[[Any], float]  # in epoch seconds; NaN where it is not known
    restarts: bool = False  # from the lowest failure, rather than to pick out what failed

    def open(self, event: object) -> tuple[list[Any], list[Hashable]]:
        """The records of an event, and their lanes."""
        if not isinstance(event, Mapping):
            raise self._refusal(f"is a {type(event).__name__}")
        batch = cast("Mapping[str, Any]", event)
        found = self.records(batch)
        if found is None:
            raise self._refusal("has no such records")
        records: list[Any] = []
        lanes: list[Hashable] = []
        for lane, record in found:
            origin = _origin(batch, record)
            if origin is not None and not (isinstance(origin, str) and origin in self.origins):
                raise self._refusal(f"has a record of {origin!r}")
            records.append(record)
            lanes.append(lane)
        return records, lanes

    def response(self, returned: Iterable[Any]) -> Response:
        """The answer that returns these records.

        A record without a name is answered by an empty one, and so Lambda returns the whole batch. That is right:
        to leave it out would be to say that it is done.
        """
        identifiers = list(dict.fromkeys(self.identifier(record) for record in returned))
        if self.restarts:  # What stands behind the first returns with it, whether it is named or not.
            identifiers = identifiers[:1] + [identifier for identifier in identifiers[1:] if identifier]
        return {"batchItemFailures": [{"itemIdentifier": _spelled(identifier)} for identifier in identifiers]}

    def _refusal(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"This event is no batch of {self.name}: it {why}. Nothing was taken; give each event source its own decorator."
        )


def _origin(event: Mapping[str, Any], record: Any) -> object:
    """SNS spells it another way, and Kafka says it once for all."""
    return _at(record, "eventSource") or _at(record, "EventSource") or event.get("eventSource")


def _spelled(identifier: Identifier) -> object:
    if isinstance(identifier, str):
        return identifier
    partition, offset = identifier
    return {"partition": partition, "offset": offset}


def _at(record: Any, *path: str) -> Any:
    for key in path:
        if not isinstance(record, dict):
            return None
        record = cast("dict[str, Any]", record).get(key)
    return record


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _seconds(value: object, unit: float = 1.0) -> float:
    """Lambda gives text or a number."""
    try:
        seconds = float(cast("str", value)) * unit
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return seconds if math.isfinite(seconds) else math.nan


def _listed(event: Mapping[str, Any]) -> list[Any] | None:
    records = event.get("Records")
    return cast("list[Any]", records) if isinstance(records, list) else None


def _stream(event: Mapping[str, Any]) -> Iterable[tuple[Hashable, Any]] | None:
    """One lane: what stands behind a failure comes again with it, and a mark that was already past it would drop it."""
    records = _listed(event)
    return None if records is None else [("", record) for record in records]


def _queue(event: Mapping[str, Any]) -> Iterable[tuple[Hashable, Any]] | None:
    """The ARN tells a FIFO queue. A group does not: on a standard queue it is for fairness only."""
    records = _listed(event)
    if records is None:
        return None
    if not any(_text(_at(record, "eventSourceARN")).endswith(".fifo") for record in records):
        return [(None, record) for record in records]
    # Whose group cannot be read might be of one group: they keep their order.
    return [(_text(_at(record, "attributes", "MessageGroupId")), record) for record in records]


def _partitions(event: Mapping[str, Any]) -> Iterable[tuple[Hashable, Any]] | None:
    partitions = event.get("records")
    if not isinstance(partitions, dict):
        return None
    found = cast("dict[str, Any]", partitions)
    if not all(isinstance(records, list) for records in found.values()):
        return None
    return [(lane, record) for lane, records in found.items() for record in records]


def _kafka_position(record: Any) -> Identifier:
    topic, partition, offset = _at(record, "topic"), _at(record, "partition"), _at(record, "offset")
    if not _text(topic) or type(partition) is not int or type(offset) is not int:
        return ""
    return f"{topic}-{partition}", offset


SQS = Source(
    "SQS",
    frozenset({"aws:sqs"}),
    _queue,
    lambda record: _text(_at(record, "messageId")),
    lambda record: _seconds(_at(record, "attributes", "SentTimestamp"), 0.001),
)
KINESIS = Source(
    "Kinesis",
    frozenset({"aws:kinesis"}),
    _stream,
    lambda record: _text(_at(record, "kinesis", "sequenceNumber")),
    lambda record: _seconds(_at(record, "kinesis", "approximateArrivalTimestamp")),
    restarts=True,
)
DYNAMODB = Source(
    "DynamoDB Streams",
    frozenset({"aws:dynamodb"}),
    _stream,
    lambda record: _text(_at(record, "dynamodb", "SequenceNumber")),
    lambda record: _seconds(_at(record, "dynamodb", "ApproximateCreationDateTime")),
    restarts=True,
)
KAFKA = Source(
    "Kafka",
    frozenset({"aws:kafka", "SelfManagedKafka"}),
    _partitions,
    _kafka_position,
    lambda record: _seconds(_at(record, "timestamp"), 0.001),
)
