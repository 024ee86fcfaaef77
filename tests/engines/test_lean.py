"""Lean tables on a real server: what boto3 would say, and what becomes of a try that fails."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import ClientError, EndpointConnectionError, SSLError
from botocore.session import get_session
from urllib3.util import wait_for_read

from onewrite import Applied, Duplicate, HighWaterMark, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.lean import LeanTableClient
from onewrite.lean.routes import Routes
from onewrite.testing import explore, moto_table
from onewrite.testing.servers.engines import REGION, Dynoxide, dynamo_client
from tests.engines.stores import State, addition, create_table, dynamo_state
from tests.support.garbling import GARBLES, Garbling, Listening, heads, with_header
from tests.support.seams import goes_by_client, idle_connections
from tests.support.tls import Authority, TLSProxy

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.measured

M1 = Message("m-1", source="s", sequence=1)
ONE_TRY = {"total_max_attempts": 1}


@pytest.fixture
def garbling(dynoxide: Dynoxide) -> Iterator[Garbling]:
    with Garbling("127.0.0.1", dynoxide.port) as proxy:
        yield proxy


@pytest.fixture
def client(garbling: Garbling) -> Iterator[Any]:
    made = dynamo_client(garbling.endpoint, max_pool_connections=4, retries=ONE_TRY)
    yield made
    made.close()


@pytest.fixture
def lean(client: Any, table: str) -> GuardedTable:
    return GuardedTable(client, SeenIds(), table_name=table, lean=True)


@pytest.fixture
def state(dynamo: DynamoDBClient, table: str) -> Callable[[], State]:
    return lambda: dynamo_state(dynamo, table)


def add(table: GuardedTable, message: Message = M1, **native: Any) -> Any:
    return table.update_item(message, **addition(message, "e"), **native)


# --- what boto3 says -----------------------------------------------------------------------------------------------------


@pytest.fixture
def twins(dynamo: DynamoDBClient, dynoxide: Dynoxide, table: str, alone: Callable[..., Any]) -> Iterator[Any]:
    """The same call by boto3 and by a lean client, to one table each."""
    other = f"{table}_too"
    create_table(dynamo, other)
    plain = dynamo_client(dynoxide.endpoint)
    asked = dynamo_client(dynoxide.endpoint)
    target = alone(LeanTableClient, asked)

    def both(operation: str, request: dict[str, Any]) -> tuple[Any, Any]:
        name = {"UpdateItem": "update_item", "PutItem": "put_item", "GetItem": "get_item"}[operation]
        theirs = _said(lambda: getattr(plain, name)(TableName=table, **request), table)
        ours = _said(lambda: target._send(operation, {"TableName": other, **request}), other)
        return ours, theirs

    yield both
    plain.close()
    asked.close()


def _said(call: Callable[[], Any], table: str) -> Any:
    """What was returned or raised, without what is another at each call."""
    response: Any
    kind = None
    try:
        response = call()
    except ClientError as error:
        response, kind = error.response, (type(error).__name__, error.operation_name, str(error))
    response["ResponseMetadata"].pop("RequestId")
    response["ResponseMetadata"]["HTTPHeaders"] = sorted(response["ResponseMetadata"]["HTTPHeaders"])
    if "ConsumedCapacity" in response:
        assert response["ConsumedCapacity"].pop("TableName") == table
    return kind, response


ALL = {
    "s": {"S": "é\n\U0001f600"},
    "n": {"N": "-1.5E+20"},
    "b": {"B": b"\x00\xff"},
    "t": {"BOOL": True},
    "o": {"NULL": True},
    "ss": {"SS": ["a"]},
    "ns": {"NS": ["1"]},
    "bs": {"BS": [b"\xfe"]},
    "l": {"L": [{"M": {"b": {"B": b"x"}}}, {"L": []}]},
}
KEY = {"id": {"S": "e"}}
SET = {"Key": KEY, "UpdateExpression": "SET #a=:a", "ExpressionAttributeNames": {"#a": "a"}}
TO = {"ExpressionAttributeValues": {":a": {"M": ALL}}}
REFUSING = {"ConditionExpression": "attribute_exists(never)"}


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        *[
            ("UpdateItem", {**SET, **TO, "ReturnValues": kind})
            for kind in ("NONE", "ALL_NEW", "ALL_OLD", "UPDATED_NEW", "UPDATED_OLD")
        ],
        *[("UpdateItem", {**SET, **TO, "ReturnConsumedCapacity": kind}) for kind in ("TOTAL", "INDEXES", "NONE")],
        ("UpdateItem", {**SET, **TO, "ReturnItemCollectionMetrics": "SIZE"}),
        ("UpdateItem", {**SET, **TO, **REFUSING}),
        ("UpdateItem", {**SET, **TO, **REFUSING, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}),
        ("PutItem", {"Item": {**KEY, **ALL}}),
        ("PutItem", {"Item": {**KEY, "a": {"M": ALL}}, "ReturnValues": "ALL_OLD", "ReturnConsumedCapacity": "TOTAL"}),
        ("PutItem", {"Item": KEY, **REFUSING, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}),
        ("PutItem", {"Item": KEY, "ReturnItemCollectionMetrics": "SIZE"}),
        ("GetItem", {"Key": KEY, "ConsistentRead": True, "ReturnConsumedCapacity": "TOTAL"}),
        ("GetItem", {"Key": KEY, "ProjectionExpression": "#b,ss", "ExpressionAttributeNames": {"#b": "b"}}),
        ("GetItem", {"Key": KEY, "AttributesToGet": ["bs", "id"]}),
        ("GetItem", {"Key": {"id": {"S": "nobody"}}}),
    ],
)
def test_lean_response_or_error_equals_the_boto3_result(twins: Any, operation: str, request_: dict[str, Any]) -> None:
    twins("PutItem", {"Item": {**KEY, **ALL}})
    ours, theirs = twins(operation, request_)
    assert ours == theirs


def test_invalid_request_raises_the_boto3_error(lean: GuardedTable, garbling: Garbling) -> None:
    with pytest.raises(ClientError, match="ValidationException"):
        lean.update_item(M1, Key={"other": "e"}, UpdateExpression="SET a=b")
    assert garbling.operations == ["UpdateItem"] * 2


# --- responses that are none -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("garble", GARBLES)
def test_unreadable_response_is_retried_once_without_a_second_effect(
    lean: GuardedTable, garbling: Garbling, state: Callable[[], State], garble: str
) -> None:
    garbling.garble = GARBLES[garble]
    assert add(lean) == Applied(M1, retried=True)
    assert garbling.operations == ["UpdateItem"] * 2
    assert isinstance(add(lean), Duplicate)
    assert state() == State(1, ["m-1"])


def test_read_is_repeated_if_response_is_lost(lean: GuardedTable, garbling: Garbling) -> None:
    add(lean)
    garbling.garble = lambda _: None
    assert lean.get_item(Key={"id": "e"}) == {"id": "e", "n": 1, "effects": ["m-1"]}
    assert garbling.operations == ["UpdateItem", "GetItem", "GetItem"]


def test_boto3_exception_is_raised_if_server_is_unreachable(table: str, caplog: pytest.LogCaptureFixture) -> None:
    client = dynamo_client("http://127.0.0.1:9", retries=ONE_TRY)
    with caplog.at_level(logging.DEBUG, "onewrite"), pytest.raises(EndpointConnectionError):
        add(GuardedTable(client, SeenIds(), table_name=table, lean=True))
    assert "failed (ConnectionRefusedError" in caplog.text
    client.close()


# --- connections -----------------------------------------------------------------------------------------------------------


def test_closed_idle_connection_is_replaced_without_a_second_request(
    client: Any, garbling: Garbling, table: str, alone: Callable[..., Any]
) -> None:
    target = alone(LeanTableClient, client)
    target.get_item(TableName=table, Key=KEY)
    (idle,) = idle_connections(target)
    garbling.end_connections()
    assert wait_for_read(idle._socket, 10)
    target.get_item(TableName=table, Key=KEY)
    assert garbling.operations == ["GetItem"] * 2
    assert idle_connections(target) != [idle]


def test_connection_is_not_kept_if_server_closes_the_connection(
    client: Any, garbling: Garbling, table: str, alone: Callable[..., Any]
) -> None:
    target = alone(LeanTableClient, client)
    garbling.garble = with_header(b"connection: close")
    target.get_item(TableName=table, Key=KEY)
    assert idle_connections(target) == []


def test_idle_connections_of_eight_threads_stay_within_the_limit(
    lean: GuardedTable, client: Any, state: Callable[[], State]
) -> None:
    messages = [Message(f"m-{n}") for n in range(160)]
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda message: add(lean, message), messages))
    assert outcomes == [Applied(message) for message in messages]
    assert state().n == len(messages)
    assert len(idle_connections(LeanTableClient(client))) <= 4


FORKED = """
import os, sys
from onewrite import Applied, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.testing.servers.engines import dynamo_client
endpoint, table = sys.argv[1:]
guarded = GuardedTable(dynamo_client(endpoint), SeenIds(), table_name=table, lean=True)
def add(who, n):
    message = Message(f"{who}-{n}")
    return guarded.update_item(message, Key={"id": "e"}, UpdateExpression="ADD n :one", ExpressionAttributeValues={":one": 1}) == Applied(message)
