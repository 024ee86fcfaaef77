"""Both engines: a request or its response is lost, or the worker crashes, while a mark moves over a message that the old ledger holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from pymongo import MongoClient
from pymongo.errors import AutoReconnect

from onewrite import Applied, Duplicate, EntityTooLarge, HighWaterMark, InSequence, Message, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.size import MAX_ITEM_BYTES
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Dynoxide, dynamo_client
from tests.contract.stores import DynamoShop, MongoShop, Place, Shop
from tests.engines.stores import places
from tests.support.mongo_proxy import MongoProxy
from tests.support.proxy import Fault, FaultProxy

pytestmark = pytest.mark.usefixtures("quick_retries")

OLD = SeenIds()
NEW = InSequence(also=(HighWaterMark(), OLD))
M1, M2, M3, M4 = (Message(f"m{n}", source="s", sequence=n) for n in range(1, 5))


@dataclass
class Proxied:
    """Shops behind a proxy, and after how many attempts their client raises what."""

    make: Callable[[Ledger], Shop]
    proxy: FaultProxy | MongoProxy
    attempts: int
    lost: type[Exception]


VERBS: dict[str, Callable[[Any, str], Any]] = {
    "update": lambda shop, order: shop.add(M1, order),
    "record": lambda shop, order: shop.record(M1, order),
    "begin": lambda shop, order: shop.begin(M1, order),
    "transact": lambda shop, order: shop.transact(M1, shop.adding(order), shop.creating(f"{order} {M1.id}")),
    "fold": lambda shop, order: shop.fold([M1, M2], order)[0],
}


@pytest.fixture(params=["dynamodb", "mongodb"])
def proxied(request: pytest.FixtureRequest) -> Iterator[Proxied]:
    name, place = next(places), Place("p")
    if request.param == "mongodb":
        mongo_proxy: MongoProxy = request.getfixturevalue("mongo_proxy")
        options: dict[str, Any] = {"serverSelectionTimeoutMS": 5000, "serverMonitoringMode": "poll"}
        with MongoClient[dict[str, Any]](mongo_proxy.uri, **options) as mongo:
            documents, direct = mongo.test[name], request.getfixturevalue("mongo").test[name]
            yield Proxied(
                lambda ledger: MongoShop("mongod", GuardedCollection(documents, ledger), direct, _same, place),
                *(mongo_proxy, 2, AutoReconnect),
            )
        return
    fault_proxy: FaultProxy = request.getfixturevalue("fault_proxy")
    table = request.getfixturevalue("dynoxide").table(name)
    client = dynamo_client(fault_proxy.endpoint, retries={"mode": "standard", "total_max_attempts": 3})
    yield Proxied(
        lambda ledger: DynamoShop("dynamodb", GuardedTable(client, ledger, table_name=name), table, _same, place),
        *(fault_proxy, 3, BotoCoreError),
    )
    client.close()
    table.meta.client.close()


def _same(value: Any) -> Any:
    return value


@pytest.mark.parametrize("crashes", [False, True], ids=["lost once", "crash"])
@pytest.mark.parametrize("fault", [Fault.DROP_REQUEST, Fault.DROP_ANSWER], ids=lambda fault: fault.name)
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_mark_moves_despite_fault_or_crash(
    proxied: Proxied, verb: Callable[[Shop, str], Any], fault: Fault, crashes: bool
) -> None:
    old, new, proxy = proxied.make(OLD), proxied.make(NEW), proxied.proxy
    for order in ("calm", "o"):
        assert [type(old.add(message, order)) for message in (M1, M2)] == [Applied] * 2
    proxy.operations.clear()
    assert type(verb(new, "calm")) is Duplicate
    writes = [name for name in proxy.operations if name in proxy.writes]
    proxy.plan(*[Fault.PASS] * (len(writes) - 1), *[fault] * (proxied.attempts if crashes else 1))  # at the last write
    with pytest.raises(proxied.lost) if crashes else nullcontext():
        assert type(verb(new, "o")) is Duplicate
    assert proxy.planned_count == 0
    assert type(verb(new, "o")) is Duplicate
    assert [type(new.add(message, "o")) for message in (M2, M3, M4)] == [Duplicate, Applied, Applied]


def test_message_stays_unsettled_if_its_mark_does_not_fit(dynoxide: Dynoxide) -> None:
    name, key = next(places), {"orderId": "o"}
    table = dynoxide.table(name)
    add: dict[str, Any] = {"Key": key, "UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}
    assert type(GuardedTable(table, OLD).update_item(M1, **add)) is Applied
    for size in itertools.count(MAX_ITEM_BYTES - 60, -1):  # until it fits, and the mark doesn't
        with suppress(ClientError):
            table.update_item(
                Key=key, UpdateExpression="SET filler = :filler", ExpressionAttributeValues={":filler": "x" * size}
            )
            break
    with pytest.raises(EntityTooLarge):
        GuardedTable(table, NEW).update_item(M1, **add)
    table.meta.client.close()
