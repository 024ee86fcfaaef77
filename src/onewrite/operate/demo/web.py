"""The latest view of the stream, for all pages that are open."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from email.message import Message as Headers
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from queue import Empty, SimpleQueue
from threading import Condition
from types import FrameType, MappingProxyType
from typing import Any, TypeAlias

from onewrite.errors import ConfigurationError
from onewrite.operate.demo.shops import Engine, shops
from onewrite.operate.demo.stream import Command, PaymentStream, command

# --- The latest view of the stream, for all pages that are open -----------------------------------------------------------


class Feed:
    """One thread publishes, and any number read. Who is slow misses views, and gets the latest one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._edition = 1
        self._closed = False
        self._readers = 0
        self._changed = Condition()

    @property
    def is_read(self) -> bool:
        return self._readers > 0

    @contextmanager
    def reading(self) -> Generator[None]:
        with self._changed:
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1

    def publish(self, text: str) -> None:
        with self._changed:
            if text != self._text:
                self._text = text
                self._edition += 1
                self._changed.notify_all()

    def close(self) -> None:
        """Let all who read come to an end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def after(self, edition: int, patience: float) -> tuple[int, str] | None:
        """The latest view and its edition, which is this one again where no other came in time. None: there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._edition != edition, patience)
            return None if self._closed else (self._edition, self._text)


# --- Lets the stream go on in time, as long as a page is open, and does at once what a page asks for ----------------------


Commands: TypeAlias = SimpleQueue[Command | None]  # None is the end


def text_of(stream: PaymentStream) -> str:
    return json.dumps(stream.view(), separators=(",", ":"))


def play(stream: PaymentStream, feed: Feed, commands: Commands, *, clock: Callable[[], float] = time.monotonic) -> None:
    """Until the end is asked for. All that is done to the stream is done by the thread that calls this."""
    due = clock()
    while True:
        try:
            command = commands.get(timeout=max(0, due - clock()))
        except Empty:
            due = clock() + 1 / stream.settings.speed
            if stream.settings.running and feed.is_read:
                stream.tick()
        else:
            if command is None:
                return
            stream.obey(command)
        feed.publish(text_of(stream))


# --- Serves the page on loopback, and to this page alone ------------------------------------------------------------------


LOOPBACK = "127.0.0.1"
CommandSink: TypeAlias = Callable[[Command], None]
_LARGEST = 10_000  # bytes of a body; a command has less than 100
_LOOK = 0.05  # seconds between two looks whether the server is to end
_PATIENCE = 15.0  # seconds of silence after which a word is sent, to learn whether anybody still reads
_FILES = MappingProxyType(
    {
        "/": ("index.html", "text/html; charset=utf-8"),
        "/page.css": ("page.css", "text/css; charset=utf-8"),
        "/page.js": ("page.js", "text/javascript; charset=utf-8"),
        "/board.js": ("board.js", "text/javascript; charset=utf-8"),
        "/icon.svg": ("icon.svg", "image/svg+xml"),
    }
)
_HEADERS = MappingProxyType(
    {
        "Cache-Control": "no-store",
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
)


class PageServer:
    """Answers from a thread for each request, from its making until it is closed. Port 0 takes one that is free."""

    def __init__(self, port: int, feed: Feed, put: CommandSink) -> None:
        self.feed, self.put = feed, put
        server = self

        class Request(_Request):
            def __init__(self, *args: Any) -> None:
                self.server_of_page = server
                super().__init__(*args)

        self._server = ThreadingHTTPServer((LOOPBACK, port), Request)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_LOOK,), name="onewrite-demo", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/"

    def close(self) -> None:
        self.feed.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def refusal(self, headers: Headers, *, changes: bool) -> str | None:
        """Why a request with these headers is not answered. None: it is."""
        hosts = [f"{name}:{self.port}" for name in (LOOPBACK, "localhost")]
        host, origin = (", ".join(headers.get_all(name, [])) for name in ("Host", "Origin"))
        if host not in hosts:
            return f"This server answers to {' and '.join(hosts)} only. Open {self.url}"
        if origin not in (f"http://{host}", ""):
            return "This server answers to its own page only."
        if changes and not origin:
            return f"A request that changes something must have the header Origin: http://{host}"
        return None


