"""A message's item in a table of those that were processed: how a transaction puts it there, and what one that is there means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from boto3.dynamodb.types import Binary

from onewrite.dynamodb.values import plain, typed
from onewrite.errors import ConfigurationError
from onewrite.inbox import INBOX, TOKEN, Inbox, token_of
from onewrite.message import Message
from onewrite.outcome import Duplicate, Entity, Outcome


class Mark(NamedTuple):
    """The item of one message, as a part of the call whose token it carries."""

    message: Message
    token: bytes
    table_name: str
    item: Mapping[str, Any]  # in plain values
    key_name: str
    typed: bool
    place: int = INBOX
    counts: bool = False  # no message waits for it

    @property
    def key(self) -> dict[str, Any]:
        key = {self.key_name: self.item[self.key_name]}
        return typed(key) if self.typed else key

    @property
    def request(self) -> dict[str, Any]:
        put = {
            "TableName": self.table_name,
            "Item": typed(self.item) if self.typed else {**self.item},
            "ConditionExpression": "attribute_not_exists(#id)",
            "ExpressionAttributeNames": {"#id": self.key_name},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        return {"Put": put}

    def plain(self, item: Entity) -> Entity:
        return plain(item) if self.typed else item

    def refused(self, item: Entity | None) -> Outcome | None:
        """The item is there, and nothing else refuses. None: it has expired by now."""
        return None if item is None else Duplicate(self.message)

    @property
    def guarded(self) -> bool:
        return True

    def shows_effect(self, item: Entity) -> bool:
        """Is the message in the inbox?"""
        return bool(item)

    def landed(self, item: Entity) -> bool:
        """Did an earlier try of this very transaction put the item there?"""
        return item.get(TOKEN) == Binary(self.token)


def marks_of(inbox: Inbox, message: Message, call: str, clock: Callable[[], float]) -> list[Mark]:
    """`call` is the name of the call, which no other call has."""
    token, named = token_of(call), inbox.table_name is not None
    rest, table_name = {inbox.ttl_attribute: int(inbox.expires(clock)), TOKEN: token}, inbox.table_name or inbox.store.name
    keys = inbox.marks(message)
    return [Mark(message, token, table_name, {inbox.key: key, **rest}, inbox.key, named) for key in keys]


def client_of(inbox: Inbox) -> Any:
    """The client that writes into the inbox."""
    store = inbox.store
    is_table = isinstance(getattr(store, "name", None), str) and hasattr(store, "put_item")
    if is_table is (inbox.table_name is not None) or not hasattr(store, "meta"):
        raise ConfigurationError(
            "Inbox: the store is a boto3 Table, which knows its name, or a low-level client together with table_name=."
        )
    return store.meta.client if is_table else store
