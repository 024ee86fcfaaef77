"""The worker's loop: receive messages, give them to the handler, and tell SQS what became of them.

A message is deleted after its effect is written, never before. So a worker may die at any moment: what it held comes again
when its visibility timeout ends, and a message whose effect was written is then a Duplicate.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from onewrite.batch.decorated import HandlerFunction, handler_of
from onewrite.batch.handler import Handler
from onewrite.errors import ConfigurationError
from onewrite.sqs.decisions import LONGEST_HIDDEN, backoff, extension, settlement
from onewrite.sqs.queue import Queue, default_client, logger
from onewrite.sqs.stopping import Stop, on_signals
from onewrite.sqs_message import Received, lambda_record

MOST_MESSAGES = 10  # the most that SQS gives in one request
LONGEST_WAIT = 20  # seconds, the longest that SQS lets a request wait for messages
DRAIN = 25.0  # seconds: ECS and Kubernetes kill a process 30 seconds after their SIGTERM
# Seconds without a message after which a queue is taken for empty. A request that waits asks all of SQS's servers, and a
# message that was deferred once or twice is back by then.
_WAIT_TO_BE_EMPTY = 3
_EXTENSIONS_PER_TIMEOUT = 3  # so that one may fail, and the next one still comes in time


def new_attempt() -> str:
    """A random name for a request for messages. No two requests of any worker have the same one."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class _HeldMessages:
    """Messages that were received, and the time of the request: SQS has hidden them since then, or since a little later."""

    messages: Sequence[Received]
    since: float


@dataclass(frozen=True, slots=True)
class _Context:
    """The part of Lambda's context that a handler uses."""

    seconds_left: Callable[[], float]

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int(self.seconds_left() * 1000))


