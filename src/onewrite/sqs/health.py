"""The reports of a worker to its operators: a line of the log for each failure, counts, and two pages over HTTP.

`/health` responds with 200 while the rounds and the event loop of the worker go on. Otherwise it responds with 503 and the reason.
`/metrics` is in the text format of Prometheus.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from logging import DEBUG, INFO, WARNING
from socketserver import ThreadingTCPServer
from typing import Any, cast

from onewrite.batch.handler import Handler
from onewrite.batch.report import Failure, Result
from onewrite.core.forking import undo_in_children
from onewrite.core.log import log, logger
from onewrite.errors import ConfigurationError
from onewrite.message import full_name, printable
from onewrite.metrics import Hook, list_kinds
from onewrite.outcome import Missing
from onewrite.sqs.queue import SqsQueue
from onewrite.sqs.state import Reason
from onewrite.sqs.waiting import QueueMessage

SUMMARY = 60.0  # seconds between two summaries in the log
_MAX_NAMED = 20  # messages in one log line

_NOTABLE = (Reason.FAILED, Reason.DEFERRED, Reason.BUSY, Reason.UNCERTAIN, Reason.SUPERSEDED)


def format_name(message: QueueMessage) -> str:
    """Return the SQS ID of a record, followed by the names of its messages if the identity has read them."""
    names = [full_name(processed_message) for processed_message in message.messages[:_MAX_NAMED]]
    return ", ".join([f"record {printable(message.content['MessageId'])}", *names])


def format_names(members: Sequence[QueueMessage]) -> str:
    """Return the names of several messages."""
    remainder = [f"and {len(members) - _MAX_NAMED} more"] if len(members) > _MAX_NAMED else []
    return "; ".join([*map(format_name, members[:_MAX_NAMED]), *remainder])


class Journal:
    """The log and the counts of a worker. It calls `hook` for each processed message, like a handler's `on_outcome`."""

    def __init__(self, handler: Handler[Any], queue: SqsQueue, hook: Hook | None, clock: Callable[[], float]) -> None:
        self._handler, self._name, self._queue = handler, handler.name, queue
        self._hook, self._clock = hook, clock
        self._summed_up = clock()
        self._logged_ends: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.seconds = 0.0
        self.receive_count = 0
        self.timeouts = 0

    def count(self, results: Iterable[Result | None]) -> None:
        """Count the results, for the pages and the summaries. The caller holds the threads' lock."""
        for result in filter(None, results):
            self.seconds += result.seconds
            for kind, _ in list_kinds(result.reported):
                self.ends[kind] += 1

    def log_results(self, members: Sequence[QueueMessage], results: Iterable[Result | None]) -> None:
        """Log the failures among the results, and call the hook. A result of None belongs to an unprocessed message."""
        for message, result in zip(members, results, strict=True):
            if result is not None:
                self._log_result(message, result)
            message.messages = ()

    def _log_result(self, message: QueueMessage, result: Result) -> None:
        """Log one result, and call the hook. Never raise an Exception: a settled message stays settled, even if the user's hook fails."""
        try:
            if not result.settled:
                message.failure = self._handler.failure(result)
                # After most other failures, a later attempt succeeds. If none does, `log_return` reports the last failure.
                needs_help = message.is_returned or isinstance(result.unsettled, Missing)
                self._log(WARNING if needs_help else DEBUG, str(message.failure), message.failure)
            if self._hook is not None:
                self._hook(result.message, result.reported, result.seconds)
        except Exception as error:
            text = "%s: on_outcome raised %s. The message is unaffected, but its metrics are incomplete"
            log(WARNING, text, self._name, type(error).__name__)

    def log_return(self, message: QueueMessage, reason: Reason) -> None:
        """Log that an unsettled message left the worker, so that the log names each message that ends in a dead-letter queue.

        A message that was never processed is named by its SQS ID only.
        """
        message.is_returned = True  # a failure from now on is logged as a warning, because nothing else reports it
        ending = ""
        receives = message.receives
        limit = self._queue.max_receives
        if limit is not None and receives >= limit:
            target = printable(self._queue.dead_letter_queue)
            ending = f" This was the last delivery, {receives} of {limit}: the queue moves the message to {target}."
        level = INFO if message.failure else DEBUG
        if ending or reason in _NOTABLE:
            level = WARNING
        text = f"{message.failure or format_name(message)}; {reason.value}.{ending}"
        self._log(level, text, message.failure, last_delivery=bool(ending))

    def log_overdue(self, members: Sequence[QueueMessage], timeout: float, place: str | None) -> None:
        """Log that a load hasn't ended in time, and count its messages."""
        self.timeouts += len(members)
        self.warn(f"not finished after {timeout:g} seconds, and returned to the queue, at {place}: {format_names(members)}")

    def warn(self, text: str) -> None:
        self._log(WARNING, text)

    def _log(self, level: int, text: str, failure: Failure | None = None, **details: object) -> None:
        if logger.isEnabledFor(level):
            failures = {} if failure is None else {"failures": [failure.as_json()]}
            log(level, "%s: %s", self._name, text, details={"handler": self._name, **failures, **details})

    def sum_up(self, *, is_last: bool = False) -> None:
        """Log the outcomes since the last summary, once a minute."""
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


