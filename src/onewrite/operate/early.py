"""What the command needs before it imports anything slow: its handlers of signals, and the packages that may be missing.

Importing Typer, boto3 and the user's module takes a second, and many on a busy machine. Without a handler, a SIGTERM during that time would end a
worker with a failure; to process 1 of a container the kernel would not even deliver it.

`worker` and `relay` finish what is in progress at a signal. Every other verb is interrupted by it, and ends at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType

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
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
INTERRUPTED = 130  # the exit code, as shells have it
AT_ONCE = 1.0  # seconds from a signal to the end of a verb that is interrupted
_LAST_SECONDS = 10.0  # for what flushes logs and metrics when the process ends


def end_at_last(code: int) -> None:
    """End the process in a while, should a thread that the user's code has left behind keep it from ending by itself."""
    timer = threading.Timer(_LAST_SECONDS, os._exit, (code,))
    timer.daemon = True
    timer.start()


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

    def catch(self) -> None:
        """Handle the signals from now until the process ends, whatever its worker does in between."""
        self.owns_process = True
        for number in _STOP_SIGNALS:
            signal.signal(number, self._handle)
            # Late in its shutdown the interpreter puts the default action back, except for a signal that is ignored. Without
            # this, a signal in the last milliseconds would turn the exit code 0 into a death by that signal.
            atexit.register(signal.signal, number, signal.SIG_IGN)

    def pass_on(self, stop: Callable[[], None], *, within: float | None = None) -> None:
        """Call `stop` at a signal, and at once if one has arrived already.

        `within`: the process ends so many seconds after the signal at the latest, whatever it does then.
        """
        if within is not None and self.owns_process:
            self._limit(within)
        self._stop = stop  # before the look at `_has_received`, so a signal between the two lines is not missed
        if self._has_received:
            stop()

    def finish(self, code: int) -> None:
        """The command is done, and a signal no longer changes its exit code."""
        self._code, self._stop = code, None

    def _limit(self, seconds: float) -> None:
        """Python calls a handler between two instructions of the main thread, and a lookup of a name, for one, is a single instruction.

        So another thread waits for the byte that C itself sends at a signal.
        """
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        if self._has_received:
            writer.send(b"\0")
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

        def watch(_is_open: socket.socket = writer) -> None:
            while reader.recv(1)[0] not in (0, *_STOP_SIGNALS):
                pass
            time.sleep(seconds)
            os._exit(self._code)

        threading.Thread(target=watch, name="onewrite-signals", daemon=True).start()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._has_received:
            os._exit(self._code)  # The second signal does not wait, not even for an import that hangs.
        self._has_received = True
        if self._stop is not None:
            self._stop()