assert add("parent", 0)
children = []
for who in ("a", "b"):
    child = os.fork()
    if not child:
        os._exit(0 if all([add(who, n) for n in range(50)]) else 1)
    children.append(child)
assert all([add("parent", n) for n in range(1, 50)])
assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_and_their_parent_write_concurrently(
    dynoxide: Dynoxide, table: str, state: Callable[[], State]
) -> None:
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", FORKED, dynoxide.endpoint, table]
    subprocess.run(command, check=True, timeout=60)
    assert state().n == 150


# --- credentials, endpoints and TLS ----------------------------------------------------------------------------------------


@pytest.fixture
def listening(dynoxide: Dynoxide) -> Iterator[Listening]:
    with Listening("127.0.0.1", dynoxide.port) as proxy:
        yield proxy


def test_refreshed_credentials_are_used_with_a_signed_token(listening: Listening, table: str) -> None:
    made = iter(range(100))

    def refresh() -> dict[str, str]:
        n = next(made)
        expiry = datetime.now(UTC) + timedelta(seconds=1 if n == 0 else 7200)
        return {"access_key": f"key{n}", "secret_key": "secret", "token": f"token{n}", "expiry_time": expiry.isoformat()}

    session: Any = get_session()
    session._credentials = RefreshableCredentials.create_from_metadata(refresh(), refresh, "test")
    client = session.create_client("dynamodb", region_name=REGION, endpoint_url=listening.endpoint)
    lean = GuardedTable(client, SeenIds(), table_name=table, lean=True)
    add(lean)
    lean.get_item(Key={"id": "e"})
    client.get_item(TableName=table, Key=KEY)
    first, second, botocores = heads(listening.chunks)
    assert first["x-amz-security-token"] == second["x-amz-security-token"] == botocores["x-amz-security-token"] == "token1"
    assert "Credential=key1/" in first["authorization"]
    signed = "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target,"
    assert signed in first["authorization"]
    assert signed in botocores["authorization"]
    for name in ("host", "content-type", "x-amz-target", "accept-encoding"):
        assert second[name] == botocores[name]
    assert second["user-agent"] == client.meta.config.user_agent
    client.close()


