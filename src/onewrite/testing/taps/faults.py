"""Planned faults: which request fails, and how. They're the same in every run.

    faults = Faults(table)                  # or a client, a collection, a dict of these
    faults.crash_after(1)                         # the first request takes effect, and the process dies
    with pytest.raises(Crash):
        handle(faults.store, message)
    handle(faults.store, message)           # the broker delivers the message again
    faults.assert_all_used()

A request is named by its position, from 1, among all that go through `faults.store`, or by a function that is called with each
`Request` until it returns true. If two faults match one request, the one that was planned first applies.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.taps import failures
from onewrite.testing.taps.aws import is_batch
from onewrite.testing.taps.fault import Fault, send_under
from onewrite.testing.taps.tap import Store, is_async, send, tap
from onewrite.testing.taps.traffic import Request, StoreCalls, amake_calls, make_calls

Where: TypeAlias = int | Callable[[Request], bool]


class Crash(BaseException):
    """Raised at the request at which the process dies. `except Exception` doesn't catch it. Expect it with `pytest.raises(Crash)`.

    A dead process sends nothing, so requests are refused while this exception is handled, for example in a `finally`. Deliver the message again after the `except` or `pytest.raises` block, not inside it.
    """


@dataclass(slots=True, eq=False)
class _PlannedFault:
    name: str
    where: Where
    fault: Fault
    optional: bool
    is_used: bool = False

    def is_met_by(self, request: Request, position: int) -> bool:
        if self.is_used:
            return False
        return self.where == position if isinstance(self.where, int) else self.where(request)

    def __str__(self) -> str:
        where = self.where if isinstance(self.where, int) else getattr(self.where, "__name__", repr(self.where))
        return f"{self.name}({where})"


class Faults:
    """Wraps a store: requests of `faults.store` meet the planned faults. Otherwise, `faults.store` behaves like the original.

    The store can be a boto3 or aiobotocore client or Table, a pymongo or mongomock collection, synchronous or asynchronous, or a dict
    of these. `assert_all_used` fails if a fault never occurred, unless it was planned with `optional=True`.
    """

    def __init__(self, store: Store) -> None:
        self._raw = store
        self._stores_by_name = cast("Mapping[str, Store]", store) if isinstance(store, Mapping) else None
        self._plans: list[_PlannedFault] = []
        self._requests: list[Request] = []
        self._lock = threading.Lock()
        self.store = tap(store, self._gate)

    @property
    def requests(self) -> tuple[Request, ...]:
        """Return all requests so far, including those that met a fault."""
        return tuple(self._requests)

    def crash_before(self, where: Where, *, optional: bool = False) -> None:
        """Kill the process before it sends the request."""
        self._plan(_PlannedFault("crash_before", where, Fault.CRASH_BEFORE, optional))

    def crash_after(self, where: Where, *, optional: bool = False) -> None:
        """Kill the process after the request took effect, but before the response arrives."""
        self._plan(_PlannedFault("crash_after", where, Fault.CRASH_AFTER, optional))

    def lose_response(self, where: Where, *, retried: bool = True, optional: bool = False) -> None:
        """Close the connection after the request took effect, but before the response arrives.

        With `retried=True`, the driver retries as it's configured. botocore sends the request again, and the handler gets the second
        response, which can be a refusal because of the first request. If botocore is limited to one attempt, it raises. pymongo
        sends a retryable write again, and the server repeats its first response, so the handler sees no difference. For other
        writes, pymongo raises. With `retried=False`, the driver raises, as if all its attempts had failed.
        """
        self._plan(_PlannedFault("lose_response", where, Fault.RETRIED if retried else Fault.LOST, optional))

    def throttle(self, where: Where, *, optional: bool = False) -> None:
        """Throttle the request until the driver's retries are used up and it raises."""
        self._plan(_PlannedFault("throttle", where, Fault.THROTTLED, optional))

    def time_out(self, where: Where, *, applied: bool = True, optional: bool = False) -> None:
        """Drop the response, so that the driver times out. Its error doesn't show whether the request was `applied`."""
        self._plan(_PlannedFault("time_out", where, Fault.LOST_IN_TIME if applied else Fault.UNANSWERED, optional))

    def cancel_transaction(self, where: Where, *, optional: bool = False) -> None:
        """Hold the entity in a concurrent transaction: a transaction is canceled, and a single write is refused."""
        self._plan(_PlannedFault("cancel_transaction", where, Fault.CONFLICT, optional))

    def refuse_connection(self, where: Where, *, optional: bool = False) -> None:
        """Refuse the connection, so that the driver raises before it sends the request."""
        self._plan(_PlannedFault("refuse_connection", where, Fault.UNREACHABLE, optional))

    def leave_unprocessed(self, where: Where, *, optional: bool = False) -> None:
        """Make a BatchWriteItem or BatchGetItem return its last write or key as unprocessed."""
        self._plan(_PlannedFault("leave_unprocessed", where, Fault.UNPROCESSED, optional))

    def assert_all_used(self) -> None:
        """Fail if a planned fault never occurred, because the test then proves nothing about it."""
        unused = [str(plan) for plan in self._plans if not (plan.is_used or plan.optional)]
        if unused:
            listing = "".join(f"\n  {position}. {request}" for position, request in enumerate(self._requests, 1)) or " none"
            raise AssertionError(
                f"No request met these planned faults: {', '.join(unused)}. If that's intended, plan them with "
                f"optional=True. The requests were:{listing}"
            )

    def _plan(self, plan: _PlannedFault) -> None:
        with self._lock:
            _check_plan(plan, len(self._requests))
            self._plans.append(plan)

    def _meet(self, request: Request) -> _PlannedFault | None:
        """Record the request, and return the fault that was planned for it, or None."""
        with self._lock:
            self._requests.append(request)
            for plan in self._plans:
                if plan.is_met_by(request, len(self._requests)):
                    plan.is_used = True
                    return plan
        return None

    def _gate(self, request: Request) -> Any:
        store = self._raw if self._stores_by_name is None else self._stores_by_name[request.store]
        return (amake_calls if is_async(store) else make_calls)(self._perform(store, request))

    def _perform(self, store: Store, request: Request) -> StoreCalls[Any]:
        """Send the request as its planned fault does it, if there is one, and return the response or raise the fault's error."""
        if _is_dying():
            raise Crash(f"The process is dead, and does not send {request}.")
        plan = self._meet(request)
        fault = Fault.NONE if plan is None else plan.fault
        if fault is Fault.RETRIED:
            if failures.driver_retries(store, request):
                return (yield partial(send, failures.add_second_try(store), request))
            fault = Fault.LOST
        if fault.is_partial and not is_batch(request):
            raise ConfigurationError(
                f"{request.method} is done whole or not at all: plan leave_unprocessed for BatchWriteItem or BatchGetItem."
            )
        if fault is Fault.NONE or fault.is_partial:
            return (yield from send_under(fault, request, partial(_send, store)))
        error = _make_error(fault, store, request)  # before the request is sent, because it raises if the fault doesn't fit
        if not fault.is_kept_back:
            try:
                yield partial(send, store, request)
            except Exception as refusal:
                if not failures.is_answer(refusal):
                    raise  # the driver didn't send it
                # A refusal is a response too, and it's lost like any other.
        raise error


def _send(store: Store, request: Request) -> StoreCalls[Any]:
    return (yield partial(send, store, request))


def _make_error(fault: Fault, store: Store, request: Request) -> BaseException:
    return Crash(f"The process died at {request}.") if fault.is_crash else fault.make_error(store, request)


def _is_dying() -> bool:
    """Whether a crash is being handled, for example in a `finally` that sends this request."""
    error = sys.exception()
    while error is not None and not isinstance(error, Crash):
        error = error.__context__
    return error is not None


def _check_plan(plan: _PlannedFault, count: int) -> None:
    """Raise `ConfigurationError` if the fault's position isn't one, or is among the `count` requests that have been sent."""
    if callable(plan.where):
        return
    if type(plan.where) is not int or plan.where < 1:
        raise ConfigurationError(
            f"{plan.name}({plan.where!r}): expected the position of a request, counted from 1, or a function of it that returns True."
        )
    if plan.where <= count:
        raise ConfigurationError(
            f"{plan}: {count} requests have already been sent. Plan the fault earlier, or for a later request."
        )
