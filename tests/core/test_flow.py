"""The two loops: everything that decides is in the flow, and everything that talks is here."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from onewrite import ConfigurationError
from onewrite.core.flow import Call, Do, Flow, arun, run
from onewrite.core.ledgers import SeenIds
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.stores import check_awaited


class Client:
    """Answers each call with the next of `replies`, or raises it."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.calls: list[Any] = []

    def update_item(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        reply = self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply


class AsyncClient(Client):
    async def update_item(self, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return super().update_item(*args, **kwargs)


def two_calls(log: list[Any]) -> Flow[str]:
    log.append((yield Call("update_item", ("a",), {"b": 1})))
    log.append((yield Call("update_item")))
    return "done"


def noting(seen: list[str]) -> Flow[None]:
    """Notes how it ends."""
    try:
        yield Call("update_item")
    except GeneratorExit:
        seen.append("closed")
        raise
    except BaseException:
        seen.append("thrown")
        raise


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_exit_closes_the_flow(end: type[BaseException]) -> None:
    seen: list[str] = []
    with pytest.raises(end):
        run(noting(seen), Client(end()))
    assert seen == ["closed"]


def test_a_cancelled_task_closes_its_flow_and_stays_cancelled() -> None:
    seen: list[str] = []
    started = asyncio.Event()

    class Silent:
        async def update_item(self) -> None:
            started.set()
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(arun(noting(seen), Silent()))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen == ["closed"]  # at once, not when it is collected

    asyncio.run(main())


def test_blocking_loop_refuses_an_asynchronous_client_before_sending() -> None:
    client = AsyncClient("first")
    with pytest.raises(ConfigurationError, match=r"AsyncClient is asynchronous\. Guard it with AsyncGuarded"):
        run(two_calls([]), client)
    gc.collect()  # a coroutine that was left behind would warn, which is an error here
    assert client.calls == []


def test_an_asynchronous_loop_refuses_a_blocking_client() -> None:
    with pytest.raises(ConfigurationError, match=r"has sent the request\. Guard it with Guarded"):
        asyncio.run(arun(two_calls([]), Client("first")))


def made_by(module: str, *, asynchronous: bool) -> Any:
    """A client as that library would make it."""
    return type("Client", (AsyncClient if asynchronous else Client,), {"__module__": module})()


@pytest.mark.parametrize(
    ("module", "asynchronous", "fits"),
    [
        ("botocore.client", False, {False}),
        ("pymongo.asynchronous.collection", True, {True}),
        ("aiobotocore.client", False, {True}),  # its methods are coroutines behind a plain face
        ("tests.own", False, {True, False}),  # nobody knows what such a client's methods return
    ],
)
@pytest.mark.parametrize("awaited", [False, True])
def test_wrong_kind_of_client_is_refused_before_sending(
    module: str, asynchronous: bool, fits: set[bool], awaited: bool
) -> None:
    client = made_by(module, asynchronous=asynchronous)
    if awaited in fits:
        check_awaited(client, "update_item", is_async=awaited)
        return
    with pytest.raises(ConfigurationError, match="Guard it with Guarded" if awaited else "with AsyncGuarded"):
        check_awaited(client, "update_item", is_async=awaited)


def test_guarded_table_refuses_the_other_kind_of_client() -> None:
    with pytest.raises(ConfigurationError, match="is asynchronous"):
        GuardedTable(AsyncClient(), SeenIds(), table_name="orders")
    with pytest.raises(ConfigurationError, match="isn't asynchronous"):
        AsyncGuardedTable(made_by("botocore.client", asynchronous=False), SeenIds(), table_name="orders")


def test_function_result_is_awaited_in_asynchronous_loops() -> None:
    async def later(n: int, *, plus: int) -> int:
        await asyncio.sleep(0)
        return n + plus

    def flow(function: Any) -> Flow[int]:
        return (yield Do(function, (1,), {"plus": 2}))

    assert run(flow(lambda n, plus: n + plus), Client()) == 3
    for function in (later, lambda n, plus: n + plus):
        assert asyncio.run(arun(flow(function), AsyncClient())) == 3
    with pytest.raises(ConfigurationError, match="can't await an asynchronous function"):
        run(flow(later), Client())
