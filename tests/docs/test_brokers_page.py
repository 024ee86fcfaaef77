"""Each block of docs/brokers.md, on its library's broker in memory, or on a fake that has the methods of the library's own class.

In each, a payment is delivered before its order is there, then again, and then once more. It counts once, and is acknowledged twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from threading import Event, Semaphore
from types import SimpleNamespace
from typing import Any
from unittest import mock

import aio_pika
import aiokafka
import dramatiq
import nats.aio.msg
import pytest
from celery import signals
from celery.contrib.testing.worker import start_worker
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, TestKafkaBroker
from faststream.message import StreamMessage
from faststream.nats import TestNatsBroker
from faststream.rabbit import RabbitBroker, TestRabbitBroker

from consumers.kafka_loop import consume
from onewrite import Message
from tests.support.pages import ROOT, namespace_of
from tests.support.repairs import log_as_it_was

PAID = {"eventId": "e-1", "orderId": "o-1", "cents": 900}
BODY = json.dumps(PAID).encode()
TIMEOUT = 20.0
Page = dict[str, Any]


class Sleep:
    """Takes the place of `asyncio.sleep`: it waits for nothing, and calls the hook if there is one."""

    hook: Callable[[], object] | None = None

    def __init__(self) -> None:
        self._original = asyncio.sleep

    async def __call__(self, seconds: float) -> None:
        if seconds and self.hook:
            self.hook()
        await self._original(0)


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Sleep:
    sleep = Sleep()
    monkeypatch.setattr(asyncio, "sleep", sleep)
    return sleep


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, sleep: Sleep) -> Page:
    """The names of the page."""
    monkeypatch.setattr("celery._state._on_app_finalizers", set())  # the tasks of all apps in a process
    return namespace_of(ROOT / "docs" / "brokers.md")


def place_order(page: Page) -> None:
    page["ledger"].insert_one(Message("placed"), {"_id": "o-1", "cents": 0})


def cents(page: Page) -> int:
    return int(page["ledger"].find_one({"_id": "o-1"})["cents"])


def deliver(page: Page, delivery: Callable[[], object]) -> None:
    """Deliver the payment three times, of which the first comes before its order."""
    delivery()
    place_order(page)
    delivery()
    delivery()
    assert cents(page) == 900


async def adeliver(page: Page, delivery: Callable[[], Awaitable[object]]) -> None:
    await delivery()
    place_order(page)
    await delivery()
    await delivery()
    assert cents(page) == 900


@pytest.fixture(params=["rabbit", "kafka", "nats"])
def broker(request: pytest.FixtureRequest, page: Page) -> tuple[Any, Any, dict[str, str]]:
    """The page's subscriber on a broker of each kind, what replaces that broker in a test, and how to publish to it."""
    if request.param == "nats":
        return page["broker"], TestNatsBroker, {"subject": "payments", "stream": "shop"}
    kind, test_broker = {"rabbit": (RabbitBroker, TestRabbitBroker), "kafka": (KafkaBroker, TestKafkaBroker)}[request.param]
    made: Any = kind(middlewares=[page["Guarded"]], ack_policy=AckPolicy.NACK_ON_ERROR)
    made.subscriber("payments", **({"group_id": "orders"} if request.param == "kafka" else {}))(page["on_paid"])
    return made, test_broker, {"queue" if request.param == "rabbit" else "topic": "payments"}


