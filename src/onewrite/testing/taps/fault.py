"""The faults that can affect a request, with their effects on the store, and the errors that the driver raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Self

from onewrite.testing.taps import failures
from onewrite.testing.taps.aws import add_remainder, is_batch, leave_one_out
from onewrite.testing.taps.failures import Failure
from onewrite.testing.taps.mongodb_methods import count_operations, cut
from onewrite.testing.taps.tap import Store
from onewrite.testing.taps.traffic import ABORT, Request, StoreCalls, is_dynamodb, is_transaction


class Fault(StrEnum):
    """A fault of a request: its letter in replay codes, when it strikes, its words in a report, and the driver's error."""

    words: str
    failure: Failure | None
    is_kept_back: bool  # whether the request has no effect on the data

    def __new__(cls, letter: str, strikes: str = "", words: str = "", failure: Failure | None = None) -> Self:
        fault = str.__new__(cls, letter)
        fault._value_ = letter
        fault.words, fault.failure, fault.is_kept_back = words, failure, strikes == "before"
        return fault

    NONE = ""
    CRASH_BEFORE = "B", "before"
    CRASH_AFTER = "A", "after", ", then CRASH"
    LOST = "L", "after", ", but the response is lost", failures.LOST_RESPONSE
    LOST_IN_TIME = "M", "after", ", but the response doesn't arrive in time", failures.TIMEOUT
    LOST_BY_SERVER = "E", "after", ", but the server reports a failure", failures.SERVER_FAILURE
    UNCONFIRMED = "Y", "after", ", but too few members confirm it in time", failures.UNCONFIRMED
    RETRIED = "R", "after"  # the response is lost, and the driver retries the request
    THROTTLED = "T", "before", "throttled", failures.THROTTLED
    SLOWED_DOWN = "G", "before", "throttled with another code", failures.SLOWED_DOWN
    LIMITED = "J", "before", "throttled with a third code", failures.LIMITED
    FAILED = "F", "before", "refused, because the server fails", failures.SERVER_FAILURE
    UNAVAILABLE = "Z", "before", "not served, because the service or the connection pool is exhausted", failures.UNAVAILABLE
    OVERLOAD = "Q", "before", "throttled whenever this delivery sends it", failures.THROTTLED
    CONFLICT = "C", "before", "refused because of a transaction on the same entity"
    UNREACHABLE = "N", "before", "not sent, because no server is reachable", failures.NO_SERVER
    NOT_CONNECTED = "K", "before", "not sent, because the connection times out", failures.NO_CONNECTION
    UNANSWERED = "H", "before", "lost on its way, and the response times out", failures.TIMEOUT
    CUT_OFF = "P", "before", "lost on its way, and the connection closes", failures.LOST_RESPONSE
    OUTAGE = "O", "before", "not sent, because no server is reachable during this delivery", failures.NO_SERVER
    UNPROCESSED = "U", "after", ", but the last part is left, as the response says"  # for batches
    FIRST_UNPROCESSED = "V", "after", ", but the first part is left, as the response says"
    STARVED = "=", "after", ", but the last part is left, and is left again in this delivery"
    # For MongoDB's writes of several documents, which aren't atomic.
    CUT_SHORT = "+", "after", ", but the server fails before the last part of the write", failures.LOST_RESPONSE
    CUT_EARLY = "-", "after", ", but the server fails after the first part of the write", failures.LOST_RESPONSE
    STALE = "S", "after", ", stale: an earlier write is missing"
    SLOW = "W", "before", "takes longer than a timer"  # the timer fires before any response
    NEVER_SENT = "X", "before", "cancelled, and never sent"
    BEGUN = "I"  # not a fault but an order: the delivery begins, and its first request stays pending
    RACED = "D"  # not a fault but an order: an upsert looked for its document before the previous step's write

    @property
    def is_counted(self) -> bool:
        """Whether the fault counts toward the bound on faults.

        `NEVER_SENT` doesn't, because the handler itself cancelled the request. A batch that is left in part doesn't, because it isn't a
        failure: DynamoDB does it under load.
        """
        return self not in (Fault.NONE, Fault.NEVER_SENT, Fault.BEGUN, Fault.RACED) and not self.is_partial

    @property
    def is_partial(self) -> bool:
        """Whether DynamoDB leaves a part of a batch unprocessed, which it does once to each request of a delivery, or repeatedly."""
        return self in (Fault.UNPROCESSED, Fault.FIRST_UNPROCESSED, Fault.STARVED)

    @property
    def is_crash(self) -> bool:
        return self in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)

    @property
    def is_lost(self) -> bool:
        """Whether the request takes effect, at least in part, but the driver raises an error."""
        return self.failure is not None and not self.is_kept_back

    @property
    def is_lasting(self) -> bool:
        """Whether the fault affects the same request each time that the delivery sends it."""
        return self in (Fault.OUTAGE, Fault.OVERLOAD, Fault.STARVED)

    def make_error(self, store: Store, request: Request) -> Exception:
        """Return the error that the driver raises if this fault affects the request."""
        if self.failure is None:  # a conflict, which each kind of request reports differently
            return failures.make_cancellation_error(store, request)
        return self.failure.make_error(store, request)


