"""Lean tables of asyncio on a real server: what aiobotocore would say, and what becomes of a try that fails."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import aioboto3
import boto3
import pytest
import uvloop
from aiobotocore.client import AioBaseClient
from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioRefreshableCredentials
from aiobotocore.session import get_session
from botocore.exceptions import ClientError, EndpointConnectionError, ParamValidationError

from onewrite import Applied, ConfigurationError, Duplicate, Message, SeenIds
from onewrite.dynamodb import AsyncGuardedTable
from onewrite.dynamodb.lean_asynchronous import AsyncLeanTableClient
from onewrite.testing.model.machine import Machine
from onewrite.testing.servers.engines import REGION, Dynoxide
from tests.engines.ledgers import AnyLedger, ledgers
from tests.engines.stores import State, addition, async_dynamo, create_table, dynamo_state
from tests.support.garbling import GARBLES, Garbling, Listening, heads, with_header
from tests.support.tls import Authority, TLSProxy

pytestmark = pytest.mark.measured
wrapt: Any = import_module("wrapt")  # it has no types
M1 = Message("m-1", source="s", sequence=1)
KEY = {"id": {"S": "e"}}
ONE_TRY = {"total_max_attempts": 1}
NOWHERE = "http://127.0.0.1:9"  # nobody listens there

Test = Callable[[Any], Awaitable[None]]


def with_client(
    endpoint: str,
    test: Test,
    *,
    verify: bool | str | None = None,
    retries: Any = ONE_TRY,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    **config: Any,
) -> None:
    """The test is given a client, which is closed at the end. Nothing may be left open then."""

    async def main() -> None:
        settings = AioConfig(retries=retries, max_pool_connections=4, **config)
        keys = {"aws_access_key_id": "dummy", "aws_secret_access_key": "dummy"}
        places = {"region_name": REGION, "endpoint_url": endpoint, "verify": verify}
        session: Any = get_session()
        async with session.create_client("dynamodb", **places, **keys, config=settings) as client:
            await test(client)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@pytest.fixture
def garbling(dynoxide: Dynoxide) -> Iterator[Garbling]:
    with Garbling("127.0.0.1", dynoxide.port) as proxy:
        yield proxy


@pytest.fixture
def state(dynamo: Any, table: str) -> Callable[[], State]:
    return lambda: dynamo_state(dynamo, table)


def lean(client: Any, table: str = "orders", ledger: Any = None) -> AsyncGuardedTable:
    return AsyncGuardedTable(client, SeenIds() if ledger is None else ledger, table_name=table, lean=True)


async def add(table: AsyncGuardedTable, message: Message = M1, **native: Any) -> Any:
    return await table.update_item(message, **addition(message, "e"), **native)


def alone(client: Any) -> AsyncLeanTableClient:
    """A lean client whose aiobotocore client may not be asked."""

    async def fell_back(**_: Any) -> NoReturn:
        raise AssertionError("the request was left to aiobotocore")

    target = AsyncLeanTableClient(client)
    target._look.by_client = lambda: False  # type: ignore[method-assign]
    for name in ("update_item", "put_item", "get_item"):
        setattr(client, name, fell_back)
    return target


# --- answers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("put_item", {"Item": {**KEY, "b": {"B": b"\x00\xff"}, "n": {"N": "1.5"}}, "ReturnValues": "ALL_OLD"}),
        ("get_item", {"Key": KEY, "ConsistentRead": True, "ReturnConsumedCapacity": "TOTAL"}),
        ("get_item", {"Key": {"id": {"S": "nobody"}}}),
        ("put_item", {"Item": KEY, "ConditionExpression": "attribute_not_exists(id)"}),
        (
            "update_item",
            {
                "Key": KEY,
                "UpdateExpression": "SET a=:ow_a",
                "ConditionExpression": "attribute_exists(never)",
                "ExpressionAttributeValues": {":ow_a": {"S": "x"}},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            },
        ),
    ],
)
def test_every_request_has_the_clients_answer_and_its_error(
    dynoxide: Dynoxide, table: str, method: str, request_: dict[str, Any]
) -> None:
    async def said(call: Awaitable[Any]) -> Any:
        kind: Any = None
        response: Any
        try:
            response = await call
        except ClientError as error:
            response, kind = error.response, (type(error).__name__, error.operation_name, str(error))
        response["ResponseMetadata"].pop("RequestId")
        response["ResponseMetadata"]["HTTPHeaders"] = sorted(response["ResponseMetadata"]["HTTPHeaders"])
        return kind, response

    async def test(client: Any) -> None:
        request = {"TableName": table, **request_}
        await client.put_item(TableName=table, Item={**KEY, "a": {"S": "before"}})
        theirs = await said(getattr(client, method)(**request))
        await client.put_item(TableName=table, Item={**KEY, "a": {"S": "before"}})
        assert await said(getattr(alone(client), method)(**request)) == theirs

    with_client(dynoxide.endpoint, test)


def test_a_loop_of_uvloop_is_served_as_one_of_asyncio(dynoxide: Dynoxide, table: str) -> None:
    async def test(client: Any) -> None:
        assert await alone(client).put_item(TableName=table, Item={**KEY, "a": {"S": "x"}})

    with_client(dynoxide.endpoint, test, loop_factory=uvloop.new_event_loop)


@pytest.mark.parametrize("garble", GARBLES)
def test_an_answer_that_is_none_makes_one_more_request_and_no_second_effect(
    garbling: Garbling, table: str, state: Callable[[], State], garble: str
) -> None:
    async def test(client: Any) -> None:
        garbling.garble = GARBLES[garble]
        assert await add(lean(client, table)) == Applied(M1, retried=True)
        assert garbling.operations == ["UpdateItem"] * 2
        assert isinstance(await add(lean(client, table)), Duplicate)

    with_client(garbling.endpoint, test)
    assert state() == State(1, ["m-1"])


@ledgers
def test_an_answer_that_is_lost_is_recognised_with_every_ledger(
    garbling: Garbling, table: str, ledger: AnyLedger, state: Callable[[], State]
) -> None:
    async def test(client: Any) -> None:
        garbling.garble = GARBLES["nothing"]
        assert await add(lean(client, table, ledger)) == Applied(M1, retried=True)

    with_client(garbling.endpoint, test)
    assert state() == State(1, ["m-1"])


def test_where_nobody_listens_the_clients_own_exception_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    async def test(client: Any) -> None:
        with caplog.at_level(logging.DEBUG, "onewrite"), pytest.raises(EndpointConnectionError):
            await add(lean(client))

    with_client(NOWHERE, test)
    assert "is left to the client: ConnectionRefusedError" in caplog.text


def test_an_argument_that_is_none_is_botocores_to_refuse(garbling: Garbling, table: str) -> None:
    async def test(client: Any) -> None:
        with pytest.raises(ParamValidationError, match="Foo"):
            await lean(client, table).get_item(Key={"id": "e"}, Foo=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    with_client(garbling.endpoint, test)
    assert garbling.operations == []


def test_after_three_answers_that_cannot_be_read_all_requests_go_by_the_client(
    garbling: Garbling, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(client: Any) -> None:
        store = lean(client, table)
        for _ in range(4):
            garbling.garble = GARBLES["compressed"]
            await store.get_item(Key={"id": "e"})

    with caplog.at_level(logging.WARNING, "onewrite"):
        with_client(garbling.endpoint, test, retries={"total_max_attempts": 3})
    assert "from now on its requests go by the aiobotocore client" in caplog.text


# --- connections -----------------------------------------------------------------------------------------------------------


def test_a_connection_that_the_server_has_ended_meanwhile_costs_nothing(garbling: Garbling, table: str) -> None:
    async def test(client: Any) -> None:
        target = alone(client)
        await target.get_item(TableName=table, Key=KEY)
        (idle,) = target._pool._idle
        garbling.end_connections()
        await _until(lambda: idle._is_over)
        await target.get_item(TableName=table, Key=KEY)
        assert target._pool._idle != [idle]

    with_client(garbling.endpoint, test)
    assert garbling.operations == ["GetItem"] * 2


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110  # nobody tells it
            await asyncio.sleep(0.01)


def test_a_connection_on_which_something_comes_unasked_is_closed(garbling: Garbling, table: str) -> None:
    async def test(client: Any) -> None:
        target = alone(client)
        await target.get_item(TableName=table, Key=KEY)
        (idle,) = target._pool._idle
        idle.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        assert idle._transport.is_closing()
        await target.get_item(TableName=table, Key=KEY)
        assert target._pool._idle != [idle]

    with_client(garbling.endpoint, test)


def test_a_connection_that_was_idle_for_longer_than_the_client_allows_is_not_used_again(
    dynoxide: Dynoxide, table: str
) -> None:
    async def test(client: Any) -> None:
        target = alone(client)
        await target.get_item(TableName=table, Key=KEY)
        (idle,) = target._pool._idle
        idle._idle_since -= 1.5
        await target.get_item(TableName=table, Key=KEY)
        assert target._pool._idle != [idle]
        assert idle._transport.is_closing()

    with_client(dynoxide.endpoint, test, connector_args={"keepalive_timeout": 1.0})


def test_a_client_may_keep_idle_connections_for_ever(dynoxide: Dynoxide, table: str) -> None:
    async def test(client: Any) -> None:
        target = alone(client)
        for _ in range(3):
            await target.get_item(TableName=table, Key=KEY)
        assert len(target._pool._connections) == 1

    with_client(dynoxide.endpoint, test, connector_args={"keepalive_timeout": None})


def test_a_connection_that_the_server_says_it_ends_is_not_kept(garbling: Garbling, table: str) -> None:
    async def test(client: Any) -> None:
        target = alone(client)
        garbling.garble = with_header(b"connection: close")
        await target.get_item(TableName=table, Key=KEY)
        assert target._pool._idle == []

    with_client(garbling.endpoint, test)


def test_many_tasks_share_a_client_and_open_no_more_connections_than_it_allows(
    dynoxide: Dynoxide, table: str, state: Callable[[], State]
) -> None:
    messages = [Message(f"m-{n}") for n in range(80)]

    async def test(client: Any) -> None:
        store, pool, counts = lean(client, table), AsyncLeanTableClient(client)._pool, set[int]()

        async def add_counting(message: Message) -> Any:
            outcome = await add(store, message)
            counts.add(len(pool._connections))
            return outcome

        outcomes = await asyncio.gather(*map(add_counting, messages))
        assert outcomes == [Applied(message) for message in messages]
        assert max(counts) == 4

    with_client(dynoxide.endpoint, test)
    assert state().n == len(messages)


def test_a_task_that_is_cancelled_while_it_waits_for_a_connection_holds_up_nobody(dynoxide: Dynoxide, table: str) -> None:
    async def test(client: Any) -> None:
        store = lean(client, table)
        tasks = [asyncio.create_task(add(store, Message(f"m-{n}"))) for n in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert outcomes[1::2] == [Applied(Message(f"m-{n}")) for n in range(1, 20, 2)]
        assert await add(store, Message("last")) == Applied(Message("last"))

    with_client(dynoxide.endpoint, test)


def test_a_task_that_is_cancelled_leaves_no_connection_behind_and_its_message_takes_effect_once(
    garbling: Garbling, table: str, state: Callable[[], State]
) -> None:
    async def test(client: Any) -> None:
        store, entered = lean(client, table), asyncio.Event()
        await store.get_item(Key={"id": "e"})
        pool, loop = AsyncLeanTableClient(client)._pool, asyncio.get_running_loop()
        hold = asyncio.Event()

        def wait(_: bytes) -> None:
            loop.call_soon_threadsafe(entered.set)
            asyncio.run_coroutine_threadsafe(hold.wait(), loop).result(10)

        garbling.garble = wait
        task = asyncio.create_task(add(store))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        hold.set()
        assert pool._idle == []
        assert isinstance(await add(store), Duplicate)

    with_client(garbling.endpoint, test)
    assert state() == State(1, ["m-1"])


def test_an_answer_that_does_not_come_in_time_is_left_to_the_client(
    garbling: Garbling, table: str, state: Callable[[], State]
) -> None:
    async def test(client: Any) -> None:
        loop, hold = asyncio.get_running_loop(), asyncio.Event()
        garbling.garble = lambda _: asyncio.run_coroutine_threadsafe(hold.wait(), loop).result(10) and None
        assert await add(lean(client, table)) == Applied(M1, retried=True)
        hold.set()

    with_client(garbling.endpoint, test, read_timeout=0.3)
    assert state() == State(1, ["m-1"])


def test_in_another_event_loop_all_requests_are_the_clients_own(dynoxide: Dynoxide, table: str) -> None:
    async def test(client: Any) -> None:
        target = alone(client)
        await target.get_item(TableName=table, Key=KEY)

        async def elsewhere() -> None:
            with pytest.raises(AssertionError, match="left to aiobotocore"):
                await target.get_item(TableName=table, Key=KEY)

        await asyncio.to_thread(asyncio.run, elsewhere())
        await target.get_item(TableName=table, Key=KEY)

    with_client(dynoxide.endpoint, test)


def test_connections_are_closed_when_the_client_is(dynoxide: Dynoxide, table: str) -> None:
    kept: list[Any] = []

    async def test(client: Any) -> None:
        await lean(client, table).get_item(Key={"id": "e"})
        kept.extend(AsyncLeanTableClient(client)._pool._idle)
        assert not kept[0].ended.done()

    with_client(dynoxide.endpoint, test)
    assert kept[0].ended.done()


def test_what_is_under_way_when_the_client_is_closed_keeps_no_connection_and_later_requests_are_the_clients_own(
    garbling: Garbling, table: str
) -> None:
    async def main() -> None:
        session: Any = get_session()
        keys = {"aws_access_key_id": "dummy", "aws_secret_access_key": "dummy"}
        context = session.create_client("dynamodb", region_name=REGION, endpoint_url=garbling.endpoint, **keys)
        client = await context.__aenter__()
        target, loop, hold = alone(client), asyncio.get_running_loop(), threading.Event()
        entered = asyncio.Event()

        def wait(_: bytes) -> None:
            loop.call_soon_threadsafe(entered.set)
            hold.wait(10)

        garbling.garble = wait
        task = asyncio.create_task(target.get_item(TableName=table, Key=KEY))
        await entered.wait()
        await context.__aexit__(None, None, None)
        for awaited in (task, target.get_item(TableName=table, Key=KEY)):
            with pytest.raises(AssertionError, match="left to aiobotocore"):
                await awaited
        hold.set()
        assert (target._pool._idle, target._pool._connections) == ([], set())

    asyncio.run(main())


def test_all_tables_of_a_client_share_its_connections() -> None:
    async def test(client: Any) -> None:
        assert AsyncLeanTableClient(client)._pool is AsyncLeanTableClient(client)._pool

    with_client(NOWHERE, test)


# --- credentials and TLS ---------------------------------------------------------------------------------------------------


def test_credentials_that_refresh_themselves_are_refreshed_and_their_token_is_signed(dynoxide: Dynoxide, table: str) -> None:
    made = iter(range(100))

    async def refresh() -> dict[str, str]:
        n = next(made)
        expiry = "2020-01-01T00:00:00Z" if n == 0 else "2999-01-01T00:00:00Z"
        return {"access_key": f"key{n}", "secret_key": "secret", "token": f"token{n}", "expiry_time": expiry}

    async def main(listening: Listening) -> None:
        session: Any = get_session()
        session._credentials = AioRefreshableCredentials.create_from_metadata(await refresh(), refresh, "test")
        async with session.create_client("dynamodb", region_name=REGION, endpoint_url=listening.endpoint) as client:
            await lean(client, table).get_item(Key={"id": "e"})
            await client.get_item(TableName=table, Key=KEY)

    with Listening("127.0.0.1", dynoxide.port) as listening:
        asyncio.run(main(listening))
        ours, theirs = heads(listening.chunks)
    assert ours["x-amz-security-token"] == theirs["x-amz-security-token"] == "token1"
    assert "Credential=key1/" in ours["authorization"]
    for name in ("host", "content-type", "x-amz-target", "accept-encoding"):
        assert ours[name] == theirs[name]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.mark.parametrize("verify", ["path", "off"])
def test_tls_is_verified_as_the_client_verifies_it(
    dynoxide: Dynoxide, authority: Authority, table: str, verify: str
) -> None:
    async def test(client: Any) -> None:
        target = alone(client)
        for _ in range(2):
            await target.put_item(TableName=table, Item=KEY)
        assert len(target._pool._idle) == 1

    with TLSProxy("127.0.0.1", dynoxide.port, authority.issue("127.0.0.1")) as proxy:
        with_client(proxy.endpoint, test, verify=authority.path if verify == "path" else False)
        assert proxy.operations == ["PutItem"] * 2


@pytest.mark.parametrize("wrong", ["authority", "host"])
def test_a_server_that_is_not_the_right_one_gets_no_lean_request(
    dynoxide: Dynoxide, authority: Authority, table: str, wrong: str, tmp_path: Path
) -> None:
    """Not every version of aiobotocore compares the host's name with the certificate's."""
    own = authority.issue("127.0.0.1" if wrong == "authority" else "localhost.example")
    trusted = Authority(tmp_path, "stranger") if wrong == "authority" else authority

    async def test(client: Any) -> None:
        with pytest.raises(AssertionError, match="left to aiobotocore"):
            await alone(client).put_item(TableName=table, Item=KEY)

    with TLSProxy("127.0.0.1", dynoxide.port, own) as proxy:
        with_client(proxy.endpoint, test, verify=trusted.path)
        assert proxy.operations == []


# --- what would be passed by -----------------------------------------------------------------------------------------------


def _foreign(**_: Any) -> None:
    """What a user registers."""


def test_a_foreign_event_handler_is_refused_by_name_and_one_that_comes_later_sends_all_by_the_client() -> None:
    async def test(client: Any) -> None:
        target = AsyncLeanTableClient(client)
        assert not target._look.by_client()
        client.meta.events.register("before-send", _foreign)
        assert target._look.by_client()
        with pytest.raises(ConfigurationError, match=r"the event handler \S+_foreign, registered for before-send"):
            lean(client)

    with_client(NOWHERE, test)


def test_instrumentation_is_refused_by_name_and_seen_when_it_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def instrumented(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
        return wrapped(*args, **kwargs)

    async def test(client: Any) -> None:
        target = AsyncLeanTableClient(client)
        original = vars(AioBaseClient)["_make_api_call"]
        monkeypatch.setattr(AioBaseClient, "_make_api_call", wrapt.FunctionWrapper(original, instrumented))
        assert target._look.by_client()
        with pytest.raises(ConfigurationError, match=r"instrumented in the place of _make_api_call"):
            lean(client)
        monkeypatch.undo()
        assert not target._look.by_client()

    with_client(NOWHERE, test)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"signature_version": "bearer"}, "signed by version 4"),
        ({"proxies": {"http": "http://proxy:3128"}}, "a proxy for http://127.0.0.1:9"),
        ({"connector_args": {"use_dns_cache": False}}, "use_dns_cache in the connector_args"),
    ],
)
def test_settings_that_would_be_passed_by_are_refused(config: dict[str, Any], why: str) -> None:
    async def test(client: Any) -> None:
        with pytest.raises(ConfigurationError, match=f"{why}.*leave out lean"):
            lean(client)

    with_client(NOWHERE, test, **config)


def test_another_http_session_is_refused() -> None:
    async def test(client: Any) -> None:
        endpoint, session = client._endpoint, client._endpoint.http_session
        endpoint.http_session = object()
        with pytest.raises(ConfigurationError, match=r"builtins\.object in the place of aiobotocore\.httpsession's"):
            lean(client)
        endpoint.http_session = session

    with_client(NOWHERE, test)


def test_a_client_of_boto3_and_a_table_are_refused() -> None:
    client = boto3.client("dynamodb", region_name=REGION)
    with pytest.raises(ConfigurationError, match="which is not aiobotocore's low-level client of DynamoDB"):
        AsyncLeanTableClient(client)
    client.close()

    async def main() -> None:
        async with aioboto3.Session().resource("dynamodb", region_name=REGION) as resource:
            with pytest.raises(ConfigurationError, match="give aiobotocore's client of DynamoDB and table_name="):
                AsyncGuardedTable(await resource.Table("orders"), SeenIds(), lean=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

    asyncio.run(main())


def test_a_machine_of_the_explorer_sees_what_a_lean_table_sends(table: str) -> None:
    async def main(endpoint: str) -> None:
        async with async_dynamo(endpoint) as client:
            machine = Machine(lambda: client)
            store = lean(machine.stores(machine.aperform), table)
            for _ in range(2):
                machine.reset()
                assert await add(store) == Applied(M1)
                assert isinstance(await add(store), Duplicate)
            assert machine.misses > 0
            kept = lean(client, table)
            assert isinstance(await add(kept), Applied | Duplicate)

    with Dynoxide() as own:  # a client's world is all that the server holds
        client = own.client()
        create_table(client, table)
        client.close()
        asyncio.run(main(own.endpoint))
