"""What a guarded table contributes to a transaction: its writes, and what a refused one means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onewrite.core.event import Emit, copied_events, copy_value
from onewrite.core.flow import Flow, split_missing_ok
from onewrite.core.judging import has_landed, shows_effect
from onewrite.core.pipeline import pass_over
from onewrite.core.transaction import PreparedWrite, TransactionWrite, check_prepared
from onewrite.core.write import Image, Write
from onewrite.dynamodb.dialect import build_put, build_update
from onewrite.dynamodb.expression import read_mapping
from onewrite.dynamodb.flows import Flows, TableAttempt
from onewrite.dynamodb.size import value_size
from onewrite.errors import EntityTooLarge, InvalidUpdate
from onewrite.outcome import Duplicate, Outcome

_EVERY_WRITE = {"ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"}
_ARGUMENTS = {
    "updating": {"Key", "UpdateExpression", *_EVERY_WRITE},
    "putting": {"Item", *_EVERY_WRITE},
    "recording": {"Key", *_EVERY_WRITE},
}
_REASONS = {"ReturnValues": "a transaction returns no items. Read them after it."}


class Prepared(PreparedWrite[Flows]):
    """A guarded write that is not sent yet: give it to `transact`, together with others."""

    __slots__ = ()

    @property
    def entity(self) -> Mapping[str, Any]:
        """The item's key; empty for a put, which does not say which of its attributes are the key."""
        key: Mapping[str, Any] = self.native.get("Key", {})
        return key

    @property
    def size(self) -> int:
        """The bytes of the values in it."""
        parts: list[Mapping[str, Any]] = [self.native.get(name) or {} for name in ("Item", "ExpressionAttributeValues")]
        return sum([value_size(value) for part in parts for value in part.values()])

    def key(self, names: Iterable[str]) -> dict[str, Any] | None:
        """Return its key, given the key's names. None if the item lacks one of them."""
        attributes: Mapping[str, Any] = self.native.get("Key") or self.native.get("Item") or {}
        return {name: attributes[name] for name in names} if attributes.keys() >= {*names} else None

    def make_attempt(self, write: Write) -> TableAttempt:
        """Return the write with these parts, ready to be sent alone."""
        attempt = TableAttempt(self.store, write, self.native, build_put if self.creates else build_update)
        if not (self.creates or attempt.call.kwargs["UpdateExpression"]):
            raise InvalidUpdate("A store without a ledger has nothing to record: give the write an UpdateExpression.")
        return attempt


@dataclass(frozen=True, slots=True, eq=False)
class Action(TransactionWrite[TableAttempt]):
    """One write of a transaction."""

    @property
    def flows(self) -> Flows:
        return self.attempt.flows

    @property
    def request(self) -> dict[str, Any]:
        call = self.attempt.call
        kind = "Put" if call.method == "put_item" else "Update"
        return {kind: {"TableName": self.flows.full_name, **call.kwargs}}

    def read(self) -> Flow[Image]:
        """Read the item as it is now. Call it only if the write names its item."""
        return self.flows.read_image((yield from self.flows.look(self.flows.convert(self.write.key))))

    def judge_image(self, image: Image) -> Outcome | None:
        """Return why its condition failed, given the item as it was then. None: it is to be sent again."""
        if self.place is None:
            return Duplicate(self.write.message) if image.exists else None
        return self.judge(image, self.write.now)

    def pass_over(self, image: Image | None) -> Flow[Outcome | None]:
        if not self.write.entry.also:
            return None
        if image is None:
            item = self.attempt.call.kwargs.get("Item")
            key = self.write.key if item is None else (yield from self.flows.ask_key(self.flows.plain_item(item)))
            image = self.flows.read_image((yield from self.flows.look(self.flows.convert(key))))
        return (yield from pass_over(self.attempt, image))

    @property
    def is_guarded(self) -> bool:
        return self.write.token is not None

    def shows_effect(self, image: Image) -> bool:
        """Whether the item is one that this write may have left."""
        return self.is_guarded and image.exists and shows_effect(self.write, image)

    def has_landed(self, image: Image) -> bool:
        """Whether an earlier attempt of this very transaction wrote to the item."""
        return has_landed(self.write, image)

    def too_large(self, image: Image) -> EntityTooLarge:
        return self.flows.too_large(self.attempt.call, self.write.emission, image)


def prepare(flows: Flows, method: str, native: Mapping[str, Any], emit: Emit) -> Prepared:
    """Return the write, with all that its transaction needs."""
    native, missing_ok = split_missing_ok(native)
    check_prepared(method, native, _ARGUMENTS[method], _REASONS)
    for name in ("Key", "Item", "ExpressionAttributeNames", "ExpressionAttributeValues"):
        read_mapping(native, name)
    return Prepared(flows, method, copy_value(native), copied_events(emit), missing_ok)
