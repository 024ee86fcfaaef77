"""Remarks: a test that could not have failed fails, and what is probably not meant is a warning."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from onewrite import ConfigurationError, HighWaterMark, InSequence, Message, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing import ExplorationWarning, explore
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.explorer.remarks import DOUBTFUL, FAILING, KINDS, Remark
from onewrite.testing.standins.stores import mongomock_collection, moto_tables
from tests.support.batches import by_name, sqs
from tests.support.handlers import build_from

Handler = Callable[[Message], Any]
C1 = {"_id": "c1"}
TWO = (Message("m1", "s", 1, {"order": "o-1", "amount": 10}), Message("m2", "s", 2, {"order": "o-1", "amount": 10}))


def balance(collection: Any) -> Any:
    return (collection.find_one(C1) or {}).get("balance", 0)


def explored(build: Callable[[Any], Handler], messages: Any = TWO, **options: Any) -> Exploration:
    given: dict[str, Any] = {"world": lambda: mongomock_collection("customers"), "observe": balance, **options}
    return looked_at(explore(build, messages=messages, **given))


def looked_at(report: Exploration) -> Exploration:
    """Most of these tests are about remarks, whether the handler is right or wrong."""
    bool(report)
    return report


def kinds(report: Exploration) -> list[str]:
    return [remark.kind for remark in report.remarks]


def filled(**fields: Any) -> Any:
    collection = mongomock_collection("customers")
    collection.insert_one({**C1, **fields})
    return collection


def add(collection: Any, message: Message) -> None:
    collection.update_one(C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)


def adds(collection: Any) -> Handler:
    return lambda message: add(collection, message)


def guarding(handle: Callable[[Any, Message], Any], ledger: Any = None) -> Callable[[Any], Handler]:
    """Builds a handler that is given a guarded store with each message."""

    def build(collection: Any) -> Handler:
        guarded = GuardedCollection(collection, ledger or SeenIds())
        return lambda message: handle(guarded, message)

    return build


def add_guarded(guarded: Any, message: Message) -> Any:
    return guarded.update_one(message, C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)


once = guarding(add_guarded)


def deduplicated_by(name_of: Callable[[Message], str]) -> Callable[[Any], Handler]:
    return guarding(lambda guarded, message: add_guarded(guarded, Message(name_of(message), body=message.body)))


def digest(message: Message) -> str:
    return hashlib.sha256(repr(message.body).encode()).hexdigest()


@pytest.mark.parametrize("name_of", [digest, lambda message: message.body["order"]], ids=["digest", "order"])
def test_message_taken_for_a_duplicate_of_another_is_reported(name_of: Callable[[Message], str]) -> None:
    report = explored(deduplicated_by(name_of))
    (remark,) = report.remarks
    assert remark.kind == "idle"
    assert remark.text.startswith(
        "m2 changes nothing when it's processed without faults after m1, because the guarded store considers it a duplicate. If it "
        "should, check how the handler distinguishes messages"
    )
    assert report.ok
    with pytest.raises(AssertionError, match="m2 changes nothing"):
        report.assert_effectively_once()
    report.assert_effectively_once(accept="idle")


def test_first_message_without_effect_is_reported() -> None:
    def build(collection: Any) -> Handler:
        return lambda message: collection.update_one(C1, {"$inc": {"balance": message.body["amount"]}})

    idle, unobserved = explored(build, TWO[:1]).remarks
    assert (idle.kind, unobserved.kind) == ("idle", "unobserved")
    assert "If it should, check the condition of its write, and the data that world() creates." in idle.text


@pytest.mark.parametrize("ledger", [SeenIds(), InSequence(), HighWaterMark()], ids=repr)
def test_messages_that_each_have_an_effect_get_no_remark(ledger: Any) -> None:
    assert explored(guarding(add_guarded, ledger), reorder=False).remarks == ()
    assert (
        explored(guarding(add_guarded, ledger), TWO[::-1], schedules=1).remarks == ()
    )  # one is deferred or stale, and says so


def raising_at_first(collection: Any) -> Handler:
    inner = once(collection)

    def handle(message: Message) -> Any:
        if collection.find_one({"_id": message.id}) is None:
            collection.insert_one({"_id": message.id})
            raise ValueError("not prepared")
        return inner(message)

    return handle


def test_message_that_raises_undisturbed_is_reported_with_its_error() -> None:
    (remark,) = explored(raising_at_first, TWO[:1]).remarks
    assert remark.text.startswith("m1 raises ValueError: not prepared without any fault, and settles only after")


def test_handler_that_raises_if_order_differs_gets_no_remark() -> None:
    def build(collection: Any) -> Handler:
        inner = once(collection)

        def handle(message: Message) -> Any:
            if message.id == "m2" and collection.find_one(C1) is None:
                raise LookupError("m1 has not come yet")
            return inner(message)

        return handle

    assert explored(build, TWO[::-1]).remarks == ()
    assert "m2 raises LookupError" in str(explored(build, TWO[::-1], reorder=False))


# --- what the handler returns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("returned", [{"batchItemFailures": []}, True, [None]])
def test_a_result_that_decorators_refuse_gets_a_remark(returned: Any) -> None:
    def handle(guarded: Any, message: Message) -> Any:
        guarded.update_one(message, C1, {"$inc": {"balance": 10}}, upsert=True)
        return returned

    report = explored(guarding(handle))
    assert kinds(report) == ["returns"]
    assert f"For m1 the handler returns a {type(returned).__name__}, which counts as done here" in report.remarks[0].text
    failures = sqs_handler(by_name)(guarding(handle)(mongomock_collection("customers")))(sqs(["a1"]), None)
    assert len(failures["batchItemFailures"]) == 1  # as the remark says


@pytest.mark.parametrize("returned", [lambda _: None, lambda _: (), lambda outcome: outcome, lambda outcome: [outcome]])
def test_result_accepted_by_decorators_gets_no_remark(returned: Callable[[Any], Any]) -> None:
    assert explored(guarding(lambda guarded, message: returned(add_guarded(guarded, message)))).remarks == ()


# --- two writes of one message to one entity ---------------------------------------------------------------------------


ORDER = Message("m1", body={"amount": 10})
NEVER_HAPPENS = "m1 writes to one entity twice, and the second write never happens. "


def twice_to_a_document(guarded: Any, message: Message) -> Any:
    add_guarded(guarded, message)
    return guarded.update_one(message, C1, {"$set": {"receipt": message.id}})


def changed_and_then_created(guarded: Any, message: Message) -> None:
    add_guarded(guarded, message)
    guarded.insert_one(message, {**C1, "placed": True})


def twice_with_another_entity_in_between(guarded: Any, message: Message) -> Any:
    return [guarded.update_one(message, {"_id": name}, {"$inc": {"balance": 1}}, upsert=True) for name in ("c1", "c2", "c1")]


TWICE = [twice_to_a_document, changed_and_then_created, twice_with_another_entity_in_between]


@pytest.mark.parametrize("handle", TWICE)
@pytest.mark.parametrize("is_unique", [False, True])
def test_second_write_to_a_document_is_reported(handle: Callable[[Any, Message], Any], *, is_unique: bool) -> None:
    def world() -> Any:
        customers = mongomock_collection("customers")
        if is_unique:
            customers.create_index("account", unique=True, sparse=True)
        return customers

    (remark,) = explored(guarding(handle), [ORDER], world=world).remarks
    assert remark.kind == "unapplied"
    assert remark.text.startswith(NEVER_HAPPENS)
    assert "customers c1 is taken for a duplicate" in remark.text or is_unique
    assert "message.part(" in remark.text


def test_second_write_to_an_item_is_reported() -> None:
    def build(table: Any) -> Handler:
        guarded = GuardedTable(table, SeenIds())

        def handle(message: Message) -> Any:
            for change in ("ADD balance :n", "ADD points :n"):
                guarded.update_item(message, Key={"id": "c1"}, UpdateExpression=change, ExpressionAttributeValues={":n": 10})

        return handle

    with moto_tables() as make:
        world, observe = lambda: make("customers", "id"), lambda table: [item["balance"] for item in table.scan()["Items"]]
        remark = explored(build, [ORDER], world=world, observe=observe).remarks[0]
    assert remark.text.startswith(f"{NEVER_HAPPENS}UpdateItem customers c1 is taken")


def test_query_that_only_counts_gets_no_remark() -> None:
    def build(table: Any) -> Handler:
        def handle(_: Message) -> None:
            query = {"KeyConditionExpression": "id = :id", "ExpressionAttributeValues": {":id": "c1"}}
            table.query(**query, Select="COUNT")
            table.put_item(Item={"id": "c1", "balance": 10})

        return handle

    with moto_tables() as make:
        report = explored(build, [ORDER], world=lambda: make("customers", "id"), observe=lambda table: table.scan()["Items"])
    assert (report.passes, kinds(report)) == (True, [])


def in_parts(guarded: Any, message: Message) -> Any:
    guarded.update_one(message.part("balance"), C1, {"$inc": {"balance": message.body["amount"]}}, upsert=True)
    return guarded.update_one(message.part("receipt"), C1, {"$set": {"receipt": message.id}})


def to_two_entities(guarded: Any, message: Message) -> Any:
    return [guarded.update_one(message, {"_id": name}, {"$inc": {"balance": 1}}, upsert=True) for name in ("c1", "c2")]


def written_and_then_looked_at(guarded: Any, message: Message) -> Any:
    add_guarded(guarded, message)
    return guarded.preview(message, C1)


@pytest.mark.parametrize("handle", [in_parts, to_two_entities, written_and_then_looked_at])
def test_writes_that_are_all_applied_get_no_remark(handle: Callable[[Any, Message], Any]) -> None:
    report = explored(guarding(handle), [ORDER])
    report.assert_effectively_once()
    assert report.remarks == ()


# --- tests that could not have failed ---------------------------------------------------------------------------------


BLIND_OBSERVES: dict[str, Callable[[Any], Any]] = {
    "nothing, for the return is missing": lambda _: None,
    "another entity": lambda customers: customers.find_one({"_id": "c2"}),
    "another field": lambda customers: (customers.find_one(C1) or {}).get("blance", 0),
    "what does not depend on the messages": lambda customers: customers.name,
}


@pytest.mark.parametrize("observe", BLIND_OBSERVES.values(), ids=BLIND_OBSERVES)
@pytest.mark.parametrize("build", [once, adds], ids=["right", "wrong"])
def test_assertion_fails_if_observe_sees_no_message(build: Callable[[Any], Handler], observe: Callable[[Any], Any]) -> None:
    report = explored(build, observe=observe)
    assert report.ok  # a handler that does everything twice as well
    assert [kind for kind in kinds(report) if kind in FAILING] == ["unobserved"]
    with pytest.raises(AssertionError, match=r"No message changes what observe\(\) sees.*\n.*accept='unobserved'"):
        report.assert_effectively_once()
    report.assert_effectively_once(accept=["unobserved"])


def test_remark_names_observed_entity_and_written_entity() -> None:
    (remark,) = explored(once, observe=lambda customers: customers.database.accounts.find_one({"_id": "a1"})).remarks
    assert "It asks find_one accounts a1; the handler writes update_one customers c1." in remark.text


def test_unobserved_remark_explains_that_all_messages_are_refused() -> None:
    build = guarding(
        lambda guarded, message: guarded.update_one(
            message, {**C1, "balance": {"$gte": 10}}, {"$inc": {"balance": -10}}, rejected_ok=True
        )
    )
    rejected, remark = explored(build, TWO[:1], world=lambda: filled(balance=5)).remarks
    assert (rejected.kind, remark.kind) == ("rejected", "unobserved")
    assert "check that world() creates the data that they need." in remark.text


def _compares_and_does_not_return(customers: Any) -> Any:
    customers.count_documents({}) <= 1  # noqa: B015  # that is the mistake


def _does_nothing(_: Any) -> Any:
    pass


@pytest.mark.parametrize("broken", [_compares_and_does_not_return, _does_nothing])
def test_an_invariant_that_checks_nothing_fails_the_assertion(broken: Callable[[Any], Any]) -> None:
    report = explored(once, TWO[:1], invariant=broken)
    assert kinds(report) == ["unchecked"]
    with pytest.raises(AssertionError, match="The invariant"):
        report.assert_effectively_once()
    report.assert_effectively_once(accept="unchecked")


def _asserts(customers: Any) -> None:
    assert 0 <= (customers.find_one(C1) or {"balance": 0})["balance"] < 100


def _asserts_by_another(customers: Any) -> None:
    _asserts(customers)


class _Callable:
    def __call__(self, customers: Any) -> bool:
        return customers.count_documents({}) <= 1


@pytest.mark.parametrize("sound", [_asserts, _asserts_by_another, _Callable()])
def test_an_invariant_that_checks_something_gets_no_remark(sound: Callable[[Any], Any]) -> None:
    assert explored(once, invariant=sound).remarks == ()


def _yields(customers: Any) -> Any:
    yield customers.count_documents({}) < 1


@pytest.mark.parametrize("always_true", [_yields, lambda customers: (customers.count_documents({}) < 1, "too many")])
def test_invariant_that_is_always_true_is_refused(always_true: Callable[[Any], Any]) -> None:
    with pytest.raises(ConfigurationError, match="is true regardless of its content"):
        explored(once, invariant=always_true)


# --- what is a warning ------------------------------------------------------------------------------------------------

CANCELLING = (Message("m1", "s", 1, {"order": "o-1", "amount": 10}), Message("m2", "s", 2, {"order": "o-2", "amount": -10}))


def _to_its_own(guarded: Any, message: Message) -> Any:
    return guarded.update_one(message, {"_id": message.id}, {"$inc": {"balance": 1}}, upsert=True)


def _the_first(customers: Any) -> Any:
    return customers.find_one({"_id": "m1"}, {"balance": 1})


@pytest.mark.parametrize(
    ("kind", "explore_it"),
    [
        ("cancelled", lambda: explored(once, CANCELLING, world=lambda: filled(balance=0))),
        ("unseen", lambda: explored(guarding(_to_its_own), observe=_the_first)),
        ("raises", lambda: explored(raising_at_first, TWO[:1])),
    ],
)
def test_a_doubtful_remark_is_a_warning_unless_accepted(
    kind: str, explore_it: Callable[[], Exploration], recwarn: pytest.WarningsRecorder
) -> None:
    report = explore_it()
    assert kinds(report) == [kind]
    report.assert_effectively_once(accept=kind)
    assert list(recwarn) == []
    with pytest.warns(ExplorationWarning) as warned:
        explore_it().assert_effectively_once()
    assert str(warned[0].message) == report.remarks[0].text
    assert warned[0].filename == __file__


def test_a_note_is_neither_a_failure_nor_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    report = explore.random(once, TWO, lambda: mongomock_collection("customers"), balance, schedules=3)
    assert kinds(report) == ["note"]
    report.assert_effectively_once()
    assert list(recwarn) == []


def test_unknown_kind_is_refused_in_accept() -> None:
    with pytest.raises(ConfigurationError, match=f"accept='vacuous'.*{', '.join(KINDS)}"):
        explored(once).assert_effectively_once(accept="vacuous")


def test_an_accepted_remark_does_not_hide_a_counterexample() -> None:
    with pytest.raises(AssertionError, match="Not effectively once"):
        explored(adds).assert_effectively_once(accept=[*FAILING, *DOUBTFUL])


def test_every_kind_is_described_in_the_remark_docstring() -> None:
    described = str(Remark.__doc__)
    assert [kind for kind in (*KINDS, "note") if f'`"{kind}"`' not in described] == []


# --- bounds that leave nothing to try -------------------------------------------------------------------------------------


def test_assertion_fails_if_bounds_allow_only_one_undisturbed_schedule() -> None:
    report = explored(adds, TWO[:1], deliveries=1, faults=0)
    assert kinds(report) == ["untried"]
    with pytest.raises(AssertionError, match="Any handler would pass"):
        report.assert_effectively_once()
    report.assert_effectively_once(accept="untried")


# --- messages that come too early ----------------------------------------------------------------------------------------

PAY, PLACE = Message("pay"), Message("place")


def pays_if(is_there: Callable[[Any], Any]) -> Callable[[Any], Handler]:
    def build(collection: Any) -> Handler:
        guarded = GuardedCollection(collection, SeenIds())

        def handle(message: Message) -> Any:
            if message.id == "place":
                return guarded.insert_one(message, {**C1, "balance": 10})
            return guarded.update_one(message, C1, {"$inc": {"balance": -10}}) if is_there(collection) else None

        return handle

    return build


@pytest.mark.parametrize(
    "is_there",
    [lambda orders: orders.find_one(C1), lambda orders: orders.count_documents(C1), lambda orders: [*orders.find(C1)]],
)
@pytest.mark.parametrize("messages", [(PAY, PLACE), (PLACE, PAY)])
def test_message_without_effect_if_early_is_reported(is_there: Callable[[Any], Any], messages: Sequence[Message]) -> None:
    report = explored(pays_if(is_there), messages, observe=lambda customers: [one["balance"] for one in customers.find()])
    assert report.ok
    (remark,) = report.remarks
    assert remark.kind == "early"
    assert remark.text.startswith("pay finds nothing and does nothing if it comes before place, and is never redelivered.")
    with pytest.raises(AssertionError, match="pay finds nothing"):
        report.assert_effectively_once()
    report.assert_effectively_once(accept="early")


def test_accepted_missing_entity_beside_an_applied_write_is_early() -> None:
    def build(collection: Any) -> Handler:
        guarded = GuardedCollection(collection, SeenIds())

        def handle(message: Message) -> Any:
            if message.id == "place":
                return guarded.insert_one(message, {**C1, "balance": 10})
            lock = guarded.insert_one(message.part("lock"), {"_id": "lock"})
            payment = guarded.update_one(message, C1, {"$inc": {"balance": -10}}, missing_ok=True)
            collection.delete_one({"_id": "lock"})
            return [lock, payment]

        return handle

    assert kinds(explored(build, (PLACE, PAY))) == ["early"]


@pytest.mark.parametrize("messages", [(PAY, PLACE), (PLACE, PAY)])
def test_creation_refused_after_an_upsert_is_reported(messages: Sequence[Message]) -> None:
    def handle(guarded: Any, message: Message) -> Any:
        if message.id == "place":
            return guarded.insert_one(message, {**C1, "paid": 0, "items": 3}, rejected_ok=True)
        return guarded.update_one(message, C1, {"$inc": {"paid": 10}}, upsert=True)

    (remark,) = explored(guarding(handle), messages, observe=items_of).remarks
    assert remark.kind == "early"
    assert "place is refused for good if it comes after pay, which creates its entity" in remark.text


def spend_unless_closed(guarded: Any, message: Message, **options: Any) -> Any:
    """The second message is refused, whatever the order."""
    query = C1 if message.id == "m1" else {**C1, "open": True}
    return guarded.update_one(message, query, {"$inc": {"balance": 1}}, **options)


def test_message_refused_in_every_order_is_reported() -> None:
    handle = partial(spend_unless_closed, rejected_ok=True)
    (remark,) = explored(guarding(handle), world=lambda: filled(balance=0)).remarks
    assert (remark.kind, "m2 is Rejected in every order" in remark.text) == ("rejected", True)


def test_refusal_that_is_not_final_never_settles() -> None:
    with pytest.raises(ConfigurationError, match=r"2 never settled: .* pass rejected_ok=True, or remember the refusal"):
        explored(guarding(spend_unless_closed), world=lambda: filled(balance=0))


def plainly(create: Callable[[Any], Any], change: Callable[[Any], Any]) -> Callable[[Any], Handler]:
    """A handler that guards nothing: "place" creates, and "pay" changes."""

    def handle(store: Any, message: Message) -> None:
        with suppress(DuplicateKeyError, ClientError):
            (create if message.id == "place" else change)(store)

    return build_from(handle)


def placed(collection: Any) -> None:
    collection.insert_one({**C1, "items": 3})


PAID = {"$set": {"paid": 10}}


@pytest.mark.parametrize(
    "change",
    [
        lambda orders: orders.update_one(C1, PAID),
        lambda orders: orders.delete_one(C1),
        lambda orders: orders.bulk_write([UpdateOne(C1, PAID)]),
    ],
)
def test_early_plain_write_is_reported(change: Callable[[Any], Any]) -> None:
    report = explored(plainly(placed, change), (PAY, PLACE), observe=lambda orders: [*orders.find()])
    (remark,) = report.remarks
    assert remark.kind == "early"
    assert remark.text.startswith("pay finds nothing and does nothing if it comes before place")


@pytest.mark.parametrize(
    "create", [placed, lambda orders: orders.update_one(C1, {"$setOnInsert": {"items": 3}}, upsert=True)]
)
def test_plain_creation_after_an_upsert_is_reported(create: Callable[[Any], Any]) -> None:
    paid = plainly(create, lambda orders: orders.update_one(C1, PAID, upsert=True))
    (remark,) = explored(paid, (PAY, PLACE), observe=lambda orders: [*orders.find()]).remarks
    assert remark.kind == "early"
    assert "place is refused for good if it comes after pay, which creates its entity" in remark.text


ON_INSERT = {"$setOnInsert": {"items": 3}}


def upserting(placed: Any, paid: Any, ledger: Any = None) -> Callable[[Any], Handler]:
    return guarding(
        lambda guarded, message: guarded.update_one(message, C1, placed if message.id == "place" else paid, upsert=True),
        ledger,
    )


def items_of(orders: Any) -> list[Any]:
    return [(one.get("items"), one.get("paid")) for one in orders.find()]


@pytest.mark.parametrize("ledger", [SeenIds(retention=None), SeenIds(), HighWaterMark()], ids=repr)
def test_guarded_creation_after_an_upsert_is_reported(ledger: Any) -> None:
    messages = Message("pay", "p", 1), Message("place", "q", 1)
    report = explored(upserting(ON_INSERT, {"$inc": {"paid": 10}}, ledger), messages, observe=items_of)
    assert report.ok
    (remark,) = report.remarks
    assert remark.kind == "early"
    assert "place is Applied and writes nothing but its mark if it comes after pay, which creates" in remark.text


@pytest.mark.parametrize(
    ("placed", "paid"),
    [
        ({**ON_INSERT, "$set": {"placed": True}}, {"$inc": {"paid": 10}}),
        (ON_INSERT, {**ON_INSERT, "$inc": {"paid": 10}}),
        (ON_INSERT, {"$setOnInsert": {"items": 4}}),
    ],
    ids=["it writes more", "the other creates the same", "the first of two wins"],
)
def test_guarded_creation_without_lost_data_is_not_early(placed: Any, paid: Any) -> None:
    assert "early" not in kinds(explored(upserting(placed, paid), (PAY, PLACE), observe=items_of))


def taken_if_free(seats: Any, seat: Any) -> None:
    if seats.find_one({"_id": "12a"}) is None:
        seats.insert_one(seat)


TAKES = [
    lambda seats, seat: seats.insert_one(seat),
    lambda seats, seat: seats.update_one({"_id": "12a"}, {"$setOnInsert": {"of": seat["of"]}}, upsert=True),
    taken_if_free,
]


def taking(take: Callable[[Any, Any], Any], holder: Callable[[Message], Any]) -> Callable[[Any], Handler]:
    def handle(seats: Any, message: Message) -> None:
        with suppress(DuplicateKeyError):
            take(seats, {"_id": "12a", "of": holder(message)})

    return build_from(handle)


@pytest.mark.parametrize("take", TAKES)
def test_messages_that_compete_get_a_note(take: Callable[[Any, Any], Any]) -> None:
    report = explored(taking(take, lambda message: message.id), (PAY, PLACE), observe=lambda seats: seats.find_one()["of"])
    report.assert_effectively_once()
    assert kinds(report) == ["note"]
    assert "place has an effect if it comes first, and none after the others" in report.remarks[0].text


def test_id_shared_by_two_sources_gets_an_idle_remark() -> None:
    messages = [Message("1", source=source, body=source) for source in ("ann", "bob")]
    handler = taking(TAKES[0], lambda message: message.source)
    report = explored(handler, messages, observe=lambda seats: seats.find_one()["of"])
    assert kinds(report) == ["idle"]
    assert "the same ID in another source" in report.remarks[0].text


@pytest.mark.parametrize("take", TAKES)
def test_equal_repeated_creation_gets_an_idle_remark(take: Callable[[Any, Any], Any]) -> None:
    report = explored(taking(take, lambda _: "ann"), (PAY, PLACE), observe=lambda seats: seats.find_one()["of"])
    assert kinds(report) == ["idle"]


# --- no false alarms --------------------------------------------------------------------------------------------------


def test_a_message_that_depends_on_another_gets_no_remark() -> None:
    def build(collection: Any) -> Handler:
        guarded = GuardedCollection(collection, SeenIds())

        def handle(message: Message) -> Any:
            if message.id == "close":  # closes accounts, and there may be none yet
                return collection.update_many({"open": True}, {"$set": {"open": False}})
            return guarded.update_one(message, {"_id": "a1"}, {"$set": {"open": True}}, upsert=True)

        return handle

    messages = [Message("close"), Message("open")]
    assert explored(build, messages, observe=lambda accounts: accounts.find_one({"_id": "a1"}, {"open": 1})).remarks == ()


def test_hash_of_a_string_is_reported_with_its_line() -> None:
    def handle(customers: Any, message: Message) -> None:
        shard = hash(message.id) % 1
        customers.update_one({"_id": f"{message.id}-{shard}"}, {"$set": {"n": 1}}, upsert=True)

    report = explored(build_from(handle), observe=lambda customers: sorted(each["_id"] for each in customers.find()))
    with pytest.warns(ExplorationWarning, match=r"hash\(\) of a string at test_explorer_remarks.py:\d+"):
        report.assert_effectively_once()


def test_none_after_an_unsettled_outcome_is_a_warning() -> None:
    def handle(guarded: Any, message: Message) -> None:
        add_guarded(guarded, message)

    assert "unreturned" in kinds(explored(guarding(handle, InSequence())))
    assert "unreturned" not in kinds(explored(guarding(add_guarded, InSequence())))


@pytest.mark.parametrize("first", [Message("1", source="ann"), Message("1"), SimpleNamespace(id="1", source=None)], ids=str)
def test_message_of_another_source_or_kind_can_share_an_id(first: Any) -> None:
    def build_handler(customers: Any) -> Callable[[Any], object]:
        return lambda message: customers.update_one(C1, {"$set": {f"by {message.source}": 1}}, upsert=True)

    messages = [first, Message("1", source="bob")]
    assert explored(build_handler, messages, observe=lambda customers: len(customers.find_one(C1) or {})).ok


def test_refusal_of_an_early_message_is_reported() -> None:
    def handle(customers: Any, message: Message) -> None:
        before, after = message.body
        customers.update_one({**C1, "state": before}, {"$set": {"state": after}})

    def state(customers: Any) -> Any:
        return customers.find_one(C1)["state"]

    messages = [Message("pay", body=("new", "paid")), Message("ship", body=("paid", "shipped"))]
    given: dict[str, Any] = {"messages": messages, "world": lambda: filled(state="new"), "observe": state}
    assert kinds(explored(build_from(handle), **given)) == ["early"]


def test_older_message_without_effect_is_no_early_message() -> None:
    def build_handler(customers: Any) -> Handler:
        return lambda message: customers.update_one(
            {**C1, "version": {"$lt": message.sequence}}, {"$set": {"version": message.sequence}}
        )

    report = explored(build_handler, world=lambda: filled(version=0), observe=lambda customers: customers.find_one(C1))
    assert report.remarks == ()


# --- what the order decides -----------------------------------------------------------------------------------------------


def renamed(customers: Any, message: Message) -> None:
    customers.update_one(C1, {"$set": {"name": message.id}}, upsert=True)


def listed(customers: Any, message: Message) -> None:
    customers.update_one(C1, {"$addToSet": {"names": message.id}}, upsert=True)


def names(customers: Any) -> Any:
    return customers.find_one(C1, {"_id": 0})


def test_last_write_that_wins_gets_a_remark_with_both_orders() -> None:
    report = explored(build_from(renamed), observe=names)
    report.assert_effectively_once()
    assert "m1, m2 ends in {'name': 'm2'}, and m2, m1 ends in {'name': 'm1'}." in report.remarks[0].text
    assert kinds(report) == ["order"]


@pytest.mark.parametrize(("handle", "options"), [(renamed, {"reorder": False}), (listed, {})], ids=["kept", "list"])
def test_kept_order_and_list_order_get_no_remark(handle: Any, options: Any) -> None:
    assert "order" not in kinds(explored(build_from(handle), observe=names, **options))
