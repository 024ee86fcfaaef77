"""What shows others that a worker is alive and what it does: a file, and two pages over HTTP.

The file is touched again and again while the worker is alive. `/health` answers 200 while it is, and else 503; `/metrics` is in
the text format of Prometheus.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from onewrite.errors import ConfigurationError
from onewrite.sqs.crew import BEAT
from onewrite.sqs.journal import Journal, logger

_MISSED = 3  # beats after which a worker is taken for dead


class Pulse:
    """Beats while the worker does its rounds."""

    def __init__(self, clock: Callable[[], float], file: Path | None) -> None:
        self._clock, self._file = clock, file
        self._last = clock()
        self._touched = float("-inf")

    def beat(self) -> None:
        self._last = self._clock()
        if self._file is not None and self._last >= self._touched + BEAT / 2:
            self._touched = self._last
            try:
                self._file.touch()
            except OSError as error:  # The messages go on. Whoever watches the file will start the worker anew.
                logger.warning("The liveness file cannot be touched: %s", error)

    @property
    def is_alive(self) -> bool:
        return self._clock() - self._last < _MISSED * BEAT


class Pages:
    """Serves the two pages. `counts` says what is at hand, and `journal` what has ended."""

    def __init__(
        self, host: str, port: int, pulse: Pulse, journal: Journal, counts: Callable[[], Mapping[str, int]]
    ) -> None:
        self._pulse, self._journal, self._counts = pulse, journal, counts
        pages = self

        class Request(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                pages.answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # the name of the base class
                """The base class would print a line for each probe."""

        try:
            self._server = ThreadingHTTPServer((host, port), Request)
        except OSError as error:
            raise ConfigurationError(
                f"The health endpoint cannot listen on {host}:{port}: {error}. Give another health_host or health_port."
            ) from error
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="onewrite-health", daemon=True).start()

    @property
    def port(self) -> int:
        return self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        if path == "/health":
            alive = self._pulse.is_alive
            status = HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE
            _send(request, status, "application/json", json.dumps({"alive": alive, **self._counts()}))
        elif path == "/metrics":
            _send(
                request, HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", exposition(self._journal, self._counts())
            )
        else:
            _send(request, HTTPStatus.NOT_FOUND, "text/plain", "The pages are /health and /metrics.\n")


def exposition(journal: Journal, counts: Mapping[str, int]) -> str:
    """The metrics in the text format of Prometheus."""
    lines = ["# HELP onewrite_messages_total What became of messages.", "# TYPE onewrite_messages_total counter"]
    lines += [
        f'onewrite_messages_total{{outcome="{kind.lower()}"}} {number}' for kind, number in sorted(journal.ends.items())
    ]
    for name, kind, text, value in (
        ("received_total", "counter", "Messages that were received.", journal.received),
        ("timeouts_total", "counter", "Messages that were given back because they did not end in time.", journal.timeouts),
        ("processing_seconds_total", "counter", "How long messages were worked on, together.", round(journal.seconds, 6)),
        ("waiting", "gauge", "Messages at hand that wait for a slot.", counts["waiting"]),
        ("under_way", "gauge", "Messages that are being worked on.", counts["under_way"]),
        (
            "deferred",
            "gauge",
            "Messages at hand that wait for an earlier one, or for the end of a step.",
            counts["deferred"],
        ),
        ("done", "gauge", "Messages that are done and not yet deleted.", counts["done"]),
        ("lost_slots", "gauge", "Slots that are held by messages that hang.", counts["lost_slots"]),
    ):
        lines += [f"# HELP onewrite_{name} {text}", f"# TYPE onewrite_{name} {kind}", f"onewrite_{name} {value}"]
    return "\n".join(lines) + "\n"


def _send(request: BaseHTTPRequestHandler, status: HTTPStatus, kind: str, text: str) -> None:
    body = text.encode()
    request.send_response(status)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
