"""What stores, relays, handlers and workers draw and measure, for the tests that say it instead."""

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
    inner._flows.attempts = names
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
