"""A table or collection of the messages that were processed, for transactions. Pure: the engines write into it.

What is stored is fixed by docs/format.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from typing import Any, cast

from onewrite.core.clock import checked_clock
from onewrite.core.label import check_attribute, is_ours, plain
from onewrite.core.targets import check_inbox_store
from onewrite.core.tombstone import check_retention
from onewrite.errors import ConfigurationError
from onewrite.message import Message, join_texts

_MAX_KEY_BYTES = 1024  # bytes: half of what the partition key of a DynamoDB item may have
_HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class Inbox:
    """Remembers messages in a table or collection of its own, by an item that a transaction writes beside the entities.

    A message that is there was processed, and is a `Duplicate`. That holds as well where its `retention` is over and the
    database's TTL has not come to it yet. `store` is a boto3 Table, or a client with `table_name`; or a pymongo collection. Two
    consumers of one message have two names. `also` names those that this consumer had before: a message that is there under any of
    them was processed, and a new one is put there under each, so a deployment can be taken back. `key` is the partition key of the table, a text and without a sort key; in a
    collection it is `_id`. `ttl_attribute` is where the end of the retention stands: let the table's TTL, or a TTL index, use it.
    The time is that of the first participant's store, unless `clock` tells it.
    """

    store: Any
    consumer: str = field(kw_only=True)
    retention: timedelta = field(kw_only=True)
    key: str = field(default="id", kw_only=True)
    ttl_attribute: str = field(default="expiresAt", kw_only=True)
    table_name: str | None = field(default=None, kw_only=True)
    also: tuple[str, ...] = field(default=(), kw_only=True)
    clock: Callable[[], float] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.consumer), str) or not self.consumer:
            raise ConfigurationError(
                f"Inbox(consumer={self.consumer!r}): give a name that no other consumer of the table has."
            )
        check_retention("Inbox", self.retention)
        check_inbox_store(self.store, self.table_name)
        also = cast("object", self.also)
        if not isinstance(also, tuple) or not all(
            isinstance(name, str) and name for name in cast("tuple[object, ...]", also)
        ):
            raise ConfigurationError(
                f"Inbox(also={also!r}): give the names that the consumer had before, as in also=('bills',)."
            )
        check_attribute(self.ttl_attribute)  # on MongoDB "_id" would put the time in the place of the message
        if self.key == self.ttl_attribute or is_ours(self.key):
            raise ConfigurationError(
                f"Inbox(key={self.key!r}, ttl_attribute={self.ttl_attribute!r}): give two names, neither of which begins with ow_."
            )

        if self.clock is not None:
            object.__setattr__(self, "clock", checked_clock(self.clock))

    def marks(self, message: Message) -> list[str]:
        """Return the keys under which the message is remembered, the consumer's own name first."""
        return [self._mark(name, message) for name in dict.fromkeys([self.consumer, *self.also])]

    def _mark(self, consumer: str, message: Message) -> str:
        named = join_texts(plain(consumer), message.source, *message.parts, message.id)
        if len(named.encode()) <= _MAX_KEY_BYTES:
            return named
        return f"#{blake2b(named.encode(), digest_size=_HASH_BYTES).hexdigest()}"  # any other begins with a digit

    def expires(self, now: float) -> float:
        """Return when a message that is remembered now may be forgotten, in epoch seconds."""
        return now + self.retention.total_seconds()
