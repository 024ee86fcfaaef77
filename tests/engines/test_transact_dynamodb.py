"""Several guarded items as one on a real engine: lost answers, conflicts, and many who transfer at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from onewrite import Applied, Duplicate, Event, Inbox, Message, Outbox, Outcome, SeenIds
from onewrite.dynamodb import GuardedTable, transact
from onewrite.outbox import Outgoing, Relay
from onewrite.testing.servers.engines import dynamo_client
from tests.engines.stores import billed, create_table
from tests.support.proxy import Fault, FaultProxy

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.usefixtures("quick_retries")

M1 = Message("m-1")
LOST = [Fault.DROP_ANSWER, Fault.RESET, Fault.ERROR_500_AFTER]


@pytest.fixture
def proxied(module_fault_proxy: FaultProxy, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(module_fault_proxy, "writes", frozenset({"TransactWriteItems"}))
    client = dynamo_client(module_fault_proxy.endpoint, retries={"mode": "standard", "total_max_attempts": 3})
    yield client
    client.close()


def moved(client: Any, table: str, message: Message = M1, *, cents: int = 5, **options: Any) -> Outcome:
    accounts = GuardedTable(client, SeenIds(), table_name=table)
    return transact(message, [change(accounts, "ann", -cents), change(accounts, "bob", cents)], **options)


def change(accounts: GuardedTable, name: str, cents: int, **native: Any) -> Any:
    update: dict[str, Any] = {"UpdateExpression": "ADD cents :c", "ExpressionAttributeValues": {":c": cents}}
    return accounts.updating(Key={"id": name}, **update, **native)


def balances(dynamo: DynamoDBClient, table: str, *names: str) -> list[int]:
    found = [dynamo.get_item(TableName=table, Key={"id": {"S": name}}, ConsistentRead=True) for name in names]
    return [int(each.get("Item", {}).get("cents", {"N": "0"})["N"]) for each in found]


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault.name)
def test_transaction_is_applied_once_if_response_is_lost(
    proxied: Any, fault_proxy: FaultProxy, dynamo: DynamoDBClient, table: str, fault: Fault
) -> None:
    fault_proxy.plan(fault)
    assert isinstance(moved(proxied, table), Applied)
    assert fault_proxy.past_faults == [fault]
    assert isinstance(moved(proxied, table), Duplicate)
    assert balances(dynamo, table, "ann", "bob") == [-5, 5]


def test_redelivery_is_a_duplicate_if_botocore_retries_are_exhausted(
    proxied: Any, fault_proxy: FaultProxy, dynamo: DynamoDBClient, table: str
) -> None:
    fault_proxy.plan(Fault.DROP_ANSWER, Fault.DROP_ANSWER, Fault.DROP_ANSWER)
    with pytest.raises(Exception, match="Connection"):
        moved(proxied, table)
    assert isinstance(moved(proxied, table), Duplicate)
    assert balances(dynamo, table, "ann", "bob") == [-5, 5]


def test_stored_token_proves_the_write_if_request_token_expired(
    proxied: Any, fault_proxy: FaultProxy, dynamo: DynamoDBClient, table: str
) -> None:
    class Forgetful:
        """Sends what it is given under another token, as if ten minutes had passed."""

        meta = proxied.meta
        update_item = proxied.update_item

        def transact_write_items(self, **request: Any) -> Any:
            first = proxied.transact_write_items(**request)
            assert first
            return proxied.transact_write_items(**{**request, "ClientRequestToken": f"x{request['ClientRequestToken'][1:]}"})

    assert moved(Forgetful(), table) == Applied(M1, retried=True)
    assert balances(dynamo, table, "ann", "bob") == [-5, 5]


def test_transaction_is_retried_if_botocore_stops_retrying_throttling(
    proxied: Any, fault_proxy: FaultProxy, dynamo: DynamoDBClient, table: str
) -> None:
    fault_proxy.plan(*[Fault.THROTTLE] * 5)
    assert isinstance(moved(proxied, table), Applied)
    assert fault_proxy.operations == ["TransactWriteItems"] * 6
    assert balances(dynamo, table, "ann", "bob") == [-5, 5]


def test_transaction_units_match_the_cost_table(dynamo: DynamoDBClient, table: str) -> None:
    """The table that docs/several.md shows."""
    accounts = GuardedTable(dynamo, SeenIds(), table_name=table)
    inbox = Inbox(dynamo, consumer="c", retention=timedelta(days=1), table_name=table)
    plain = GuardedTable(dynamo, None, table_name=table)

    def units(*participants: Any, **options: Any) -> float:
        message = Message(str(len(participants)) + str(options.keys()))
        with billed(dynamo, "TransactWriteItems") as found:
            assert isinstance(transact(message, list(participants), **options), Applied)
        return sum(found)

    add: Any = {"UpdateExpression": "ADD cents :c", "ExpressionAttributeValues": {":c": 1}}
    with billed(dynamo, "UpdateItem") as single:
        accounts.update_item(M1, Key={"id": "s"}, **add)
    assert single == [1]
    assert units(change(accounts, "a", 1), change(accounts, "b", 1)) == 4
    assert units(change(plain, "c", 1), inbox=inbox) == 4
    assert units(change(accounts, "d", 1), change(accounts, "e", 1), change(accounts, "f", 1)) == 6


def test_items_of_equal_keys_emit_their_own_events(dynamo: DynamoDBClient, table: str) -> None:
    names = [table, *[f"{table}-{n}" for n in range(3)]]
    for name in names[1:]:
        create_table(dynamo, name)
    stores = [GuardedTable(dynamo, SeenIds(), table_name=name, outbox=Outbox("shop")) for name in names]
    told: list[Outgoing] = []
    for message in (M1, Message("m-2")):
        writes: list[Any] = [
            each.updating(Key={"id": "ann"}, UpdateExpression="REMOVE x", emit=[Event("Paid", 1)]) for each in stores[:2]
        ]
        if message is M1:
            writes += [each.putting(Item={"id": "ann"}, emit=[Event("Paid", 1)]) for each in stores[2:]]
        assert isinstance(transact(message, writes), Applied)
    for each in stores:
        Relay(each, told.extend).sweep()
    assert len(told) == len({event.id for event in told}) == 6
    assert len({event.source for event in told}) == 4
