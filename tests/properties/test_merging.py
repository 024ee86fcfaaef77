"""Merging never changes what the caller's own call means: with the guard and without it, the same entity and the same verdict."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeAlias

import pytest
from botocore.exceptions import ClientError
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from onewrite import (
    Applied,
    Duplicate,
    HighWaterMark,
    IdSet,
    InSequence,
    InvalidUpdate,
    Message,
    Missing,
    Rejected,
    SeenIds,
)
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.support.engines import dynoxide_binary, mongod_binary, require
from tests.support.examples import examples

LEDGERS: list[Ledger] = [
    SeenIds(),
    SeenIds(readable=True),
    SeenIds(retention=None),
    SeenIds(name="ids-seen", previous=IdSet("old")),
    HighWaterMark(),
    HighWaterMark(previous=SeenIds()),
    InSequence(first=7),
]
ledgers = st.sampled_from(LEDGERS)
MESSAGE, EARLIER = Message("m7", source="s", sequence=7), Message("m6", source="s", sequence=6)
NUMBERS = count()
Document: TypeAlias = dict[str, Any]
KNOWN_ERRORS = (ClientError, OperationFailure, InvalidUpdate)

# --- DynamoDB: what a caller may write --------------------------------------------------------------------------------

# Attributes of every kind, and among them some that are called like a clause, or almost like a ledger.
numbers = st.integers(-3, 3)
DYNAMO_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "n": numbers,
    "m": numbers,
    "total": numbers,
    "text": st.sampled_from(["", "a", "ab"]),
    "tags": st.sets(st.sampled_from("abc"), min_size=1),
    "xs": st.lists(numbers, max_size=3),
    "map": st.fixed_dictionaries({}, optional={"n": numbers, "set": numbers}),
    "remove": numbers,
    "messageIDs": numbers,
    "events": numbers,
}
items = st.fixed_dictionaries({"map": DYNAMO_FIELDS.pop("map")}, optional=DYNAMO_FIELDS)
# Reserved words go by a placeholder, as they must natively.
NAMES = {"#t": "text", "#map": "map", "#r": "remove", "#total": "total"}
VALUES = {":one": 1, ":two": 2, ":a": "a", ":l": [1], ":tags": {"a", "b"}, ":map": {"n": 1}, ":type": "N"}


def cased(word: str) -> st.SearchStrategy[str]:
    return st.sampled_from([word, word.lower(), word.title()])


number_paths = st.sampled_from(["n", "m", "#total", "#r", "#map.n", "xs[0]", "messageIDs", "events"])
number_values = st.sampled_from([":one", ":two"])


@st.composite
def number_operands(draw: st.DrawFn) -> str:
    path, value = draw(number_paths), draw(number_values)
    sure = f"if_not_exists({path}, {value})"
    return draw(st.sampled_from([value, sure, sure, f"if_not_exists({path},{value})", path]))


@st.composite
def assignments(draw: st.DrawFn, path: str) -> str:
    one, other = draw(number_operands()), draw(number_operands())
    number = draw(st.sampled_from([one, f"{one} + {other}", f"{one}-{other}"]))
    lines = ["list_append(if_not_exists(xs, :l), :l)", "list_append(:l,:l)"]
    other_kinds = {"#t": [":a"], "tags": [":tags"], "xs": lines}
    return f"{path} = {draw(st.sampled_from(other_kinds.get(path, [number])))}"


@st.composite
def actions(draw: st.DrawFn, word: str, path: str) -> str:
    """Mostly what fits the attribute's kind."""
    if word == "SET":
        return draw(assignments(path))
    if word == "REMOVE":
        return f"{path}[0]" if path == "xs" and draw(st.booleans()) else path
    if word == "DELETE":
        return f"{path} :tags"
    return f"{path} :tags" if path == "tags" else f"{path} :one"


FITTING = {
    "SET": ["n", "m", "#total", "#t", "tags", "xs", "#map.#r", "#r", "messageIDs", "events"],
    "REMOVE": ["n", "m", "#total", "#t", "tags", "xs", "#map.#r", "#r", "messageIDs"],
    "ADD": ["n", "m", "#total", "#r", "tags", "events"],
    "DELETE": ["tags"],
}


