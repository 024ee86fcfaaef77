"""Handlers that know only PynamoDB's models, a wrong one and a right one."""

from __future__ import annotations

from typing import Any

from pynamodb.attributes import NumberAttribute, UnicodeAttribute, UnicodeSetAttribute, VersionAttribute
from pynamodb.exceptions import PutError
from pynamodb.models import Model

from onewrite import Message
from tests.gallery.cases import Worlds, balances, deposit

TWO = [deposit(1), deposit(2)]


class UnversionedCustomer(Model):
    class Meta:
        table_name = "customers"
        region = "eu-west-1"

    id = UnicodeAttribute(hash_key=True)
    balance = NumberAttribute(default=0)
    seen = UnicodeSetAttribute(null=True)


class VersionedCustomer(UnversionedCustomer):
    version = VersionAttribute()


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


def test_a_model_that_is_read_and_saved_loses_a_message(explore: Any, worlds: Worlds) -> None:
    world = worlds("dynamodb", ("customers",))
    found = explore(lambda _: saved, messages=TWO, world=world, observe=balances).counterexample
    assert found.expected == ({"c1": 110},)
    assert found.observed in ({"c1": 10}, {"c1": 100})
    assert len(found.steps) == 4


def test_a_model_whose_write_has_a_condition_is_right(explore: Any, worlds: Worlds) -> None:
    world = worlds("dynamodb", ("customers",))
    report = explore(lambda _: saved_with_a_version, messages=TWO, world=world, observe=balances)
    report.assert_effectively_once()
    assert report.exhausted
