"""What a worker tells those who operate it: a line of the log for each failure, counts, and two pages over HTTP.

`/health` answers 200 while the rounds and the event loop of the worker go on. Otherwise it answers 503 and says why. `/metrics` is in the
text format of Prometheus.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from logging import DEBUG, INFO, WARNING
from typing import Any, cast

from onewrite.batch.handler import Handler
from onewrite.batch.report import Failure, Result
from onewrite.core.log import log, logger
from onewrite.errors import ConfigurationError
from onewrite.message import full_name, printable
from onewrite.metrics import Hook, kinds_of
from onewrite.outcome import Begun, Missing, Superseded, Uncertain
from onewrite.sqs.queue import SqsQueue
from onewrite.sqs.state import ReturnReason
from onewrite.sqs.waiting import QueueMessage

SUMMARY = 60.0  # seconds between two lines that sum up
_MOST_NAMED = 20  # messages in one line

_NOTABLE: tuple[ReturnReason, ...] = ("deferred", "busy")  # of which nothing else is said
_REASON_TEXTS: dict[ReturnReason, str] = {
    "failed": "it is redelivered when its visibility timeout ends",
    "deferred": "it goes back to the queue, because what it waits for does not come or too many wait already",
    "busy": "it goes back to the queue until the step's lease is over, because that is long or too many wait already",
    "uncertain": "it goes back to the queue for a while",
    "superseded": "it goes back to the queue for a moment",
    "untouched": "it goes back to the queue without having been processed",
    "overdue": "it has gone back to the queue, because it did not end in time",
    "behind": "it goes back to the queue, because it stands in a group behind a message that does",
    "lost": "SQS has let it go, and it is redelivered",
    "stopping": "it goes back to the queue, because the worker stops",
    "stalled": "it goes back to the queue, because no message can begin here",
}


def name_of(message: QueueMessage) -> str:
    """A message at hand. Its own name is known only once its identity has been read."""
    names = [full_name(processed_message) for processed_message in message.messages[:_MOST_NAMED]]
    return ", ".join([f"record {printable(message.content['MessageId'])}", *names])


def names_of(members: Sequence[QueueMessage]) -> str:
    """Several of them."""
    remainder = [f"and {len(members) - _MOST_NAMED} more"] if len(members) > _MOST_NAMED else []
    return "; ".join([*map(name_of, members[:_MOST_NAMED]), *remainder])


def _ending(message: QueueMessage, queue: SqsQueue) -> str:
    """What is said of the last delivery that the queue makes, if it is known how many it makes."""
    if queue.most_receives is None or message.receives < queue.most_receives:
        return ""
    target = printable(queue.dead_letter_queue)
    return f" This was delivery {message.receives} of {queue.most_receives}, the last one: the queue moves it to {target}."


class Journal:
    """`hooks` are called for each message that was processed, like a handler's `on_outcome`."""

    def __init__(self, handler: Handler[Any], hooks: tuple[Hook, ...], clock: Callable[[], float]) -> None:
        self._handler, self._name = handler, handler.name
        self._hooks, self._clock = hooks, clock
        self._summed_up = clock()
        self._logged_ends: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.seconds = 0.0
        self.receive_count = 0
        self.timeouts = 0

    def count(self, results: Iterable[Result | None]) -> None:
        """For the pages and the sums. The lock of the threads is held."""
        for result in filter(None, results):
            self.seconds += result.seconds
            for kind, _ in kinds_of(result.reported):
                self.ends[kind] += 1

    def tell(self, members: Sequence[QueueMessage], results: Iterable[Result | None], queue: SqsQueue) -> None:
        """What became of each of them. None was not processed."""
        for message, result in zip(members, results, strict=True):
            if result is not None:
                self._tell(message, result, queue)
            message.messages = ()

    def _tell(self, message: QueueMessage, result: Result, queue: SqsQueue) -> None:
        """No Exception is raised from here: what is done stays done, also if a hook of the user's fails."""
        try:
            if not result.settled:
                message.failure = self._handler.failure(result)
                # Of the others, most are in the middle of a row of tries that ends well. If it does not, `returned` tells of it.
                needs_help = result.error is not None or isinstance(
                    result.unsettled, Begun | Missing | Uncertain | Superseded
                )
                # Except for Missing, these are not tried again here.
                ending = "" if isinstance(result.unsettled, Missing) and result.error is None else _ending(message, queue)
                if needs_help and ending and not message.end_is_logged:
                    message.end_is_logged = True
                    self._log(WARNING, f"{message.failure}.{ending}", message.failure, last_delivery=True)
                else:
                    self._log(WARNING if needs_help else DEBUG, str(message.failure), message.failure)
            for hook in self._hooks:
                hook(result.message, result.reported, result.seconds)
        except Exception as error:
            log(WARNING, "%s: a hook raised %s", self._name, type(error).__name__)

    def log_return(self, message: QueueMessage, reason: ReturnReason, queue: SqsQueue) -> None:
        """It is at hand no more, and not settled. If its last try has said so, this says nothing more.

        So each message that ends in a dead-letter queue has a line that names it. What was never processed has no name but SQS's own.
        """
        if message.end_is_logged:
            return
        message.end_is_logged = True
        ending = _ending(message, queue)
        level = WARNING if ending or reason in _NOTABLE else INFO if message.failure else DEBUG
        text = f"{message.failure or name_of(message)}; {_REASON_TEXTS[reason]}.{ending}"
        self._log(level, text, message.failure, last_delivery=bool(ending))

    def log_overdue(self, members: Sequence[QueueMessage], timeout: float, place: str | None) -> None:
        """All of them are of one call."""
        self.timeouts += len(members)
        if len(members) == 1:
            text = f"{name_of(members[0])} has not ended {timeout:g} seconds after it began, and is given back; it stands at {place}"
        else:
            text = (
                f"a group of {len(members)} messages has not ended {timeout:g} seconds after it began, and is given back; it stands at {place}: "
                f"{names_of(members)}"
            )
        self._log(WARNING, text)

    def warn(self, text: str) -> None:
        self._log(WARNING, text)

    def _log(self, level: int, text: str, failure: Failure | None = None, **details: object) -> None:
        if logger.isEnabledFor(level):
            failures = {} if failure is None else {"failures": [failure.as_json()]}
            log(level, "%s: %s", self._name, text, details={"handler": self._name, **failures, **details})

    def sum_up(self, *, is_last: bool = False) -> None:
        """One line for what has ended since the last one, now and then."""
        now = self._clock()
        if not is_last and now < self._summed_up + SUMMARY:
            return
        self._summed_up = now
        ends = Counter(self.ends)
        new_ends, self._logged_ends = ends - self._logged_ends, ends
        if new_ends:
            words = ", ".join(f"{count} {kind}" for kind, count in sorted(new_ends.items()))
            log(INFO, "%s: %s", self._name, words, details={"handler": self._name, "outcomes": dict(new_ends)})


