"""Nothing that a caller sends alters what the ledger's part means: random expressions, most of them broken, on a real engine.

Each is sent once by itself and once guarded, to items that are alike. What the engine refuses by itself is refused when it
is guarded; what it takes has the same effect once, and none when the message is delivered again.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from onewrite import Applied, Duplicate, HighWaterMark, InvalidUpdate, Message, Outcome, Rejected, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from tests.support.examples import examples

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

ITEM: dict[str, Any] = {"n": {"N": "1"}, "m": {"M": {"a": {"N": "1"}}}, "l": {"L": [{"N": "1"}]}, "s": {"S": "text"}}
VALUES = {":z": 1, ":t": "text"}
NAMES = {"#p": "n", "#q": "absent"}

_items = (f"item{n}" for n in itertools.count())
_paths = st.sampled_from(["n", "#p", "#q", "m.a", "l[0]", "missing", "s"])
_operands = _paths | st.sampled_from([":z", ":t", "size(s)"])
_comparisons = st.builds("{} {} {}".format, _operands, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), _operands)
_functions = st.builds("{}({})".format, st.sampled_from(["attribute_exists", "attribute_not_exists"]), _paths)
_leaves = _comparisons | _functions | st.builds("contains({}, {})".format, _paths, _operands)
_conditions = st.recursive(
    _leaves | st.just("n BETWEEN :z AND :z") | st.just("n IN (:z, :t)"),
    lambda inner: (
        st.builds("{} {} {}".format, inner, st.sampled_from(["AND", "OR"]), inner)
        | st.builds("NOT {}".format, inner)
        | st.builds("({})".format, inner)
    ),
    max_leaves=4,
)
_actions = st.sampled_from(
    [
        "SET a = :z",
        "SET n = n + :z",
        "SET a = if_not_exists(a, :z), b = :t",
        "REMOVE s",
        "REMOVE l[0], #q",
        "ADD n :z",
        "SET m.b = :t",
    ]
)
_updates = st.lists(_actions, min_size=1, max_size=3).map(" ".join)
_tokens = st.sampled_from(
    [
        "(",
        ")",
        "[",
        "]",
        ",",
        "AND",
        "OR",
        "NOT",
        "=",
        "<",
        "n",
        ":z",
        "#p",
        ".",
        "+",
        "SET",
        "ADD",
        "REMOVE",
        "DELETE",
        "BETWEEN",
        "IN",
        "0",
    ]
)


@st.composite
def _broken(draw: st.DrawFn, whole: st.SearchStrategy[str]) -> str:
    """A right expression, from which tokens are taken and into which others are put."""
    words = draw(whole).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(words)))
        if draw(st.booleans()):
            words.insert(at, draw(_tokens))
        else:
            del words[at : at + 1]
    return " ".join(words)


def _native(update: str, condition: str | None) -> dict[str, Any]:
    """A call with the names and values that its expressions use, and no others."""
    text = f"{update} {condition or ''}"
    native: dict[str, Any] = {"UpdateExpression": update}
    if condition is not None:
        native["ConditionExpression"] = condition
    for argument, known in (("ExpressionAttributeNames", NAMES), ("ExpressionAttributeValues", VALUES)):
        if used := {name: value for name, value in known.items() if name in text.split()}:
            native[argument] = used
    return native


class _Trial:
    """One call, by itself and guarded."""

    def __init__(self, client: DynamoDBClient, table: str, ledger: Ledger) -> None:
        self._client, self._table = client, table
        self._guarded = GuardedTable(client, ledger, table_name=table)

    def check(self, native: dict[str, Any]) -> None:
        alone, guarded = next(_items), next(_items)
        for name in (alone, guarded):
            self._client.put_item(TableName=self._table, Item={"id": {"S": name}, **ITEM})
        expected = self._send_alone(alone, native)
        first, second = self._send_guarded(guarded, native), self._send_guarded(guarded, native)
        assert self._business(guarded) == self._business(alone)
        if expected == "refused":
            assert (first, second) == (None, None)
        elif expected == "condition":
            assert isinstance(first, Rejected)
            assert isinstance(second, Rejected)
        else:
            assert isinstance(first, Applied)
            assert isinstance(second, Duplicate)

    def _send_alone(self, name: str, native: dict[str, Any]) -> str:
        values = {key: {"N": "1"} if value == 1 else {"S": "text"} for key, value in VALUES.items()}
        used = native.get("ExpressionAttributeValues", {})
        typed = {"ExpressionAttributeValues": {key: values[key] for key in used}} if used else {}
        try:
            self._client.update_item(TableName=self._table, Key={"id": {"S": name}}, **{**native, **typed})
        except ClientError as error:
            return "condition" if error.response["Error"]["Code"] == "ConditionalCheckFailedException" else "refused"
        return "done"

    def _send_guarded(self, name: str, native: dict[str, Any]) -> Outcome | None:
        try:
            return self._guarded.update_item(Message("m", "s", sequence=1), Key={"id": name}, **native)
        except (InvalidUpdate, ClientError):
            return None

    def _business(self, name: str) -> Any:
        item = self._client.get_item(TableName=self._table, Key={"id": {"S": name}}, ConsistentRead=True)["Item"]
        return {**self._guarded.without_ledger(item), "id": None}


@pytest.fixture(params=[SeenIds(), HighWaterMark()], ids=["seen", "mark"])
def trial(request: pytest.FixtureRequest, dynamo: DynamoDBClient, table: str) -> _Trial:
    return _Trial(dynamo, table, request.param)


_settings = settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_settings
@given(condition=_broken(_conditions))
@example(condition="n >= :z ) OR ( n >= :z")
@example(condition=") OR ( n = :z")
@example(condition="n = :z ) OR attribute_not_exists ( n")
@example(condition="l [ 0 = :z ) OR ( n = :z ]")
def test_guarded_condition_means_the_same_as_unguarded(trial: _Trial, condition: str) -> None:
    trial.check(_native("SET touched = :t", condition))


@_settings
@given(update=_broken(_updates))
@example(update="SET a = if_not_exists ( b")
@example(update="SET a = if_not_exists ( b REMOVE c )")
@example(update="SET a = list_append ( l ADD n :z , l )")
@example(update="SET a = :z ,")
@example(update="ADD n")
def test_guarded_update_means_the_same_as_unguarded(trial: _Trial, update: str) -> None:
    trial.check(_native(update, None))


@_settings
@given(update=_broken(_updates), condition=_broken(_conditions))
def test_guarded_condition_and_update_mean_the_same_as_unguarded(trial: _Trial, update: str, condition: str) -> None:
    trial.check(_native(update, condition))
