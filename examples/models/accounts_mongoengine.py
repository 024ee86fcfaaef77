"""Accounts as documents of MongoEngine."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Generic, TypeVar

from mongoengine import (
    DateTimeField,
    DecimalField,
    Document,
    EmbeddedDocument,
    EmbeddedDocumentListField,
    EnumField,
    IntField,
    StringField,
)
from mongoengine.queryset import QuerySet, transform
from pymongo import ReturnDocument

from onewrite import Message, Outcome, SeenIds
from onewrite.mongodb import GuardedCollection

D = TypeVar("D", bound=Document)


class GuardedDocuments(Generic[D]):
    """The bridge: a queryset and its keywords become a guarded update, and its document an instance again."""

    def __init__(self, model: type[D]) -> None:
        self.model = model
        self.store = GuardedCollection(model._get_collection(), SeenIds())

    def create(self, message: Message, document: D) -> Outcome:
        """Create the document, or find out that this message has done so already."""
        document.validate()
        return self.store.insert_one(message, document.to_mongo().to_dict())

    def update_one(self, message: Message, queryset: QuerySet, **update: Any) -> tuple[Outcome, D | None]:
        """As `queryset.update_one(**update)`."""
        if "version" in self.model._fields:  # so an update under the version that was read before is refused
            update["inc__version"] = 1
        outcome = self.store.find_one_and_update(
            message,
            queryset._query,
            transform.update(self.model, **update),
            return_document=ReturnDocument.AFTER,
        )
        entity = getattr(outcome, "entity", None)
        return outcome, self.model._from_son(entity) if entity else None


# --- the service ---------------------------------------------------------------------------------------------------------


class State(StrEnum):
    OPEN = "open"
    FROZEN = "frozen"


class Booking(EmbeddedDocument):  # type: ignore[misc]  # MongoEngine says nothing of its types
    reference = StringField(required=True)
    amount = DecimalField(precision=2, force_string=False)
    at = DateTimeField()


class Account(Document):  # type: ignore[misc]
    number = StringField(primary_key=True)
    state = EnumField(State, default=State.OPEN)
    cents = IntField(default=0)
    bookings = EmbeddedDocumentListField(Booking)
    version = IntField(default=0)

    meta = {"collection": "accounts", "strict": False}  # noqa: RUF012  # else no reader understands the ledger


class Accounts:
    """What the service does to accounts. Reads are MongoEngine's own."""

    def __init__(self) -> None:
        self._accounts = GuardedDocuments(Account)

    def open(self, message: Message, number: str) -> Outcome:
        return self._accounts.create(message, Account(number=number))

    def deposit(self, message: Message, number: str, cents: int, at: datetime) -> tuple[Outcome, Account | None]:
        booking = Booking(reference=message.id, amount=Decimal(cents) / 100, at=at)
        return self._accounts.update_one(message, Account.objects(number=number), inc__cents=cents, push__bookings=booking)

    def withdraw(self, message: Message, number: str, cents: int) -> tuple[Outcome, Account | None]:
        covered = Account.objects(number=number, cents__gte=cents, state=State.OPEN)
        return self._accounts.update_one(message, covered, dec__cents=cents)

    def freeze(self, message: Message, number: str) -> Outcome:
        outcome, _ = self._accounts.update_one(
            message, Account.objects(number=number, state=State.OPEN), set__state=State.FROZEN
        )
        return outcome

    def get(self, number: str) -> Account:
        return Account.objects.get(number=number)