@st.composite
def updates(draw: st.DrawFn) -> str:
    """Each attribute once, for DynamoDB refuses two actions on one."""
    taken: set[str] = set()
    clauses: list[str] = []
    for word in draw(st.lists(st.sampled_from(list(FITTING)), min_size=1, unique=True)):
        paths = [path for path in draw(st.permutations(FITTING[word])) if path not in taken][: draw(st.integers(1, 3))]
        taken.update(paths)
        if paths:
            glue = draw(st.sampled_from([", ", ",", " , "]))
            clauses.append(f"{draw(cased(word))} {glue.join([draw(actions(word, path)) for path in paths])}")
    assume(clauses)
    return draw(st.sampled_from([" ", "\n", "  "])).join(clauses)


comparisons = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


@st.composite
def simple_conditions(draw: st.DrawFn) -> str:
    path, value = draw(number_paths), draw(number_values)
    return draw(
        st.sampled_from(
            [
                f"{path} {draw(comparisons)} {value}",
                f"{path}{draw(comparisons)}{draw(number_paths)}",
                f"{path} {draw(cased('BETWEEN'))} :one {draw(cased('AND'))} :two",
                f"{path} {draw(cased('IN'))} (:one, :a)",
                f"attribute_exists({path})",
                f"attribute_not_exists({path})",
                f"attribute_type({path}, :type)",
                "contains(tags, :a)",
                "attribute_exists(id)",
                "attribute_exists(#map)",
                "begins_with(#t, :a)",
                "size(xs) > :one",
            ]
        )
    )


@st.composite
def conditions(draw: st.DrawFn) -> str:
    """No parentheses around parentheses, which DynamoDB calls redundant."""
    parts = draw(st.lists(simple_conditions(), min_size=1, max_size=4))
    texts = [draw(st.sampled_from([part, part, f"({part})", f"{draw(cased('NOT'))} {part}"])) for part in parts]
    text = texts[0]
    for part in texts[1:]:
        text = f"{text} {draw(cased(draw(st.sampled_from(['AND', 'OR']))))} {part}"
    wraps = len(parts) > 1 or not text.startswith("(")
    return f"({text})" if wraps and draw(st.booleans()) else text


TOKENS = [
    *("(", ")", "[", "]", ",", "=", "<", ".", "+", "0", "n", ":one", "#t"),
    *("AND", "OR", "NOT", "SET", "ADD", "REMOVE", "DELETE", "BETWEEN", "IN"),
]


@st.composite
def broken(draw: st.DrawFn, whole: st.SearchStrategy[str]) -> str:
    """A right expression, from which tokens are taken and into which others are put."""
    words = draw(whole).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(words)))
        words[at : at + 1] = draw(st.sampled_from([[], [*words[at : at + 1], draw(st.sampled_from(TOKENS))]]))
    return " ".join(words)


def used(text: str, declared: Document) -> Document:
    """DynamoDB refuses what is declared and not used."""
    words = set("".join(letter if letter.isalnum() or letter in "#:_" else " " for letter in text).split())
    return {name: value for name, value in declared.items() if name in words}


def make_call(update: str, condition: str | None = None) -> Document:
    text = f"{update} {condition or ''}"
    call = {
        "UpdateExpression": update,
        "ConditionExpression": condition,
        "ExpressionAttributeNames": used(text, NAMES),
        "ExpressionAttributeValues": used(text, VALUES),
    }
    return {name: value for name, value in call.items() if value}


dynamo_calls = st.builds(
    make_call,
    updates() | updates() | broken(updates()).filter(bool),
    st.none() | conditions() | conditions() | broken(conditions()),
)


# --- DynamoDB ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> Iterator[Any]:
    require(dynoxide_binary)
    with Dynoxide() as server:
        orders = server.table("orders", "id")
        yield orders
        orders.meta.client.close()


def begun(ledger: Ledger) -> Ledger:
    """The same ledger, for a source whose first message was the earlier one."""
    return InSequence(first=6) if isinstance(ledger, InSequence) else ledger


def outcome_of(write: Callable[[], object]) -> str:
    """Applied, refused by the condition, or wrong in the engine's own eyes."""
    try:
        outcome = write()
    except KNOWN_ERRORS as error:
        failed = isinstance(error, ClientError) and error.response["Error"]["Code"] == "ConditionalCheckFailedException"
        return "refused" if failed else "wrong"
    if isinstance(outcome, Rejected | Missing):
        return "refused"
    assert not isinstance(outcome, Message)
    assert outcome is None or isinstance(outcome, Applied)
    return "applied"


