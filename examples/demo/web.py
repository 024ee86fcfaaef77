"""The page, on a free port of this machine. The page asks for each turn, so nothing happens while no page is open."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from demo.shops import Shop
from demo.stream import PaymentStream

PAGE = Path(__file__).parent / "page"


class PageServer(ThreadingHTTPServer):
    """Serves the files of the page, and plays the stream."""

    daemon_threads = True

    def __init__(self, open_shop: Callable[[str], Shop], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), partial(_Request, directory=str(PAGE)))
        self._open_shop = open_shop
        self._lock = Lock()
        self._run = 1
        self._stream = PaymentStream(open_shop)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def play(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what the page asks for, and return what it shows next."""
        with self._lock:
            if request["restart"]:
                self._run += 1
                self._stream = PaymentStream(self._open_shop)
            for name in request["kill"]:
                self._stream.lanes[name].kill()
            if request["turn"]:
                self._stream.turn(duplicates=request["duplicates"], crashes=request["crashes"])
            return {"run": self._run, **self._stream.view()}


class _Request(SimpleHTTPRequestHandler):
    server: PageServer

    def parse_request(self) -> bool:
        """Refuse what another site's page asks for: under a name of its own for this address, or across sites."""
        if not super().parse_request():
            return False
        hosts = [f"{name}:{self.server.server_port}" for name in ("127.0.0.1", "localhost")]
        origin = self.headers.get("Origin")
        if self.headers.get("Host") in hosts and origin in (None, *[f"http://{host}" for host in hosts]):
            return True
        self.send_error(403, f"Open {self.server.url}")
        return False

    def do_POST(self) -> None:
        view = self.server.play(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(view).encode())

    def log_message(self, format: str, *args: Any) -> None:  # the name of the base class
        """Print nothing: the base class would print a line for each request."""


def serve(open_shop: Callable[[str], Shop]) -> None:
    with PageServer(open_shop) as server:
        print(f"The demo is at {server.url}  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
