"""A transaction on DynamoDB step by step: each flow is driven by hand, with the answers that DynamoDB would give."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from onewrite import (
    Applied,
    ConfigurationError,
    Duplicate,
    EntityTooLarge,
    HighWaterMark,
    Inbox,
    InSequence,
    InvalidUpdate,
    Message,
    SeenIds,
)
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable, atransact, transact
from onewrite.dynamodb.values import typed_values
from tests.support import driven
from tests.support.seams import name_calls

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
HASH = bytes.fromhex("e2925dfad35a3323aea4")  # of the source "s" and the id "m5"
TOKEN = bytes.fromhex("206dda326f31")  # of the name "try"
SEEN: dict[str, Any] = {"id": "a", "ow_l": "ow1 14d", "ow_r1": {HASH}}
LANDED: dict[str, Any] = {**SEEN, "ow_t": TOKEN}
PASSED: dict[str, Any] = {"id": "b", "ow_l": "ow1 marks", "ow_@s": 7}
FREE: dict[str, Any] = {"id": "a", "n": 1}
DONE: dict[str, Any] = {"ResponseMetadata": {}}


class Client:
    """A low-level client that answers each request with the next of a list."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.meta = SimpleNamespace()

    def transact_write_items(self, **request: Any) -> Any:
        return self._answer("transact_write_items", request)

    def update_item(self, **request: Any) -> Any:
        return self._answer("update_item", request)

    def _answer(self, method: str, request: dict[str, Any]) -> Any:
        self.sent.append((method, request))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def items(self) -> list[dict[str, Any]]:
        """The writes of the last transaction."""
        items: list[dict[str, Any]] = self.sent[-1][1]["TransactItems"]
        return items

    @property
    def tokens(self) -> list[str]:
        return [request["ClientRequestToken"] for method, request in self.sent if method == "transact_write_items"]


def guarded(client: Any, ledger: Any = None) -> GuardedTable:
    return name_calls(GuardedTable(client, ledger or SeenIds(), table_name="orders", clock=lambda: NOW), lambda: "try")


def writes(client: Any, ledger: Any = None) -> list[Any]:
    """Two writes, of items a and b."""
    table = guarded(client, ledger)
    update: dict[str, Any] = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}
    return [table.updating(Key={"id": key}, **update) for key in "ab"]


def inbox_of(client: Any, **more: Any) -> Inbox:
    return Inbox(client, consumer="c", retention=timedelta(days=1), table_name="inbox", clock=lambda: NOW, **more)


def unguarded(client: Any) -> GuardedTable:
    """A store without a ledger, which takes part beside an inbox."""
    return name_calls(GuardedTable(client, None, table_name="plain"), lambda: "try")


def sent(client: Client, participants: Any = None, **options: Any) -> Any:
    return transact(M5, participants or writes(client), **options)


failure = partial(driven.failure, operation="TransactWriteItems")


def cancelled(*reasons: Any) -> ClientError:
    """A reason is None, a code, or the item that a condition refused."""
    return failure(
        "TransactionCanceledException", "Transaction cancelled", CancellationReasons=[_reason(each) for each in reasons]
    )


def _reason(reason: Any) -> dict[str, Any]:
    if isinstance(reason, Mapping):
        shown = {"Item": typed_values(reason)} if reason else {}
        return {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed", **shown}
    if isinstance(reason, tuple):
        return {"Code": reason[0], "Message": reason[1]}
    return {"Code": reason or "None"}


# --- what is in the way for a moment -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason", ["TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError", "RequestLimitExceeded"]
)
def test_temporary_refusal_is_retried_with_a_new_token(reason: str) -> None:
    client = Client(cancelled(reason, None), cancelled({}, reason), cancelled(PASSED, reason), DONE)
    assert sent(client, writes(client, HighWaterMark())) == Applied(M5)
    assert len(set(client.tokens)) == 4


