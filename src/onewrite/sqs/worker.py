"""The loop: receive, hand over, settle. A message is deleted when its effect is in, never before.

So a worker may die at any moment: what it held comes again when its visibility timeout ends, and what had been done is then
a Duplicate.
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

from onewrite.batch.handler import Handler
from onewrite.errors import ConfigurationError
from onewrite.sqs.decisions import LONGEST_HIDDEN, backoff, extension, settlement
from onewrite.sqs.queue import Queue, default_client, logger
from onewrite.sqs.stopping import Stop, on_signals
from onewrite.sqs_message import Received, lambda_record

MOST_MESSAGES = 10  # that SQS gives in one request
LONGEST_WAIT = 20  # seconds that SQS lets a request wait for messages
DRAIN = 25.0  # seconds: ECS and Kubernetes kill 30 seconds after their SIGTERM
# To stop when empty: long enough that SQS asks all of its servers, and that a message deferred once or twice is back.
_LAST_WAIT = 3
_BEATS = 3  # extensions within a visibility timeout: one may fail


def new_attempt() -> str:
    """Names a receive, at random: no two workers ask by the same name."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class _HeldMessages:
    """What was received, and since when SQS hides it at the earliest."""

    messages: Sequence[Received]
    since: float


@dataclass(frozen=True, slots=True)
class _Context:
    """What a handler asks of Lambda's context."""

    seconds_left: Callable[[], float]

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int(self.seconds_left() * 1000))


@dataclass(eq=False)
class Worker:
    """Runs an `sqs_handler` on what a queue holds, and deletes what is done.

    - `client`: a boto3 SQS client; by default `boto3.client("sqs")`.
    - `batch_size`: messages a batch, at most 10. How many are under way at a time is the handler's `max_workers`; more
      workers are more processes.
    - `wait`: for how many seconds SQS waits for messages: 20, or 3 with `stop_when_empty`.
    - `visibility_timeout`: seconds until a failure comes again; by default the queue's own. While the handler runs it is
      extended, up to the 12 hours that SQS allows.
    - `backoff(receive_count)`: seconds until a deferred message comes again.
    - `drain_seconds`: how long after SIGTERM, SIGINT or `stop` the worker goes on at most. It begins no record that may not
      end in time, and gives back the rest.
    - `stop_when_empty`: stop when nothing has come for `wait` seconds. What is hidden by then, as failures are, is left.
    - `attempts`, `clock`, `sleep`, `pause`: names of receives; seconds, and two ways to let them pass.
    """

    queue_url: str
    handler: Handler[Any]
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
        """Work until stopped. False: the deadline came first, and the messages in hand come again.

        The work is done in a thread of its own, so that no handler, however slow, keeps this one from leaving.
        """
        end: Future[None] = Future()
        work = threading.Thread(target=copy_context().run, args=(self._carry, end), name="onewrite-worker", daemon=True)
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
        """What a signal does, for other threads. It cannot be undone: to go on, make another worker."""
        self._stop.ask()

    def _log_stopping(self) -> None:
        logger.info("%s: the worker is stopping, within %g seconds", self.queue_url, self.drain_seconds)

    def _carry(self, end: Future[None]) -> None:
        try:
            self._work()
        except BaseException as error:  # whatever it is, the caller of `run` gets it
            end.set_exception(error)
        else:
            end.set_result(None)

    def _work(self) -> None:
        if self._stop.asked:  # before it began: the queue need not even be there
            return
        client = default_client(self.queue_url) if self.client is None else self.client
        queue = Queue(self.queue_url, client, visibility=self.visibility_timeout, attempts=self.attempts, sleep=self.sleep)
        wait = self.wait if self.wait is not None else _LAST_WAIT if self.stop_when_empty else LONGEST_WAIT
        logger.info("%s: the worker begins", self.queue_url)
        while not self._stop.asked:
            since = self.clock()
            messages = queue.receive(MaxNumberOfMessages=self.batch_size, WaitTimeSeconds=wait)
            if messages:
                self._stop.busy = True
                self._take(queue, _HeldMessages(messages, since))
                self._stop.busy = False
            elif messages is not None and self.stop_when_empty:
                return

    def _take(self, queue: Queue, batch: _HeldMessages) -> None:
        if self._stop.asked:  # while SQS was being asked
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
        """However long it takes. It ends before the batch is settled, lest it hides again what was to come soon."""
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
        while held and not self.pause(over, queue.visibility / _BEATS):
            seconds = extension(queue.visibility, self.clock() - batch.since)
            if not seconds:
                logger.warning("%s: SQS hides no message longer than 12 hours: these come again", queue.url)
                return
            try:
                gone = queue.hide([(message, seconds) for message in held])
            except Exception as error:  # the handler goes on: what comes again meanwhile is guarded
                logger.warning("%s: the visibility of a batch cannot be extended: %s", queue.url, error)
            else:
                held = [message for message in held if message["ReceiptHandle"] not in gone]


def _check_wiring(queue_url: object, handler: object) -> None:
    if not isinstance(queue_url, str) or "://" not in queue_url:
        raise ConfigurationError(
            f"{queue_url!r} is no queue URL: give what `aws sqs get-queue-url --queue-name ...` prints, with its https://."
        )
    if not isinstance(handler, Handler):
        raise ConfigurationError(
            f"{handler!r} is no handler of SQS batches: decorate the function with @sqs_handler(identity) of "
            "onewrite.aws_lambda, and give the worker what that makes of it."
        )
    if "aws:sqs" not in handler.source.origins:
        raise ConfigurationError(
            f"This handler takes batches of {handler.source.name}, not of SQS: decorate with @sqs_handler."
        )


def _check_number(name: str, value: Any, low: int, high: int, *, whole: bool = True) -> None:
    if not isinstance(value, int if whole else int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigurationError(f"{name}={value!r}: give a {'whole ' * whole}number from {low} to {high}.")