@pytest.mark.parametrize(
    ("account", "config", "host"),
    [
        (None, {}, "dynamodb.us-east-1.amazonaws.com"),
        (None, {"use_fips_endpoint": True}, "dynamodb-fips.us-east-1.amazonaws.com"),
        (None, {"use_dualstack_endpoint": True}, "dynamodb.us-east-1.api.aws"),
        ("123456789012", {}, "123456789012.ddb.us-east-1.amazonaws.com"),
    ],
)
def test_request_uses_the_botocore_endpoint(account: str | None, config: dict[str, Any], host: str) -> None:
    keys: Any = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "aws_account_id": account}
    client = boto3.client("dynamodb", region_name="us-east-1", config=Config(**config), **keys)
    route = Routes(client).find_route("UpdateItem", {"TableName": "orders"})
    assert (route.address.host, route.host, route.address.port, route.address.is_encrypted) == (host, host, 443, True)
    client.close()


def test_boto3_exception_is_raised_if_credentials_are_missing(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = dynamo_client("http://127.0.0.1:9")
    monkeypatch.setattr(client._request_signer, "_credentials", None)
    with pytest.raises(Exception, match="Unable to locate credentials"):
        add(GuardedTable(client, SeenIds(), table_name=table, lean=True))
    client.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture
def secure(dynoxide: Dynoxide, authority: Authority) -> Iterator[TLSProxy]:
    with TLSProxy("127.0.0.1", dynoxide.port, authority.issue("127.0.0.1")) as proxy:
        yield proxy


def tls_client(proxy: TLSProxy, verify: bool | str | None, **config: Any) -> Any:
    session = boto3.Session(aws_access_key_id="dummy", aws_secret_access_key="dummy", region_name=REGION)
    return session.client("dynamodb", endpoint_url=proxy.endpoint, verify=verify, config=Config(**config))


@pytest.mark.parametrize("verify", ["path", "environment", "off"])
def test_tls_verification_uses_the_client_settings(
    secure: TLSProxy,
    authority: Authority,
    table: str,
    verify: str,
    alone: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if verify == "environment":
        monkeypatch.setenv("AWS_CA_BUNDLE", authority.path)
    client = tls_client(secure, {"path": authority.path, "environment": None, "off": False}[verify])
    target = alone(LeanTableClient, client)
    for _ in range(2):
        target.put_item(TableName=table, Item=KEY)
    assert secure.operations == ["PutItem"] * 2
    assert len(idle_connections(target)) == 1
    client.close()


@pytest.mark.parametrize("wrong", ["authority", "host"])
def test_request_is_not_sent_to_an_untrusted_server(
    dynoxide: Dynoxide, authority: Authority, table: str, wrong: str, tmp_path: Path
) -> None:
    own = authority.issue("127.0.0.1" if wrong == "authority" else "localhost.example")
    trusted = Authority(tmp_path, "stranger") if wrong == "authority" else authority
    with TLSProxy("127.0.0.1", dynoxide.port, own) as proxy:
        client = tls_client(proxy, trusted.path, retries=ONE_TRY)
        with pytest.raises(SSLError):
            add(GuardedTable(client, SeenIds(), table_name=table, lean=True))
        client.close()
        assert proxy.operations == []


@pytest.mark.parametrize("is_one_file", [False, True])
def test_client_certificate_is_sent(
    dynoxide: Dynoxide, authority: Authority, table: str, is_one_file: bool, alone: Callable[..., Any], tmp_path: Path
) -> None:
    ours, both = authority.issue("client"), tmp_path / "both.pem"
    both.write_text("".join(Path(path).read_text() for path in ours))
    shown: Any = str(both) if is_one_file else tuple(ours)
    with TLSProxy("127.0.0.1", dynoxide.port, authority.issue("127.0.0.1"), clients=authority) as proxy:
        client = tls_client(proxy, authority.path, client_cert=shown)
        alone(LeanTableClient, client).put_item(TableName=table, Item=KEY)
        assert proxy.operations == ["PutItem"]
        client.close()


# --- stand-ins and the explorer --------------------------------------------------------------------------------------------


def test_requests_use_the_boto3_client_under_moto(caplog: pytest.LogCaptureFixture) -> None:
    with moto_table("orders", "id"), caplog.at_level(logging.DEBUG, "onewrite"):
        client = boto3.client("dynamodb")
        lean = GuardedTable(client, HighWaterMark(), table_name="orders", lean=True)
        assert lean.update_item(
            M1, Key={"id": "e"}, UpdateExpression="SET a=:a", ExpressionAttributeValues={":a": 1}
        ) == Applied(M1)
        assert isinstance(lean.remember(M1, Key={"id": "e"}), Duplicate)
        assert caplog.records == []  # no try that failed
        client.close()


@pytest.mark.parametrize("made", ["given", "before", "in the handler"])
@pytest.mark.few(1)
def test_explorer_sees_requests_of_a_lean_table(dynoxide: Dynoxide, table: str, made: str) -> None:
    dynamo = dynamo_client(dynoxide.endpoint)  # to which no other test has added an event handler

    def guarded(store: Any) -> GuardedTable:
        return GuardedTable(store, SeenIds(), table_name=table, lean=True)

    def world() -> Any:
        dynamo.delete_item(TableName=table, Key=KEY)
        return dynamo

    def build(store: Any) -> Callable[[Message], object]:
        if made == "in the handler":
            return lambda message: add(guarded(dynamo), message)
        known = kept if made == "before" else guarded(store)
        return lambda message: add(known, message)

    kept = guarded(dynamo)
    found = explore(build, messages=[M1], world=world, observe=lambda _: dynamo_state(dynamo, table))
    found.assert_effectively_once()
    assert found.exhausted
    assert found.schedules > 1
    assert add(kept, Message("m-2")) == Applied(Message("m-2"))
    assert not goes_by_client(kept._target)
    dynamo.close()
