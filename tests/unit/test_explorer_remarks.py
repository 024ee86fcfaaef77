"""Remarks on what is probably not meant, though it is no failure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from pymongo.errors import DuplicateKeyError

from onewrite import HighWaterMark, InSequence, Message, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing import explore
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.standins.stores import moto_tables, new_collection
from tests.support.batches import by_name, sqs

Handler = Callable[[Message], Any]
C1 = {"_id": "c1"}
TWO = (Message("m1", "s", 1, {"order": "o-1", "amount": 10}), Message("m2", "s", 2, {"order": "o-1", "amount": 10}))


def balance(collection: Any) -> Any:
    return (collection.find_one(C1) or {}).get("balance", 0)


def explored(build: Callable[[Any], Handler], messages: Any = TWO, **options: Any) -> Exploration:
    given: dict[str, Any] = {"world": lambda: new_collection("customers"), "observe": balance, **options}
    return explore(build, messages=messages, **given)


def add(collection: Any, message: Message) -> None:
    collection.update_one(C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)


def deduplicated_by(name_of: Callable[[Message], str]) -> Callable[[Any], Handler]:
    def build(collection: Any) -> Handler:
        guarded = GuardedCollection(collection, SeenIds())

        def handle(message: Message) -> Any:
            change = {"$inc": {"balance": message.body["amount"]}}
            return guarded.update_one(Message(name_of(message)), C1, change, upsert=True)

        return handle

    return build


def digest(message: Message) -> str:
    return hashlib.sha256(repr(message.body).encode()).hexdigest()


@pytest.mark.parametrize(
    "name_of", [digest, lambda message: message.body["order"], lambda _: "id"], ids=["digest", "order", "constant"]
)
def test_a_message_that_a_guard_takes_for_another_one_is_named(name_of: Callable[[Message], str]) -> None:
    report = explored(deduplicated_by(name_of))
    assert report.remarks == (
        (
            "m2 changes nothing when it is processed undisturbed after m1, because the guarded store takes it for a duplicate. If it "
            "should, check by what the handler tells messages apart: an order id or a digest of the payload may be the same in two "
            "messages."
        ),
    )
    assert report.ok


def test_a_message_whose_mark_another_one_has_left_is_named_without_a_guard_too() -> None:
    def build(collection: Any) -> Handler:
        def handle(message: Message) -> None:
            change = {"$inc": {"balance": message.body["amount"]}, "$push": {"seen": digest(message)}}
            try:
                collection.update_one({**C1, "seen": {"$ne": digest(message)}}, change, upsert=True)
            except DuplicateKeyError:
                return

        return handle

    (remark,) = explored(build).remarks
    assert remark.startswith("m2 changes nothing when it is processed undisturbed after m1. If it should, check by what")


def test_a_message_that_changes_nothing_though_it_is_the_first_is_named() -> None:
    def build(collection: Any) -> Handler:
        return lambda message: collection.update_one(C1, {"$inc": {"balance": message.body["amount"]}})

    remarks = explored(build, TWO[:1]).remarks
    assert (
        "m1 changes nothing when it is processed undisturbed. If it should, check the condition of its write, and what "
        "world() puts into the store." in remarks
    )


def test_each_record_of_an_event_is_named_by_its_own_id() -> None:
    def build(collection: Any) -> Any:
        guarded = GuardedCollection(collection, SeenIds())
        return sqs_handler(by_name)(
            lambda message: guarded.update_one(Message(message.id[0]), C1, {"$inc": {"balance": 1}}, upsert=True)
        )

    (remark,) = explored(build, [sqs(["a1", "a2"])]).remarks
    assert remark.startswith("id-a2 changes nothing when it is processed undisturbed after id-a1, because the guarded store")


@pytest.mark.parametrize("ledger", [SeenIds(), InSequence(), HighWaterMark()], ids=repr)
def test_messages_that_each_do_their_work_get_no_remark(ledger: Any) -> None:
    def build(collection: Any) -> Handler:
        guarded = GuardedCollection(collection, ledger)
        return lambda message: guarded.update_one(message, C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)

    assert explored(build, reorder=False).remarks == ()
    assert explored(build, TWO[::-1], schedules=1).remarks == ()  # one is deferred or stale, and says so


def test_a_change_that_was_refused_for_good_gets_no_remark() -> None:
    def build(collection: Any) -> Handler:
        guarded = GuardedCollection(collection, SeenIds())
        return lambda message: guarded.update_one(
            message, {**C1, "balance": {"$gte": 10}}, {"$inc": {"balance": -message.body["amount"]}}
        )

    def world() -> Any:
        collection = new_collection("customers")
        collection.insert_one({**C1, "balance": 10})
        return collection

    assert explored(build, world=world).remarks == ()


def test_an_effect_that_only_observe_sees_is_one() -> None:
    sent: list[str] = []

    def build(collection: Any) -> Handler:
        sent.clear()

        def handle(message: Message) -> None:
            collection.update_one({"_id": "c1"}, {"$set": {"touched": True}}, upsert=True)
            if message.id not in sent:
                sent.append(message.id)

        return handle

    (remark,) = explored(build, observe=lambda _: sorted(sent)).remarks
    assert remark.startswith("observe() asked none of the stores")


def test_a_message_that_raises_though_nothing_disturbs_it_is_named_with_what_it_raises() -> None:
    def build(collection: Any) -> Handler:
        inner = deduplicated_by(lambda message: message.id)(collection)

        def handle(message: Message) -> Any:
            if message.id == "m2" and collection.find_one({"_id": "m2"}) is None:
                collection.insert_one({"_id": "m2"})
                raise ValueError("not prepared")
            return inner(message)

        return handle

    assert explored(build).remarks == (
        (
            "m2 raises ValueError: not prepared although nothing disturbs it, and is done only when it is delivered again. If that is "
            "not meant, mend it: a queue gives up a message after some failures."
        ),
    )


def test_a_handler_that_raises_to_have_another_order_gets_no_remark() -> None:
    def build(collection: Any) -> Handler:
        inner = deduplicated_by(lambda message: message.id)(collection)

        def handle(message: Message) -> Any:
            if message.id == "m2" and collection.find_one(C1) is None:
                raise LookupError("m1 has not come yet")
            return inner(message)

        return handle

    assert explored(build, TWO[::-1]).remarks == ()
    assert "m2 raises LookupError" in str(explored(build, TWO[::-1], reorder=False))


# --- two writes of one message to one entity ---------------------------------------------------------------------------


ORDER = Message("m1", body={"amount": 10})
NEVER_HAPPENS = "m1 writes to one entity twice, and the second write never happens: "


def twice_to_a_document(collection: Any) -> Handler:
    guarded = GuardedCollection(collection, SeenIds())

    def handle(message: Message) -> Any:
        guarded.update_one(message, C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)
        return guarded.update_one(message, C1, {"$set": {"receipt": message.id}})

    return handle


def created_and_then_changed(collection: Any) -> Handler:
    guarded = GuardedCollection(collection, SeenIds())

    def handle(message: Message) -> Any:
        guarded.insert_one(message, {**C1, "balance": message.body["amount"]})
        return guarded.find_one_and_update(message, C1, {"$set": {"receipt": message.id}})

    return handle


def twice_with_another_entity_in_between(collection: Any) -> Handler:
    guarded = GuardedCollection(collection, SeenIds())

    def handle(message: Message) -> Any:
        return [
            guarded.update_one(message, {"_id": name}, {"$inc": {"balance": 1}}, upsert=True) for name in ("c1", "c2", "c1")
        ]

    return handle


@pytest.mark.parametrize("build", [twice_to_a_document, created_and_then_changed, twice_with_another_entity_in_between])
@pytest.mark.parametrize("is_unique", [False, True])
def test_a_second_write_of_a_message_to_an_entity_is_named_with_its_remedy(
    build: Callable[[Any], Handler],
    is_unique: bool,  # given by name
) -> None:
    def world() -> Any:
        customers = new_collection("customers")
        if is_unique:
            customers.create_index("account", unique=True, sparse=True)
        return customers

    (remark,) = explored(build, [ORDER], world=world).remarks
    assert remark.startswith(NEVER_HAPPENS)
    assert "customers c1 is taken for a duplicate" in remark or is_unique
    assert "message.part(" in remark


def test_a_second_write_to_an_item_is_named() -> None:
    def build(table: Any) -> Handler:
        guarded = GuardedTable(table, SeenIds())

        def handle(message: Message) -> Any:
            for change in ("ADD balance :n", "ADD points :n"):
                last = guarded.update_item(
                    message, Key={"id": "c1"}, UpdateExpression=change, ExpressionAttributeValues={":n": 10}
                )
            return last

        return handle

    with moto_tables() as make:
        report = explored(
            build,
            [ORDER],
            world=lambda: make("customers", key="id"),
            observe=lambda table: [item["balance"] for item in table.scan()["Items"]],
        )
    (remark,) = report.remarks
    assert remark.startswith(f"{NEVER_HAPPENS}UpdateItem customers c1 is taken")


def in_parts(collection: Any) -> Handler:
    guarded = GuardedCollection(collection, SeenIds())

    def handle(message: Message) -> Any:
        guarded.update_one(message.part("balance"), C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)
        return guarded.update_one(message.part("receipt"), C1, {"$set": {"receipt": message.id}})

    return handle


def to_two_entities(collection: Any) -> Handler:
    guarded = GuardedCollection(collection, SeenIds())

    def handle(message: Message) -> Any:
        return [guarded.update_one(message, {"_id": name}, {"$inc": {"balance": 1}}, upsert=True) for name in ("c1", "c2")]

    return handle


def written_and_then_looked_at(collection: Any) -> Handler:
    guarded = GuardedCollection(collection, SeenIds())

    def handle(message: Message) -> Any:
        guarded.update_one(message, C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)
        return guarded.seen(message, C1)

    return handle


@pytest.mark.parametrize("build", [in_parts, to_two_entities, written_and_then_looked_at])
def test_writes_that_all_happen_are_no_remark(build: Callable[[Any], Handler]) -> None:
    report = explored(build, [ORDER])
    report.assert_effectively_once()
    assert report.remarks == ()
