"""A function that does not see how its guarded calls end, and returns None, loses no message."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import onewrite.dynamodb
import onewrite.mongodb
from onewrite import Applied, Duplicate, Message, Missing, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.batch.function import UnfinishedWrite
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.testing import moto_table
from onewrite.testing.standins.collection import AsyncStandInCollection
from onewrite.testing.standins.stores import mongomock_collection
from tests.support.batches import EFFECT, by_name, identifiers, make_payment, sqs

Act = Callable[["Shop", Any, Message], Any]


class Gate:
    """Keeps requests from a store: they raise the `error`, or wait for `opened` if the gate is closed."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.is_closed, self.entered, self.opened = False, threading.Event(), threading.Event()

    def pass_through(self) -> None:
        if self.error is not None:
            raise self.error
        if self.is_closed:
            self.entered.set()
            assert self.opened.wait(10)

    async def apass_through(self) -> None:
        if self.is_closed:
            self.entered.set()
            await asyncio.sleep(60)


class Gated:
    """A Table or collection whose writes go through a gate."""

    meta = None

    def __init__(self, target: Any, gate: Gate, *, is_async: bool = False) -> None:
        self._target, self._gate, self._is_async = target, gate, is_async

    def with_options(self, **_: Any) -> Gated:
        return self

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)

        def write(*args: Any, **request: Any) -> Any:
            self._gate.pass_through()
            return method(*args, **request)

        async def awrite(*args: Any, **request: Any) -> Any:
            await self._gate.apass_through()
            result = method(*args, **request)
            return await result if inspect.isawaitable(result) else result

        if name not in ("update_item", "update_one"):
            return method
        return awrite if self._is_async else write


@dataclass
class Shop:
    """The entities of an engine, of which only "here" and "there" exist, in stores that are blocking and asynchronous."""

    engine: Any
    store: Any
    awaited: Any
    client: Any
    gate: Gate
    make_arguments: Callable[[str], dict[str, Any]]

    def update(self, store: Any, message: Any, name: str, **more: Any) -> Any:
        method = store.update_one if hasattr(store, "update_one") else store.update_item
        return method(message, **{**self.make_arguments(name), **more})

    def name(self, name: str) -> dict[str, Any]:
        return {key: value for key, value in self.make_arguments(name).items() if key in ("Key", "filter")}

    def place(self, message: Message, name: str) -> Any:
        if self.engine is onewrite.mongodb:
            return self.store.insert_one(message, {"_id": name, "paid": 1})
        return self.store.put_item(message, Item={"orderId": name, "paid": 1})


