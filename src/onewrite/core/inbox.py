"""A table or collection of processed messages, for transactions. Pure: the engines write into it.

docs/format.md specifies the stored data.
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

_MAX_KEY_BYTES = 1024  # half of the limit for the partition key of a DynamoDB item
_HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class Inbox:
    """A table of processed messages: a transaction adds one item per message to it, in addition to its writes.

    If the item exists, even expired, the message is a `Duplicate`.

    - `store`: a boto3 Table, a client with `table_name`, or a pymongo collection.
    - `consumer`: the name of this consumer of the messages. Each consumer needs its own.
    - `retention`: how long an item stays.
    - `also`: earlier names of this consumer. A message under any of them is a duplicate, and a new one is stored under each, so that you
      can roll back.
    - `key`: the partition key of the table, a string, without a sort key. In a collection, it's `_id`.
    - `ttl_attribute`: the attribute with the expiry. Switch on TTL for it, or create a TTL index.
    - `clock`: returns the time. By default, it's the clock of the first participant's store.
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
                f"Inbox(consumer={self.consumer!r}): expected a name that no other consumer of the table has."
            )
        check_retention("Inbox", self.retention)
        check_inbox_store(self.store, self.table_name)
        also = cast("object", self.also)
        if not isinstance(also, tuple) or not all(
            isinstance(name, str) and name for name in cast("tuple[object, ...]", also)
        ):
            raise ConfigurationError(
                f"Inbox(also={also!r}): expected the earlier names of the consumer, for example also=('bills',)."
            )
        check_attribute(self.ttl_attribute)  # on MongoDB, "_id" would replace the message by the time
        key = cast("object", self.key)
        if not isinstance(key, str) or key in ("", self.ttl_attribute) or is_ours(key):
            raise ConfigurationError(
                f"Inbox(key={key!r}, ttl_attribute={self.ttl_attribute!r}): expected two different names, neither of which begins with ow_. "
                "Pass the name of the table's partition key, for example key='id'."
            )
        if self.clock is not None:
            object.__setattr__(self, "clock", checked_clock(self.clock))

    def make_keys(self, message: Message) -> list[str]:
        """Return the keys under which the message is remembered, the consumer's own name first."""
        return [self._make_key(name, message) for name in dict.fromkeys([self.consumer, *self.also])]

    def _make_key(self, consumer: str, message: Message) -> str:
        """Return the key of the message for this consumer. A key that would be too long is replaced by its hash."""
        key = join_texts(plain(consumer), message.source, *message.parts, message.id)
        if len(key.encode()) <= _MAX_KEY_BYTES:
            return key
        return f"#{blake2b(key.encode(), digest_size=_HASH_BYTES).hexdigest()}"  # other keys begin with a digit

    def expiry(self, now: float) -> float:
        """Return when the database can remove a message that is stored at `now`. Both are in epoch seconds."""
        return now + self.retention.total_seconds()