# Variants of a fault have the same effect on the store, but the driver raises a different error, or raises it repeatedly. A search
# follows a variant only if the handler reacts to it differently.
VARIANTS: Mapping[Fault, tuple[Fault, ...]] = {
    Fault.LOST: (Fault.LOST_IN_TIME, Fault.LOST_BY_SERVER, Fault.UNCONFIRMED),
    Fault.THROTTLED: (Fault.SLOWED_DOWN, Fault.LIMITED, Fault.FAILED, Fault.UNAVAILABLE, Fault.OVERLOAD),
    Fault.UNREACHABLE: (Fault.NOT_CONNECTED, Fault.UNANSWERED, Fault.CUT_OFF, Fault.OUTAGE),
    Fault.UNPROCESSED: (Fault.STARVED,),
}
MAX_OUTAGE = 10  # in requests: without a limit, a handler could retry forever


def list_faults(request: Request) -> tuple[Fault, ...]:
    """Return the faults that make a difference to this request at any point.

    A crash after a read, after a write that doesn't touch an entity, or after an uncommitted write leaves the same state as a
    crash before the request. A lost response to such a request has the same effect as an unreachable server. The handler sees a
    second response only if the driver retries the request without marking it as a retry. botocore does that; pymongo's retryable
    writes don't. pymongo hides the result of an abort.
    """
    if request.method == ABORT:
        return (Fault.CRASH_BEFORE,)
    if request.is_uncommitted:
        return (Fault.CRASH_BEFORE, Fault.LOST)
    conflict = (Fault.CONFLICT,) if is_transaction(request) else ()
    partial = (Fault.UNPROCESSED, Fault.FIRST_UNPROCESSED) if is_batch(request) else ()
    if not request.writes or request.keys == ():
        return (Fault.CRASH_BEFORE, Fault.LOST, Fault.THROTTLED, *conflict, *partial)
    retries = (Fault.RETRIED,) if is_dynamodb(request) else ()
    cuts = (Fault.CUT_EARLY, Fault.CUT_SHORT)[
        : max(count_operations(request) - 1, 0)
    ]  # two operations can be cut at one place only
    refusals = (Fault.THROTTLED, *conflict, Fault.UNREACHABLE, *partial)
    return (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST, *cuts, *retries, *refusals)


def list_variants(fault: Fault, request: Request) -> tuple[Fault, ...]:
    """Return the faults that leave the same state as this one. Only the handler can make a difference."""
    # A lost response to a read is the same as an unreachable server, because a read has no effect.
    reaches_nothing = fault is Fault.LOST and not (request.writes or request.is_uncommitted)
    others = (Fault.UNREACHABLE, *VARIANTS[Fault.UNREACHABLE]) if reaches_nothing else ()
    # MongoDB doesn't have a third throttling code, and DynamoDB doesn't have replica set members that confirm a write.
    is_confirmed = request.writes and not (is_dynamodb(request) or request.is_uncommitted)
    exists = {Fault.LIMITED: is_dynamodb(request), Fault.UNCONFIRMED: is_confirmed}
    variants = [variant for variant in VARIANTS.get(fault, ()) if exists.get(variant, True)]
    return *variants, *others


def send_under(fault: Fault, request: Request, send: Callable[[Request], StoreCalls[Any]]) -> StoreCalls[Any]:
    """Send the part of the request that the fault doesn't block, and return the response to the whole request."""
    if fault in (Fault.CUT_SHORT, Fault.CUT_EARLY):
        return (yield from send(cut(request, early=fault is Fault.CUT_EARLY)))
    if not fault.is_partial:
        return (yield from send(request))
    rest, remainder = leave_one_out(request, first=fault is Fault.FIRST_UNPROCESSED)
    answer = None
    if rest is not None:
        answer = yield from send(rest)
    return add_remainder(request, answer, remainder)
