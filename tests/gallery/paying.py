"""What the handlers share that charge a customer: a payment that is recorded in an entity, and a provider that takes the money.

The provider is one more store, so to charge is a request like any other. It may arrive at any time after it was sent: the
explorer knows no timeouts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, ClassVar

from onewrite import BeginOutcome, Message, Outcome, SeenIds, Uncertain
from onewrite.core.features.effects import Claim
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from tests.gallery.cases import NOW

NAMES = ("payments", "provider")
CONTENT: Mapping[str, Any] = {"payments": ({"id": "p1", "charges": []},), "provider": ({"id": "all", "charges": []},)}
LEASE = timedelta(seconds=30)
BETWEEN = 60.0  # seconds from one delivery to the next: by then the lease of the one before is over
DAY = timedelta(days=1)  # for which the provider recognises a key


class Minutes:
    """A clock that goes on only when a delivery begins, so a schedule is the same each time."""

    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now

    def go_on(self) -> float:
        """A delivery begins. One that is under way has its lease over by now."""
        self.now += BETWEEN
        return self.now


class Shop(ABC):
    """The payment and the provider on one engine."""

    key: ClassVar[dict[str, str]]
    guard: ClassVar[Callable[..., Any]]

    def __init__(self, stores: Mapping[str, Any]) -> None:
        self.payments, self.provider = stores["payments"], stores["provider"]
        self.clock = Minutes()
        self.guarded = type(self).guard(self.payments, SeenIds(), clock=self.clock)

    @abstractmethod
    def begin_effect(self, message: Message, key_valid_for: timedelta, after: Uncertain | None = None) -> BeginOutcome: ...
    @abstractmethod
    def perform_effect(self, message: Message, effect: Callable[[Any], str]) -> Outcome: ...
    @abstractmethod
    def remember(self, message: Message, charge: str, finishes: Claim | None = None) -> Outcome:
        """The guarded write, which may finish an effect."""

    @abstractmethod
    def charge(self, key: str) -> str:
        """What the provider does only once for a key."""

    @abstractmethod
    def charge_without_key(self, reference: str) -> str:
        """What the provider does each time that it is told."""

    def look_up(self, reference: str) -> bool:
        """Has the provider charged this?"""
        return reference in self.charged()

    @abstractmethod
    def payment(self) -> Mapping[str, Any]: ...
    @abstractmethod
    def swap(self, held: Mapping[str, Any], new: Mapping[str, Any], charge: str | None = None) -> bool:
        """Change the payment by hand, if it holds this; None stands for nothing. False: it holds something else."""

    @abstractmethod
    def charged(self) -> list[str]: ...


class TableShop(Shop):
    key: ClassVar = {"id": "p1"}
    guard = GuardedTable

    def begin_effect(self, message: Message, key_valid_for: timedelta, after: Uncertain | None = None) -> BeginOutcome:
        return self.guarded.begin_effect(
            message, "charge", Key=self.key, lease=LEASE, key_valid_for=key_valid_for, after=after
        )

    def perform_effect(self, message: Message, effect: Callable[[Any], str]) -> Outcome:
        return self.guarded.perform_effect(
            message, "charge", effect, Key=self.key, lease=LEASE, key_valid_for=DAY, then=_appending
        )

    def remember(self, message: Message, charge: str, finishes: Claim | None = None) -> Outcome:
        return self.guarded.update_item(message, Key=self.key, **_appending(charge), finishes=finishes)

    def charge(self, key: str) -> str:
        refused = self.provider.meta.client.exceptions.ConditionalCheckFailedException
        fresh = "NOT contains(charges, :charge)"
        try:
            self.provider.update_item(Key={"id": "all"}, ConditionExpression=fresh, **_appending(key, charge=key))
        except refused:
            return key
        return key

    def charge_without_key(self, reference: str) -> str:
        self.provider.update_item(Key={"id": "all"}, **_appending(reference))
        return reference

    def payment(self) -> Mapping[str, Any]:
        return self.payments.get_item(Key=self.key, ConsistentRead=True)["Item"]

    def swap(self, held: Mapping[str, Any], new: Mapping[str, Any], charge: str | None = None) -> bool:
        refused = self.payments.meta.client.exceptions.ConditionalCheckFailedException
        conditions = ["attribute_exists(id)"]
        values: dict[str, Any] = {}
        for name, value in held.items():
            conditions.append(f"attribute_not_exists({name})" if value is None else f"{name} = :old_{name}")
            values |= {} if value is None else {f":old_{name}": value}
        sets = [f"{name} = :new_{name}" for name, value in new.items() if value is not None]
        values |= {f":new_{name}": value for name, value in new.items() if value is not None}
        removes = [name for name, value in new.items() if value is None]
        if charge is not None:
            sets.append("charges = list_append(charges, :more)")
            values[":more"] = [charge]
        update = (f"SET {', '.join(sets)} " if sets else "") + (f"REMOVE {', '.join(removes)}" if removes else "")
        wanted = {"UpdateExpression": update, "ConditionExpression": " AND ".join(conditions)}
        try:
            self.payments.update_item(Key=self.key, **wanted, **({"ExpressionAttributeValues": values} if values else {}))
        except refused:
            return False
        return True

    def charged(self) -> list[str]:
        return list(self.provider.get_item(Key={"id": "all"}, ConsistentRead=True)["Item"]["charges"])


class CollectionShop(Shop):
    key: ClassVar = {"_id": "p1"}
    guard = GuardedCollection

    def begin_effect(self, message: Message, key_valid_for: timedelta, after: Uncertain | None = None) -> BeginOutcome:
        return self.guarded.begin_effect(message, "charge", self.key, lease=LEASE, key_valid_for=key_valid_for, after=after)

    def perform_effect(self, message: Message, effect: Callable[[Any], str]) -> Outcome:
        def then(charge: str) -> dict[str, Any]:
            return {"update": {"$push": {"charges": charge}}}

        return self.guarded.perform_effect(message, "charge", effect, self.key, lease=LEASE, key_valid_for=DAY, then=then)

    def remember(self, message: Message, charge: str, finishes: Claim | None = None) -> Outcome:
        return self.guarded.update_one(message, self.key, {"$push": {"charges": charge}}, finishes=finishes)

    def charge(self, key: str) -> str:
        self.provider.update_one({"_id": "all", "charges": {"$ne": key}}, {"$push": {"charges": key}})
        return key

    def charge_without_key(self, reference: str) -> str:
        self.provider.update_one({"_id": "all"}, {"$push": {"charges": reference}})
        return reference

    def payment(self) -> Mapping[str, Any]:
        return self.payments.find_one(self.key)

    def swap(self, held: Mapping[str, Any], new: Mapping[str, Any], charge: str | None = None) -> bool:
        update: dict[str, Any] = {"$set": {name: value for name, value in new.items() if value is not None}}
        update |= {"$unset": {name: "" for name, value in new.items() if value is None}}
        update |= {} if charge is None else {"$push": {"charges": charge}}
        reply = self.payments.update_one({**self.key, **held}, {name: change for name, change in update.items() if change})
        return bool(reply.matched_count)

    def charged(self) -> list[str]:
        return list(self.provider.find_one({"_id": "all"})["charges"])


def shop(stores: Mapping[str, Any]) -> Shop:
    return CollectionShop(stores) if hasattr(stores["payments"], "find_one") else TableShop(stores)


def charged_and_recorded(stores: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The keys of what the provider has charged, and of what the payment has recorded."""
    here = shop(stores)
    return sorted(here.charged()), sorted(here.payment()["charges"])


def times_charged_and_recorded(stores: Mapping[str, Any]) -> tuple[int, int]:
    charged, recorded = charged_and_recorded(stores)
    return len(charged), len(recorded)


def _appending(charge_id: str, **values: str) -> dict[str, Any]:
    return {
        "UpdateExpression": "SET charges = list_append(charges, :more)",
        "ExpressionAttributeValues": {":more": [charge_id], **{f":{name}": value for name, value in values.items()}},
    }