def test_other_errors_are_raised_unchanged() -> None:
    denied, invalid = failure("AccessDeniedException"), failure("ValidationException", "Invalid UpdateExpression")
    no_path = cancelled(("ValidationError", "The document path is invalid"), None)
    for error in (
        denied,
        invalid,
        no_path,
        cancelled("ItemCollectionSizeLimitExceeded", None),
        cancelled(None),
        cancelled(None, None),
    ):
        with pytest.raises(ClientError) as raised:
            sent(Client(error))
        assert raised.value is error


# --- the answer got lost -----------------------------------------------------------------------------------------------


def test_one_image_shows_a_landing_if_all_show_the_effect() -> None:
    assert sent(Client(cancelled(SEEN, LANDED))) == Applied(M5, retried=True)
    assert sent(Client(cancelled(None, LANDED))) == Duplicate(M5, {"id": "a"}, participant=1)


def test_inbox_proves_that_the_transaction_was_applied() -> None:
    client = Client(DONE)
    plain = unguarded(client)
    write = plain.putting(Item={"id": "a"})
    sent(client, [write], inbox=inbox_of(client))
    mark = client.items[0]["Put"]["Item"]
    for item, expected in (
        (mark, Applied(M5, retried=True)),
        ({**mark, "ow_t": {"B": b"another"}}, Duplicate(M5)),
        ({"id": mark["id"]}, Duplicate(M5)),
    ):
        reasons = [{"Code": "ConditionalCheckFailed", "Item": item}, {"Code": "None"}]
        client.answers = [failure("TransactionCanceledException", CancellationReasons=reasons)]
        assert sent(client, [write], inbox=inbox_of(client)) == expected


# --- what DynamoDB finds invalid ---------------------------------------------------------------------------------------

TOO_LARGE = ("ValidationError", "Item size to update has exceeded the maximum allowed size")
MISTYPED = ("ValidationError", "An operand in the update expression has an incorrect data type")


def test_entity_too_large_is_named_with_its_sizes() -> None:
    client = Client(cancelled(None, TOO_LARGE), driven.refusal(FREE))
    with pytest.raises(EntityTooLarge, match="bytes"):
        sent(client)
    item = {"id": "c", "text": "x"}
    client = Client(cancelled(None, TOO_LARGE))
    with pytest.raises(EntityTooLarge, match="bytes"):
        sent(client, [*writes(client)[:1], guarded(client).putting(Item=item)])


@pytest.mark.parametrize("reason", [TOO_LARGE, MISTYPED])
def test_invalid_write_can_be_a_redelivery(reason: Any) -> None:
    client = Client(cancelled(reason, None), driven.refusal(SEEN))
    outcome = sent(client)
    assert isinstance(outcome, Duplicate)
    assert outcome.participant == 0


def test_oversized_write_is_no_gap_if_the_item_is_unreadable() -> None:
    client = Client(cancelled(TOO_LARGE, None), failure("AccessDeniedException"))
    with pytest.raises(EntityTooLarge, match="isn't known"):
        sent(client, writes(client, InSequence()))


@pytest.mark.parametrize("text", [TOO_LARGE[1], MISTYPED[1]])
def test_invalid_request_is_checked_item_by_item(text: str) -> None:
    client = Client(failure("ValidationException", text), driven.refusal(FREE), driven.refusal({**SEEN, "id": "b"}))
    outcome = sent(client)
    assert isinstance(outcome, Duplicate)
    assert outcome.participant == 1


# --- what cannot be sent -----------------------------------------------------------------------------------------------


def test_too_many_writes_and_too_many_bytes_are_refused() -> None:
    client = Client(DONE, DONE)
    table, inbox = guarded(client), inbox_of(client, also=("old",))
    many = [table.recording(Key={"id": str(n)}) for n in range(101)]
    for count, option in ((101, None), (99, inbox)):
        with pytest.raises(InvalidUpdate, match="101 writes"):
            sent(client, many[:count], inbox=option)
        sent(client, many[: count - 1], inbox=option)
    large = [table.putting(Item={"id": str(n), "text": "x" * 390_000}) for n in range(11)]
    with pytest.raises(InvalidUpdate, match="bytes"):
        sent(client, large)
    update: dict[str, Any] = {"UpdateExpression": "SET t = :t", "ExpressionAttributeValues": {":t": "x" * 390_000}}
    with pytest.raises(InvalidUpdate, match="bytes"):
        sent(client, [table.updating(Key={"id": str(n)}, **update) for n in range(11)])


