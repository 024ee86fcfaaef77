"""DynamoDB: batches of messages that overlap, from many threads, while requests and answers get lost on the way.

The write adds 1 for each message and puts its id into a list, so a lost effect and a doubled one both show.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
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

THREADS, MESSAGES = 8, 80
LOST = [Fault.DROP_ANSWER, Fault.RESET, Fault.ERROR_500_AFTER]


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second's pause before a retry proves nothing here. And a client that many tests share has retries for all of them."""
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.01)
    monkeypatch.setattr(RetryQuota, "acquire", lambda *_: True)


@pytest.fixture
def folding(fault_proxy: FaultProxy, table: str) -> Iterator[Callable[[AnyLedger], Fold]]:
    client = dynamo_client(fault_proxy.endpoint, retries={"total_max_attempts": 3}, max_pool_connections=THREADS)

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


FAULTS = {Fault.DROP_REQUEST: 0.05, Fault.DROP_ANSWER: 0.08, Fault.RESET: 0.05, Fault.ERROR_500_AFTER: 0.08}


@pytest.mark.parametrize("faults", [{}, FAULTS], ids=["calm", "lost"])
@ledgers
@pytest.mark.few(2)
def test_overlapping_folds_from_threads_apply_each_message_once(
    folding: Callable[[AnyLedger], Fold],
    ledger: AnyLedger,
    faults: dict[Fault, float],
    fault_proxy: FaultProxy,
    dynamo: DynamoDBClient,
    table: str,
) -> None:
    """All threads get all messages of one source, cut into other batches; what raises or is deferred is redelivered."""
    fault_proxy.chance(random.Random(23), faults)
    every = messages(*range(1, MESSAGES + 1))
    with ThreadPoolExecutor(THREADS) as pool:
        outcomes = [
            seen for done in pool.map(lambda n: _delivered(folding(ledger), every, n), range(THREADS)) for seen in done
        ]
    state = dynamo_state(dynamo, table)
    assert state == (MESSAGES, [message.id for message in every]) if ledger.layout == "marks" else state.n == MESSAGES
    assert sorted(state.effects) == sorted([message.id for message in every])
    said = Counter([seen.message.id for seen in outcomes if isinstance(seen, Applied)])
    assert max(said.values()) == 1
    assert {seen.message.id for seen in outcomes if seen.settled} == set(state.effects)
    if faults:
        assert set(fault_proxy.past_faults) >= set(FAULTS)
    else:
        assert len(said) == MESSAGES


def _delivered(fold: Fold, every: list[Message], seed: int) -> list[Outcome]:
    choice, outcomes, at = random.Random(seed), list[Outcome](), 0
    while at < len(every):
        batch = every[max(0, at - choice.randint(0, 3)) : at + choice.randint(1, 12)]
        try:
            heard = fold(batch)
        except (BotoCoreError, ClientError):
            continue
        outcomes += heard
        at = 1 + max([every.index(seen.message) for seen in heard if seen.settled])
    return outcomes
