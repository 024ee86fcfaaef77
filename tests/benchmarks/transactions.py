"""What several writes in one transaction cost: against the same transaction by hand, and against single guarded writes.

Each turn writes to entities of its own, so nothing is in the way.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from datetime import timedelta
from hashlib import blake2b
from typing import Any, cast

from pymongo import MongoClient, ReadPreference
from pymongo.read_concern import ReadConcern

from onewrite import Inbox, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb import transact as transact_items
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb import transact as transact_documents
from onewrite.mongodb.flows import CollectionAttempt
from onewrite.mongodb.participants import make_action
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.benchmarks.measure import Contender, Plan, Row, message_ids, ratio, take_turns
from tests.benchmarks.speed_mongodb import DURABLE
from tests.engines.stores import create_table, watched_transactions

TABLE, INBOX = "accounts-of-the-benchmarks", "inbox-of-the-benchmarks"
AGAINST_HAND = 1.05
ADD: dict[str, Any] = {"UpdateExpression": "ADD cents :c", "ExpressionAttributeValues": {":c": 5}}
INCREMENT = {"$inc": {"cents": 5}}
MARK_KEPT = timedelta(days=14)


def rows(plan: Plan) -> Iterator[Row]:
    with Dynoxide() as dynoxide:
        client = dynoxide.client()
        for name in (TABLE, INBOX):
            create_table(client, name)
        yield from _on_dynamodb(plan, client)
        yield from _units(client)
        client.close()
    with Mongod() as mongod, MongoClient[dict[str, Any]](mongod.uri) as mongo:
        yield from _on_mongodb(plan, mongo)


def _on_dynamodb(plan: Plan, client: Any) -> Iterator[Row]:
    store, plain = GuardedTable(client, SeenIds(), table_name=TABLE), GuardedTable(client, None, table_name=TABLE)
    inbox = Inbox(client, consumer="benchmark", retention=MARK_KEPT, table_name=INBOX)
    messages = _messages(plan)

    def pair(name: str, turn: int) -> list[Any]:
        return [store.updating(Key={"id": f"{name} {turn:06d} {letter}"}, **ADD) for letter in "ab"]

    def several(name: str) -> Contender:
        return lambda turn: transact_items(messages[turn], pair(name, turn))

    def by_hand(name: str) -> Contender:
        with watched_transactions(client) as sent:
            transact_items(Message("any"), pair(f"{name} as ours", 0))
        actions = [letter["Update"] for letter in sent[0]["TransactItems"]]

        def write(turn: int) -> object:
            token, request = secrets.token_hex(16), []
            for update, letter in zip(actions, "ab", strict=True):
                values = {**update["ExpressionAttributeValues"], **_values_with_mark(messages[turn])}
                key = {"id": {"S": f"{name} {turn:06d} {letter}"}}
                request.append({"Update": {**update, "Key": key, "ExpressionAttributeValues": values}})
            return client.transact_write_items(TransactItems=request, ClientRequestToken=token)

        return write

    def single(name: str, keys: str) -> Contender:
        def write(turn: int) -> object:
            outcomes = [
                store.update_item(messages[turn], Key={"id": f"{name} {turn:06d} {letter}"}, **ADD) for letter in keys
            ]
            return outcomes[-1]

        return write

    def with_inbox(name: str) -> Contender:
        def write(turn: int) -> object:
            write_of_one = plain.updating(Key={"id": f"{name} {turn:06d}"}, **ADD)
            return transact_items(messages[turn], [write_of_one], inbox=inbox)

        return write

    yield from _duel(plan, "dynoxide", "TransactWriteItems", several, by_hand, single, with_inbox)


def _on_mongodb(plan: Plan, mongo: MongoClient[dict[str, Any]]) -> Iterator[Row]:
    collection = mongo.shop.accounts
    store, plain = GuardedCollection(collection, SeenIds()), GuardedCollection(collection, None)
    inbox = Inbox(mongo.shop.inbox, consumer="benchmark", retention=MARK_KEPT)
    mongo.shop.create_collection("inbox")
    messages = _messages(plan)
    names = [
        f"{duel} {side} {turn:06d} {letter}"
        for duel in range(4)
        for side in ("ours", "theirs")
        for turn in range(len(messages))
        for letter in "ab"
    ]
    collection.insert_many([{"_id": name} for name in names])

    def pair(name: str, turn: int) -> list[Any]:
        return [store.updating({"_id": f"{name} {turn:06d} {letter}"}, INCREMENT) for letter in "ab"]

    def several(name: str) -> Contender:
        return lambda turn: transact_documents(messages[turn], pair(name, turn))

    def by_hand(name: str) -> Contender:
        attempts = [make_action(place, messages[0], write, "").attempt for place, write in enumerate(pair(name, 0))]
        operations: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for attempt in attempts:
            assert isinstance(attempt, CollectionAttempt)
            operations.append((attempt.request.filter, cast("dict[str, Any]", attempt.request.update)))
        concerns: Any = {
            "read_concern": ReadConcern("snapshot"),
            "write_concern": DURABLE,
            "read_preference": ReadPreference.PRIMARY,
        }

        def write(turn: int) -> object:
            mark = _mark(messages[turn])
            with mongo.start_session() as session, session.start_transaction(**concerns):
                for (query, change), key_end in zip(operations, "ab", strict=True):
                    lacks = {path: {"$ne": mark} if path.startswith("ow_r.") else value for path, value in query.items()}
                    update = {**change, "$push": dict.fromkeys(change["$push"], mark)}
                    collection.update_one({**lacks, "_id": f"{name} {turn:06d} {key_end}"}, update, session=session)
            return None

        return write

    def single(name: str, keys: str) -> Contender:
        def write(turn: int) -> object:
            outcomes = [
                store.update_one(messages[turn], {"_id": f"{name} {turn:06d} {letter}"}, INCREMENT) for letter in keys
            ]
            return outcomes[-1]

        return write

    def with_inbox(name: str) -> Contender:
        def write(turn: int) -> object:
            write_of_one = plain.updating({"_id": f"{name} {turn:06d} a"}, INCREMENT)
            return transact_documents(messages[turn], [write_of_one], inbox=inbox)

        return write

    yield from _duel(plan, "mongod", "transaction", several, by_hand, single, with_inbox)


def _duel(
    plan: Plan,
    engine: str,
    what: str,
    several: Callable[[str], Contender],
    by_hand: Callable[[str], Contender],
    single: Callable[[str, str], Contender],
    with_inbox: Callable[[str], Contender],
) -> Iterator[Row]:
    two_writes, one_write = "two guarded writes, one after the other", "one guarded write"
    # Between two requests to mongod the caches go cold, which makes our own Python three times as slow: no target there.
    target = AGAINST_HAND if engine == "dynoxide" else None
    duels: list[tuple[str, Callable[[str], Contender], str, Callable[[str], Contender], float | None]] = [
        (f"transact of two, {engine}", several, f"the same {what} by hand", by_hand, target),
        (f"transact of two, {engine}", several, two_writes, lambda name: single(name, "ab"), None),
        (f"transact of two, {engine}", several, one_write, lambda name: single(name, "a"), None),
        (f"one and an inbox, {engine}", with_inbox, one_write, lambda name: single(name, "a"), None),
    ]
    for number, (ours, make_ours, theirs, make_theirs, target) in enumerate(duels):
        contenders = {"ours": make_ours(f"{number} ours"), "theirs": make_theirs(f"{number} theirs")}
        took = take_turns(contenders, plan.rounds, warmup=plan.warmup, seed=plan.seed)
        yield ratio(ours, theirs, took["ours"], took["theirs"], target=target)


def _units(client: Any) -> Iterator[Row]:
    """Write units of items that fit into one, as Dynoxide counts them: as AWS does, twice in a transaction."""
    store, plain = GuardedTable(client, SeenIds(), table_name=TABLE), GuardedTable(client, None, table_name=TABLE)
    inbox = Inbox(client, consumer="units", retention=MARK_KEPT, table_name=INBOX)
    single: Any = store.update_item(Message("u0"), Key={"id": "u0"}, ReturnConsumedCapacity="TOTAL", **ADD)
    units_of = {"one guarded write": single.response["ConsumedCapacity"]["CapacityUnits"]}
    pair = [store.updating(Key={"id": name}, **ADD) for name in ("u1", "u2")]
    writes = [plain.updating(Key={"id": "u3"}, **ADD)]
    with watched_transactions(client):
        outcomes: dict[str, Any] = {
            "transact of two": transact_items(Message("u1"), pair),
            "one and an inbox": transact_items(Message("u2"), writes, inbox=inbox),
        }
    for what, outcome in outcomes.items():
        units_of[what] = sum(capacity["CapacityUnits"] for capacity in outcome.response["ConsumedCapacity"])
    for what, units in units_of.items():
        yield Row(f"{what}, dynoxide", "write units", units, units, units, "units")


def _values_with_mark(message: Message) -> dict[str, Any]:
    """What of the values differs from message to message."""
    mark = _mark(message)
    return {":ow_0": {"B": mark}, ":ow_1": {"BS": [mark]}, ":ow_token": {"B": secrets.token_bytes(6)}}


def _mark(message: Message) -> bytes:
    return blake2b(f"0:{len(message.id)}:{message.id}".encode(), digest_size=10).digest()


def _messages(plan: Plan) -> list[Message]:
    return [Message(message_id) for message_id in message_ids(plan.warmup + plan.rounds, plan.seed)]
