"""Functions that read the indexes of a MongoDB collection, and some of its documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from pymongo.errors import PyMongoError

from onewrite.operate.doctor.facts import EntitySample, Facts, Service, Unread
from onewrite.operate.mongodb import sample_documents

_REFUSALS = (13, 8000)  # the codes of MongoDB and of MongoDB Atlas for a missing privilege
_MONGODB = Service((PyMongoError,), lambda error: getattr(error, "code", None) in _REFUSALS)


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
    if isinstance(indexes, Unread):
        sample = _read_sample(collection, place, {}, limit, clock)
        return Facts(collection=place, expiry=indexes, index_keys=indexes, sample=sample)
    # The fields of TTL indexes, and the seconds until a document expires after the time in them.
    ttl_indexes = [index for index in indexes.values() if "expireAfterSeconds" in index]
    lifetimes = {index["key"][0][0]: float(index["expireAfterSeconds"]) for index in ttl_indexes}
    return Facts(
        collection=place,
        expiry=tuple(lifetimes),
        index_keys=tuple([tuple([key for key, _ in index["key"]]) for index in indexes.values()]),
        sample=_read_sample(collection, place, lifetimes, limit, clock),
    )


def _read_timestamp(moment: datetime) -> float:
    """Return epoch seconds. pymongo returns a time in UTC without a zone, unless the client is `tz_aware`."""
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _read_sample(
    collection: Any, what: str, lifetimes: Mapping[str, float], limit: int, clock: Callable[[], float]
) -> EntitySample | Unread:
    """Return some documents. `lifetimes` are the seconds until a document expires after the time in each field."""
    images = _MONGODB.ask(what, "find", lambda: sample_documents(collection, limit))
    if isinstance(images, Unread):
        return images
    expires: dict[str, float] = {}
    for image in images:
        expiries = [
            _read_timestamp(time) + lifetime
            for field, lifetime in lifetimes.items()
            for time in _find_times(image.raw, field.split("."))
        ]
        if expiries:
            expires[image.name] = min(expiries)
    return EntitySample(tuple(images), clock(), expires)


def _find_times(value: object, path: Sequence[str]) -> Iterator[datetime]:
    """Yield the times at a path in a document, including those in arrays, as an index on this path has them."""
    if isinstance(value, list):
        for member in cast("list[object]", value):
            yield from _find_times(member, path)
    elif path and isinstance(value, Mapping):
        yield from _find_times(cast("Mapping[str, object]", value).get(path[0]), path[1:])
    elif not path and isinstance(value, datetime):
        yield value
