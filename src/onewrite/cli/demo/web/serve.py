"""Runs the page from its address on the terminal until Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import sys
import webbrowser
from collections.abc import Callable, Generator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType

from onewrite.cli.demo.shops import Engine, shops
from onewrite.cli.demo.web.feed import Feed
from onewrite.cli.demo.web.play import Commands, End, play, text_of
from onewrite.cli.demo.web.server import Server
from onewrite.cli.demo.web.stream import Stream
from onewrite.errors import ConfigurationError


def serve(engine: Engine, seed: int, port: int, *, opens: bool) -> None:
    """Raises ConfigurationError where it cannot listen on this port."""
    commands: Commands = SimpleQueue()
    with _ended_by_signals(lambda: commands.put(End.END)), shops(engine) as open_shop:
        stream = Stream(open_shop, seed)
        feed = Feed(text_of(stream))
        server = _server(port, feed, commands)
        try:
            sys.stdout.write(f"The demo is at {server.url}  (Ctrl-C ends it)\n")
            sys.stdout.flush()
            if opens:
                webbrowser.open(server.url)
            play(stream, feed, commands)
        finally:
            server.close()


def _server(port: int, feed: Feed, commands: Commands) -> Server:
    try:
        return Server(port, feed, commands.put)
    except OSError as error:
        message = (
            f"The demo cannot listen on port {port}: {error.strerror}. Give another --port, or none to take a free one."
        )
        raise ConfigurationError(message) from error


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
