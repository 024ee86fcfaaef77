"""The exit codes, and the packages of the command: what it needs before its slow imports."""

from __future__ import annotations

import logging
import os
import threading
from enum import IntEnum

logger = logging.getLogger("onewrite")

# The top-level modules that the extras install. For any other missing module our remedy wouldn't help, so the error is
# raised.
EXTRAS = frozenset({"boto3", "botocore", "bson", "pymongo", "rich", "typer"})
_LAST_WORDS = 1.0  # seconds after the drain, for an orderly exit to report what hasn't ended
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


def end_within(seconds: float) -> None:
    """End the process after a drain, even if a table or a broker hangs."""

    def say() -> None:
        end_at_last(Exit.INTERRUPTED, _LAST_WORDS)  # the hanging code can hold a log's lock
        logger.error("Not everything has ended within %g seconds of the signal", seconds)

    timer = threading.Timer(seconds, say)
    timer.daemon = True
    timer.start()


def leave(code: int) -> None:
    """End the process at once. An orderly exit would wait for hanging threads."""
    end_at_last(code)
    logging.shutdown()
    os._exit(code)