@dataclass(eq=False)
class Worker:
    """Runs a handler made by `sqs_handler` on the messages of a queue, and deletes those that are done.

    - `client`: a boto3 SQS client; by default `boto3.client("sqs")`.
    - `batch_size`: how many messages a batch has, at most 10. How many of them are processed at a time is the handler's
      `max_workers`. For more throughput, start more processes.
    - `wait`: how many seconds SQS waits for messages; by default 20, or 3 with `stop_when_empty`.
    - `visibility_timeout`: seconds until a message that failed comes again; by default the queue's own. It is extended while
      the handler runs, up to the 12 hours that SQS allows.
    - `backoff(receive_count)`: seconds until a deferred message comes again.
    - `drain_seconds`: the longest that the worker goes on after SIGTERM, SIGINT or `stop`. It begins no record that may not
      end in time, and gives the rest back to the queue.
    - `stop_when_empty`: stop when no message has come for `wait` seconds. Messages that are hidden then, such as failures,
      are left in the queue.
    - `attempts` gives a name to each request for messages, `clock` the seconds of a monotonic clock; `sleep(seconds)` and
      `pause(event, seconds)` wait, the second one until the event if that comes first.
    """

    queue_url: str
    handler: HandlerFunction[Any] | Handler[Any]
    _: KW_ONLY
    client: Any = None
    batch_size: int = MOST_MESSAGES
    wait: int | None = None
    visibility_timeout: int | None = None
    backoff: Callable[[int], float] = backoff
    drain_seconds: float = DRAIN
    stop_when_empty: bool = False
    attempts: Callable[[], str] = new_attempt
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    pause: Callable[[threading.Event, float], bool] = threading.Event.wait
    _stop: Stop = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_wiring(self.queue_url, self.handler)
        _check_number("batch_size", self.batch_size, 1, MOST_MESSAGES)
        _check_number("drain_seconds", self.drain_seconds, 0, LONGEST_HIDDEN, whole=False)
        if self.wait is not None:
            _check_number("wait", self.wait, 0, LONGEST_WAIT)
        if self.visibility_timeout is not None:
            _check_number("visibility_timeout", self.visibility_timeout, 1, LONGEST_HIDDEN)
        self._stop = Stop(self.drain_seconds, self.clock)

    def run(self) -> bool:
        """Work until stopped. False: a batch was still under way at the deadline, and its messages come again.

        The work is done in another thread, so that this one can leave at the deadline, however slow the handler is.
        """
        end: Future[None] = Future()
        work = threading.Thread(target=copy_context().run, args=(self._run_work, end), name="onewrite-worker", daemon=True)
        with on_signals(self._stop.ask_or_hurry):
            work.start()
            self._stop.wait(end, self._log_stopping)
        if end.done():
            end.result()
        elif self._stop.busy:
            logger.error("%s: the batch has not ended in time: its messages come again", self.queue_url)
            return False
        logger.info("%s: the worker has stopped", self.queue_url)
        return True

    def stop(self) -> None:
        """Stop as a signal does, from any thread. A stopped worker stays stopped: to go on, make another one."""
        self._stop.ask()

    def _log_stopping(self) -> None:
        logger.info("%s: the worker is stopping, within %g seconds", self.queue_url, self.drain_seconds)

    def _run_work(self, end: Future[None]) -> None:
        try:
            self._work()
        except BaseException as error:  # of any kind: `run` raises it again in the caller's thread
            end.set_exception(error)
        else:
            end.set_result(None)

    def _work(self) -> None:
        if self._stop.asked:  # Asked before it began, it sends no request at all.
            return
        client = default_client(self.queue_url) if self.client is None else self.client
        queue = Queue(self.queue_url, client, visibility=self.visibility_timeout, attempts=self.attempts, sleep=self.sleep)
        wait = self.wait if self.wait is not None else _WAIT_TO_BE_EMPTY if self.stop_when_empty else LONGEST_WAIT
        logger.info("%s: the worker begins", self.queue_url)
        while not self._stop.asked:
            since = self.clock()
            messages = queue.receive(MaxNumberOfMessages=self.batch_size, WaitTimeSeconds=wait)
            if messages:
                self._stop.busy = True
                self._process(queue, _HeldMessages(messages, since))
                self._stop.busy = False
            elif messages is not None and self.stop_when_empty:
                return

    def _process(self, queue: Queue, batch: _HeldMessages) -> None:
        if self._stop.asked:  # while the request for messages was under way: give them back at once
            queue.hide([(message, 0) for message in batch.messages])
            return
        event = {"Records": [lambda_record(message, queue.arn) for message in batch.messages]}
        with self._kept_hidden(queue, batch):
            report = self.handler.run(event, _Context(lambda: self._seconds_left(batch)))
        settled = settlement(batch.messages, report, fifo=queue.fifo, backoff=self.backoff)
        queue.delete(settled.done)
        queue.hide(settled.again)

    def _seconds_left(self, batch: _HeldMessages) -> float:
        return min(batch.since + LONGEST_HIDDEN, self._stop.deadline) - self.clock()

    @contextmanager
    def _kept_hidden(self, queue: Queue, batch: _HeldMessages) -> Generator[None, None, None]:
        """Keep the batch hidden for as long as the block runs.

        The last extension has ended when the block is left. A later one would hide messages for long that the worker is
        about to let come again soon.
        """
        over = threading.Event()
        thread = threading.Thread(target=self._extend, args=(queue, batch, over), name="onewrite-visibility", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _extend(self, queue: Queue, batch: _HeldMessages, over: threading.Event) -> None:
        held = batch.messages
        while held and not self.pause(over, queue.visibility / _EXTENSIONS_PER_TIMEOUT):
            seconds = extension(queue.visibility, self.clock() - batch.since)
            if not seconds:
                logger.warning("%s: SQS hides no message for longer than 12 hours: this batch comes again", queue.url)
                return
            try:
                gone = queue.hide([(message, seconds) for message in held])
            except Exception as error:  # The handler goes on. If a message comes again meanwhile, its write is guarded.
                logger.warning("%s: the visibility of a batch cannot be extended: %s", queue.url, error)
            else:
                held = [message for message in held if message["ReceiptHandle"] not in gone]


def _check_wiring(queue_url: object, handler: object) -> None:
    if not isinstance(queue_url, str) or "://" not in queue_url:
        raise ConfigurationError(
            f"{queue_url!r} is no queue URL: give what `aws sqs get-queue-url --queue-name ...` prints, https:// included."
        )
    if (found := handler_of(handler)) is None:
        raise ConfigurationError(
            f"{handler!r} is no handler of SQS batches: decorate the function with @sqs_handler(identity) from "
            "onewrite.aws_lambda, and give the decorated function to the worker."
        )
    if "aws:sqs" not in found.source.origins:
        raise ConfigurationError(
            f"This handler takes batches of {found.source.name}, not of SQS: decorate the function with @sqs_handler."
        )


def _check_number(name: str, value: Any, low: int, high: int, *, whole: bool = True) -> None:
    if not isinstance(value, int if whole else int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigurationError(f"{name}={value!r}: give a {'whole ' * whole}number from {low} to {high}.")