@settings(max_examples=examples(300))
@given(ledgers, items | items | st.none(), dynamo_calls, st.booleans())
@example(SeenIds(), {"n": 1}, make_call("SET m = :one", "n >= :one ) OR ( n >= :one"), False)
@example(SeenIds(), {"n": 1}, make_call("SET m = :one", ") OR ( n = :one"), False)
@example(SeenIds(), {"n": 1}, make_call("SET m = :one", "n = :one ) OR attribute_not_exists ( n"), False)
@example(SeenIds(), {"n": 1}, make_call("SET m = :one", "xs [ 0 = :one ) OR ( n = :one ]"), False)
@example(SeenIds(), {"n": 1}, make_call("SET m = if_not_exists ( n"), False)
@example(SeenIds(), {"n": 1}, make_call("SET m = if_not_exists ( n REMOVE xs )"), False)
@example(SeenIds(), {"n": 1}, make_call("SET m = list_append ( xs ADD n :one , xs )"), False)
@example(SeenIds(), {"n": 1}, make_call("SET m = :one ,"), False)
@example(SeenIds(), {"n": 1}, make_call("ADD n"), False)
def test_guarded_update_item_has_the_effect_of_a_native_one(
    table: Any, ledger: Ledger, item: Document | None, call: Document, earlier: bool
) -> None:
    plain, guarded = ({"id": f"{kind}-{next(NUMBERS)}"} for kind in ("plain", "guarded"))
    if item is not None:
        table.put_item(Item={**plain, **item})
        table.put_item(Item={**guarded, **item})
    store = GuardedTable(table, begun(ledger) if earlier else ledger)
    if earlier:
        assert isinstance(store.remember(EARLIER, Key=guarded), Applied)
        table.put_item(Item={**plain, **(item or {})})

    def write_natively() -> None:
        table.update_item(Key=plain, **call)

    natively = outcome_of(write_natively)
    assert outcome_of(lambda: store.update_item(MESSAGE, Key=guarded, **call)) == natively
    expected = table.get_item(Key=plain, ConsistentRead=True).get("Item")
    found = store.get_item(Key=guarded, ConsistentRead=True)
    assert found == (None if expected is None else {**expected, **guarded})

    if natively != "wrong":  # and whatever the caller's own condition says, a message that is known changes nothing
        store.remember(MESSAGE, Key=guarded)
        before = table.get_item(Key=guarded, ConsistentRead=True)["Item"]
        assert isinstance(store.update_item(MESSAGE, Key=guarded, **call), Duplicate)
        assert table.get_item(Key=guarded, ConsistentRead=True)["Item"] == before


# --- MongoDB: what a caller may write ---------------------------------------------------------------------------------

values = st.one_of(numbers, st.sampled_from(["", "a", "$n"]), st.lists(numbers, max_size=2), st.none())
MONGO_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "n": numbers,
    "m": numbers,
    "text": st.sampled_from(["", "a", "$n"]),
    "lines": st.lists(numbers, max_size=3),
    "map": st.fixed_dictionaries({}, optional={"n": numbers}),
    "messageIDs": numbers | st.sampled_from(["", "a", "$n"]) | st.none(),  # an array is a set that a handler kept by itself
    "events": values,
}
documents = st.fixed_dictionaries({}, optional=MONGO_FIELDS)
mongo_paths = ["n", "m", "text", "lines", "map", "new", "deep.er", "events"]


@st.composite
def operator_updates(draw: st.DrawFn) -> Document:
    """Each field once, for MongoDB refuses two operators on one."""
    update: Document = {}
    for path in draw(st.lists(st.sampled_from(mongo_paths), min_size=1, max_size=5, unique=True)):
        operator = draw(st.sampled_from(["$set", "$unset", "$inc", "$push", "$addToSet", "$max", "$pull", "$setOnInsert"]))
        value = draw(numbers) if operator in {"$inc", "$pull"} else draw(values)
        update.setdefault(operator, {})[path] = value
    return update


