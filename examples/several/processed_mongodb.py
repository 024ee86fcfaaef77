"""A document that every message changes, on MongoDB: a second collection remembers the messages instead of the document."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import WriteConcern
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.read_concern import ReadConcern

from onewrite import Applied, Duplicate, Message, Outcome

Documents = Collection[dict[str, Any]]
RETENTION = timedelta(days=14)  # longer than any redelivery. Create a TTL index on expiresAt, with expireAfterSeconds=0


def make_counter(
    totals: Documents, processed: Documents, *, clock: Callable[[], float] = time.time
) -> Callable[[Message], Outcome]:
    """Return a function that adds the cents of a message to the total once."""

    def add(message: Message) -> Outcome:
        key = {"_id": message.child("total")}

        def write(session: ClientSession) -> Outcome:
            if processed.find_one(key, session=session):
                return Duplicate(message)  # counts after the commit, when a majority has the document
            expiry = datetime.fromtimestamp(clock(), UTC) + RETENTION
            processed.insert_one({**key, "expiresAt": expiry}, session=session)
            added = totals.update_one({"_id": "total"}, {"$inc": {"cents": message.body["cents"]}}, session=session)
            if not added.matched_count:
                raise LookupError("Create the total before its first message.")  # aborts, so the message isn't lost
            return Applied(message)

        with totals.database.client.start_session() as session:
            return session.with_transaction(write, ReadConcern("snapshot"), WriteConcern("majority"))

    return add
