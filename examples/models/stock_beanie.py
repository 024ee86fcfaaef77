"""Stock as documents of Beanie."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Any, Generic, TypeVar
from uuid import NAMESPACE_OID, UUID, uuid5

from beanie import DecimalAnnotation, Document
from beanie.odm.queries.update import UpdateOne
from beanie.odm.utils.dump import get_dict
from beanie.odm.utils.parsing import parse_obj
from beanie.operators import Inc, Push, Set
from bson import Binary
from pydantic import BaseModel
from pymongo import ReturnDocument

from onewrite import Message, Outcome, SeenIds
from onewrite.mongodb import AsyncGuardedCollection

D = TypeVar("D", bound=Document)


class GuardedDocuments(Generic[D]):
    """The bridge: a query of Beanie becomes a guarded update, and its document an instance again."""

    def __init__(self, model: type[D]) -> None:
        self.model = model
        self.store = AsyncGuardedCollection(model.get_pymongo_collection(), SeenIds())

    async def create(self, message: Message, document: D) -> Outcome:
        """Create the document, or find out that this message has done so already."""
        settings = self.model.get_settings()
        if settings.use_revision:
            document.revision_id = _revision(message)
        return await self.store.insert_one(message, get_dict(document, to_db=True, keep_nulls=settings.keep_nulls))

    async def update(self, message: Message, query: UpdateOne) -> tuple[Outcome, D | None]:
        """Run an update that begins with `find_one`, such as `Stock.find_one(...).update(Inc(...))`."""
        change: dict[str, Any] = query.update_query
        if self.model.get_settings().use_revision:  # so a full save() of what was read before is refused
            change["$set"] = {**change.get("$set", {}), "revision_id": Binary.from_uuid(_revision(message))}
        outcome = await self.store.find_one_and_update(
            message, query.find_query, change, return_document=ReturnDocument.AFTER, **query.pymongo_kwargs
        )
        entity = getattr(outcome, "entity", None)
        return outcome, parse_obj(self.model, entity) if entity else None  # type: ignore[return-value]


def _revision(message: Message) -> UUID:
    """A redelivery must write what the first delivery wrote, so a random revision won't do."""
    return uuid5(NAMESPACE_OID, message.child("revision"))


# --- the service ---------------------------------------------------------------------------------------------------------


class Shelf(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


class Hold(BaseModel):
    order: str
    count: int
    price: DecimalAnnotation


class Stock(Document):
    id: str  # type: ignore[assignment]  # Beanie's own documents say ObjectId
    left: int = 0
    price: DecimalAnnotation = Decimal(0)
    shelf: Shelf = Shelf.OPEN
    holds: list[Hold] = []  # noqa: RUF012  # as pydantic asks for it

    class Settings:
        name = "stock"
        use_revision = True


class StockRoom:
    """What the service does to stock. Reads are Beanie's own."""

    def __init__(self) -> None:
        self._stock = GuardedDocuments(Stock)

    async def open_shelf(self, message: Message, sku: str, price: Decimal) -> Outcome:
        return await self._stock.create(message, Stock(id=sku, price=price))

    async def receive(self, message: Message, sku: str, count: int) -> tuple[Outcome, Stock | None]:
        return await self._stock.update(message, Stock.find_one(Stock.id == sku).update(Inc({Stock.left: count})))

    async def hold(self, message: Message, sku: str, hold: Hold) -> tuple[Outcome, Stock | None]:
        enough = Stock.find_one(Stock.id == sku, Stock.left >= hold.count, Stock.shelf == Shelf.OPEN)
        return await self._stock.update(message, enough.update(Inc({Stock.left: -hold.count}), Push({Stock.holds: hold})))

    async def reprice(self, message: Message, sku: str, price: Decimal) -> tuple[Outcome, Stock | None]:
        return await self._stock.update(message, Stock.find_one(Stock.id == sku).update(Set({Stock.price: price})))

    async def close_shelf(self, message: Message, sku: str) -> Outcome:
        empty = Stock.find_one(Stock.id == sku, Stock.left == 0)
        outcome, _ = await self._stock.update(message, empty.update(Set({Stock.shelf: Shelf.CLOSED})))
        return outcome

    async def get(self, sku: str) -> Stock | None:
        return await Stock.get(sku)
