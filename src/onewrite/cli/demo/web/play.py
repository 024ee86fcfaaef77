"""Lets the stream go on in time, as long as a page is open, and does at once what a page asks for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from enum import Enum, auto
from queue import Empty, SimpleQueue
from typing import TypeAlias

from onewrite.cli.demo.web.commands import Command
from onewrite.cli.demo.web.feed import Feed
from onewrite.cli.demo.web.stream import Stream


class End(Enum):
    """What stands in the queue after the last command."""

    END = auto()


Commands: TypeAlias = SimpleQueue[Command | End]


def text_of(stream: Stream) -> str:
    return json.dumps(stream.view(), separators=(",", ":"))


def play(stream: Stream, feed: Feed, commands: Commands, *, clock: Callable[[], float] = time.monotonic) -> None:
    """Until the end is asked for. All that is done to the stream is done by the thread that calls this."""
    due = clock()
    while True:
        command = _next(commands, due - clock())
        if command is End.END:
            return
        if command is not None:
            stream.obey(command)
        else:
            due = clock() + 1 / stream.settings.speed
            if stream.settings.running and feed.is_read:
                stream.tick()
        feed.publish(text_of(stream))


def _next(commands: Commands, patience: float) -> Command | End | None:
    try:
        return commands.get(timeout=max(0, patience))
    except Empty:
        return None
