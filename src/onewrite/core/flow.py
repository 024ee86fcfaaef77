"""Flows, which decide without a client, and the two functions that run them with one.

A flow is a generator. It yields an instruction, receives the reply or the client's exception, and returns its result. An exception
that it doesn't catch leaves `run` and `arun` unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import isawaitable
from operator import attrgetter
from types import CoroutineType, MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from onewrite.errors import ConfigurationError, InvalidUpdate

S = TypeVar("S")
T = TypeVar("T")


class Call(NamedTuple):
    """One request, by the name of the client's method. A dot leads to a method of an attribute."""

    method: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = cast("dict[str, Any]", MappingProxyType({}))  # immutable


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits before the next step."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Do:
    """Calls a function of the user or the driver. Its result is awaited if the store is asynchronous.

    `sends`: whether the function makes a request.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    sends: bool = False


FlowStep: TypeAlias = Call | Wait | Do
Flow: TypeAlias = Generator[FlowStep, Any, T]


@dataclass(slots=True)
class Meter:
    """Counts the requests of flows while it's the current `meter`."""

    requests: int = 0


meter: ContextVar[Meter | None] = ContextVar("onewrite.meter", default=None)


async def _sleep(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


def run(flow: Flow[T], target: object, *, sleep: Callable[[float], None] = time.sleep) -> T:
    """Drive a flow with a blocking client, and return the flow's result."""
    return drive(flow, execute, target, sleep, meter.get())


async def arun(flow: Flow[T], target: object, *, sleep: Callable[[float], Awaitable[None]] = _sleep) -> T:
    """Drive a flow with a client whose methods are awaited, and return the flow's result."""
    return await adrive(flow, execute_async, target, sleep, meter.get())


class Run(Protocol):
    """`run` or `arun`, with which a store drives its flows. For an asynchronous store, the result must be awaited."""

    def __call__(self, flow: Flow[T], target: object) -> T: ...


def drive(steps: Generator[S, Any, T], executor: Callable[..., Any], *context: Any) -> T:
    """Execute each step of the generator with the `context`, and send it the result. Return what the generator returns."""
    try:
        step = next(steps)
        while True:
            try:
                reply = executor(step, *context)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        steps.close()  # otherwise, an abandoned flow keeps its frame until it's garbage-collected


async def adrive(steps: Generator[S, Any, T], executor: Callable[..., Awaitable[Any]], *context: Any) -> T:
    """Drive a generator like `drive`, and await its steps."""
    try:
        step = next(steps)
        while True:
            try:
                reply = await executor(step, *context)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration as stop:
        return cast("T", stop.value)
    finally:
        steps.close()


def make_executor(target: object) -> Callable[[FlowStep], Any]:
    """Return a function that executes the steps of a flow with a blocking client."""
    return lambda step: execute(step, target, time.sleep)


def make_async_executor(target: object) -> Callable[[FlowStep], Awaitable[Any]]:
    """Return a function that executes the steps of a flow with a client whose methods are awaited."""
    return lambda step: execute_async(step, target, _sleep)


def execute(step: FlowStep, target: object, sleep: Callable[[float], None], counter: Meter | None = None) -> Any:
    """Execute a step with a blocking client, and return the reply."""
    if isinstance(step, Wait):
        return sleep(step.seconds)
    function = attrgetter(step.method)(target) if isinstance(step, Call) else step.function
    if counter is not None and (isinstance(step, Call) or step.sends):
        counter.requests += 1
    result = function(*step.args, **step.kwargs)
    if isinstance(result, CoroutineType):
        result.close()  # nothing was sent, because it wasn't awaited
        if isinstance(step, Call):
            raise ConfigurationError(
                f"{type(target).__name__} is asynchronous. Guard it with AsyncGuardedTable or AsyncGuardedCollection."
            )
        raise ConfigurationError(
            "A blocking store can't await an asynchronous function. Pass a plain function, or use the asynchronous store."
        )
    return result


async def execute_async(
    step: FlowStep, target: object, sleep: Callable[[float], Awaitable[None]], counter: Meter | None = None
) -> Any:
    """Execute a step with a client whose methods are awaited, and return the reply."""
    if isinstance(step, Wait):
        return await sleep(step.seconds)
    function = attrgetter(step.method)(target) if isinstance(step, Call) else step.function
    if counter is not None and (isinstance(step, Call) or step.sends):
        counter.requests += 1
    result = function(*step.args, **step.kwargs)
    if isawaitable(result):
        return await result
    if isinstance(step, Call):
        raise ConfigurationError(
            f"{type(target).__name__} isn't asynchronous, and has sent the request. Guard it with GuardedTable or GuardedCollection."
        )
    return result


# --- the refusals that a call declares final ------------------------------------------------------------------------------


MISSING_OK, REJECTED_OK = "missing_ok", "rejected_ok"


class FinalRefusals(NamedTuple):
    """The refusals that settle the message of a call: of a missing entity, and by the caller's own condition."""

    missing_ok: bool = False
    rejected_ok: bool = False


NOTHING_FINAL = FinalRefusals()


def split_final_refusals(native: Mapping[str, Any]) -> tuple[Mapping[str, Any], FinalRefusals]:
    """Return the native arguments of a call, and the refusals that it declares final."""
    if MISSING_OK not in native and REJECTED_OK not in native:
        return native, NOTHING_FINAL
    final = FinalRefusals(native.get(MISSING_OK, False), native.get(REJECTED_OK, False))
    for name, value, condition in zip(
        final._fields, final, ("a missing entity", "a refusal by your condition"), strict=True
    ):
        if not isinstance(cast("object", value), bool):
            raise InvalidUpdate(
                f"{name}: expected True if {condition} settles the message, got a {type(value).__name__}. Otherwise, omit it."
            )
    return {name: value for name, value in native.items() if name not in final._fields}, final
