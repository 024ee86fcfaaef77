"""What a worker tells those who operate it: a line of the log for each failure, counts, and two pages over HTTP.

`/health` answers 200 while the rounds and the event loop of the worker go on. Otherwise it answers 503 and says why. `/metrics` is in the
text format of Prometheus.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from logging import DEBUG, INFO, WARNING
from socketserver import ThreadingTCPServer
from typing import Any, cast

from onewrite.batch.handler import Handler
from onewrite.batch.report import Failure, Result
from onewrite.core.forking import undone_in_children
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
_LONGEST_CONNECTION = 5.0  # seconds without a byte
_CLOSES_WITHIN = 0.2  # seconds from the end of the worker to that of its pages


class _Page(BaseHTTPRequestHandler):
    """Answers one request. The connection is closed then, whatever the client would like to keep."""

    timeout = _LONGEST_CONNECTION

    def do_GET(self) -> None:
        status, kind, text = cast("_Server", self.server).answer(self.path.partition("?")[0])
        body = text.encode()
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815  # the library's name

    def log_message(self, format: str, *args: object) -> None:
        """A probe is no news."""


class _Server(ThreadingTCPServer):
    """A thread for each of a few connections. One more closes the oldest, so a probe is answered however many are idle."""

    allow_reuse_address, daemon_threads, block_on_close = True, True, False
    request_queue_size = 128  # connections that the system keeps until they are accepted; they take no file descriptor

    def __init__(self, host: str, port: int, answer: Callable[[str], tuple[HTTPStatus, str, str]]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.answer, self._connections = answer, list[Any]()
        super().__init__((host, port), _Page)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.append(request)
        if len(self._connections) > _MOST_CONNECTIONS:
            with suppress(OSError):  # it is closed by now
                self._connections.pop(0).shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with suppress(ValueError):  # one more has closed it
            self._connections.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client has gone."""


@contextmanager
def health_pages(
    host: str, port: int, journal: Journal, counts: Callable[[], Mapping[str, int]], trouble: Callable[[], str | None]
) -> Generator[int, None, None]:
    """Serve the two pages at the port that is returned. `counts` says what is at hand, `journal` what has ended, and `trouble` why the
    worker is of no use, if it is.
    """

    def answer(path: str) -> tuple[HTTPStatus, str, str]:
        if path == "/health":
            why = trouble()
            status = HTTPStatus.OK if why is None else HTTPStatus.SERVICE_UNAVAILABLE
            reason = {} if why is None else {"why": why}
            return status, "application/json", json.dumps({"alive": why is None, **reason, **counts()})
        if path == "/metrics":
            return HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", exposition(journal, counts())
        return HTTPStatus.NOT_FOUND, "text/plain", "The pages are /health and /metrics.\n"

    try:
        server = _Server(host, port, answer)
    except OSError as error:
        raise ConfigurationError(
            f"The health endpoint cannot listen on {host}:{port}: {error}. Give another health_host or health_port."
        ) from error
    threading.Thread(target=server.serve_forever, args=(_CLOSES_WITHIN,), name="onewrite-health", daemon=True).start()
    with server, undone_in_children(server.socket.close):
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def exposition(journal: Journal, counts: Mapping[str, int]) -> str:
    """The metrics in the text format of Prometheus. The counts are missing where nobody could count just now."""
    ends = [f'onewrite_messages_total{{outcome="{kind.lower()}"}} {number}' for kind, number in sorted(journal.ends.items())]
    lines = ["# TYPE onewrite_messages_total counter", *ends]
    totals = {
        "received": journal.receive_count,
        "timeouts": journal.timeouts,
        "processing_seconds": round(journal.seconds, 6),
    }
    for name, value in ({f"{name}_total": value for name, value in totals.items()} | dict(counts)).items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE onewrite_{name} {kind}", f"onewrite_{name} {value}"]
    return "\n".join(lines) + "\n"