def expressions(path: str) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(lambda value: {"$literal": value}, values),
        st.sampled_from(
            [f"${path}", {"$add": [{"$ifNull": ["$n", 0]}, 1]}, {"$cond": [{"$gt": ["$n", 0]}, "$m", "$$REMOVE"]}]
        ),
    )


@st.composite
def pipelines(draw: st.DrawFn) -> list[Document]:
    stages: list[Document] = []
    for path in draw(st.lists(st.sampled_from(mongo_paths), min_size=1, max_size=4)):
        set_to = {draw(st.sampled_from(["$set", "$addFields"])): {path: draw(expressions("n"))}}
        stages.append(draw(st.sampled_from([set_to, {"$unset": path}, {"$unset": [path]}])))
    return stages


simple_filters = st.one_of(
    st.builds(
        lambda path, operator, value: {path: {operator: value}},
        st.sampled_from(["n", "m", "map.n", "lines", "messageIDs", "events"]),
        st.sampled_from(["$gt", "$lte", "$ne", "$eq"]),
        numbers,
    ),
    st.builds(lambda path, value: {path: {"$exists": value}}, st.sampled_from(mongo_paths), st.booleans()),
    st.builds(lambda value: {"$expr": {"$gt": ["$n", value]}}, numbers),
)
nested_filters: st.SearchStrategy[Document] = st.recursive(
    simple_filters,
    lambda inner: st.builds(
        lambda word, parts: {word: parts}, st.sampled_from(["$or", "$and", "$nor"]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=5,
)
filters = st.lists(nested_filters, max_size=3).map(lambda parts: {k: v for part in parts for k, v in part.items()})

# --- MongoDB ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def collection() -> Iterator[Any]:
    require(mongod_binary)
    with Mongod() as server, MongoClient[Document](server.uri) as client:
        yield client["shop"]["stock"]


@settings(max_examples=examples(300))
@given(ledgers, st.none() | documents, filters, operator_updates() | pipelines(), st.booleans(), st.booleans())
@example(SeenIds(), {"messageIDs": 1}, {"messageIDs": {"$gt": 5}}, {"$set": {"n": 1}}, False, False)
@example(SeenIds(), {"messageIDs": 1}, {"messageIDs": {"$gt": 5}}, [{"$set": {"n": 1}}], True, True)
def test_guarded_update_one_has_the_effect_of_a_native_one(
    collection: Any, ledger: Ledger, document: Document | None, query: Document, update: Any, upsert: bool, earlier: bool
) -> None:
    upsert = upsert and "$expr" not in str(query)  # MongoDB refuses that
    plain, guarded = ({"_id": f"{kind}-{next(NUMBERS)}"} for kind in ("plain", "guarded"))
    if document is not None:
        collection.insert_many([copy.deepcopy({**plain, **document}), copy.deepcopy({**guarded, **document})])
    store = GuardedCollection(collection, begun(ledger) if earlier else ledger)
    if earlier:
        assert isinstance(store.remember(EARLIER, guarded), Applied)
        collection.replace_one(plain, {**plain, **(document or {})}, upsert=True)

    def write_natively() -> object:
        result = collection.update_one({**plain, **query}, update, upsert=upsert)
        landed = result.matched_count == 1 or result.upserted_id is not None
        return Applied(MESSAGE) if landed else Rejected(MESSAGE)

    natively = outcome_of(write_natively)
    if natively == "wrong" and upsert and (earlier or document is not None):
        natively = outcome_of(lambda: write_without_upsert(collection, {**plain, **query}, update))
    assert outcome_of(lambda: store.update_one(MESSAGE, {**guarded, **query}, update, upsert=upsert)) == natively
    expected = collection.find_one(plain)
    assert store.find_one(guarded) == (None if expected is None else {**expected, **guarded})

    if natively != "wrong":  # and whatever the caller's own filter says, a message that is known changes nothing
        store.remember(MESSAGE, guarded)
        before = collection.find_one(guarded)
        outcome = store.update_one(MESSAGE, {**guarded, **query}, update, upsert=upsert)
        assert isinstance(outcome, Duplicate)
        assert collection.find_one(guarded) == before


def write_without_upsert(collection: Any, query: Document, update: Any) -> object:
    """Natively, an upsert whose condition does not hold fails at the `_id`: for us that is the condition's refusal."""
    return Applied(MESSAGE) if collection.update_one(query, update).matched_count == 1 else Rejected(MESSAGE)
