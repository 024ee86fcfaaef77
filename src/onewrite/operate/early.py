"""Signal handlers, exit codes, and missing packages: what the command needs before its slow imports.

Importing Typer, boto3, and the user's module takes a second, or more on a busy machine. Without a handler, a SIGTERM during
that time would end a worker with a failure. The kernel wouldn't even deliver it to process 1 of a container.

`worker` and `relay` finish the work in progress at a signal. A signal interrupts every other verb at once.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from enum import IntEnum
from types import FrameType

from onewrite.core.forking import STOP_SIGNALS, handle_stop_signals, undo_in_children

logger = logging.getLogger("onewrite")

# The top-level modules that the extras install. For any other missing module our remedy wouldn't help, so the error is
# raised.
EXTRAS = frozenset({"boto3", "botocore", "bson", "pymongo", "rich", "typer"})
DRAIN = 25.0  # seconds: ECS and Kubernetes kill a process 30 seconds after SIGTERM
_LAST_WORDS = 1.0  # seconds after the drain, for an orderly exit to report what hasn't ended
AT_ONCE = 1.0  # seconds from a signal to the end of an interrupted verb
_LAST_SECONDS = 10.0  # for flushing logs and metrics at exit


class Exit(IntEnum):
    """The exit codes, which mean the same for every verb."""

    DONE = 0  # also if a search found nothing
    FAILED = 1  # the database, the network, a user's module, or onewrite itself failed
    REFUSED = 2  # the command line is invalid
    NOT_THERE = 3  # the named entity, event, table, or collection doesn't exist
    NOTHING_TO_DO = 4  # the entity already is in the requested state
    FOUND = 5  # the listed items need attention
    INTERRUPTED = 130  # a signal ended the verb early; shells use this code


def end_at_last(code: int, seconds: float = _LAST_SECONDS) -> None:
    """End the process after a while, in case a thread of the user's code keeps it alive."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()


def leave(code: int) -> None:
    """End the process at once. An orderly exit would wait for hanging threads."""
    end_at_last(code)
    logging.shutdown()
    os._exit(code)


def interrupt() -> None:
    """Interrupt the main thread."""
    raise KeyboardInterrupt


class EarlySignals:
    """Remembers a SIGTERM or SIGINT until there is something to stop."""

    def __init__(self) -> None:
        self.owns_process = False  # the process has no other purpose, so it can be ended
        self._has_received = False
        self._code: int = Exit.INTERRUPTED
        self._stop: Callable[[], None] | None = None
        self.kept = ExitStack()

    def catch(self) -> None:
        """Handle the stop signals from now on until the process ends. A forked child gets the earlier handlers back."""
        self.owns_process = True
        put_handlers_back = handle_stop_signals(self._handle)
        for number in STOP_SIGNALS:
            # Late in its shutdown the interpreter restores the default action, except for an ignored signal. Without this, a
            # signal in the last milliseconds would turn the exit code 0 into a death by signal.
            atexit.register(signal.signal, number, signal.SIG_IGN)

        def put_back() -> None:
            # A child shares the socket of `_limit`: a signal to the child would start the countdown of its parent.
            signal.set_wakeup_fd(-1)
            put_handlers_back()

        self.kept.enter_context(undo_in_children(put_back))

    def pass_on(self, stop: Callable[[], None], *, within: float | None = None) -> None:
        """Call `stop` at a signal, or at once if one has already arrived.

        The process ends at most `within` seconds after the signal.
        """
        if within is not None and self.owns_process:
            self._limit(within)
        self._stop = stop  # set before `_has_received` is read, so that a signal between the two lines isn't missed
        if self._has_received:
            stop()

    def drain(self, seconds: float) -> None:
        """End the process at most this many seconds after a signal, even if the user's module, a table, or a broker hangs."""
        text = "Not everything has ended within %g seconds of the signal. Unsettled messages will be redelivered"

        def say() -> None:
            end_at_last(self._code, _LAST_WORDS)  # the hanging code can hold a log's lock
            logger.error(text, seconds)

        if self.owns_process:
            self._limit(seconds + _LAST_WORDS, say)

    def finish(self, code: int) -> None:
        """Fix the exit code: the command is done, and a signal no longer changes it."""
        self._code, self._stop = code, None

    def _limit(self, seconds: float, say: Callable[[], None] = lambda: None) -> None:
        """Wait in another thread for the byte that C itself sends at a signal.

        Python calls a signal handler only between two instructions of the main thread, and one instruction can hang.
        """
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        if self._has_received:
            writer.send(b"\0")
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

        def watch(_: socket.socket = writer) -> None:  # the default keeps the writer open
            while reader.recv(1)[0] not in (0, *STOP_SIGNALS):
                pass
            time.sleep(seconds)
            say()
            os._exit(self._code)

        threading.Thread(target=watch, name="onewrite-signals", daemon=True).start()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._has_received:
            os._exit(self._code)  # a second signal doesn't wait, not even for an import that hangs
        self._has_received = True
        if self._stop is not None:
            self._stop()
