"""Decisions that need no client, and the two loops that have one.

A flow is a generator. It yields what should be done, is sent the reply (or has the client's exception thrown in where it
stands), and returns its result. Whatever it does not catch leaves `run` and `arun` as the client raised it.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from onewrite.errors import ConfigurationError

T = TypeVar("T")

Method: TypeAlias = Literal[
    "update_item", "put_item", "get_item", "update_one", "insert_one", "find_one_and_update", "find_one"
]


@dataclass(frozen=True, slots=True)
class Call:
    """One request, by the name of the client's own method."""

    method: Method
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Wait:
    """Let some time pass before the next step."""

    seconds: float


Flow: TypeAlias = Generator[Call | Wait, Any, T]


@dataclass(slots=True)
class Meter:
    """Is told of the flows that run where it is the `meter`, and counts their requests."""

    requests: int = 0

    def done(self, result: object) -> None:
        """A flow has come to its result."""


meter: ContextVar[Meter | None] = ContextVar("onewrite.meter", default=None)


async def _sleep(seconds: float) -> None:
    import asyncio  # noqa: PLC0415  # a slow import, which who is not asynchronous need not wait for

    await asyncio.sleep(seconds)


def run(flow: Flow[T], target: object, *, sleep: Callable[[float], None] = time.sleep) -> T:
    """Drive a flow with a blocking client."""
    with closing(flow):  # else the frame of a flow that is given up stays open until it is collected
        try:
            step = next(flow)
            while True:
                try:
                    reply: Any = None
                    if isinstance(step, Wait):
                        sleep(step.seconds)
                    else:
                        reply = _send(step, target)
                except Exception as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(reply)
        except StopIteration as done:
            return _told(done.value)  # type: ignore[no-any-return]  # StopIteration does not know what it carries


async def arun(flow: Flow[T], target: object, *, sleep: Callable[[float], Awaitable[None]] = _sleep) -> T:
    """Drive a flow with a client whose methods are awaited."""
    with closing(flow):
        try:
            step = next(flow)
            while True:
                try:
                    reply = await (sleep(step.seconds) if isinstance(step, Wait) else _begin(step, target))
                except Exception as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(reply)
        except StopIteration as done:
            return _told(done.value)  # type: ignore[no-any-return]  # StopIteration does not know what it carries


def _send(call: Call, target: object) -> Any:
    _count()
    reply = getattr(target, call.method)(*call.args, **call.kwargs)
    if inspect.iscoroutine(reply):
        reply.close()  # never awaited, so never sent
        raise ConfigurationError(f"{type(target).__name__} is asynchronous: guard it with the Async class.")
    return reply


def _begin(call: Call, target: object) -> Awaitable[Any]:
    _count()
    reply = getattr(target, call.method)(*call.args, **call.kwargs)
    if not inspect.isawaitable(reply):
        raise ConfigurationError(
            f"{type(target).__name__} is not asynchronous, and has sent the request: guard it with the class without Async."
        )
    return reply


def _count() -> None:
    if (counting := meter.get()) is not None:
        counting.requests += 1


def _told(result: Any) -> Any:
    if (counting := meter.get()) is not None:
        counting.done(result)
    return result
