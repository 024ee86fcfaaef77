"""Decisions that need no client, and the two loops that have one.

A flow is a generator. It yields what should be done, is sent the reply (or has the client's exception thrown in where it
stands), and returns its result. Whatever it does not catch leaves `run` and `arun` as the client raised it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import isawaitable, iscoroutinefunction
from types import CoroutineType
from typing import Any, Literal, TypeAlias, TypeVar

from onewrite.errors import ConfigurationError

S = TypeVar("S")
T = TypeVar("T")

Method: TypeAlias = Literal[
    "update_item",
    "put_item",
    "get_item",
    "update_one",
    "insert_one",
    "find_one_and_update",
    "find_one",
    "options",
    "index_information",
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
    counting = meter.get()

    def perform(step: Call | Wait) -> Any:
        if isinstance(step, Wait):
            return sleep(step.seconds)
        reply = _send(step, target, counting)
        if isinstance(reply, CoroutineType):
            reply.close()  # never awaited, so never sent
            raise ConfigurationError(f"{type(target).__name__} is asynchronous: guard it with the Async class.")
        return reply

    result = drive(flow, perform)
    if counting is not None:
        counting.done(result)
    return result


async def arun(flow: Flow[T], target: object, *, sleep: Callable[[float], Awaitable[None]] = _sleep) -> T:
    """Drive a flow with a client whose methods are awaited."""
    counting = meter.get()

    def perform(step: Call | Wait) -> Awaitable[Any]:
        if isinstance(step, Wait):
            return sleep(step.seconds)
        reply = _send(step, target, counting)
        if not isawaitable(reply):
            raise ConfigurationError(
                f"{type(target).__name__} is not asynchronous, and has sent the request: guard it with the class without Async."
            )
        return reply

    result = await adrive(flow, perform)
    if counting is not None:
        counting.done(result)
    return result


_BLOCKING = ("boto3", "botocore", "mongomock", "pymongo.synchronous")


def check_awaited(target: object, method: str, *, awaited: bool) -> None:
    """Raise where a store is asynchronous and its guard is not, or the other way round: before anything is sent."""
    kind = type(target)
    home = kind.__module__
    is_async = iscoroutinefunction(getattr(target, method, None)) or home.partition(".")[0] in ("motor", "aiobotocore")
    if is_async and not awaited:
        raise ConfigurationError(f"{kind.__name__} is asynchronous: guard it with the Async class.")
    if awaited and not is_async and home.startswith(_BLOCKING):
        raise ConfigurationError(f"{kind.__name__} is not asynchronous: guard it with the class without Async.")


def _send(call: Call, target: object, counting: Meter | None) -> Any:
    if counting is not None:
        counting.requests += 1
    return getattr(target, call.method)(*call.args, **call.kwargs)


def drive(steps: Generator[S, Any, T], perform: Callable[[S], Any]) -> T:
    """Perform what is yielded, and answer with what comes of it."""
    try:
        step = next(steps)
        while True:
            try:
                answer = perform(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # StopIteration does not know what it carries
    finally:
        steps.close()  # else the frame of what is given up stays open until it is collected


async def adrive(steps: Generator[S, Any, T], perform: Callable[[S], Awaitable[Any]]) -> T:
    """`drive`, with what must be awaited."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await perform(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # StopIteration does not know what it carries
    finally:
        steps.close()
