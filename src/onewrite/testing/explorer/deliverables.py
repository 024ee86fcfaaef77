"""Deliverables: a message, or a Lambda event, whose records are settled one by one.

The parts of a deliverable are the units that a handler can settle separately: the records of an event, or the message itself.
They are numbered from 0. Unsettled parts are redelivered.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any, NamedTuple, TypeAlias, cast

from onewrite.aws_lambda.sources import DYNAMODB, KAFKA, KINESIS, SQS
from onewrite.batch.source import Source, field_at
from onewrite.errors import ConfigurationError
from onewrite.identity import dynamodb_stream_position, kinesis_position, record_id
from onewrite.identity.record import Record
from onewrite.outcome import Deferred, Missing, Outcome, Stale

Places: TypeAlias = tuple[int, ...]

_FAILURES = "batchItemFailures"
_MADE_UP = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # a random ID, which doesn't help a reader
_SHORT_BODY = 24  # characters
_RECEIVED = "ApproximateReceiveCount"
# SQS deletes every message that the response doesn't report as failed. For a stream or a partition, Lambda stores one position, so it
# redelivers the first failed record and all records after it.
_KEEPS_ONE_POSITION = (KINESIS, DYNAMODB, KAFKA)
_IDENTITIES = {KINESIS.name: kinesis_position(), DYNAMODB.name: dynamodb_stream_position()}


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """A message of any kind. A handler settles it by returning, unless it returns an unsettled outcome.

    If the handler returns None for a `Message`, an unsettled outcome of a guarded write leaves the message unsettled too.
    """

    message: Any
    name: str
    lanes: tuple[Hashable | None, ...] = (None,)

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def can_come_apart(self) -> bool:
        return False

    def sources(self) -> frozenset[Hashable]:
        if not hasattr(self.message, "source"):
            raise ConfigurationError(
                f'reorder="within_source" needs the source of each message, but {self.message!r} has none.'
            )
        return frozenset([self.message.source])

    def copy_parts(self, places: Places, redeliveries: int) -> Any:  # noqa: ARG002  # a message has one part and no receive count
        return copy.deepcopy(self.message)

    def failures(self, answer: object, places: Places) -> Places:
        """Return the delivered parts that must be redelivered after this result of the handler."""
        return () if is_settled(answer) else places


@dataclass(frozen=True, slots=True)
class LambdaEvent:
    """An event of a source that onewrite supports. A handler settles the records that its response doesn't report as failed."""

    message: Mapping[str, Any]
    source: Source
    records: tuple[Record, ...]
    lanes: tuple[Hashable | None, ...]
    name: str

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(record_id(record) for record in self.records)

    @property
    def can_come_apart(self) -> bool:
        """Whether each redelivered record comes in its own batch, as from SQS, because each has its own visibility timeout."""
        return self.source is SQS

    def sources(self) -> frozenset[Hashable]:
        """Return the sources that keep their records in order. A standard queue doesn't."""
        places = range(len(self.records))
        return frozenset(source for place in places if (source := self._find_source(place)) is not None)

    def copy_parts(self, places: Places, redeliveries: int) -> Any:
        """Return the redelivered event with only the records at these places.

        SQS counts the receives of each record, and each receive has a different handle.
        """
        if isinstance(self.message.get("records"), Mapping):
            records: dict[Any, list[Any]] = {}
            for place in places:
                records.setdefault(self.lanes[place], []).append(self.records[place])
            return copy.deepcopy({**self.message, "records": records})
        event = copy.deepcopy({**self.message, "Records": [self.records[place] for place in places]})
        received: list[Any] = event["Records"] if self.source is SQS else []
        for record in received:
            receive_count = field_at(record, "attributes", _RECEIVED)
            if isinstance(receive_count, str) and receive_count.isdigit():
                record["attributes"][_RECEIVED] = str(int(receive_count) + redeliveries)
            if redeliveries and "receiptHandle" in record:
                record["receiptHandle"] = f"{record['receiptHandle']}/{redeliveries}"
        return event

    def failures(self, answer: object, places: Places) -> Places:
        """Return the delivered records that Lambda redelivers after this response of the handler."""
        failed_places = self._read_failed_places(answer, places)
        if self.source not in _KEEPS_ONE_POSITION:
            return failed_places
        first = {self.lanes[place]: place for place in reversed(failed_places)}
        return tuple(place for place in places if place >= first.get(self.lanes[place], place + 1))

    def _read_failed_places(self, answer: object, places: Places) -> Places:
        """Return the places of the records that the response reports as failed, or all places if Lambda can't read the response."""
        failures = cast("Mapping[str, Any]", answer).get(_FAILURES) if isinstance(answer, Mapping) else None
        if not failures:
            return ()
        if not isinstance(failures, list):
            return places
        identifiers = [field_at(failure, "itemIdentifier") for failure in cast("list[object]", failures)]
        own_identifiers = [self.source.response([self.records[place]])[_FAILURES][0]["itemIdentifier"] for place in places]
        if any(not identifier or identifier not in own_identifiers for identifier in identifiers):
            return places
        return tuple(place for place, identifier in zip(places, own_identifiers, strict=True) if identifier in identifiers)

    def _find_source(self, place: int) -> Hashable | None:
        record, lane = self.records[place], self.lanes[place]
        if lane is None:
            return None
        identity = _IDENTITIES.get(self.source.name)
        return (field_at(record, "eventSourceARN"), lane) if identity is None else identity(record).source


