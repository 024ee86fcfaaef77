"""The options of a worker, and its life from the first request to the last.

A worker can crash at any time, because it deletes a message only after its change is written. SQS then redelivers its messages when their
visibility timeout ends, and a message whose change was written is a Duplicate.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import KW_ONLY, dataclass, field
from logging import INFO
from typing import Any, ClassVar

from onewrite.batch.function import is_async
from onewrite.batch.handler import Handler, HandlerFunction, check_hook, find_handler
from onewrite.batch.report import backoff
from onewrite.core.log import log
from onewrite.errors import ConfigurationError
from onewrite.metrics import Hook
from onewrite.process.stopping import StopRequest, on_signals
from onewrite.process.watch import WorkerStuck
from onewrite.sqs.health import serve_health_page
from onewrite.sqs.journal import Journal
from onewrite.sqs.queue import SqsQueue, make_default_client
from onewrite.sqs.state import MAX_HIDDEN, Limits
from onewrite.sqs.threads import ROUNDS, Time, WorkerThreads

IN_FLIGHT = 10
MAX_WAIT = 20  # seconds: SQS's limit for a long poll
DRAIN = 25.0  # seconds: ECS and Kubernetes kill a process 30 seconds after SIGTERM
# Seconds. A message that takes longer hangs, because a guarded write takes milliseconds, and botocore and pymongo give up a request after a
# few minutes. Five such deliveries still take less than half an hour.
TIMEOUT = 300.0
_WAIT_TO_BE_EMPTY = 3  # seconds without a message until a queue counts as empty. A long poll asks all of SQS's servers.
_MAX_IN_FLIGHT = 10_000
_MAX_HANGS = 4  # checks in a row, which take two seconds
_MAX_PORT = 65_535
_GRACE = 5.0  # seconds for a cancelled task to end, for example to close a connection in a `finally`


@dataclass(eq=False)
class Worker:
    """Runs a handler made by `sqs_handler` on the messages of a queue, and deletes settled messages.

    - `client`: a boto3 SQS client. The default is `boto3.client("sqs")`.
    - `in_flight`: how many messages, or groups with `group_by`, are processed at a time: by threads, or by tasks if the function is `async`,
      which allows hundreds. Pass 1 for a function that must not run concurrently. The messages of a FIFO group are always processed one
      after the other. The handler's own `max_workers` and `margin` are for Lambda.
    - `timeout`: seconds until an unfinished message returns to the queue, and its task is cancelled. Until its call ends, the message
      occupies a slot. If more than half of the slots are lost in this way, or an event loop is blocked for as long, `run` raises
      `WorkerStuck`.
    - `wait`: seconds that SQS waits for messages. The default is 20, or 3 with `stop_when_empty`.
    - `visibility_timeout`: seconds until a failed message is redelivered. The default is the queue's own. The worker extends it while it
      has the message, up to the 12 hours that SQS allows.
    - `backoff(tries)`: seconds until a deferred message is retried, unless a message of its source is settled earlier. An `Uncertain`
      message, or a deferred message for which there is no room, returns to the queue for `backoff(receives)` seconds.
    - `drain_seconds`: how long messages in progress can take to finish after SIGTERM, SIGINT, or `stop()`. All other messages return to the
      queue at once.
    - `stop_when_empty`: stop after `wait` seconds without a message. Hidden messages, for example failed ones, stay in the queue.
    - `on_outcome(message, outcome, seconds)`: called for each processed message, like a handler's own hook.
    - `health_port`, `health_host`: where to serve `/health`. By default, it isn't served. The default host is reachable from this machine only.
    """

    queue_url: str
    handler: HandlerFunction[Any, Any] | Handler[Any]
    _: KW_ONLY
    client: Any = None
    in_flight: int = IN_FLIGHT
    timeout: float = TIMEOUT
    wait: int | None = None
    visibility_timeout: int | None = None
    backoff: Callable[[int], float] = backoff
    drain_seconds: float = DRAIN
    stop_when_empty: bool = False
    on_outcome: Hook | None = None
    health_port: int | None = None
    health_host: str = "127.0.0.1"
    _time: ClassVar[Time] = Time()
    _handler: Handler[Any] = field(init=False, repr=False)
    _stop: StopRequest = field(init=False, repr=False)
    _threads: WorkerThreads | None = field(init=False, repr=False, default=None)
    _has_begun: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        """Raise if an option is invalid. None is valid for the options that have another default."""
        self._handler = _check_handler(self.handler)
        for name, kinds, low, high in (
            ("in_flight", int, 1, _MAX_IN_FLIGHT),
            ("timeout", int | float, 0.001, MAX_HIDDEN),
            ("drain_seconds", int | float, 0, MAX_HIDDEN),
            ("wait", int | None, 0, MAX_WAIT),
            ("visibility_timeout", int | None, 1, MAX_HIDDEN),
            ("health_port", int | None, 0, _MAX_PORT),
        ):
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds) or (value is not None and not low <= value <= high):
                kind = "a number" if kinds == int | float else "an int"
                raise ConfigurationError(f"{name} must be {kind} between {low} and {high}, got {value!r}.")
        if not callable(self.backoff) or is_async(self.backoff):
            raise ConfigurationError(f"backoff={self.backoff!r}: expected a plain function, for example lambda tries: 30.")
        check_hook(self.on_outcome)
        self._stop = StopRequest(self.drain_seconds, self._time.clock)

    def run(self) -> bool:
        """Work until stopped. Return False if a message was still in progress at the deadline, so that it is redelivered.

        Other threads do the work, so this method returns at the deadline, however slow the handler is. A worker runs only once, and not
        at all if it was stopped before.
        """
        if self._has_begun:
            raise ConfigurationError(
                f"The worker of {self.queue_url} has run already, and runs only once. Create a new Worker."
            )
        self._has_begun = True
        end: Future[None] = Future()
        work = threading.Thread(target=copy_context().run, args=(self._run_work, end), name="onewrite-worker", daemon=True)
        with on_signals(self._stop.ask_or_hurry):
            try:
                work.start()
            except RuntimeError as error:
                raise WorkerStuck(
                    f"The worker can't start a thread: {error}. Raise the limit of processes, and start it again."
                ) from error
            self._wait(end)
        threads = self._threads
        if end.done():
            end.result()  # raises the error that ended the work, if any
        elif threads is not None:
            failure = threads.failure or self._find_hang()
            threads.log_unfinished()
            if failure is not None:
                threads.abandon()
                raise failure
            if threads.is_busy:
                return False
        log(INFO, "%s: the worker has stopped", self.queue_url)
        return True

    def stop(self) -> None:
        """Stop the worker like a signal, from any thread. If it doesn't run yet, `run` will return at once."""
        self._stop.ask()

    def _wait(self, end: Future[None]) -> None:
        """Wait for the end of the work, for the deadline of a stop, or until the rounds have hung in several checks in a row.

        A single check could follow right after a suspended process resumes.
        """
        end.add_done_callback(lambda _: self._stop.wake())
        is_announced, hangs = False, 0
        while not end.done() and hangs < _MAX_HANGS:
            is_in_time = self._stop.wait(is_busy=self._threads is not None and self._threads.is_busy)
            if self._stop.is_wanted and not is_announced:
                is_announced = True
                log(INFO, "%s: the worker is stopping within %g seconds", self.queue_url, self.drain_seconds)
                if self._threads is not None:
                    self._threads.begin_round()
            if not is_in_time:
                return
            hangs = hangs + 1 if self._find_hang() else 0

    def _find_hang(self) -> WorkerStuck | None:
        """Return an error if the rounds hang. Takes no lock, because the rounds might hang on it."""
        hang = None if self._threads is None else self._threads.watch.describe_hang(ROUNDS)
        return None if hang is None else WorkerStuck(hang)

    def _run_work(self, end: Future[None]) -> None:
        """Do the work, and pass its end or its error to `run`."""
        try:
            self._work()
            end.set_result(None)
        except BaseException as error:  # any error, because `run` raises it in the caller's thread
            end.set_exception(error)

    def _work(self) -> None:
        """Connect to the queue, serve the health page, and run the threads until the worker has stopped."""
        if self._stop.is_wanted:  # stopped before it began: send no request
            return
        client = make_default_client(self.queue_url) if self.client is None else self.client
        queue = SqsQueue(self.queue_url, client, visibility=self.visibility_timeout, sleep=self._time.sleep)
        default_wait = _WAIT_TO_BE_EMPTY if self.stop_when_empty else MAX_WAIT
        limits = Limits(
            slots=self.in_flight,
            timeout=self.timeout,
            grace=_GRACE if self._handler.is_async else 0.0,
            wait=default_wait if self.wait is None else self.wait,
            stop_when_empty=self.stop_when_empty,
            has_groups=self._handler.has_groups,
            backoff=self.backoff,
        )
        journal = Journal(self._handler, queue, self.on_outcome, self._time.clock)
        threads = self._threads = WorkerThreads(
            queue, self._handler, limits=limits, journal=journal, timing=self._time, stop=self._stop
        )
        with ExitStack() as stack:
            if self.health_port is not None:
                page = serve_health_page(
                    self.health_host, self.health_port, threads.state.count_messages, threads.describe_trouble
                )
                log(INFO, "%s: /health is served at %s:%s", self.queue_url, self.health_host, stack.enter_context(page))
            log(INFO, "%s: the worker begins", self.queue_url)
            threads.run()
            journal.sum_up(is_last=True)


def _check_handler(handler: object) -> Handler[Any]:
    """Return the decorated function's `Handler`, or raise if it isn't a handler of SQS batches."""
    sqs_handler = find_handler(handler)
    if sqs_handler is None:
        raise ConfigurationError(
            f"Worker: expected a handler of SQS batches, got {handler!r}. Decorate the function with @sqs_handler(identity) from "
            "onewrite.aws_lambda, and pass the decorated function."
        )
    if "aws:sqs" not in sqs_handler.source.origins:
        raise ConfigurationError(
            f"Worker: expected a handler of SQS batches, got a handler of {sqs_handler.source.name}. Decorate the function with @sqs_handler."
        )
    return sqs_handler
