"""Flows, which decide without a client, and the two loops that run them with one.

A flow is a generator. It yields what should be done, is sent the reply (or has the client's exception thrown in where it
stands), and returns its result. Whatever it does not catch leaves `run` and `arun` as the client raised it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from operator import attrgetter
from types import CoroutineType, MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

from onewrite.core.unreturned import hear, in_work
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.outcome import Answer, Missing

S = TypeVar("S")
T = TypeVar("T")

Method: TypeAlias = Literal[
    "update_item",
    "put_item",
    "delete_item",
    "get_item",
    "query",
    "scan",
    "transact_write_items",
    "describe_table",
    "describe_time_to_live",
    "send_message_batch",
    "publish_batch",
    "put_events",
    "update_one",
    "insert_one",
    "delete_one",
    "find_one_and_update",
    "find",
    "aggregate",
    "find_one",
    "estimated_document_count",
    "index_information",
    "database.list_collection_names",
    "database.client.admin.command",
    "get_queue_attributes",
    "get_function_configuration",
    "list_event_source_mappings",
]


class Call(NamedTuple):
    """One request, by the name of the client's own method; a dot leads to a method of one of its attributes."""

    method: Method
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = cast("dict[str, Any]", MappingProxyType({}))  # which nobody can change


@dataclass(frozen=True, slots=True)
class Wait:
    """Let some time pass before the next step."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Do:
    """Call a function of the user's or of the driver's. What it returns is awaited, where the store is asynchronous.

    `sends`: does it make a request?
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    sends: bool = False


FlowStep: TypeAlias = Call | Wait | Do
Flow: TypeAlias = Generator[FlowStep, Any, T]


@dataclass(slots=True)
class Meter:
    """Counts the requests of the flows that run while it is the current `meter`."""

    requests: int = 0


meter: ContextVar[Meter | None] = ContextVar("onewrite.meter", default=None)


def at(target: object, flow: Flow[T]) -> Flow[T]:
    """The flow with each of its calls made at this target: a flow that serves several clients takes in those of each."""
    try:
        step = next(flow)
        while True:
            if isinstance(step, Call):
                step = Do(attrgetter(step.method)(target), step.args, step.kwargs, sends=True)
            try:
                answer = yield step
            except Exception as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # StopIteration does not know what it carries
    finally:
        flow.close()


async def _sleep(seconds: float) -> None:
    import asyncio  # noqa: PLC0415  # asyncio is slow to import, and blocking programs do not need it

    await asyncio.sleep(seconds)


def run(flow: Flow[T], target: object, *, sleep: Callable[[float], None] = time.sleep, is_hint: bool = False) -> T:
    """Drive a flow with a blocking client. `is_hint`: its outcome says only how a write would end."""
    return drive_client(flow, target, meter.get(), sleep, is_hint=is_hint)


def drive_client(
    flow: Flow[T], target: object, counter: Meter | None, sleep: Callable[[float], None], *, is_hint: bool
) -> T:
    """`drive`, with `perform` called directly: every write passes here, and a partial function in between costs it one percent."""
    step: FlowStep | None = None
    try:
        step = next(flow)
        while True:
            try:
                answer = perform(target, counter, sleep, step)
            except Exception as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as stop:
        if in_work and not is_hint:
            hear(stop.value, step, target)
        return stop.value  # type: ignore[no-any-return]  # StopIteration does not know what it carries
    finally:
        flow.close()


async def arun(
    flow: Flow[T], target: object, *, sleep: Callable[[float], Awaitable[None]] = _sleep, is_hint: bool = False
) -> T:
    """Drive a flow with a client whose methods are awaited."""
    return await adrive_client(flow, target, meter.get(), sleep, is_hint=is_hint)


async def adrive_client(
    flow: Flow[T],
    target: object,
    counter: Meter | None,
    sleep: Callable[[float], Awaitable[None]],
    *,
    is_hint: bool,
) -> T:
    """`drive_client`, for a client whose methods are awaited."""
    step: FlowStep | None = None
    try:
        step = next(flow)
        while True:
            try:
                answer = await aperform(target, counter, sleep, step)
            except Exception as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as stop:
        if in_work and not is_hint:
            hear(stop.value, step, target)
        return stop.value  # type: ignore[no-any-return]  # StopIteration does not know what it carries
    finally:
        flow.close()


def performer(target: object) -> Callable[[FlowStep], Any]:
    """A function that performs the steps of a flow with a blocking client."""
    return partial(perform, target, None, time.sleep)


