"""A message's document in a collection of those that were processed: how a transaction inserts it, and what one that is there means."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pymongo.errors import DuplicateKeyError

from onewrite.errors import ConfigurationError
from onewrite.flow import Do, Flow
from onewrite.inbox import INBOX, TOKEN, Inbox, token_of
from onewrite.message import Message
from onewrite.mongodb.durability import of_majority
from onewrite.mongodb.layout import Document
from onewrite.outcome import Applied, Duplicate, Outcome


class Mark(NamedTuple):
    """The document of one message, as a part of the call whose token it carries."""

    message: Message
    target: Any
    document: dict[str, Any]
    place: int = INBOX
    counts: bool = False  # no message waits for it

    @property
    def entity(self) -> Document:
        return {"_id": self.document["_id"]}

    @property
    def explained(self) -> dict[str, Any]:
        return {"insert_one": {"collection": self.target.name, "document": self.document}}

    def sent(self, session: Any) -> Flow[bool]:
        yield Do(self.target.insert_one, (dict(self.document),), {"session": session}, sends=True)
        return True

    def met(self, _: DuplicateKeyError) -> bool:
        return True

    def look(self) -> Flow[Document | None]:
        found: Document | None = yield Do(self.target.find_one, (self.entity,), sends=True)
        return found

    def verdict(self, found: Document | None, *, first: bool) -> Outcome | None:  # noqa: ARG002  # as a write has it
        """What the document says that was met. None: it has expired by now."""
        if found is None:
            return None
        return Applied(self.message, retried=True) if found.get(TOKEN) == self.document[TOKEN] else Duplicate(self.message)

    def failure(self, error: Exception) -> Flow[Exception]:
        yield from ()
        return error

    def check_collection(self) -> Flow[None]:
        yield from ()


def marks_of(inbox: Inbox, message: Message, call: str, clock: Callable[[], float]) -> list[Mark]:
    """`call` is the name of the call, which no other call has."""
    if inbox.table_name is not None or not hasattr(inbox.store, "with_options"):
        raise ConfigurationError("Inbox: the store of a transaction on MongoDB is a collection, without table_name=.")
    expires = datetime.fromtimestamp(inbox.expires(clock), UTC)
    rest, store = {inbox.ttl_attribute: expires, TOKEN: token_of(call)}, of_majority(inbox.store)
    return [Mark(message, store, {"_id": key, **rest}) for key in inbox.marks(message)]
