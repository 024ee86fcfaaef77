"""What the command needs before it imports anything slow: its handlers of signals, and the packages that may be missing.

Importing Typer, boto3 and the user's module takes a second, and many on a busy machine. Without a handler, a SIGTERM during that time would end a
worker with a failure; to process 1 of a container the kernel would not even deliver it.

`worker` and `relay` finish what is in progress at a signal. Every other verb is interrupted by it, and ends at once.
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
from types import FrameType

from onewrite.core.forking import STOP_SIGNALS, handle_stop_signals, undone_in_children

logger = logging.getLogger("onewrite")

# The top-level modules that the extras install. If another module is missing, our remedy would not help, so the error is raised.
EXTRAS = frozenset(
    {
        "boto3",
        "botocore",
        "bson",
        "pymongo",
        "rich",
        "typer",
    }
)
DRAIN = 25.0  # seconds: ECS and Kubernetes kill a process 30 seconds after their SIGTERM
_LAST_WORDS = 1.0  # seconds after the drain, in which whoever ends in order says what has not ended
INTERRUPTED = 130  # the exit code, as shells have it
AT_ONCE = 1.0  # seconds from a signal to the end of a verb that is interrupted
_LAST_SECONDS = 10.0  # for what flushes logs and metrics when the process ends


def end_at_last(code: int, seconds: float = _LAST_SECONDS) -> None:
    """End the process in a while, should a thread that the user's code has left behind keep it from ending by itself."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()


def leave(code: int) -> None:
    """End the process at once. An orderly end of the interpreter would wait for the threads of code that hangs."""
    end_at_last(code)
    logging.shutdown()
    os._exit(code)


def interrupt() -> None:
    """Stop what the main thread does."""
    raise KeyboardInterrupt


class EarlySignals:
    """Remembers a SIGTERM or SIGINT until there is something to be stopped."""

    def __init__(self) -> None:
        self.owns_process = False  # The process has nothing else to do, and may be ended.
        self._has_received = False
        self._code = INTERRUPTED
        self._stop: Callable[[], None] | None = None
        self.kept = ExitStack()

    def catch(self) -> None:
        """Handle the signals from now until the process ends, whatever its worker does in between."""
        self.owns_process = True
        put_handlers_back = handle_stop_signals(self._handle)
        for number in STOP_SIGNALS:
            # Late in its shutdown the interpreter puts the default action back, except for a signal that is ignored. Without
            # this, a signal in the last milliseconds would turn the exit code 0 into a death by that signal.
            atexit.register(signal.signal, number, signal.SIG_IGN)

        def put_back() -> None:
            signal.set_wakeup_fd(-1)
            put_handlers_back()

        self.kept.enter_context(undone_in_children(put_back))

    def pass_on(self, stop: Callable[[], None], *, within: float | None = None) -> None:
        """Call `stop` at a signal, and at once if one has arrived already.

        `within`: the process ends so many seconds after the signal at the latest, whatever it does then.
        """
        if within is not None and self.owns_process:
            self._limit(within)
        self._stop = stop  # before the look at `_has_received`, so a signal between the two lines is not missed
        if self._has_received:
            stop()

    def drain(self, seconds: float) -> None:
        """End the process so many seconds after a signal at the latest, whatever is silent then: the user's module, a table, or a broker."""
        text = "Not everything has ended within %g seconds of a signal: what is not settled comes again"

        def say() -> None:
            end_at_last(self._code, _LAST_WORDS)  # What hangs may hold the lock of a log.
            logger.error(text, seconds)

        if self.owns_process:
            self._limit(seconds + _LAST_WORDS, say)

    def finish(self, code: int) -> None:
        """The command is done, and a signal no longer changes its exit code."""
        self._code, self._stop = code, None

    def _limit(self, seconds: float, say: Callable[[], None] = lambda: None) -> None:
        """Python calls a handler between two instructions of the main thread, and a lookup of a name, for one, is a single instruction.

        So another thread waits for the byte that C itself sends at a signal.
        """
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        if self._has_received:
            writer.send(b"\0")
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

        def watch(_is_open: socket.socket = writer) -> None:
            while reader.recv(1)[0] not in (0, *STOP_SIGNALS):
                pass
            time.sleep(seconds)
            say()
            os._exit(self._code)

        threading.Thread(target=watch, name="onewrite-signals", daemon=True).start()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._has_received:
            os._exit(self._code)  # The second signal does not wait, not even for an import that hangs.
        self._has_received = True
        if self._stop is not None:
            self._stop()