def test_faststream(page: Page, broker: tuple[Any, Any, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    made, test_broker, address = broker
    settled: list[str] = []
    for name in ("ack", "nack", "reject"):
        original = getattr(StreamMessage, name)

        async def note(self: Any, name: str = name, original: Any = original) -> None:
            settled.append(name)
            await original(self)

        monkeypatch.setattr(StreamMessage, name, note)

    async def consume() -> None:
        async with test_broker(made) as running:
            await adeliver(page, lambda: running.publish(PAID, **address))

    asyncio.run(consume())
    assert settled == ["nack", "ack", "ack"]


def test_celery(page: Page) -> None:
    waits, ends = Event(), Semaphore(0)
    on_retry, on_success = (lambda **_: waits.set()), (lambda **_: ends.release())
    signals.task_retry.connect(on_retry)
    signals.task_success.connect(on_success)
    page["shop"].conf.broker_transport_options = {"polling_interval": 0.01}
    worker: Any = start_worker(page["shop"], perform_ping_check=False, pool="solo")
    with log_as_it_was(), worker:  # Celery takes over the root logger
        page["on_paid_task"].delay(PAID)
        assert waits.wait(TIMEOUT)
        place_order(page)
        page["on_paid_task"].delay(PAID)
        assert ends.acquire(timeout=TIMEOUT)
        assert ends.acquire(timeout=TIMEOUT)
    assert cents(page) == 900


def test_dramatiq(page: Page) -> None:
    stub, actor = page["stub"], page["on_paid_actor"]
    worker = dramatiq.Worker(stub, worker_timeout=10)
    worker.start()

    def send() -> None:
        actor.send(PAID)
        if page["ledger"].find_one({"_id": "o-1"}):
            stub.join(actor.queue_name)
            worker.join()

    deliver(page, send)
    worker.stop()
    stub.close()


def test_taskiq(page: Page, sleep: Sleep) -> None:
    def place() -> None:
        sleep.hook = None
        place_order(page)

    async def consume() -> None:
        for _ in range(2):
            await page["on_paid_taskiq"].kiq(PAID)
            await page["tasks"].wait_all()

    sleep.hook = place
    asyncio.run(consume())
    assert cents(page) == 900


def test_aiokafka(page: Page, sleep: Sleep) -> None:
    """Two partitions: in one the payment waits for its order, the other has a record without an id behind a good one."""
    first, second = aiokafka.TopicPartition("payments", 0), aiokafka.TopicPartition("payments", 1)
    tip = {"eventId": "e-2", "orderId": "o-1", "cents": 50}
    logs = {first: [PAID, PAID, tip], second: [{**PAID, "orderId": "o-2", "eventId": "e-3"}, {}, PAID]}
    at = {first: 0, second: 0}
    committed: dict[Any, int] = {}

    async def getmany(*, timeout_ms: int) -> dict[Any, Any]:
        found = {
            partition: [
                SimpleNamespace(offset=offset, value=json.dumps(log[offset]).encode()) for offset in range(at[partition], 3)
            ]
            for partition, log in logs.items()
        }
        at.update(dict.fromkeys(logs, 3))
        return {partition: records for partition, records in found.items() if records}

    def end_round() -> None:
        rounds.append(dict(committed))
        if len(rounds) == 1:
            place_order(page)
            page["ledger"].insert_one(Message("placed"), {"_id": "o-2", "cents": 0})
        if len(rounds) == 3:
            raise KeyboardInterrupt

    rounds: list[dict[Any, int]] = []
    consumer = mock.create_autospec(aiokafka.AIOKafkaConsumer, instance=True)
    consumer.getmany.side_effect = getmany
    consumer.commit.side_effect = committed.update
    consumer.seek.side_effect = at.__setitem__
    sleep.hook = end_round
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(consume(consumer, page["pay_together"]))
    assert rounds == [{}, {first: 3, second: 1}, {first: 3, second: 1}]
    assert cents(page) == 950


def test_aio_pika(page: Page) -> None:
    delivery = mock.create_autospec(
        aio_pika.IncomingMessage, instance=True, message_id="m-1", body=BODY, headers={"x-delivery-count": 0}
    )
    asyncio.run(adeliver(page, lambda: page["on_rabbit"](delivery)))
    assert delivery.mock_calls == [mock.call.nack(requeue=True), mock.call.ack(), mock.call.ack()]


def test_nats(page: Page) -> None:
    delivery = mock.create_autospec(nats.aio.msg.Msg, instance=True, data=BODY, metadata=SimpleNamespace(num_delivered=1))
    asyncio.run(adeliver(page, lambda: page["on_nats"](delivery)))
    assert delivery.mock_calls == [mock.call.nak(delay=1.0), mock.call.ack(), mock.call.ack()]


class PubSubMessage:
    """The methods of `google.cloud.pubsub_v1.subscriber.message.Message` that the page calls."""

    message_id, data, delivery_attempt = "m-1", BODY, None

    def ack(self) -> None: ...
    def modify_ack_deadline(self, seconds: int) -> None: ...
    def drop(self) -> None: ...


def test_google_pubsub(page: Page) -> None:
    delivery = mock.create_autospec(PubSubMessage, instance=True, message_id="m-1", data=BODY, delivery_attempt=None)
    deliver(page, lambda: page["on_pubsub"](delivery))
    assert delivery.mock_calls == [mock.call.modify_ack_deadline(1), mock.call.drop(), mock.call.ack(), mock.call.ack()]


class ServiceBusReceiver:
    """The methods of `azure.servicebus.aio.ServiceBusReceiver` that the page calls. It delivers the payment once for each iteration."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        yield SimpleNamespace(message_id=None, delivery_count=None, body=iter([BODY[:5], BODY[5:]]))

    async def complete_message(self, message: object) -> None: ...
    async def abandon_message(self, message: object) -> None: ...


def test_azure_service_bus(page: Page) -> None:
    receiver = ServiceBusReceiver()
    with (
        mock.patch.object(receiver, "complete_message") as complete,
        mock.patch.object(receiver, "abandon_message") as abandon,
    ):
        asyncio.run(adeliver(page, lambda: page["consume_bus"](receiver)))
    assert (abandon.await_count, complete.await_count) == (1, 2)
