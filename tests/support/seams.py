"""What stores, relays, handlers and workers draw, measure and keep, for the tests that say it instead or look at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from onewrite.sqs.threads import Time
from onewrite.sqs.worker import Worker
from tests.support.fake_sqs import VirtualTime

T = TypeVar("T")


def name_calls(store: T, names: Callable[[], str]) -> T:
    """The guarded store, each of whose calls has the next of these names."""
    inner: Any = store
    inner._flows.name_call = names
    return store


def drawing(relay: T, share: float) -> T:
    """The relay, which draws this share of each wait."""
    inner: Any = relay
    inner._share = lambda: share
    return relay


def measure_by(function: T, clock: Callable[[], float]) -> T:
    """The decorated function, whose handler measures by this clock how long things take."""
    inner: Any = function
    inner.handler._monotonic = clock
    return function


def worker_in(time: VirtualTime, *arguments: Any, clock: Callable[[], float] | None = None, **options: Any) -> Worker:
    """A worker that lives in this time, or tells it by another clock."""

    class Timed(Worker):
        _time = Time(clock or time, time.sleep, time.condition)

    return Timed(*arguments, **options)


def flows_of(store: Any) -> Any:
    """The guarded store's flows, for the tests that drive one step by step."""
    return store._flows


def goes_by_client(lean: Any) -> bool:
    """Whether the lean client leaves its requests to boto3's at present."""
    must_use_client: bool = lean.client_check.must_use_client()
    return must_use_client


def idle_connections(lean: Any) -> list[Any]:
    """The connections that the lean client keeps for later requests."""
    connections: list[Any] = lean._pool._idle
    return connections
