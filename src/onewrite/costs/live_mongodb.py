"""Reads some documents of a collection. It writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onewrite.costs.documents import document_size
from onewrite.costs.sample import Measured, Sample, sample_of
from onewrite.flow import Call, Do, Flow
from onewrite.ledgers import NO_LEDGER
from onewrite.mongodb.layout import without_ledger


def collection_sample(name: str, most: int) -> Flow[Sample]:
    """Documents that MongoDB picks at random. `name` is that of the database and the collection, with a dot between."""
    entities = yield Call("estimated_document_count")
    cursor = yield Call("aggregate", ([{"$sample": {"size": most}}],))
    documents: list[Mapping[str, Any]] = yield Do(list, (cursor,))
    return sample_of("mongodb", name, max(entities, len(documents)), documents, [_measured(each) for each in documents])


def _measured(document: Mapping[str, Any]) -> Measured:
    own = document_size(without_ledger(NO_LEDGER.terms, document))
    return Measured(own, document_size(document) - own)