Deliverable: TypeAlias = PlainMessage | LambdaEvent


def make_deliverables(messages: Sequence[Any]) -> tuple[Deliverable, ...]:
    """Return the messages as deliverables. A message's name is its ID, or its number if it doesn't have an ID."""
    if not isinstance(cast("object", messages), Sequence) or isinstance(messages, str | bytes) or not messages:
        raise ConfigurationError(f"messages={messages!r}: expected at least one message, in a list.")
    named_by_id = [_make_deliverable(message, f"#{number}") for number, message in enumerate(messages, 1)]
    deliverables = tuple(_name_by_source(_number_equal_dicts(named_by_id)))
    for place, message in enumerate(messages):
        _check_copies(message, f"messages[{place}]")
    # An event can contain a record twice, as a producer's retry does, so each deliverable counts an ID once.
    ids = [message_id for deliverable in deliverables for message_id in dict.fromkeys(deliverable.ids)]
    for message_id in ids:
        if ids.count(message_id) > 1:
            raise ConfigurationError(
                f"Two messages have the ID {message_id!r}. The explorer redelivers each message itself, so remove the copy. If it's another "
                "message, give it its own ID, for example sqs_event(body, ids=['m-2']) or kinesis_event(body, sequence=2)."
            )
    return deliverables


def _number_equal_dicts(deliverables: Sequence[Deliverable]) -> Sequence[Deliverable]:
    """Return the deliverables. A dict's "id" can be that of its order, so dicts with the same one are named by their numbers."""
    names = [deliverable.name for deliverable in deliverables]
    numbered: list[Deliverable] = []
    for number, deliverable in enumerate(deliverables, 1):
        is_dict = isinstance(deliverable.message, Mapping)
        if is_dict and isinstance(deliverable, PlainMessage) and names.count(deliverable.name) > 1:
            numbered.append(replace(deliverable, name=f"#{number}"))
        else:
            numbered.append(deliverable)
    return numbered


def _name_by_source(deliverables: Sequence[Deliverable]) -> Iterator[Deliverable]:
    """Yield the deliverables. Messages of different sources can have the same ID, so the source becomes a part of their names."""
    sources = [getattr(deliverable.message, "source", "") for deliverable in deliverables]
    for deliverable, source in zip(deliverables, sources, strict=True):
        same_name = [place for place, other in enumerate(deliverables) if other.name == deliverable.name]
        is_only_one_of_source = [sources[place] for place in same_name].count(source) == 1
        if isinstance(deliverable, PlainMessage) and len(same_name) > 1 and is_only_one_of_source:
            yield replace(deliverable, name=f"{deliverable.name} of {source or 'no source'}")
        else:
            yield deliverable


