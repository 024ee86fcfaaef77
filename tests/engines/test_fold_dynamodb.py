"""DynamoDB: a batch of messages in one write, whose answer gets lost on the way.

The write adds 1 for each message and puts its id into a list, so a lost effect and a doubled one both show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from botocore.retries.quota import RetryQuota
from botocore.retries.standard import ExponentialBackoff

from onewrite import Applied, Duplicate, InSequence, Message, Outcome
from onewrite.dynamodb import GuardedTable
from onewrite.testing.servers.engines import dynamo_client
from tests.engines.ledgers import AnyLedger, ledgers
from tests.engines.stores import dynamo_state
from tests.support.proxy import Fault, FaultProxy

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Fold = Callable[[list[Message]], list[Outcome]]

LOST = [Fault.DROP_ANSWER, Fault.RESET, Fault.ERROR_500_AFTER]


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second's pause before a retry proves nothing here. And a client that many tests share has retries for all of them."""
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.01)
    monkeypatch.setattr(RetryQuota, "acquire", lambda *_: True)


@pytest.fixture
def folding(fault_proxy: FaultProxy, table: str) -> Iterator[Callable[[AnyLedger], Fold]]:
    client = dynamo_client(fault_proxy.endpoint, retries={"total_max_attempts": 3})

    def made(ledger: AnyLedger) -> Fold:
        guarded = GuardedTable(client, ledger, table_name=table)
        return lambda batch: guarded.fold(batch, write)

    yield made
    client.close()


def write(fresh: list[Message], **native: Any) -> dict[str, Any]:
    effects = [message.id for message in fresh]
    return {
        "Key": {"id": "e"},
        "UpdateExpression": "SET effects=list_append(if_not_exists(effects,:none),:effects) ADD n :n",
        "ExpressionAttributeValues": {":none": [], ":effects": effects, ":n": len(fresh)},
        **native,
    }


def messages(*numbers: int, source: str = "s") -> list[Message]:
    return [Message(f"{source}-{n}", source=source, sequence=n) for n in numbers]


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault.name)
@ledgers
def test_fold_is_applied_once_if_response_is_lost(
    folding: Callable[[AnyLedger], Fold],
    ledger: AnyLedger,
    fault: Fault,
    fault_proxy: FaultProxy,
    dynamo: DynamoDBClient,
    table: str,
) -> None:
    fold, batch = folding(ledger), messages(1, 2, 3)
    fault_proxy.plan(fault)
    assert fold(batch) == [Applied(message, retried=True) for message in batch]
    assert fault_proxy.operations == ["UpdateItem"] * 2
    assert not any(isinstance(outcome, Applied) for outcome in fold(batch))
    assert dynamo_state(dynamo, table) == (3, ["s-1", "s-2", "s-3"])


def test_fold_is_applied_if_response_of_second_round_is_lost(
    folding: Callable[[AnyLedger], Fold], fault_proxy: FaultProxy, dynamo: DynamoDBClient, table: str
) -> None:
    fold = folding(InSequence())
    fold(messages(1, 2))
    fault_proxy.plan(Fault.PASS, Fault.RESET)
    outcomes = fold(messages(2, 3, 4))
    assert outcomes[1:] == [Applied(message, retried=True) for message in messages(3, 4)]
    assert isinstance(outcomes[0], Duplicate)
    assert dynamo_state(dynamo, table).n == 4
