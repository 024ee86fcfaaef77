"""Tasks of one delivery that send through pymongo's asynchronous client, on a real mongod."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient

from onewrite.testing.explorer.explore import explore
from onewrite.testing.servers.engines import Mongod
from tests.gallery import right_tasks, wrong_tasks
from tests.gallery.books import MongoBooks
from tests.gallery.cases import balances, deposit

pytestmark = pytest.mark.measured


@pytest.fixture
def world(mongo: MongoClient[Any]) -> Callable[[], Any]:
    def made() -> Any:
        mongo.tasks.customers.drop()
        mongo.tasks.customers.insert_many([{"_id": "domestic", "balance": 2}, {"_id": "foreign", "balance": 3}])
        return mongo.tasks.customers

    return made


@pytest.fixture
def through_a_client(mongod: Mongod) -> Callable[[Any], Callable[[object], Any]]:
    return lambda build: lambda _: build(MongoBooks(AsyncMongoClient[Any](mongod.uri).tasks.customers))


@pytest.mark.parametrize("name", ["gathered_sums", "grouped_sums", "created_and_awaited_later", "booked_as_they_come"])
def test_lost_update_between_tasks_is_found(world: Any, through_a_client: Any, name: str) -> None:
    build = through_a_client(getattr(wrong_tasks, name))
    report = explore(build, [deposit(1)], world, balances, deliveries=1, faults=0)
    assert report.counterexample is not None
    assert report.nondeterministic is None


@pytest.mark.parametrize("name", ["gathered", "grouped", "cached", "in_time_or_again"])
@pytest.mark.few(1)
def test_correct_tasks_pass(world: Any, through_a_client: Any, name: str) -> None:
    report = explore(through_a_client(getattr(right_tasks, name)), [deposit(1)], world, balances)
    report.assert_effectively_once()
    assert report.exhausted
