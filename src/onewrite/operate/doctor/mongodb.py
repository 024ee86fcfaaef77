"""Functions that read the indexes of a MongoDB collection, and some of its documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pymongo.errors import PyMongoError

from onewrite.operate.doctor.facts import EntitySample, Facts, Service, Unread
from onewrite.operate.mongodb import sample_documents

_REFUSALS = (13, 8000)  # the codes of MongoDB and of MongoDB Atlas for a missing privilege


def _is_refusal(error: Exception) -> bool:
    return getattr(error, "code", None) in _REFUSALS


_MONGODB = Service((PyMongoError,), _is_refusal)


def read_collection(collection: Any, limit: int, clock: Callable[[], float]) -> Facts:
    """Return a collection's indexes, and at most `limit` of its documents."""
    place = f"the collection {collection.name}"
    indexes: Any = _MONGODB.ask(f"the indexes of {place}", "listIndexes", collection.index_information)
    if isinstance(indexes, Unread) and indexes.permission is None:
        # Without a connection, every further request would wait as long.
        return Facts(collection=place, expiry=indexes, index_keys=indexes, sample=indexes)
    if not indexes:  # every collection has an index on _id
        missing = Unread(place, "It doesn't exist here.", advice="Check the database and collection in --collection.")
        return Facts(collection=place, expiry=missing, index_keys=missing, sample=missing)
    documents = _MONGODB.ask(place, "find", lambda: tuple(sample_documents(collection, limit)))
    sample = documents if isinstance(documents, Unread) else EntitySample(documents, clock())
    if isinstance(indexes, Unread):
        return Facts(collection=place, expiry=indexes, index_keys=indexes, sample=sample)
    keys = tuple([tuple([key for key, _ in index["key"]]) for index in indexes.values()])
    ttl_fields = tuple([index["key"][0][0] for index in indexes.values() if "expireAfterSeconds" in index])
    return Facts(collection=place, expiry=ttl_fields, index_keys=keys, sample=sample)