def aperformer(target: object) -> Callable[[FlowStep], Awaitable[Any]]:
    """A function that performs the steps of a flow with a client whose methods are awaited."""
    return partial(aperform, target, None, _sleep)


def perform(target: object, counter: Meter | None, sleep: Callable[[float], None], step: FlowStep) -> Any:
    """Perform a step with a blocking client."""
    if type(step) is not Call:
        return sleep(step.seconds) if isinstance(step, Wait) else _blocking_result(_call_function(cast("Do", step), counter))
    if counter is not None:
        counter.requests += 1
    method, args, kwargs = step
    reply = (attrgetter(method)(target) if "." in method else getattr(target, method))(*args, **kwargs)
    if isinstance(reply, CoroutineType):
        reply.close()  # nobody awaited it, so nothing was sent
        raise ConfigurationError(f"{type(target).__name__} is asynchronous: guard it with the Async class.")
    return reply


def aperform(
    target: object, counter: Meter | None, sleep: Callable[[float], Awaitable[None]], step: FlowStep
) -> Awaitable[Any]:
    """Perform a step with a client whose methods are awaited."""
    if isinstance(step, Wait):
        return sleep(step.seconds)
    if isinstance(step, Do):
        return _awaited_result(_call_function(step, counter))
    reply = _send(target, counter, step)
    if not isawaitable(reply):
        raise ConfigurationError(
            f"{type(target).__name__} is not asynchronous, and has sent the request: guard it with the class without Async."
        )
    return reply


def _send(target: object, counter: Meter | None, call: Call) -> Any:
    if counter is not None:
        counter.requests += 1
    method = attrgetter(call.method)(target) if "." in call.method else getattr(target, call.method)
    return method(*call.args, **call.kwargs)


def _blocking_result(result: Any) -> Any:
    if isinstance(result, CoroutineType):
        result.close()  # nobody awaited it, so it did nothing
        raise ConfigurationError(
            "A blocking store was given an asynchronous function: guard the store with the Async class."
        )
    return result


async def _awaited_result(result: Any) -> Any:
    return await result if isawaitable(result) else result


def _call_function(step: Do, counter: Meter | None) -> Any:
    if counter is not None and step.sends:
        counter.requests += 1
    return step.function(*step.args, **step.kwargs)


_BLOCKING_HOMES = ("boto3", "botocore", "pymongo.synchronous")


def is_asynchronous(target: object, method: str) -> bool:
    """Must this method of a client be awaited, as far as can be told without calling it?"""
    home = type(target).__module__
    return iscoroutinefunction(getattr(target, method, None)) or home.partition(".")[0] in ("motor", "aiobotocore")


def check_awaited(target: object, method: str, *, is_async: bool) -> None:
    """Raise before anything is sent if the store is asynchronous and its guard is not, or the other way round."""
    kind = type(target)
    home = kind.__module__
    must_await = is_asynchronous(target, method)
    if must_await and not is_async:
        raise ConfigurationError(f"{kind.__name__} is asynchronous: guard it with the Async class.")
    if is_async and not must_await and home.startswith(_BLOCKING_HOMES):
        raise ConfigurationError(f"{kind.__name__} is not asynchronous: guard it with the class without Async.")


def drive(steps: Generator[S, Any, T], perform: Callable[[S], Any]) -> T:
    """Perform each step that the generator yields, and send it the result."""
    try:
        step = next(steps)
        while True:
            try:
                answer = perform(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # StopIteration does not know what it carries
    finally:
        steps.close()  # without this, a flow that is abandoned keeps its frame until it is garbage-collected


async def adrive(steps: Generator[S, Any, T], perform: Callable[[S], Awaitable[Any]]) -> T:
    """`drive`, for steps that are awaited."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await perform(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # StopIteration does not know what it carries
    finally:
        steps.close()


# --- a call to which a missing entity is an answer -----------------------------------------------------------------------


A = TypeVar("A", bound=Answer)

MISSING_OK = "missing_ok"


def split_missing_ok(native: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The native arguments of a call, and whether a missing entity is an answer to it."""
    if MISSING_OK not in native:
        return native, False
    missing_ok = cast("object", native[MISSING_OK])
    if not isinstance(missing_ok, bool):
        raise InvalidUpdate(
            f"missing_ok={missing_ok!r}: give True where a missing entity is an answer, and leave it out otherwise."
        )
    return {name: value for name, value in native.items() if name != MISSING_OK}, missing_ok


def settle_missing(outcome: A, *, missing_ok: bool, counts: bool) -> A:
    if missing_ok and not counts and isinstance(outcome, Missing):
        return cast("A", replace(outcome, settled=True))
    return outcome
