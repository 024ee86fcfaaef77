"""What a step costs around an effect outside of the entity, against Powertools' idempotency around the same effect and write.

The effect itself takes no time here. Each turn goes to an entity of its own, which is there before, as a step needs it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

from onewrite import Applied, Begun, Duplicate, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.values import typed_values
from onewrite.testing import lambda_context
from onewrite.testing.servers.engines import Dynoxide
from tests.benchmarks.measure import Contender, Plan, Row, Unit, WrongOutcomeError, message_ids, ratio, take_turns
from tests.benchmarks.speed_dynamodb import BUSINESS, TABLE, orders

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

RECORDS = "idempotency"
AGAINST_POWERTOOLS = 1.0
_LEASE, _DAY = timedelta(minutes=1), timedelta(days=1)
_SIZES = {"an entity of 100 bytes": 0, "an entity of 4.5 KB": 4_400}
_DIFFERENT = 20  # messages whose requests and units are counted

Deliver = Callable[[Message, str], object]
Effect = Callable[[str], str]


def rows(plan: Plan) -> Iterator[Row]:
    with Dynoxide() as server, orders(server) as client, _records(client):
        for what, way, rival, theirs, target in (
            (
                "begin and finish",
                step(client),
                "Powertools' idempotency around the write",
                powertools(client),
                AGAINST_POWERTOOLS,
            ),
            ("begin and finish", step(client), "the guarded write alone", alone(client), None),
        ):
            yield _duel(plan, client, what, way, rival, theirs, target)
        with _counting(server) as counts:
            for name, make in (("begin and finish", step), ("Powertools' idempotency and the write", powertools)):
                yield from _count_rows(client, name, make(counts.client), counts)


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


def alone(client: DynamoDBClient) -> Deliver:
    """The effect, and then the guarded write."""
    store = GuardedTable(client, SeenIds(), table_name=TABLE)

    def deliver(message: Message, entity: str) -> object:
        return store.update_item(message, Key={"id": entity}, **_update(charge(message.child("charge"))))

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


def _duel(
    plan: Plan, client: DynamoDBClient, what: str, ours: Deliver, rival: str, theirs: Deliver, target: float | None
) -> Row:
    messages = [Message(message_id) for message_id in message_ids(plan.warmup + plan.rounds, plan.seed)]
    ways = {"ours": ours, "theirs": theirs}
    prefix = f"{what} {rival}"
    contenders: dict[str, Contender] = {}
    for name, deliver in ways.items():
        for turn in range(len(messages)):
            client.put_item(TableName=TABLE, Item={"id": {"S": f"{prefix} {name} {turn:06d}"}})
        contenders[name] = _contender(deliver, messages, f"{prefix} {name}")
    took = take_turns(contenders, plan.rounds, warmup=plan.warmup, seed=plan.seed)
    return ratio(f"{what}, dynoxide", rival, took["ours"], took["theirs"], target=target)


def _contender(deliver: Deliver, messages: list[Message], name: str) -> Contender:
    return lambda turn: deliver(messages[turn].part(name), f"{name} {turn:06d}")


# ---------------------------------------------------------------- requests and units


class Counts:
    """What a client of its own has sent, and what that cost."""

    def __init__(self, client: DynamoDBClient) -> None:
        self.client = client
        self.requests = 0
        self.units = 0.0
        client.meta.events.register("provide-client-params.dynamodb.*", self._ask)
        client.meta.events.register("after-call.dynamodb.*", self._count)

    def _ask(self, params: dict[str, Any], **_: Any) -> None:
        params["ReturnConsumedCapacity"] = "TOTAL"

    def _count(self, parsed: dict[str, Any], **_: Any) -> None:
        self.requests += 1
        self.units += parsed.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0)

    def take(self) -> tuple[int, float]:
        """What there is, which begins at zero again."""
        counts = self.requests, self.units
        self.requests, self.units = 0, 0.0
        return counts


@contextmanager
def _counting(server: Dynoxide) -> Iterator[Counts]:
    client = server.client()
    yield Counts(client)
    client.close()


def _count_rows(client: DynamoDBClient, name: str, deliver: Deliver, counts: Counts) -> Iterator[Row]:
    for entity, size in _SIZES.items():
        fresh: list[tuple[int, float]] = []
        duplicate_requests: list[int] = []
        for n in range(_DIFFERENT):
            key, message = f"{name} {entity} {n}", Message(f"{name} {entity} {n}")
            client.put_item(TableName=TABLE, Item={"id": {"S": key}, "text": {"S": "x" * size}})
            _check(deliver(message, key), Applied)
            fresh.append(counts.take())
            _check(deliver(message, key), Duplicate)
            duplicate_requests.append(counts.take()[0])  # what a refused write costs is in no answer
        yield _counts(f"{name}: a fresh message", entity, [float(requests) for requests, _ in fresh], "requests")
        yield _counts(f"{name}: a fresh message, write units", entity, [units for _, units in fresh], "units")
        yield _counts(f"{name}: a duplicate", entity, [float(requests) for requests in duplicate_requests], "requests")


def _counts(what: str, against: str, values: list[float], unit: Unit) -> Row:
    return Row(what, against, statistics.median(values), min(values), max(values), unit)


def _check(answer: object, kind: type[Applied | Duplicate]) -> None:
    """Powertools gives the result of the effect, fresh or remembered."""
    if not isinstance(answer, kind | str):
        raise WrongOutcomeError(f"{answer!r} where {kind.__name__} is measured.")


@contextmanager
def _records(client: DynamoDBClient) -> Iterator[None]:
    client.create_table(
        TableName=RECORDS,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    yield
