"""DynamoDB: requests and answers get lost on the way, and botocore repeats what it sends.

The write adds 1 each time it is applied, so an effect that is applied by both tries shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from onewrite import (
    Applied,
    Begun,
    Duplicate,
    Event,
    HighWaterMark,
    InSequence,
    Message,
    Outbox,
    Outcome,
    Rejected,
    SeenIds,
    Tombstones,
)
from onewrite.dynamodb import GuardedTable
from onewrite.testing.servers.engines import dynamo_client, dynamo_resource
from tests.engines.ledgers import LEDGERS, AnyLedger, ledgers
from tests.engines.stores import State, addition, addition_of, dynamo_state
from tests.support.proxy import Fault, FaultProxy

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.usefixtures("quick_retries")

Guard = Callable[[AnyLedger], GuardedTable]

M1 = Message("m-1", source="s", sequence=1)
M2 = Message("m-2", source="s", sequence=2)
LOST = [Fault.DROP_ANSWER, Fault.RESET, Fault.ERROR_500_AFTER]

lost = pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault.name)


@pytest.fixture(scope="module", params=["standard", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def clients(module_fault_proxy: FaultProxy, mode: str) -> Iterator[tuple[Any, Any]]:
    retries = {"mode": mode, "total_max_attempts": 3}
    client = dynamo_client(module_fault_proxy.endpoint, retries=retries, max_pool_connections=8)
    resource = dynamo_resource(module_fault_proxy.endpoint, retries=retries)
    yield client, resource
    client.close()
    resource.meta.client.close()


@pytest.fixture(params=["client", "lean", "Table"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def guard(kind: str, clients: tuple[Any, Any], fault_proxy: FaultProxy, table: str) -> Guard:
    """A guarded table behind the proxy, around a low-level client, with a first try of its own or without, or around a Table."""
    client, resource = clients
    if kind != "Table":
        return lambda ledger: GuardedTable(client, ledger, table_name=table, lean=kind == "lean")
    return lambda ledger: GuardedTable(resource.Table(table), ledger)


@pytest.fixture
def plain(clients: tuple[Any, Any], fault_proxy: FaultProxy, table: str) -> Guard:
    return lambda ledger: GuardedTable(clients[0], ledger, table_name=table)


@pytest.fixture
def state(dynamo: DynamoDBClient, table: str) -> Callable[[], State]:
    return lambda: dynamo_state(dynamo, table)


def add(table: GuardedTable, message: Message = M1, **native: Any) -> Outcome:
    return table.update_item(message, **addition(message, "e"), **native)


@ledgers
def test_write_is_applied_without_retried_flag_if_request_is_lost(
    guard: Guard, ledger: AnyLedger, fault_proxy: FaultProxy, state: Callable[[], State]
) -> None:
    fault_proxy.plan(Fault.DROP_REQUEST)
    assert add(guard(ledger)) == Applied(M1)
    assert fault_proxy.operations == ["UpdateItem"] * 2
    assert state() == (1, ["m-1"])


@lost
@ledgers
def test_write_is_applied_if_response_is_lost(
    guard: Guard, ledger: AnyLedger, fault: Fault, fault_proxy: FaultProxy, state: Callable[[], State]
) -> None:
    table = guard(ledger)
    fault_proxy.plan(fault)
    assert add(table) == Applied(M1, retried=True)
    assert fault_proxy.past_faults == [fault]
    assert isinstance(add(table), Duplicate)
    assert state() == (1, ["m-1"])


@lost
def test_refusal_is_remembered_if_response_is_lost(
    guard: Guard, dynamo: DynamoDBClient, table: str, fault: Fault, fault_proxy: FaultProxy, state: Callable[[], State]
) -> None:
    dynamo.put_item(TableName=table, Item={"id": {"S": "e"}, "closed": {"BOOL": True}})
    orders = guard(InSequence())
    is_open = {"ConditionExpression": "attribute_not_exists(closed)", "rejected_ok": True}
    fault_proxy.plan(Fault.PASS, fault)
    assert add(orders, M1, **is_open) == Rejected(M1, {"id": "e", "closed": True}, settled=True)
    assert fault_proxy.operations == ["UpdateItem"] * 3
    assert isinstance(add(orders, M1, **is_open), Duplicate)
    assert isinstance(add(orders, M2), Applied)
    assert state() == (1, ["m-2"])


def test_entity_is_returned_if_response_is_lost(guard: Guard, fault_proxy: FaultProxy) -> None:
    table = guard(SeenIds())
    fault_proxy.plan(Fault.RESET)
    entity = {"id": "e", "n": 1, "effects": ["m-1"]}
    assert add(table, ReturnValues="ALL_NEW") == Applied(M1, entity, retried=True)
    assert add(table, ReturnValues="ALL_NEW") == Duplicate(M1, entity)


@ledgers
def test_redelivery_is_a_duplicate_if_retries_are_exhausted(
    guard: Guard, kind: str, ledger: AnyLedger, fault_proxy: FaultProxy, state: Callable[[], State]
) -> None:
    table = guard(ledger)
    fault_proxy.plan(*[Fault.DROP_ANSWER] * (4 if kind == "lean" else 3))
    with pytest.raises(ConnectionClosedError):
        add(table)
    assert isinstance(add(table), Duplicate)
    assert state() == (1, ["m-1"])


@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.few(2)
def test_transaction_conflict_is_retried(
    guard: Guard, fault_proxy: FaultProxy, state: Callable[[], State], times: int
) -> None:
    fault_proxy.plan(*[Fault.CONFLICT] * times)
    assert add(guard(SeenIds())) == Applied(M1)
    assert fault_proxy.operations == ["UpdateItem"] * (times + 1)
    assert state() == (1, ["m-1"])


def test_lasting_transaction_conflict_is_raised(plain: Guard, fault_proxy: FaultProxy, state: Callable[[], State]) -> None:
    fault_proxy.plan(*[Fault.CONFLICT] * 6)
    with pytest.raises(ClientError, match="TransactionConflictException"):
        add(plain(SeenIds()))
    assert len(fault_proxy.operations) == 6
    assert state() == (0, [])


def test_write_is_recognized_if_response_is_lost_between_conflicts(
    plain: Guard, fault_proxy: FaultProxy, state: Callable[[], State]
) -> None:
    fault_proxy.plan(Fault.CONFLICT, Fault.RESET, Fault.CONFLICT)
    assert add(plain(SeenIds())) == Applied(M1, retried=True)
    assert state() == (1, ["m-1"])


@lost
@ledgers
def test_effect_completes_if_each_response_is_lost(
    guard: Guard, ledger: AnyLedger, fault: Fault, fault_proxy: FaultProxy, state: Callable[[], State]
) -> None:
    table = guard(ledger)
    created = Message("created", source="another", sequence=1)
    add(table, created)
    asked: Any = {"Key": addition(M1, "e")["Key"], "lease": timedelta(minutes=1), "key_valid_for": timedelta(days=1)}
    fault_proxy.plan(fault)
    effect = table.begin_effect(M1, "charge", **asked)
    assert isinstance(effect, Begun)
    fault_proxy.plan(fault)
    table.release_effect(effect)
    fault_proxy.plan(fault)
    taken = table.begin_effect(M1, "charge", **asked)
    assert isinstance(taken, Begun)
    assert taken.key == effect.key
    fault_proxy.plan(fault)
    assert add(table, finishes=taken) == Applied(M1, retried=True)
    assert fault_proxy.past_faults == [fault] * 4
    assert isinstance(table.begin_effect(M1, "charge", **asked), Duplicate)
    assert state() == (2, ["created", "m-1"])


PAID = Event("Paid", 1)
ASKED: Any = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(days=1)}
MOVING: dict[str, AnyLedger] = {
    "ids after marks": SeenIds(name="seen", previous=HighWaterMark(name="marks")),
    "marks after ids after other ids": HighWaterMark(name="marks", previous=SeenIds(previous=SeenIds(None))),
}
# What another writer does to the entity, given its store and the number of the next message, before the client sends again.
MEANWHILE: dict[str, Callable[[GuardedTable, str, int], object]] = {
    "nothing": lambda _, __, ___: None,
    "another message": lambda store, entity, n: store.update_item(numbered(n), **addition(numbered(n), entity), emit=[PAID]),
    "many messages": lambda store, entity, n: [
        store.update_item(numbered(each), **addition(numbered(each), entity)) for each in range(n, n + 12)
    ],
    "an effect": lambda store, entity, n: store.begin_effect(numbered(n), "charge", Key={"id": entity}, **ASKED),
    "a delete": lambda store, entity, n: store.delete_item(numbered(n), Key={"id": entity}),
}
VERBS = ["update", "update on a condition", "put", "remember", "delete", "update_batch", "finish", "perform_effect"]


def numbered(n: int) -> Message:
    return Message(f"m-{n}", source="s", sequence=n)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "ledger",
    [
        pytest.param(ledger, id=name, marks=[] if name in ("SeenIds", "HighWaterMark") else [pytest.mark.slow])
        for name, ledger in (LEDGERS | MOVING).items()
    ],
)
def test_write_is_settled_if_response_is_lost_despite_other_writes(
    clients: tuple[Any, Any],
    dynamo: DynamoDBClient,
    table: str,
    fault_proxy: FaultProxy,
    ledger: AnyLedger,
    verb: str,
    mode: str,
) -> None:
    """Of what others may do two are drawn for each verb, ledger and mode: the same each time."""
    now = [1_790_000_000.0]
    seams: Any = {"table_name": table, "clock": lambda: now[0], "outbox": Outbox("shop")}
    store, other = (
        GuardedTable(client, ledger, tombstones=Tombstones(timedelta(days=14)), **seams) for client in (clients[0], dynamo)
    )
    number = 1 if verb == "put" else 2
    m = numbered(number)
    for entity in random.Random(f"{verb} {ledger} {mode}").sample([*MEANWHILE], 2):
        meanwhile = MEANWHILE[entity]
        if verb != "put":
            other.update_item(numbered(1), **addition(numbered(1), entity))
        claim: Any = store.begin_effect(m, "charge", Key={"id": entity}, **ASKED) if verb == "finish" else None

        def lose(entity: str = entity, meanwhile: Any = meanwhile) -> None:
            def others() -> None:
                now[0] += 100.0
                meanwhile(other, entity, 5 if verb == "update_batch" else number + 1)

            fault_proxy.after_write = others
            fault_proxy.plan(Fault.DROP_ANSWER)

        def then(_: object, entity: str = entity, lose: Callable[[], None] = lose) -> Any:
            lose()
            return {name: value for name, value in addition(m, entity).items() if name != "Key"}

        if verb != "perform_effect":
            lose()
        match verb:
            case "update":
                found: list[Any] = [store.update_item(m, **addition(m, entity), emit=[PAID])]
            case "update on a condition":
                write = addition(m, entity)
                write["ExpressionAttributeValues"][":most"] = 2
                found = [store.update_item(m, **write, ConditionExpression="n < :most", ReturnValues="ALL_NEW")]
            case "put":
                found = [store.put_item(m, Item={"id": entity, "n": 1, "effects": [m.id]}, emit=[PAID])]
            case "remember":
                found = [store.remember(m, Key={"id": entity}, emit=[PAID])]
            case "delete":
                found = [store.delete_item(m, Key={"id": entity}, ReturnValues="ALL_OLD", emit=[PAID])]
            case "update_batch":
                found = store.update_batch(
                    [numbered(n) for n in (2, 3, 4)],
                    lambda fresh: addition_of([each.id for each in fresh], entity),  # noqa: B023  # called at once
                )
            case "finish":
                found = [store.update_item(m, **addition(m, entity), finishes=claim, emit=[PAID])]
            case _:
                found = [store.perform_effect(m, "charge", lambda _: 1, Key={"id": entity}, **ASKED, then=then)]
        assert all(each.settled for each in found), entity
        assert all(each.retried for each in found if isinstance(each, Applied)), entity
        if entity in ("nothing", "an effect"):  # which leave the token of this call
            assert {type(each) for each in found} == {Applied}
        assert fault_proxy.after_write is None
        if "delete" not in (verb, entity.removeprefix("a ")):
            assert dynamo_state(dynamo, table, entity).effects.count(m.id) == (verb != "remember")