def test_writes_of_different_clients_are_refused() -> None:
    one, other = Client(), Client()
    with pytest.raises(ConfigurationError, match="same client"):
        sent(one, [*writes(one)[:1], *writes(other)[1:]])
    for inbox in (inbox_of(other), Inbox(one, consumer="c", retention=timedelta(days=1)), inbox_of(object())):
        with pytest.raises(ConfigurationError, match="client"):
            sent(one, writes(one), inbox=inbox)


def test_two_tables_of_one_resource_have_one_client() -> None:
    resource: Any = boto3.resource("dynamodb", region_name="eu-west-1")
    tables = [GuardedTable(resource.Table(name), SeenIds()) for name in ("orders", "stock")]
    inbox = Inbox(resource.Table("inbox"), consumer="c", retention=timedelta(days=1))
    sent: list[Any] = []
    resource.meta.client.meta.events.register("before-parameter-build", lambda params, **_: sent.append(params))
    resource.meta.client.meta.events.register("before-call", lambda **_: (SimpleNamespace(status_code=200), {}))
    transact(M5, [table.recording(Key={"id": "a"}) for table in tables], inbox=inbox)
    names = [next(iter(action.values()))["TableName"] for action in sent[0]["TransactItems"]]
    assert names == ["inbox", "orders", "stock"]
    resource.meta.client.close()


class AsyncClient(Client):
    async def update_item(self, **request: Any) -> Any:
        """Never called."""


def test_transaction_is_asynchronous_exactly_if_its_stores_are() -> None:
    blocking, asynchronous = Client(), AsyncClient()
    prepared = AsyncGuardedTable(asynchronous, SeenIds(), table_name="orders").recording(Key={"id": "a"})
    with pytest.raises(ConfigurationError, match="stores are asynchronous: use atransact"):
        transact(M5, [prepared])
    with pytest.raises(ConfigurationError, match="stores are not asynchronous: use transact"):
        atransact(M5, writes(blocking)).send(None)
    assert blocking.sent == asynchronous.sent == []


@pytest.mark.parametrize(
    ("native", "complaint"),
    [
        ({"Key": {"id": "a"}}, "can't record a message"),
        ({"Key": {"id": "a"}, "UpdateExpression": "SET ow_tombstone = :n"}, "reserved for onewrite"),
        ({"Key": {"ow_l": "a"}, "UpdateExpression": "SET n = :n"}, "reserved for onewrite"),
        ({"Key": {"id": "a"}, "ExpressionAttributeValues": {":ow_a": 1}}, "begins like those of the ledger"),
    ],
)
def test_write_without_ledger_cannot_change_reserved_names(native: Any, complaint: str) -> None:
    client = Client()
    with pytest.raises(InvalidUpdate, match=complaint):
        sent(client, [unguarded(client).updating(**native)], inbox=inbox_of(client))


def test_client_of_a_boto3_resource_is_refused() -> None:
    keys: dict[str, Any] = {"region_name": "eu-west-1", "aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    client: Any = boto3.resource("dynamodb", **keys).meta.client
    for lean in (False, True):
        with pytest.raises(ConfigurationError, match="belongs to a boto3 resource"):
            GuardedTable(client, SeenIds(), table_name="orders", lean=lean)
    inbox = Inbox(client, table_name="inbox", consumer="billing", retention=timedelta(days=14))
    orders = GuardedTable(boto3.client("dynamodb", **keys), SeenIds(), table_name="orders")
    with pytest.raises(ConfigurationError, match="belongs to a boto3 resource"):
        transact(M5, [orders.recording(Key={"id": "a"})], inbox=inbox)
