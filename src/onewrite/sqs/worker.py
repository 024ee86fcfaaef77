"""The worker: its options, and its life from the first request to the last.

A message is deleted after its effect is written, never before. So a worker may die at any moment: what it held is redelivered
when its visibility timeout ends, and a message whose effect was written is then a Duplicate.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from logging import ERROR, INFO
from math import inf
from typing import Any, ClassVar, cast

from onewrite.batch.handler import Handler, HandlerFunction, check_hook, handler_of
from onewrite.batch.report import backoff
from onewrite.core.log import log
from onewrite.errors import ConfigurationError
from onewrite.metrics import Hook
from onewrite.sqs.health import Journal, health_pages, names_of
from onewrite.sqs.queue import LeanQueueClient, SqsQueue, default_client
from onewrite.sqs.state import LONGEST_HIDDEN, Limits
from onewrite.sqs.stopping import StopRequest, on_signals
from onewrite.sqs.threads import ROUNDS, Time, WorkerThreads
from onewrite.sqs.watch import WorkerStuck

_GRACE = 5.0  # seconds that a cancelled task has to end: for an `await` in a `finally`, as when it closes a connection


IN_FLIGHT = 10
LONGEST_WAIT = 20  # seconds, the longest that SQS lets a request wait for messages
DRAIN = 25.0  # seconds: ECS and Kubernetes kill a process 30 seconds after their SIGTERM
# Seconds. A guarded write takes milliseconds, and botocore and pymongo give up a request after some minutes at the most, so
# what takes longer than this does not end by itself. Five such deliveries still take less than half an hour.
TIMEOUT = 300.0
MOST_DEFERRED = 2_000  # to keep so many hidden takes some 15 requests a second if their visibility timeout is 30 seconds
# Seconds without a message after which a queue is taken for empty. A request that waits asks all of SQS's servers.
_WAIT_TO_BE_EMPTY = 3
_MOST_IN_FLIGHT = 10_000
_MOST_PORT = 65_535


@dataclass(eq=False)
class Worker:
    """Runs a handler made by `sqs_handler` on the messages of one queue or several, and deletes those that are done.

    - `queue_url`: the URL, or a sequence of URLs of one region. All of them have the one handler, and take turns.
    - `client`: a boto3 SQS client; by default `boto3.client("sqs")`.
    - `lean`: the first try of a request for messages, of a deletion and of an extension does without botocore: see docs/lean.md.
    - `in_flight`: how many messages are processed at a time: by threads, or by tasks if the function is `async`, where it may be
      hundreds. With `group_by` it is how many groups. The handler's own `max_workers` and `margin` are for Lambda. Give 1 to a function that must not run twice at a
      time. The messages of a FIFO group are processed one after the other in any case.
    - `timeout`: seconds after which a message that has not ended is given back to the queue, and a task is cancelled. What
      does not end even then holds a slot. When it holds more than half of them, `run` raises `WorkerStuck`; so it does when an event
      loop has not gone round for as long, and when nothing ends in time any more.
    - `wait`: how many seconds SQS waits for messages; by default 20, or 3 with `stop_when_empty`.
    - `visibility_timeout`: seconds until a message that failed is redelivered; by default the queue's own. It is extended while a
      message is at hand, up to the 12 hours that SQS allows.
    - `backoff(tries)`: seconds until a deferred message is tried again, if nothing that is settled of its source lets it be tried before;
      and until SQS is asked again after so many requests for messages have failed, 20 at most. A message whose effect is `Uncertain` goes
      back to the queue for `backoff` of the number of its receives, and so does a deferred one for which there is no room.
    - `most_deferred`: how many messages are kept at hand that are deferred or wait for another worker's step. Further ones go
      back to the queue: deferred ones for `backoff` of the number of their receives, the others until the step's lease is over.
    - `drain_seconds`: the longest that the worker goes on after SIGTERM, SIGINT or `stop`. What is under way may end within it;
      everything else is given back to the queue at once.
    - `stop_when_empty`: stop when no message has come for `wait` seconds. Messages that are hidden then, such as failures,
      are left in the queue.
    - `on_outcome(message, outcome, seconds)`: called for each processed message, as a handler's own hook is.
    - `health_port`, `health_host`: where `/health` and `/metrics` are served; by default nowhere, and for this machine only.
    """

    queue_url: str | Sequence[str]
    handler: HandlerFunction[Any, Any] | Handler[Any]
    _: KW_ONLY
    client: Any = None
    lean: bool = False
    in_flight: int = IN_FLIGHT
    timeout: float = TIMEOUT
    wait: int | None = None
    visibility_timeout: int | None = None
    backoff: Callable[[int], float] = backoff
    most_deferred: int = MOST_DEFERRED
    drain_seconds: float = DRAIN
    stop_when_empty: bool = False
    on_outcome: Hook | None = None
    health_port: int | None = None
    health_host: str = "127.0.0.1"
    _time: ClassVar[Time] = Time()
    _handler: Handler[Any] = field(init=False, repr=False)
    _stop: StopRequest = field(init=False, repr=False)
    _threads: WorkerThreads | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self._handler = _handler_of_queues(self._urls, self.handler)
        for name, low, high in (
            ("in_flight", 1, _MOST_IN_FLIGHT),
            ("timeout", 0.001, LONGEST_HIDDEN),
            ("most_deferred", 0, 100_000),
            ("drain_seconds", 0, LONGEST_HIDDEN),
            ("wait", 0, LONGEST_WAIT),
            ("visibility_timeout", 1, LONGEST_HIDDEN),
            ("health_port", 0, _MOST_PORT),
        ):
            value, is_whole = getattr(self, name), name not in ("timeout", "drain_seconds")
            if value is None and name in ("wait", "visibility_timeout", "health_port"):
                continue
            if (
                not isinstance(value, int if is_whole else int | float)
                or isinstance(value, bool)
                or not low <= value <= high
            ):
                raise ConfigurationError(f"{name}={value!r}: give a {'whole ' * is_whole}number from {low} to {high}.")
        check_hook(self.on_outcome)
        pause = cast("object", self.backoff(1)) if callable(self.backoff) else None
        if not isinstance(pause, int | float) or not pause < inf:
            raise ConfigurationError(
                f"backoff={self.backoff!r}: give a function of the number of tries that returns a number of seconds."
            )
        self._stop = StopRequest(self.drain_seconds, self._time.clock)

    def run(self) -> bool:
        """Work until stopped. False: something was still under way at the deadline, and is redelivered.

        The work is done in other threads, so this one can leave at the deadline, however slow the handler is.
        """

        def when_wanted() -> None:
            log(INFO, "%s: the worker is stopping, within %g seconds", self._name, self.drain_seconds)
            if self._threads is not None:
                self._threads.look()

        end: Future[None] = Future()
        work = threading.Thread(target=copy_context().run, args=(self._run_work, end), name="onewrite-worker", daemon=True)
        with on_signals(self._stop.ask_or_hurry):
            work.start()
            self._stop.wait(end, self._is_busy, when_wanted, self._is_lost)
        threads = self._threads
        if end.done():
            end.result()
        elif threads is not None and threads.failure is not None:
            threads.abandon()
            raise threads.failure
        elif threads is not None and (hang := threads.watch.hang(ROUNDS)) is not None:
            threads.abandon()
            raise WorkerStuck(hang)
        elif threads is not None and self._is_busy():
            names = names_of(threads.under_way())
            log(ERROR, "%s: not everything has ended in time: what has not is redelivered: %s", self._name, names)
            return False
        log(INFO, "%s: the worker has stopped", self._name)
        return True

    def stop(self) -> None:
        """Stop as a signal does, from any thread. A stopped worker stays stopped: to go on, make another one."""
        self._stop.ask()

    @property
    def _urls(self) -> tuple[str, ...]:
        urls = self.queue_url
        return tuple(urls) if isinstance(urls, list | tuple) else (cast("str", urls),)

    @property
    def _name(self) -> str:
        return ", ".join(self._urls)

    def _is_lost(self) -> bool:
        """Whether the rounds have ended without a word. It takes no lock, because that may be what they wait for."""
        return self._threads is not None and self._threads.watch.hang(ROUNDS) is not None

    def _is_busy(self) -> bool:
        return self._threads is not None and self._threads.is_busy

    def _run_work(self, end: Future[None]) -> None:
        try:
            self._work()
        except BaseException as error:  # of any kind: `run` raises it again in the caller's thread
            end.set_exception(error)
        else:
            end.set_result(None)

    def _work(self) -> None:
        if self._stop.is_wanted:  # Asked for before it began, it sends no request at all.
            return
        journal = Journal(self._handler, () if self.on_outcome is None else (self.on_outcome,), self._time.clock)
        with ExitStack() as stack:
            options: Any = {"limits": self._limits, "journal": journal, "time": self._time, "stop": self._stop}
            threads = self._threads = WorkerThreads(self._open_queues(), self._handler, **options)
            if self.health_port is not None:
                pages = health_pages(self.health_host, self.health_port, journal, threads.counts, threads.trouble)
                log(INFO, "%s: health and metrics at %s:%s", self._name, self.health_host, stack.enter_context(pages))
            log(INFO, "%s: the worker begins", self._name)
            threads.run()
            journal.sum_up(is_last=True)

    @property
    def _limits(self) -> Limits:
        return Limits(
            slots=self.in_flight,
            timeout=self.timeout,
            grace=_GRACE if self._handler.is_async else 0.0,
            wait=self.wait if self.wait is not None else _WAIT_TO_BE_EMPTY if self.stop_when_empty else LONGEST_WAIT,
            most_deferred=self.most_deferred,
            stop_when_empty=self.stop_when_empty,
            has_groups=self._handler.has_groups,
            backoff=self.backoff,
        )

    def _open_queues(self) -> list[SqsQueue]:
        client = default_client(self._urls[0]) if self.client is None else self.client
        options: dict[str, Any] = {"visibility": self.visibility_timeout, "attempts": partial(secrets.token_hex, 16)}
        options["sleep"] = self._time.sleep
        return [SqsQueue(url, LeanQueueClient(client) if self.lean else client, **options) for url in self._urls]


def _handler_of_queues(urls: Sequence[object], handler: object) -> Handler[Any]:
    if not urls:
        raise ConfigurationError("There is no queue URL: give one or more.")
    for url in urls:
        if not isinstance(url, str) or "://" not in url:
            raise ConfigurationError(
                f"{url!r} is no queue URL: give what `aws sqs get-queue-url --queue-name ...` prints, https:// included."
            )
    if len(set(urls)) < len(urls):
        raise ConfigurationError("A queue is named twice: give each URL once.")
    if (sqs_handler := handler_of(handler)) is None:
        raise ConfigurationError(
            f"{handler!r} is no handler of SQS batches: decorate the function with @sqs_handler(identity) from "
            "onewrite.aws_lambda, and give the decorated function to the worker."
        )
    if "aws:sqs" not in sqs_handler.source.origins:
        raise ConfigurationError(
            f"This handler takes batches of {sqs_handler.source.name}, not of SQS: decorate the function with @sqs_handler."
        )
    return sqs_handler
