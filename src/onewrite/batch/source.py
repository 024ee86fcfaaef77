"""One kind of event, as a batch needs to know it: its records, their lanes, their names in the answer, and when they were sent.

An event that is no batch of its source at all is refused: an answer to it could only mean that all is done.
"""

from __future__ import annotations

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
        return {"batchItemFailures": [{"itemIdentifier": _in_answer(identifier)} for identifier in identifiers]}

    def _refusal(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"This event is no batch of {self.name}: it {why}. Nothing was taken; give each event source its own decorator."
        )


def _origin(event: Mapping[str, Any], record: Any) -> object:
    """SNS spells it another way, and Kafka says it once for all."""
    return field_at(record, "eventSource") or field_at(record, "EventSource") or event.get("eventSource")


def _in_answer(identifier: Identifier) -> object:
    if isinstance(identifier, str):
        return identifier
    partition, offset = identifier
    return {"partition": partition, "offset": offset}


def field_at(record: Any, *path: str) -> Any:
    for key in path:
        if not isinstance(record, dict):
            return None
        record = cast("dict[str, Any]", record).get(key)
    return record
