"""The health page of a worker, for probes.

`/health` responds with 200 while the rounds and the event loop of the worker go on. Otherwise it responds with 503 and the reason.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, NamedTuple, cast

from onewrite.errors import ConfigurationError
from onewrite.process.stopping import undo_in_children
from onewrite.process.watch import WorkerStuck

_MAX_SILENCE = 5.0  # seconds without a byte
_CLOSES_WITHIN = 0.2  # seconds from the end of the worker to that of its page


class _Response(NamedTuple):
    status: HTTPStatus
    kind: str
    text: str


class _Page(BaseHTTPRequestHandler):
    """Responds to one request, and then closes the connection, even if the client wants to keep it."""

    timeout = _MAX_SILENCE

    def do_GET(self) -> None:
        """Send the page that the path names. Its parameters are ignored."""
        self.wfile.write(self._send_head())

    def do_HEAD(self) -> None:
        """Send the status and the headers that GET would send."""
        self._send_head()

    def _send_head(self) -> bytes:
        """Send the status and the headers, and return the body."""
        response = cast("_Server", self.server).respond(self.path.partition("?")[0])
        body = response.text.encode()
        self.send_response(response.status)
        for name, value in (("Content-Type", response.kind), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        return body

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because a probe isn't worth a line."""


class _Server(ThreadingTCPServer):
    """Has a thread for each connection. So a probe gets a response even if other connections are idle."""

    allow_reuse_address, daemon_threads, block_on_close = True, True, False
    request_queue_size = 128  # connections that the system queues until they are accepted, without a file descriptor

    def __init__(self, host: str, port: int, respond: Callable[[str], _Response]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.respond = respond
        super().__init__((host, port), _Page)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing, because the client has disconnected."""


@contextmanager
def serve_health_page(
    host: str, port: int, counts: Callable[[], Mapping[str, int]], describe_trouble: Callable[[], str | None]
) -> Generator[int, None, None]:
    """Serve the page during the `with` block, whose target is its port. `describe_trouble` returns why the worker hangs, or None."""

    def respond(path: str) -> _Response:
        if path != "/health":
            return _Response(HTTPStatus.NOT_FOUND, "text/plain", "The page is /health.\n")
        why = describe_trouble()
        status = HTTPStatus.OK if why is None else HTTPStatus.SERVICE_UNAVAILABLE
        reason = {} if why is None else {"why": why}
        return _Response(status, "application/json", json.dumps({"alive": why is None, **reason, **counts()}))

    try:
        server = _Server(host, port, respond)
    except OSError as error:
        raise ConfigurationError(
            f"The health endpoint can't listen on {host}:{port}: {error}. Set a different health_host or health_port."
        ) from error
    try:
        threading.Thread(target=server.serve_forever, args=(_CLOSES_WITHIN,), name="onewrite-health", daemon=True).start()
    except RuntimeError as error:
        server.server_close()
        raise WorkerStuck(
            f"The health page can't start a thread: {error}. Raise the limit of processes, and start it again."
        ) from error
    with server, undo_in_children(server.socket.close):
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
