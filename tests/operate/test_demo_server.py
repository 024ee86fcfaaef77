"""`onewrite demo --web` answers its own page on loopback and nobody else, goes on while it is looked at, and ends when told."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.resources import files
from queue import Empty, SimpleQueue
from typing import Any, cast

import pytest

from onewrite.operate import main
from onewrite.operate.demo.shops import Engine, shops
from onewrite.operate.demo.stream import Change, Command, Kill, PaymentStream, SingleTurn
from onewrite.operate.demo.web import Commands, Feed, PageServer, play, text_of


@pytest.fixture
def put() -> list[Command]:
    return []


@pytest.fixture
def server(put: list[Command]) -> Iterator[PageServer]:
    server = PageServer(0, Feed('{"first":1}'), put.append)
    yield server
    server.close()


def ask(server: PageServer, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers


def own(server: PageServer, host: str = "127.0.0.1") -> dict[str, str]:
    return {"Host": f"{host}:{server.port}", "Origin": f"http://{host}:{server.port}"}


# The page


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        ("/?from=here", "text/html"),
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
        ("/board.js", "text/javascript"),
        ("/icon.svg", "image/svg+xml"),
    ],
)
def test_the_page_may_load_nothing_from_elsewhere_and_be_framed_by_nobody(server: PageServer, path: str, kind: str) -> None:
    status, _, headers = ask(server, "GET", path)
    assert (status, headers["Content-Type"].partition(";")[0]) == (200, kind)
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert (headers["X-Content-Type-Options"], headers["Cross-Origin-Resource-Policy"]) == ("nosniff", "same-origin")
    assert "Access-Control-Allow-Origin" not in headers


def test_no_file_of_the_page_names_another_place() -> None:
    page = files("onewrite.operate.demo") / "page"
    texts = {file.name: file.read_text() for file in page.iterdir()}
    assert set(texts) == {"index.html", "page.css", "page.js", "board.js", "icon.svg"}
    named = {name: re.findall(r"(?:https?:)?//[a-z]\S+", text) for name, text in texts.items()}
    assert {name: places for name, places in named.items() if places} == {
        "icon.svg": ['http://www.w3.org/2000/svg"']  # a name, which nobody loads
    }


@pytest.mark.parametrize("path", ["/nothing", "/../words.py", "/page/index.html", "//127.0.0.1/"])
def test_there_is_nothing_else(server: PageServer, path: str) -> None:
    assert ask(server, "GET", path)[0] == 404


# Who is answered


@pytest.mark.parametrize("path", ["/", "/events"])
@pytest.mark.parametrize(
    "host", ["rebound.example", "rebound.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", ""]
)
def test_another_host_is_refused_and_told_where_the_page_is(server: PageServer, path: str, host: str) -> None:
    status, text, _ = ask(server, "GET", path, Host=host.format(port=server.port))
    assert (status, server.url in text) == (403, True)


def test_a_request_without_a_host_is_refused(server: PageServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b" 403 " in raw.makefile("rb").readline()


@pytest.mark.parametrize(
    "origin", ["http://elsewhere.example", "null", "https://127.0.0.1:{port}", "http://localhost:{port}"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_another_origin_is_refused(server: PageServer, put: list[Command], method: str, origin: str) -> None:
    status, _, _ = ask(server, method, "/step", b"{}", Origin=origin.format(port=server.port))
    assert (status, put) == (403, [])


@pytest.mark.parametrize(
    "lines",
    [
        "host: 127.0.0.1:{port}\r\norigin: http://elsewhere.example\r\n",
        "Host: rebound.example\r\nHost: 127.0.0.1:{port}\r\n",
        "Host: 127.0.0.1:{port}\r\nOrigin: http://elsewhere.example\r\nOrigin: http://127.0.0.1:{port}\r\n",
    ],
)
def test_a_header_that_is_spelt_otherwise_or_comes_twice_helps_nobody(server: PageServer, lines: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(f"GET / HTTP/1.0\r\n{lines.format(port=server.port)}\r\n".encode())
        assert b" 403 " in raw.makefile("rb").readline()


def test_a_visitor_who_keeps_silent_is_left_without_a_word_on_the_terminal(
    server: PageServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("onewrite.operate.demo.web._Request.timeout", 0.01)
    head = "".join(f"{name}: {value}\r\n" for name, value in own(server).items())
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(f"POST /step HTTP/1.0\r\n{head}Content-Length: 2\r\n\r\n".encode())
        assert raw.makefile("rb").read() == b""
    assert capsys.readouterr().err == ""


def test_what_changes_something_must_say_that_it_comes_from_the_page(server: PageServer, put: list[Command]) -> None:
    status, text, _ = ask(server, "POST", "/step", b"{}")
    assert (status, put) == (403, [])
    assert f"Origin: http://127.0.0.1:{server.port}" in text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_page_is_obeyed(server: PageServer, put: list[Command], host: str) -> None:
    assert ask(server, "POST", "/kill", b'{"lane": null}', **own(server, host))[0] == 202
    assert put == [Kill(None)]


def test_a_command_is_not_a_get(server: PageServer, put: list[Command]) -> None:
    assert (ask(server, "GET", "/step", b"", **own(server))[0], put) == (404, [])


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/settings", b'{"speed": 0}', 400),
        ("/settings", b"not json", 400),
        ("/settings", b"\xff", 400),
        ("/settings", b"[" * 9_999, 400),
        ("/settings", b" " * 10_001, 400),
        ("/fire", b"{}", 404),
    ],
)
def test_a_body_that_makes_no_sense_changes_nothing(
    server: PageServer, put: list[Command], path: str, body: bytes, status: int
) -> None:
    assert (ask(server, "POST", path, body, **own(server))[0], put) == (status, [])


@pytest.mark.parametrize("length", ["-1", "", "9" * 30, "²", "1.5"])
def test_a_length_that_is_none_is_refused(server: PageServer, length: str) -> None:
    headers = {**own(server), "Content-Length": length}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(f"POST /step HTTP/1.0\r\n{head}\r\n".encode("latin-1"))
        assert b" 400 " in raw.makefile("rb").readline()


def test_it_listens_on_loopback_only(server: PageServer) -> None:
    assert server._server.server_address[0] == "127.0.0.1"


# The views


def lines(server: PageServer) -> Iterator[bytes]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(f"GET /events HTTP/1.0\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        yield from (line for line in raw.makefile("rb") if line.startswith((b"data: ", b": ")))


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_page_gets_the_latest_view_and_each_later_one_until_the_end(server: PageServer) -> None:
    found = lines(server)
    assert next(found) == b'data: {"first":1}\n'
    assert server.feed.is_read
    server.feed.publish("2")
    assert next(found) == b"data: 2\n"
    server.feed.publish("2")  # the same is not sent again
    server.feed.publish("3")
    assert next(found) == b"data: 3\n"
    server.feed.close()
    assert list(found) == []


def test_a_page_that_is_closed_is_noticed_by_a_word_in_the_silence(
    server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onewrite.operate.demo.web._PATIENCE", 0.01)
    found = lines(server)
    assert next(found).startswith(b"data: ")
    assert next(found) == b": nothing new\n"
    found.close()  # type: ignore[attr-defined]  # a generator, which closes its socket
    until(lambda: not server.feed.is_read)


# The play


def test_the_stream_goes_on_in_time_while_it_is_read_and_commands_are_done_at_once() -> None:
    commands: Commands = SimpleQueue()
    with shops(Engine.MONGODB) as open_shop:
        stream = PaymentStream(open_shop, 1)
        feed = Feed(text_of(stream))
        commands.put(Change({"speed": 12}))
        player = threading.Thread(target=play, args=(stream, feed, commands))
        player.start()
        until(lambda: stream.settings.speed == 12)
        commands.put(SingleTurn())
        until(lambda: tick(feed) == 1)  # nobody reads, and only the step is made
        with feed.reading():
            until(lambda: tick(feed) >= 3)
            commands.put(Change({"running": False}))
            until(lambda: not stream.settings.running)
            stood = tick(feed)
            commands.put(SingleTurn())
            until(lambda: tick(feed) == stood + 1)
        commands.put(None)
        player.join(10)
        assert not player.is_alive()


def tick(feed: Feed) -> int:
    latest = feed.after(0, 0)
    assert latest is not None
    return json.loads(latest[1])["tick"]


class Timed:
    """Commands by the clock: each is there at its time, which passes while it is waited for."""

    def __init__(self, *commands: tuple[float, Command | None]) -> None:
        self.now = 0.0
        self._commands = list(commands)

    def get(self, timeout: float) -> Command | None:
        at = self._commands[0][0]
        if at > self.now + timeout:
            self.now += timeout
            raise Empty
        self.now = max(self.now, at)
        return self._commands.pop(0)[1]


@pytest.mark.parametrize(("speed", "ticks"), [(1, 10), (4, 40)])
def test_a_second_has_as_many_turns_as_the_speed_says_however_many_commands_come(speed: int, ticks: int) -> None:
    timed = Timed((0, Change({"speed": speed})), *((n / 7, Kill(None)) for n in range(1, 60)), (9.99, None))
    with shops(Engine.MONGODB) as open_shop:
        stream = PaymentStream(open_shop, 1)
        feed = Feed("")
        with feed.reading():
            play(stream, feed, cast("Commands", timed), clock=lambda: timed.now)
    assert stream.view()["tick"] == ticks


# The command


def test_a_port_that_is_taken_is_told_in_a_sentence(server: PageServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--web", "--engine", "mongodb", "--port", f"{server.port}"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"The demo cannot listen on port {server.port}" in told
    assert "Give another --port" in told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--port", "0"], "--port: needs --web"),
        (["--open"], "--open: needs --web"),
        (["--web", "--json"], "--json: has no meaning with --web"),
        (["--web", "--messages", "5"], "--messages: has no meaning with --web"),
    ],
)
def test_an_option_without_meaning_is_refused(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *arguments]) == 2
    assert says in capsys.readouterr().err


class Ended(io.StringIO):
    """Ends the command as soon as it has said where it is."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__()
        self._signals = [number]

    def flush(self) -> None:
        if self._signals and self.getvalue():
            signal.raise_signal(self._signals.pop())


@pytest.mark.parametrize(("number", "options"), [(signal.SIGINT, []), (signal.SIGTERM, ["--open"])])
def test_a_signal_ends_it_and_the_page_is_opened_only_if_that_was_asked(
    number: signal.Signals, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    said = Ended(number)
    monkeypatch.setattr(sys, "stdout", said)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    former = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert main(["demo", "--web", "--engine", "mongodb", *options]) == 0
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == former
    found = re.fullmatch(r"The demo is at (http://127\.0\.0\.1:\d+/)  \(Ctrl-C ends it\)\n", said.getvalue())
    assert found is not None
    assert opened == ([found[1]] if options else [])


@pytest.mark.slow
def test_as_a_process_it_says_where_it_is_serves_dynamodb_and_ends_in_order() -> None:
    command = [sys.executable, "-W", "error", "-m", "onewrite", "demo", "--web"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
        assert found is not None
        with closing(http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)) as connection:
            connection.request("GET", "/events")
            views = connection.getresponse()
            seen = []
            for _ in range(3):
                seen.append(json.loads(views.readline().removeprefix(b"data: "))["tick"])
                assert views.readline() == b"\n"
            assert seen == sorted(set(seen))
            process.terminate()
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")
