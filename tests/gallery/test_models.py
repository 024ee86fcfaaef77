"""Handlers that know only the models of PynamoDB and mongoengine, wrong ones and right ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mongoengine
import mongomock
import pytest
from mongoengine.connection import disconnect
from pynamodb.exceptions import PutError

from onewrite import Message
from tests.gallery.cases import Worlds, balances, deposit
from tests.gallery.models import Customer, UnversionedCustomer, VersionedCustomer

TWO = [deposit(1), deposit(2)]
Handler = Callable[[Message], None]


def _changed(model: Any, message: Message) -> Any:
    """The customer with this message, or None if it has it already."""
    customer = next(iter(model.query("c1", consistent_read=True)), None) or model("c1", balance=0)
    if message.id in (customer.seen or ()):
        return None
    customer.balance += message.body["amount"]
    customer.seen = {*(customer.seen or ()), message.id}
    return customer


def saved(message: Message) -> None:
    """It saves the whole customer, with what another delivery has not written yet."""
    customer = _changed(UnversionedCustomer, message)
    if customer is not None:
        customer.save()


def saved_with_a_version(message: Message) -> None:
    """PynamoDB puts the version into the condition. What is refused is read again."""
    while (customer := _changed(VersionedCustomer, message)) is not None:
        try:
            customer.save()
        except PutError as error:
            if error.cause_response_code != "ConditionalCheckFailedException":
                raise
        else:
            return


def document_saved(message: Message) -> None:
    """It saves the fields that it has changed, and the balance is the one that it has read."""
    customer = Customer.objects(id="c1").first()
    if message.id not in customer.seen:
        customer.balance += message.body["amount"]
        customer.seen.append(message.id)
        customer.save()


def document_updated(message: Message) -> None:
    """The id is in the filter, and the sum is left to the server."""
    Customer.objects(id="c1", seen__ne=message.id).update_one(inc__balance=message.body["amount"], push__seen=message.id)


@pytest.fixture
def collection() -> Iterator[Callable[[], Any]]:
    mongoengine.connect("shop", mongo_client_class=mongomock.MongoClient, uuidRepresentation="standard")
    Customer._collection = None

    def world() -> Any:
        customers = mongoengine.get_connection().shop.customers
        customers.delete_many({})
        customers.insert_one({"_id": "c1", "balance": 0, "seen": []})
        return customers

    yield world
    disconnect()


@pytest.mark.parametrize("handle", [saved, document_saved])
@pytest.mark.few(1)
def test_a_model_that_is_read_and_saved_loses_a_message(
    explore: Any, worlds: Worlds, collection: Callable[[], Any], handle: Handler
) -> None:
    world = worlds("dynamodb", ("customers",)) if handle is saved else collection
    found = explore(lambda _: handle, messages=TWO, world=world, observe=balances).counterexample
    assert found.expected == ({"c1": 110},)
    assert found.observed in ({"c1": 10}, {"c1": 100})
    assert len(found.steps) == 4


@pytest.mark.parametrize("handle", [saved_with_a_version, document_updated])
@pytest.mark.few(1)
def test_a_model_whose_write_has_a_condition_is_right(
    explore: Any, worlds: Worlds, collection: Callable[[], Any], handle: Handler
) -> None:
    world = worlds("dynamodb", ("customers",)) if handle is saved_with_a_version else collection
    report = explore(lambda _: handle, messages=TWO, world=world, observe=balances)
    report.assert_effectively_once()
    assert report.exhausted