_MAX_SILENCE = 5.0  # seconds without a byte
_CLOSES_WITHIN = 0.2  # seconds from the end of the worker to that of its pages


class _Page(BaseHTTPRequestHandler):
    """Responds to one request, and then closes the connection, even if the client wants to keep it."""

    timeout = _MAX_SILENCE

    def do_GET(self) -> None:
        """Send the page that the path names. Its parameters are ignored."""
        status, kind, text = cast("_Server", self.server).answer(self.path.partition("?")[0])
        body = text.encode()
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815  # the library's name

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because a probe isn't worth a line."""


class _Server(ThreadingTCPServer):
    """Has a thread for each connection, so that a probe gets a response even if other connections are idle."""

    allow_reuse_address, daemon_threads, block_on_close = True, True, False
    request_queue_size = 128  # connections that the system queues until they are accepted, without a file descriptor

    def __init__(self, host: str, port: int, answer: Callable[[str], tuple[HTTPStatus, str, str]]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.answer = answer
        super().__init__((host, port), _Page)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing, because the client has disconnected."""


@contextmanager
def serve_health_pages(
    host: str,
    port: int,
    journal: Journal,
    counts: Callable[[], Mapping[str, int]],
    describe_trouble: Callable[[], str | None],
) -> Generator[int, None, None]:
    """Serve the two pages during the `with` block, whose target is their port. `describe_trouble` returns why the worker hangs, or None."""

    def answer(path: str) -> tuple[HTTPStatus, str, str]:
        """Return the status, the content type, and the text of a page."""
        if path == "/health":
            why = describe_trouble()
            status = HTTPStatus.OK if why is None else HTTPStatus.SERVICE_UNAVAILABLE
            reason = {} if why is None else {"why": why}
            return status, "application/json", json.dumps({"alive": why is None, **reason, **counts()})
        if path == "/metrics":
            return HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", format_metrics(journal, counts())
        return HTTPStatus.NOT_FOUND, "text/plain", "The pages are /health and /metrics.\n"

    try:
        server = _Server(host, port, answer)
    except OSError as error:
        raise ConfigurationError(
            f"The health endpoint can't listen on {host}:{port}: {error}. Set a different health_host or health_port."
        ) from error
    threading.Thread(target=server.serve_forever, args=(_CLOSES_WITHIN,), name="onewrite-health", daemon=True).start()
    with server, undo_in_children(server.socket.close):
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def format_metrics(journal: Journal, counts: Mapping[str, int]) -> str:
    """Return the metrics in the text format of Prometheus."""
    ends = [f'onewrite_messages_total{{outcome="{name.lower()}"}} {number}' for name, number in sorted(journal.ends.items())]
    lines = ["# TYPE onewrite_messages_total counter", *ends]
    totals = {
        "received_total": journal.receive_count,
        "timeouts_total": journal.timeouts,
        "processing_seconds_total": round(journal.seconds, 6),
    }
    for name, value in {**totals, **counts}.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE onewrite_{name} {kind}", f"onewrite_{name} {value}"]
    return "\n".join(lines) + "\n"
