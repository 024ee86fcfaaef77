"""The exit codes, and functions that end the process. The command needs both before its slow imports."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import partial
from queue import SimpleQueue
from typing import NoReturn

logger = logging.getLogger("onewrite")

# The top-level modules that the extras install. Installing an extra wouldn't help if another module is missing.
EXTRAS = frozenset({"boto3", "botocore", "bson", "pymongo"})
_LAST_WORDS = 1.0  # seconds after the drain, for an orderly exit to report what hasn't ended
_LAST_SECONDS = 10.0  # for flushing logs and metrics at exit
INTERRUPTED_TEXT = "Interrupted by a signal."


class Exit(IntEnum):
    """The exit codes, which mean the same for every verb."""

    DONE = 0  # also if a search found nothing
    FAILED = 1  # the database, the network, a user's module, or onewrite itself failed
    REFUSED = 2  # the command line is invalid
    NOT_THERE = 3  # the named entity, event, table, or collection doesn't exist
    NOTHING_TO_DO = 4  # the entity already is in the requested state
    FOUND = 5  # the listed items need attention
    INTERRUPTED = 130  # a signal ended the verb early; shells use this code


def interrupt_process(*_: object) -> NoReturn:
    """End the process at once, with one line, as a signal handler.

    A KeyboardInterrupt would be safe only where nothing swallows it. Python drops it if the signal arrives in a callback of the
    garbage collector, such as those of each import.
    """
    with suppress(Exception):  # stderr can be closed, or in the middle of another line
        sys.stderr.write(f"onewrite: {INTERRUPTED_TEXT}\n")
        sys.stderr.flush()
    os._exit(Exit.INTERRUPTED)


def end_at_last(code: int, seconds: float = _LAST_SECONDS) -> None:
    """End the process after a while, in case a thread of the user's code keeps it alive."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()


def make_deadline(seconds: float) -> Callable[[], None]:
    """Return a function that begins a drain, after which the process ends even if a table or a broker hangs.

    A signal handler can call it. The thread already waits, because a handler must not start one: the interrupted code might
    be starting one too.
    """
    begun: SimpleQueue[None] = SimpleQueue()

    def wait() -> None:
        begun.get()
        time.sleep(seconds + _LAST_WORDS)
        end_at_last(Exit.INTERRUPTED, _LAST_WORDS)  # the hanging code can hold a log's lock
        text = "The relay has not ended within %g seconds of the signal. The events of its last call can be published twice"
        logger.error(text, seconds)
        os._exit(Exit.INTERRUPTED)

    threading.Thread(target=wait, name="onewrite-drain", daemon=True).start()
    return partial(begun.put, None)


def leave(code: int) -> None:
    """End the process at once. An orderly exit would wait for hanging threads."""
    end_at_last(code)
    logging.shutdown()
    os._exit(code)
