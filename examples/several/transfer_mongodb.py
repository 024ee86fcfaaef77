"""One message that changes two MongoDB documents: a transfer between accounts, in your own transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pymongo import WriteConcern
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.read_concern import ReadConcern

from onewrite import Applied, Message, Outcome, SeenIds
from onewrite.mongodb import GuardedCollection


class NotTransferredError(Exception):
    """The second account refused the message, so the first one hasn't changed either."""


def make_transfer(collection: Collection[dict[str, Any]]) -> Callable[[Message], Outcome]:
    """Return a function that transfers the cents of a message once, or not at all."""
    accounts = GuardedCollection(collection, SeenIds())

    def transfer(message: Message) -> Outcome:
        cents = message.body["cents"]
        giver, taker = {"_id": message.body["from"]}, {"_id": message.body["to"]}

        def move(session: ClientSession) -> Outcome:
            debit = {"$inc": {"cents": -cents}}
            outcome = accounts.update_one(message, {**giver, "cents": {"$gte": cents}}, debit, session=session)
            if isinstance(outcome, Applied):
                credited = accounts.update_one(message, taker, {"$inc": {"cents": cents}}, session=session)
                if not isinstance(credited, Applied):
                    raise NotTransferredError(f"{taker} refused {message.id}: {type(credited).__name__}")
            return outcome

        with collection.database.client.start_session() as session:
            return session.with_transaction(move, ReadConcern("snapshot"), WriteConcern("majority"))

    return transfer
