"""Stand-ins of packages of which docs/recipes.md shows a handler, and which the tests do not install: as much of each as the page uses.

Each delivers what it has twice, as its original does now and then.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

PAYMENT = {"id": "evt-7", "order": "o-7", "cents": 700}


class FastAPI:
    def post(self, path: str) -> Callable[[Any], Any]:
        return lambda function: function


class HTTPException(Exception):
    def __init__(self, status_code: int, detail: str) -> None:
        super().__init__(detail)
        self.status_code = status_code


@dataclass
class KafkaMessage:
    place: int

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.place

    def value(self) -> bytes:
        return json.dumps(PAYMENT).encode()


class Consumer:
    """It gives out the record at 5 twice: the first time nobody committed in time."""

    def __init__(self, settings: dict[str, Any]) -> None:
        assert settings["enable.auto.commit"] is False
        self._messages = [KafkaMessage(5), KafkaMessage(5)]

    def subscribe(self, topics: list[str]) -> None: ...

    def poll(self, seconds: float) -> KafkaMessage | None:
        return self._messages.pop() if self._messages else None

    def commit(self, *, message: KafkaMessage, asynchronous: bool) -> None: ...


class Channel:
    tags: ClassVar[list[int]] = []

    def basic_qos(self, *, prefetch_count: int) -> None: ...

    def basic_consume(self, queue: str, function: Callable[..., None]) -> None:
        self._function = function

    def start_consuming(self) -> None:
        for tag in (1, 2):
            method = SimpleNamespace(delivery_tag=tag, redelivered=tag == 2)  # the second
            self._function(
                self, method, SimpleNamespace(message_id="evt-8"), json.dumps({**PAYMENT, "order": "o-8"}).encode()
            )

    def basic_ack(self, tag: int) -> None:
        self.tags.append(tag)

    def basic_nack(self, tag: int, *, requeue: bool) -> None: ...


class BlockingConnection:
    def channel(self) -> Channel:
        return Channel()


class Celery:
    def __init__(self, name: str, *, broker: str) -> None: ...

    def task(self, **_: Any) -> Callable[[Any], Any]:
        def decorate(function: Any) -> Any:
            function.delay = lambda *arguments: [function(*arguments) for _ in range(2)]
            return function

        return decorate


def _module(name: str, **contents: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    return module


STAND_INS = {
    "fastapi": _module("fastapi", FastAPI=FastAPI, HTTPException=HTTPException, Header=lambda: None),
    "confluent_kafka": _module("confluent_kafka", Consumer=Consumer),
    "pika": _module("pika", BlockingConnection=BlockingConnection),
    "celery": _module("celery", Celery=Celery),
}
