"""The billing service of infra/examples/application charges a card once, in every schedule."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import mongomock
import pytest

from onewrite import Message, Outbox, SeenIds
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay
from onewrite.testing import explore
from tests.support.pages import ROOT

PLACED = Message("evt-1", body={"orderId": "o-1", "cents": 1250}, attributes={"type": "OrderPlaced"})


@pytest.fixture
def billing() -> ModuleType:
    path = ROOT / "infra" / "examples" / "application" / "billing.py"
    spec = importlib.util.spec_from_file_location("billing_of_the_application", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_billing_charges_once_and_emits_one_event(billing: ModuleType) -> None:
    now = [0.0]

    def world() -> dict[str, Any]:
        shop: Any = mongomock.MongoClient().shop
        return {"bills": shop.bills, "provider": shop.provider}

    def store(stores: dict[str, Any]) -> GuardedCollection:
        return GuardedCollection(stores["bills"], SeenIds(), outbox=Outbox("shop/bills"), clock=lambda: now[0])

    def build(stores: dict[str, Any]) -> Any:
        now[0] = 1_790_000_000

        def charge(cents: int, *, key: str, timeout: float) -> str:  # as the provider's function has it
            stores["provider"].update_one({"_id": key}, {"$set": {"cents": cents}}, upsert=True)
            return key

        handle = billing.make_handler(lambda: store(stores), charge)

        def deliver(message: Message) -> Any:
            now[0] += 120  # the lease of a crashed worker has ended
            return handle(message)

        return deliver

    def charges_and_events(stores: dict[str, Any]) -> Any:
        paid = Relay(store(stores), lambda _: None).flush({"_id": "o-1"}).published
        return len(list(stores["provider"].find())), [event.type for event in paid]

    explore(build, [PLACED], world, charges_and_events).assert_effectively_once()