@pytest.fixture(params=["dynamodb", "mongodb"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    gate = Gate()
    if request.param == "dynamodb":
        with moto_table("orders") as table:
            for name in ("here", "there"):
                table.put_item(Item={"orderId": name})

            client: Any = Gated(table, gate)
            awaited_client: Any = Gated(table, gate, is_async=True)
            awaited = AsyncGuardedTable(awaited_client, SeenIds())
            yield Shop(onewrite.dynamodb, GuardedTable(client, SeenIds()), awaited, client, gate, make_payment)
        return
    collection = mongomock_collection("orders")
    collection.insert_many([{"_id": "here", "paid": 0}, {"_id": "there", "paid": 0}])
    change = {"$inc": {"paid": 1}}
    documents: Any = Gated(collection, gate)
    awaited_documents: Any = Gated(AsyncStandInCollection(collection), gate, is_async=True)
    yield Shop(
        onewrite.mongodb,
        GuardedCollection(documents, SeenIds()),
        AsyncGuardedCollection(awaited_documents, SeenIds()),
        documents,
        gate,
        lambda name: {"filter": {"_id": name}, "update": change},
    )


def is_settled(handle: Any) -> bool:
    return sqs_handler(by_name)(handle)(sqs(["m"]), None) == {"batchItemFailures": []}


# --- an exception that nobody sees ----------------------------------------------------------------------------------------


def take_wrong_option(shop: Shop, store: Any, message: Message) -> Any:
    return shop.update(store, message, "here", missing_ok="yes")


def take_no_message(shop: Shop, store: Any, message: Message) -> Any:
    return shop.update(store, message.id, "here")


def begin_without_lease(shop: Shop, store: Any, message: Message) -> Any:
    return store.begin_effect(message, "charge", **shop.name("here"), lease=timedelta(0), key_valid_for=timedelta(0))


def perform_effect_that_raises(shop: Shop, store: Any, message: Message) -> Any:
    def charge(effect: Any) -> Any:
        shop.store.preview(message, **shop.name("here"))
        raise ValueError(effect)

    return store.perform_effect(message, "charge", charge, **shop.name("here"), **EFFECT, then=dict)


def batch_with_function_that_raises(_: Shop, store: Any, message: Message) -> Any:
    return store.update_batch([message], lambda fresh: {}[fresh[0]])


def batch_iterator(_: Shop, store: Any, message: Message) -> Any:
    return store.update_batch(iter([message]), lambda fresh: {}[fresh[0]])


RAISING: list[Act] = [
    take_wrong_option,
    take_no_message,
    begin_without_lease,
    perform_effect_that_raises,
    batch_with_function_that_raises,
    batch_iterator,
]


def in_pool(shop: Shop, act: Act) -> Callable[[Message], Any]:
    def handle(message: Message) -> None:
        with ThreadPoolExecutor() as pool:
            pool.submit(act, shop, shop.store, message)

    return handle


def in_plain_thread(shop: Shop, act: Act) -> Callable[[Message], Any]:
    def handle(message: Message) -> None:
        thread = threading.Thread(target=act, args=(shop, shop.store, message))
        thread.start()
        thread.join()

    return handle


def in_thread_of_asyncio(shop: Shop, act: Act) -> Callable[[Message], Any]:
    async def handle(message: Message) -> None:
        await asyncio.gather(asyncio.to_thread(act, shop, shop.store, message), return_exceptions=True)

    return handle


def in_task(shop: Shop, act: Act) -> Callable[[Message], Any]:
    async def write(message: Message) -> None:
        result = act(shop, shop.awaited, message)
        if inspect.isawaitable(result):
            await result

    async def handle(message: Message) -> None:
        await asyncio.gather(write(message), return_exceptions=True)

    return handle


UNSEEN = pytest.mark.parametrize(
    "unseen", [in_pool, in_plain_thread, in_thread_of_asyncio, in_task], ids=lambda unseen: unseen.__name__
)


@UNSEEN
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("act", RAISING, ids=lambda act: act.__name__)
def test_hidden_failure_of_a_write_fails_its_record(unseen: Any, act: Act, shop: Shop) -> None:
    assert not is_settled(unseen(shop, act))


@UNSEEN
def test_hidden_success_of_a_write_settles_its_record(unseen: Any, shop: Shop) -> None:
    assert is_settled(unseen(shop, lambda shop, store, message: shop.update(store, message, "here")))


def test_explain_does_not_count_as_a_write(shop: Shop) -> None:
    verb = "update_item" if shop.engine is onewrite.dynamodb else "update_one"
    assert is_settled(
        in_pool(shop, lambda shop, store, message: store.explain(verb, message, **shop.make_arguments("away")))
    )


# --- a write that ends after the function, or not at all ------------------------------------------------------------------


def test_write_in_progress_fails_its_record(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.gate.is_closed = True
    threads: list[threading.Thread] = []

    def handle(message: Message) -> None:
        threads.append(threading.Thread(target=shop.update, args=(shop.store, message, "here")))
        threads[0].start()
        assert shop.gate.entered.wait(10)

    [result] = sqs_handler(by_name)(handle).run(sqs(["m"])).results
    shop.gate.opened.set()
    threads[0].join()
    assert isinstance(result.error, UnfinishedWrite)
    assert "had not ended when the function returned" in caplog.text
    assert is_settled(lambda message: write(shop, message, "here"))


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("start", [lambda write: write, asyncio.ensure_future], ids=["forgotten await", "forgotten task"])
def test_write_that_is_not_awaited_fails_its_record(
    start: Callable[[Any], Any], shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    started: list[Any] = []

    async def handle(message: Message) -> None:
        started.append(start(shop.update(shop.awaited, message, "here")))

    async def wait(_: Message) -> None:
        await asyncio.gather(*filter(asyncio.isfuture, started))

    assert not is_settled(handle)
    assert re.search(r"Await it, .*\) at test_batch_unseen\.py:\d+ Shop\.update$", caplog.messages[-1])
    assert is_settled(wait)


def write(shop: Shop, message: Message, name: str) -> None:
    shop.update(shop.store, message, name)


async def start_writing(shop: Shop, message: Message, name: str) -> asyncio.Task[Any]:
    """Start a write whose request waits."""
    shop.gate.is_closed = True
    task = asyncio.ensure_future(shop.update(shop.awaited, message, name))
    await asyncio.to_thread(shop.gate.entered.wait, 10)
    shop.gate.is_closed = False
    return task


async def stop(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_cancelled_write_fails_its_record(shop: Shop) -> None:
    async def handle(message: Message) -> None:
        await stop(await start_writing(shop, message, "here"))

    assert not is_settled(handle)


@pytest.mark.parametrize("ends", [True, False])
def test_unfinished_write_is_not_excused_by_another_write(ends: bool, shop: Shop) -> None:
    async def handle(message: Message) -> Any:
        task = await start_writing(shop, message, "here")
        outcome = await shop.update(shop.awaited, message, "here")
        if ends:
            await stop(task)
        return outcome

    assert not is_settled(handle)


def test_write_cut_off_by_a_time_limit_fails_its_record(shop: Shop) -> None:
    """The scope of the limit takes the cancellation, so the function may see nothing of it."""
    shop.gate.is_closed = True

    async def handle(message: Message) -> Any:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await shop.update(shop.awaited, message, "here")
        shop.gate.is_closed = False
        return await shop.update(shop.awaited, message, "there")

    assert not is_settled(handle)


# --- another write of the same message ------------------------------------------------------------------------------------


def lose_response(shop: Shop, message: Message) -> None:
    """Write in a thread whose exception nobody sees."""
    shop.gate.error = OSError("the connection is closed")
    with ThreadPoolExecutor() as pool:
        pool.submit(write, shop, message, "away")
    shop.gate.error = None


def lose_outcome(shop: Shop, message: Message) -> None:
    assert isinstance(shop.update(shop.store, message, "away"), Missing)


def catch_error(shop: Shop, message: Message) -> None:
    shop.gate.error = OSError("the connection is closed")
    with suppress(OSError):
        write(shop, message, "away")
    shop.gate.error = None


LOSSES = pytest.mark.parametrize("lose", [lose_response, lose_outcome, catch_error], ids=lambda lose: lose.__name__)


@LOSSES
def test_returned_outcome_of_a_store_excuses_no_other_write(lose: Callable[[Shop, Message], None], shop: Shop) -> None:
    """The function returns what its last write returned, which creates the entity. The next delivery finds two duplicates."""
    deliveries: Iterator[Callable[[Shop, Message], None]] = iter([lose, partial(write, name="away")])

    def handle(message: Message) -> Any:
        next(deliveries)(shop, message)
        return shop.place(message, "away")

    assert [is_settled(handle), is_settled(handle)] == [False, True]


@LOSSES
def test_hint_of_a_store_excuses_no_write(lose: Callable[[Shop, Message], None], shop: Shop) -> None:
    write(shop, Message("m"), "here")

    def handle(message: Message) -> Any:
        lose(shop, message)
        seen = shop.store.preview(message, **shop.name("here"))
        assert isinstance(seen, Duplicate)
        return seen

    assert not is_settled(handle)


@LOSSES
def test_outcome_of_the_functions_own_making_is_its_word(lose: Callable[[Shop, Message], None], shop: Shop) -> None:
    def handle(message: Message) -> Any:
        lose(shop, message)
        return Applied(message)

    assert is_settled(handle)


def test_group_is_settled_by_all_writes_of_each_message(shop: Shop) -> None:
    def handle(messages: list[Message]) -> Any:
        lose_outcome(shop, messages[0])
        return [shop.update(shop.store, message, "here") for message in messages]

    handler = sqs_handler(by_name, group_by=lambda _: "all")(handle)
    assert identifiers(handler(sqs(["m1", "m2"]), None)) == ["id-m1"]


@pytest.mark.parametrize("lose", [lose_outcome, catch_error], ids=lambda lose: lose.__name__)
def test_log_names_the_line_of_the_unsettled_write(
    lose: Callable[[Shop, Message], None], shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(message: Message) -> Any:
        lose(shop, message)
        return shop.place(message, "away")

    assert not is_settled(handle)
    kind = "Missing (not returned; " if lose is lose_outcome else "OSError (caught by the function"
    assert f": {kind}" in caplog.text
    assert re.search(r" at test_batch_unseen\.py:\d+ Shop\.update$", caplog.messages[-1])


# --- an effect ---------------------------------------------------------------------------------------------------------------


def begin(shop: Shop, message: Message) -> Any:
    return shop.store.begin_effect(message, "charge", **shop.name("here"), **EFFECT)


@pytest.mark.parametrize("returns", [True, False])
def test_finished_effect_is_settled(returns: bool, shop: Shop) -> None:
    def handle(message: Message) -> Any:
        outcome = shop.store.remember(message, **shop.name("here"), finishes=begin(shop, message))
        return outcome if returns else None

    assert is_settled(handle)


def test_effect_of_another_entity_is_not_finished(shop: Shop) -> None:
    def handle(message: Message) -> Any:
        shop.store.begin_effect(message, "mail", **shop.name("there"), **EFFECT)
        return shop.store.remember(message, **shop.name("here"), finishes=begin(shop, message))

    assert not is_settled(handle)


def test_unfinished_effect_fails_the_record(shop: Shop) -> None:
    assert not is_settled(lambda message: begin(shop, message) and None)
    assert not is_settled(lambda message: begin(shop, message) and None)  # which meets the first one's effect


# --- a handler that a function calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("returns", [True, False])
def test_nested_handler_keeps_the_outer_functions_report(raises: bool, returns: bool, shop: Shop) -> None:
    @sqs_handler(by_name)
    def inner(message: Message) -> Any:
        if raises:
            take_wrong_option(shop, shop.store, message)
        outcome = shop.update(shop.store, message, "away")
        return outcome if returns else None

    def handle(message: Message) -> None:
        inner(sqs([message.id]), None)

    assert not is_settled(handle)