# --- the two pages -----------------------------------------------------------------------------------------------------


_MOST_CONNECTIONS = 16  # probes ask one at a time; each one takes a file descriptor that a request to SQS could need
_LONGEST_CONNECTION = 5.0  # seconds
_LONGEST_REQUEST = 8192  # bytes
_BACKLOG = 128  # connections that the system keeps until they are accepted; they take no file descriptor
_PAUSE = 0.1  # seconds after a connection that the system refuses to accept


class HealthPages:
    """Serves the two pages. `counts` says what is at hand, `journal` what has ended, and `trouble` why the worker is of no use, if it is.

    One thread does it, for a few connections at a time and for seconds at most. One more closes the oldest, so a probe is always
    answered, and idle connections take neither threads nor file descriptors from the worker.
    """

    def __init__(
        self,
        host: str,
        port: int,
        journal: Journal,
        counts: Callable[[], Mapping[str, int]],
        trouble: Callable[[], str | None],
    ) -> None:
        self._journal, self._counts, self._trouble = journal, counts, trouble
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ConfigurationError(
                f"The health endpoint cannot listen on {host}:{port}: {error}. Give another health_host or health_port."
            ) from error
        self.port: int = self._listener.getsockname()[1]
        self._listener.setblocking(False)
        self._close_receiver, self._close_sender = socket.socketpair()
        self._connections: dict[
            socket.socket, tuple[bytearray, float]
        ] = {}  # what each has sent, since when; the oldest one first
        self._selector = selectors.DefaultSelector()
        for plug in (self._listener, self._close_receiver):
            self._selector.register(plug, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="onewrite-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._close_sender.send(b".")
        self._thread.join()
        self._close_sender.close()

    def _serve(self) -> None:
        while True:
            ready_plugs = [cast("socket.socket", key.fileobj) for key, _ in self._selector.select(self._next_timeout())]
            if self._close_receiver in ready_plugs:
                break
            for plug in ready_plugs:
                if plug is not self._listener:
                    self._receive(plug)
            if self._listener in ready_plugs:  # after the others, because it may close some of them
                self._accept()
            while self._connections and self._next_timeout() == 0.0:
                self._end(next(iter(self._connections)))
        for plug in [*self._connections]:
            self._end(plug)
        self._selector.close()
        self._listener.close()
        self._close_receiver.close()

    def _next_timeout(self) -> float | None:
        _, oldest = next(iter(self._connections.values()), (b"", None))
        return None if oldest is None else max(0.0, oldest + _LONGEST_CONNECTION - time.monotonic())

    def _accept(self) -> None:
        for _ in range(_MOST_CONNECTIONS):  # and then those that were accepted have their turn
            try:
                plug, _address = self._listener.accept()
            except BlockingIOError:  # There are no more.
                return
            except OSError:  # No file descriptor is left, or the client has gone.
                for connection in [*self._connections]:
                    self._end(connection)
                time.sleep(_PAUSE)
                return
            if len(self._connections) >= _MOST_CONNECTIONS:
                self._end(next(iter(self._connections)))
            plug.setblocking(False)
            self._connections[plug] = bytearray(), time.monotonic()
            self._selector.register(plug, selectors.EVENT_READ)

    def _receive(self, plug: socket.socket) -> None:
        """Answer the request once it is complete. The connection is closed then, whatever the client would like to keep."""
        request, _ = self._connections[plug]
        try:
            chunk = plug.recv(_LONGEST_REQUEST)
            request += chunk
            if chunk and len(request) <= _LONGEST_REQUEST:
                if b"\r\n\r\n" not in request and b"\n\n" not in request:
                    return
                method, _, remainder = bytes(request).partition(b" ")
                plug.sendall(
                    self._answer(remainder.partition(b" ")[0].decode("latin-1") if method in (b"GET", b"HEAD") else "")
                )
                plug.shutdown(socket.SHUT_WR)
        except (
            Exception
        ) as error:  # The client has gone, or what it sent is no request. Whatever it is, the page goes on for others.
            if isinstance(error, BlockingIOError):
                return
        self._end(plug)

    def _end(self, plug: socket.socket) -> None:
        self._selector.unregister(plug)
        del self._connections[plug]
        plug.close()

    def _answer(self, target: str) -> bytes:
        path = target.partition("?")[0]
        if path == "/health":
            trouble = self._trouble()
            reason = {} if trouble is None else {"why": trouble}
            status = HTTPStatus.OK if trouble is None else HTTPStatus.SERVICE_UNAVAILABLE
            return _page(status, "application/json", json.dumps({"alive": trouble is None, **reason, **self._counts()}))
        if path == "/metrics":
            text = exposition(self._journal, self._counts())
            return _page(HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", text)
        return _page(HTTPStatus.NOT_FOUND, "text/plain", "The pages are /health and /metrics.\n")


def exposition(journal: Journal, counts: Mapping[str, int]) -> str:
    """The metrics in the text format of Prometheus."""
    lines = ["# HELP onewrite_messages_total What became of messages.", "# TYPE onewrite_messages_total counter"]
    lines += [
        f'onewrite_messages_total{{outcome="{kind.lower()}"}} {number}' for kind, number in sorted(journal.ends.items())
    ]
    for name, kind, text, value in (
        ("received_total", "counter", "Messages that were received.", journal.receive_count),
        ("timeouts_total", "counter", "Messages that were given back because they did not end in time.", journal.timeouts),
        ("processing_seconds_total", "counter", "How long messages were worked on, together.", round(journal.seconds, 6)),
        ("waiting", "gauge", "Messages at hand that wait for a slot.", counts.get("waiting")),
        ("under_way", "gauge", "Messages that are being worked on.", counts.get("under_way")),
        (
            "deferred",
            "gauge",
            "Messages at hand that wait for an earlier one, or for the end of a step.",
            counts.get("deferred"),
        ),
        ("done", "gauge", "Messages that are done and not yet deleted.", counts.get("done")),
        ("lost_slots", "gauge", "Slots that are held by messages that hang.", counts.get("lost_slots")),
    ):
        if value is None:  # nobody could count just now
            continue
        lines += [f"# HELP onewrite_{name} {text}", f"# TYPE onewrite_{name} {kind}", f"onewrite_{name} {value}"]
    return "\n".join(lines) + "\n"


def _page(status: HTTPStatus, kind: str, text: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.0 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