class _Request(BaseHTTPRequestHandler):
    timeout = 60.0  # seconds of a read or a write, so a connection without a word does not keep its thread forever
    server_of_page: PageServer

    def handle(self) -> None:
        with suppress(OSError):  # The page was closed, or kept silent for too long. The base class would print a traceback.
            super().handle()

    def do_GET(self) -> None:
        if self._refuse(changes=False):
            return
        path = self.path.partition("?")[0]
        if path == "/events":
            self._events()
        elif path in _FILES:
            name, kind = _FILES[path]
            self._send(HTTPStatus.OK, kind, files("onewrite.operate.demo").joinpath("page", name).read_bytes())
        else:
            self._say(HTTPStatus.NOT_FOUND, "There is no such page.")

    def do_POST(self) -> None:
        if self._refuse(changes=True):
            return
        try:
            self.server_of_page.put(command(self.path.removeprefix("/"), self._body()))
        except LookupError:
            self._say(HTTPStatus.NOT_FOUND, "There is no such command.")
        except ValueError as error:
            self._say(HTTPStatus.BAD_REQUEST, str(error))
        else:
            self._say(HTTPStatus.ACCEPTED, "It will be done.")

    def log_message(self, format: str, *args: Any) -> None:  # the name of the base class
        """The base class would print a line for each request."""

    def _refuse(self, *, changes: bool) -> bool:
        refusal = self.server_of_page.refusal(self.headers, changes=changes)
        if refusal is not None:
            self._say(HTTPStatus.FORBIDDEN, refusal)
        return refusal is not None

    def _body(self) -> object:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and int(length) <= _LARGEST):
            raise ValueError(f"Content-Length must be a number up to {_LARGEST}.")
        try:
            return json.loads(self.rfile.read(int(length)))
        except RecursionError:
            raise ValueError("The body is nested too deeply.") from None

    def _events(self) -> None:
        """Views as server-sent events, until the page or the server is closed."""
        feed, edition = self.server_of_page.feed, 0
        self._begin(HTTPStatus.OK, "text/event-stream")
        with feed.reading():
            while (latest := feed.after(edition, _PATIENCE)) is not None:
                self.wfile.write(b": nothing new\n\n" if latest[0] == edition else f"data: {latest[1]}\n\n".encode())
                edition = latest[0]

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._send(status, "text/plain; charset=utf-8", f"{text}\n".encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self._begin(status, kind)
        self.wfile.write(body)

    def _begin(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()


# --- Runs the page from its address on the terminal until Ctrl-C or SIGTERM -----------------------------------------------


def serve(engine: Engine, seed: int, port: int, *, opens: bool) -> None:
    """Raises ConfigurationError where it cannot listen on this port."""
    commands: Commands = SimpleQueue()
    with _ended_by_signals(lambda: commands.put(None)), shops(engine) as open_shop:
        stream = PaymentStream(open_shop, seed)
        feed = Feed(text_of(stream))
        try:
            server = PageServer(port, feed, commands.put)
        except OSError as error:
            raise ConfigurationError(
                f"The demo cannot listen on port {port}: {error.strerror}. Give another --port, or none to take a free one."
            ) from error
        try:
            sys.stdout.write(f"The demo is at {server.url}  (Ctrl-C ends it)\n")
            sys.stdout.flush()
            if opens:
                webbrowser.open(server.url)
            play(stream, feed, commands)
        finally:
            server.close()


@contextmanager
def _ended_by_signals(end: Callable[[], None]) -> Generator[None]:
    def handle(_number: int, _frame: FrameType | None) -> None:
        end()  # SimpleQueue.put may interrupt itself.

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
