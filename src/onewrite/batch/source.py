"""What a batch needs to know of the source of its records, and what the answer to that source looks like."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.identity import Skip

Identifier: TypeAlias = str | tuple[str, int]
"""Names a record in the answer: a text, or a partition and an offset. A record that cannot be named has an empty text."""
Response: TypeAlias = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of event.

    - `name`: what errors and logs call it.
    - `origins`: what its records may say in `eventSource`. A record that says nothing, as in a test, is accepted too.
    - `records`: the records of an event, each with its lane. None if the event holds no such records at all.
    - `identifier`: what names a record in the answer.
    - `sent_at`: when a record was sent, in epoch seconds. NaN if that is not known.
    - `attempt`: how often a record has been delivered, this time included. None if the source does not count that.
    - `restarts`: whether the source repeats everything from the first failure on, instead of repeating only what failed.
    - `raises`: whether Lambda reads no answer of this source, and learns by an exception that something must be redelivered.
    - `named_as_in_pipes`: whether EventBridge Pipes knows a record by the identifier that the answer to Lambda has. It knows those
      of streams by their eventID, and reads no answer of Kafka.
    - `screen`: a `Skip` for a record that is never for the function, whatever its identity. It may raise InvalidMessage.
    - `decodes`: whether a model of Powertools decodes what is in the records, so they are no longer what was sent.
    - `takes_any_object`: whether a record may be any object, because the identity alone has to understand it.
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
        """The records of an event, and their lanes.

        An event of another kind is refused. Any answer to it would mean that some of it is done. EventBridge Pipes gives a list
        of records instead of an event, each of which says what it is from.
        """
        batch = self._plain(event)
        in_lanes = self.records(batch)
        if in_lanes is None:
            raise self._refusal("has no such records")
        if "window" in batch:
            raise ConfigurationError(
                "This event is of a tumbling window, whose state Lambda keeps outside the database: a batch that comes twice would be "
                "counted twice in it, and no guarded write could tell. Set TumblingWindowInSeconds to 0, and keep the sum in an entity."
            )
        records: list[Any] = []
        lanes: list[Hashable] = []
        # What an event says of its source: in each record, with an upper-case E in those of SNS, or once for all records.
        of_all = None if isinstance(batch, list) else batch.get("eventSource")
        for lane, record in in_lanes:
            origin = field_at(record, "eventSource") or field_at(record, "EventSource") or of_all
            if (origin is None and isinstance(batch, list)) or not (
                origin is None or (isinstance(origin, str) and origin in self.origins)
            ):
                raise self._refusal(f"has a record of {origin!r}")
            records.append(record)
            lanes.append(lane)
        return records, lanes

    def _plain(self, event: object) -> Mapping[str, Any] | list[Any]:
        """The event as Lambda gave it, or as Powertools has parsed it."""
        dump = getattr(event, "model_dump", None)
        if callable(dump) and self.decodes:
            raise ConfigurationError(
                f"This event of {self.name} was parsed by a model, which has decoded its records: leave @event_parser off, and validate "
                "message.body in the function."
            )
        plain: object = dump(by_alias=True, exclude_unset=True) if callable(dump) else event
        if isinstance(plain, Mapping) or (isinstance(plain, list) and plain):
            return cast("Mapping[str, Any] | list[Any]", plain)
        raise self._refusal("is an empty list" if plain == [] else f"is a {type(cast('object', plain)).__name__}")

    def reads_answer(self, event: object) -> bool:
        """Does whoever has sent this event read in the answer which records must be redelivered? Otherwise only an exception tells."""
        return not self.raises and (self.named_as_in_pipes or not isinstance(event, list))

    def response(self, records: Iterable[Any]) -> Response:
        """The answer that returns these records.

        A record that cannot be named is answered with an empty name, which makes Lambda return the whole batch. Leaving it
        out of the answer would mean that it is done.
        """
        identifiers = [*dict.fromkeys(map(self.identifier, records))]
        if not identifiers:
            return {"batchItemFailures": []}
        if self.restarts:  # Everything after the first record returns with it, so only the first must be in the answer.
            identifiers = identifiers[:1] + [identifier for identifier in identifiers[1:] if identifier]
        return {"batchItemFailures": [{"itemIdentifier": _in_answer(identifier)} for identifier in identifiers]}

    def _refusal(self, reason: str) -> ConfigurationError:
        return ConfigurationError(
            f"This event is no batch of {self.name}: it {reason}. Nothing was taken; give each event source its own decorator."
        )


def _in_answer(identifier: Identifier) -> object:
    if isinstance(identifier, str):
        return identifier
    partition, offset = identifier
    return {"partition": partition, "offset": offset}


def field_at(record: Any, *path: str) -> Any:
    """What is found in a record by these keys, one within the other; None if anything on the way is missing."""
    for key in path:
        if not isinstance(record, dict):
            return None
        record = cast("dict[str, Any]", record).get(key)
    return record
