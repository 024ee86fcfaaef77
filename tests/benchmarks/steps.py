"""What a step costs around an effect outside of the entity, against Powertools' idempotency around the same effect and write.

The effect itself takes no time here. Each turn goes to an entity of its own, which is there before, as a step needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

from onewrite import Begun, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.values import typed_values
from onewrite.testing import lambda_context
from onewrite.testing.servers.engines import Dynoxide
from tests.benchmarks.measure import Contender, Plan, Row, fresh_messages, ratio, take_turns
from tests.benchmarks.speed_dynamodb import BUSINESS, TABLE, orders
from tests.engines.stores import create_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

RECORDS = "idempotency"
AGAINST_POWERTOOLS = 1.0
_LEASE, _DAY = timedelta(minutes=1), timedelta(days=1)

Deliver = Callable[[Message, str], object]


def rows(plan: Plan) -> Iterator[Row]:
    with Dynoxide() as server, orders(server) as client:
        create_table(client, RECORDS)
        yield _duel(plan, client)


# ---------------------------------------------------------------- the two ways


def charge(key: str) -> str:
    return f"charge-{key}"


def step(client: DynamoDBClient) -> Deliver:
    """Begin, effect, finish."""
    store = GuardedTable(client, SeenIds(), table_name=TABLE)

    def deliver(message: Message, entity: str) -> object:
        key = {"id": entity}
        answer = store.begin(message, "charge", Key=key, lease=_LEASE, safe_for=_DAY)
        if not isinstance(answer, Begun):
            return answer
        return store.update_item(message, Key=key, **_update(charge(answer.key)), finishes=answer)

    return deliver


def powertools(client: DynamoDBClient) -> Deliver:
    """A record is put, the effect and the plain write happen, and the record is completed with the result."""
    records = DynamoDBPersistenceLayer(RECORDS, boto3_client=client)
    context: Any = lambda_context(remaining_ms=30_000)
    config = IdempotencyConfig(lambda_context=context)

    @idempotent_function(  # type: ignore[untyped-decorator]  # Powertools does not say what it gives
        data_keyword_argument="message_id", persistence_store=records, config=config
    )
    def write_once(message_id: str, message: Message, entity: str) -> str:
        charge_id = charge(message.child("charge"))
        update = _update(charge_id)
        update["ExpressionAttributeValues"] = typed_values(update["ExpressionAttributeValues"])
        client.update_item(TableName=TABLE, Key={"id": {"S": entity}}, **update)
        return charge_id

    return lambda message, entity: write_once(message_id=message.id, message=message, entity=entity)


def _update(charge_id: str) -> dict[str, Any]:
    """The write of all benchmarks, which also keeps the result of the effect."""
    expression = BUSINESS["UpdateExpression"].replace("SET ", "SET charge=:charge,")
    return {
        **BUSINESS,
        "UpdateExpression": expression,
        "ExpressionAttributeValues": {**BUSINESS["ExpressionAttributeValues"], ":charge": charge_id},
    }


# ---------------------------------------------------------------- time


def _duel(plan: Plan, client: DynamoDBClient) -> Row:
    messages = fresh_messages(plan)
    contenders: dict[str, Contender] = {}
    for name, deliver in {"ours": step(client), "theirs": powertools(client)}.items():
        for turn in range(len(messages)):
            client.put_item(TableName=TABLE, Item={"id": {"S": f"{name} {turn:06d}"}})
        contenders[name] = _contender(deliver, messages, name)
    took = take_turns(contenders, plan.rounds, warmup=plan.warmup, seed=plan.seed)
    what, rival = "begin and finish, dynoxide", "Powertools' idempotency around the write"
    return ratio(what, rival, took["ours"], took["theirs"], target=AGAINST_POWERTOOLS)


def _contender(deliver: Deliver, messages: list[Message], name: str) -> Contender:
    return lambda turn: deliver(messages[turn].part(name), f"{name} {turn:06d}")