def list_names(messages: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of the messages in a replay code."""
    return tuple(deliverable.name for deliverable in make_deliverables(messages))


class Titles(NamedTuple):
    """The names of the messages and their parts in a report."""

    messages: tuple[str, ...]
    parts: tuple[str, ...]


def make_titles(deliverables: Sequence[Deliverable]) -> Titles:
    """Return the names of messages and records: their IDs, or the numbers of the batch and the record if the IDs are random."""
    messages: list[str] = []
    parts: list[str] = []
    numbers = count(1)
    for deliverable in deliverables:
        if isinstance(deliverable, LambdaEvent) and any(map(_MADE_UP.fullmatch, deliverable.ids)):
            messages.append(f"batch {next(numbers)}")
            parts += [
                f"{messages[-1]}, record {place}{_quote_body(record)}" for place, record in enumerate(deliverable.records, 1)
            ]
        else:
            messages.append(deliverable.name)
            parts += deliverable.ids
    return Titles(tuple(messages), tuple(parts))


def _quote_body(record: Record) -> str:
    body = field_at(record, "body")
    return f' ("{body}")' if isinstance(body, str) and len(body) <= _SHORT_BODY else ""


def is_settled(answer: object) -> bool:
    """Whether this result of the handler settles the message.

    It doesn't if one of the returned outcomes is unsettled, or if a Lambda handler's response reports a failure.
    """
    if isinstance(answer, Mapping):
        return not cast("Mapping[str, Any]", answer).get(_FAILURES)
    return all(getattr(outcome, "settled", True) is not False for outcome in read_outcomes(answer))


def read_outcomes(answer: object) -> Sequence[object]:
    """Return the one or several outcomes that a handler returned, as a sequence."""
    return cast("Sequence[object]", answer) if isinstance(answer, list | tuple) else [answer]


def has_unprocessed_message(outcomes: Iterable[Sequence[object]]) -> bool:
    """Whether a guarded store refused a message permanently. Pass the outcomes of each delivery, in order.

    The store did if it returned `Stale`, or if its last outcome for a message is `Deferred` or an unsettled `Missing`. In the
    last two cases, the handler settled the message anyway, so it was never redelivered.
    """
    missing_keys: set[object] = set()
    for outcome in chain.from_iterable(outcomes):
        if isinstance(outcome, Stale):
            return True
        if isinstance(outcome, Outcome):
            message_key = (outcome.message.id, outcome.message.source, outcome.message.parts)
            if isinstance(outcome, Deferred | Missing) and not outcome.settled:
                missing_keys.add(message_key)
            else:
                missing_keys.discard(message_key)
    return bool(missing_keys)


def _check_copies(message: Any, place: str) -> None:
    """Raise if the message can't be copied. Each delivery gets a copy, so that the handler's changes don't affect the next delivery."""
    try:
        copy.deepcopy(message)
    except Exception as error:
        raise ConfigurationError(
            f"{place} can't be copied ({type(error).__name__}: {error}), but each delivery gets a copy of its message. Pass messages "
            "that a queue could carry, and create everything else that the handler needs in build(store)."
        ) from error


def _make_deliverable(message: Any, number: str) -> Deliverable:
    for source in (SQS, KINESIS, DYNAMODB, KAFKA) if isinstance(message, Mapping) else ():
        event = _read_event(cast("Mapping[str, Any]", message), source)
        if event is not None:
            return event
    message_id = (
        cast("Mapping[str, Any]", message).get("id") if isinstance(message, Mapping) else getattr(message, "id", None)
    )
    return PlainMessage(message, number if message_id is None else str(message_id))


def _read_event(message: Mapping[str, Any], source: Source) -> LambdaEvent | None:
    """Return the message as an event of this source, or None if it isn't one."""
    try:
        records, lanes = source.open(message)
    except ConfigurationError:
        return None
    if not any(map(source.identifier, records)):
        return None
    others = f" and {len(records) - 1} more" if len(records) > 1 else ""
    return LambdaEvent(message, source, tuple(records), tuple(lanes), f"{record_id(records[0])}{others}")
