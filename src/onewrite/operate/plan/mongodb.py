"""What a ledger adds to a document of MongoDB, in bytes of BSON, found by making the ledger's own writes on paper. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import bson

from onewrite.core.flow import Flow
from onewrite.core.inbox import TOKEN, Inbox, token_of
from onewrite.core.label import Slot, prefix_of
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.entry import Advance, Remember
from onewrite.message import Message
from onewrite.mongodb.flows import LARGEST_DOCUMENT
from onewrite.mongodb.layout import path_of
from onewrite.mongodb.request import gain, initial, labels
from onewrite.operate.image import EntityStore
from onewrite.operate.mongodb import sample
from onewrite.operate.plan.inputs import (
    SECOND,
    Cycle,
    Inputs,
    MessageStream,
    Texts,
    counts_of,
    cycle_of,
    turns,
)
from onewrite.operate.plan.ways import OtherWay, Sizes, StoreSample, sample_of

_EMPTY = len(bson.encode({}))


class Repeated(NamedTuple):
    """Stands for an array of so many values of one size."""

    value: Any
    times: int


def document_size(document: Mapping[str, Any]) -> int:
    """What `bson.encode` would make of it, in bytes, where it holds `Repeated` values too."""
    return _EMPTY + sum([_field_size(name, value) for name, value in document.items()])


def _field_size(name: str, value: Any) -> int:
    type_and_name = 2 + len(name.encode())
    match value:
        case Repeated(member, count):
            return type_and_name + _EMPTY + count * _field_size("", member) + _digits_below(count)
        case Mapping():
            return type_and_name + document_size(cast("Mapping[str, Any]", value))
        case _:
            return len(name.encode()) + len(bson.encode({"": value})) - _EMPTY


def _digits_below(count: int) -> int:
    """The digits of all places of an array: BSON writes each as text."""
    digits, least = count, 10
    while least < count:
        digits += count - least
        least *= 10
    return digits


def written_document(document: Mapping[str, Any], ledger: Ledger, message: Message, now: float) -> dict[str, Any]:
    """The document after a guarded write of a message that the ledger lets in, without the caller's own part."""
    entry = ledger.entry(message, now)
    sets, pushes, removes = {**labels(entry.terms).sets}, dict[str, list[Any]](), dict[str, str]()
    gain(entry, sets, pushes, removes)
    return after(document, {"$set": sets, "$push": {path: mark for path, (mark,) in pushes.items()}, "$unset": removes})


def after(document: Mapping[str, Any], update: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The document after `$set`, `$push` and `$unset`, the operators that a ledger's own part has."""
    result = copy(document)
    for path, value in update.get("$set", {}).items():
        inner, name = _place(result, path)
        inner[name] = value
    for path, value in update.get("$push", {}).items():
        inner, name = _place(result, path)
        inner[name] = [*inner.get(name, []), value]
    for path in update.get("$unset", {}):
        inner, name = _place(result, path)
        inner.pop(name, None)
    return result


def copy(document: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of all that may be changed in it."""
    return {
        name: copy(cast("dict[str, Any]", value)) if isinstance(value, dict) else value for name, value in document.items()
    }


def _place(document: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    """The document that holds the last name of a path, and that name."""
    *parents, name = path.split(".")
    for parent in parents:
        document = document.setdefault(parent, {})
    return document, name


class DocumentLedger:
    """The bytes of a ledger in a document that gets a stream of messages."""

    limit = LARGEST_DOCUMENT

    def __init__(self, ledger: Ledger, texts: Texts) -> None:
        self._ledger, self._texts = ledger, texts
        self.parts = (Cycle(self._marks, cycle_of(ledger)),)

    def fields(self, stream: MessageStream, moment: int) -> dict[str, Any]:
        """The fields of the ledger; many marks stand as `Repeated`, and those of a source but the last as one of another size."""
        last = stream.last_by(moment)
        entry = self._ledger.entry(self._texts.message(last), stream.moment(last) / SECOND)
        match entry.own:
            case Remember(sets=sets, mark=mark):
                fields = labels(entry.terms).sets
                for key, count in counts_of(self._ledger, stream, moment).items():
                    fields = after(fields, {"$set": {path_of(Slot(sets.present.group, key)): Repeated(mark, count)}})
                return fields
            case Advance():
                return initial(entry)

    def _marks(self, stream: MessageStream, moment: int) -> int:
        last = stream.last_by(moment)
        if self._ledger.layout == "marks":
            return self._of_sources(stream, moment, last)
        return document_size(self.fields(stream, moment)) - _EMPTY

    def _of_sources(self, stream: MessageStream, moment: int, last: int) -> int:
        """Each source has a field of its own among those of the ledger."""
        fields = self.fields(stream, moment)
        group = f"{prefix_of(self._ledger.attribute)}@"
        name = next(iter(fields[group]))
        alone = document_size({**fields, group: {}}) - _EMPTY
        sizes = [count * _field_size(name, self._mark(sequence)) for sequence, count in turns(last, self._texts.sources)]
        return alone + sum(sizes)

    def _mark(self, sequence: int) -> Any:
        return sequence


class OnMongoDB:
    """Counts bytes of documents. MongoDB charges nothing for a write, and how many it takes depends on the machine."""

    limit = LARGEST_DOCUMENT
    a_second: float | None = None

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs

    def sized_ledger(self, ledger: Ledger) -> DocumentLedger:
        return DocumentLedger(ledger, self._inputs.texts)

    def cost(self, ledger: Ledger, stream: MessageStream, sizes: Sizes) -> None:
        """Nothing that has a price."""

    def load(self, ledger: Ledger, size: int) -> float:
        """Nothing that has a bound."""
        del ledger, size
        return 0

    def copies(self) -> int:
        return 1

    def other_ways(self) -> list[OtherWay]:
        """A transaction that writes the document, and inserts the message into a collection of those that were processed."""
        inbox = Inbox(object(), consumer="consumer", retention=self._inputs.retention)
        (key,) = inbox.marks(self._inputs.texts.message(0))
        mark = {"_id": key, inbox.ttl_attribute: datetime.fromtimestamp(0, UTC), TOKEN: token_of("")}
        record_bytes = self._inputs.per_day * (self._inputs.retention / timedelta(days=1)) * len(bson.encode(mark))
        return [
            OtherWay("no guard: duplicates take effect", None, 0, 0),
            OtherWay("processed collection, in a transaction", None, record_bytes, 0),
        ]


def collection_sample(store: EntityStore, most: int) -> Flow[StoreSample]:
    """Documents that MongoDB picks at random."""
    entities = yield from store.count()
    return sample_of("mongodb", store.name, entities, (yield from sample(most)))
