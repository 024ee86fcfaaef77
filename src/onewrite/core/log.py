"""The log. An error in a user's filter or log handler doesn't undo or stop a call."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

logger = logging.getLogger("onewrite")


def log(level: int, text: str, *values: object, details: Mapping[str, Any] | None = None) -> None:
    """Write a line, with `details` as the record's attribute `onewrite`. This never raises."""
    with catch_log_errors():
        logger.log(level, text, *values, extra=None if details is None else {"onewrite": details}, stacklevel=2)


@contextmanager
def catch_log_errors() -> Generator[None, None, None]:
    """Catch the errors of the code that writes a line. Only the line is lost."""
    try:
        yield
    except Exception as error:
        text = f"onewrite: a log line was lost: {type(error).__name__}"
        with suppress(Exception):  # stderr can be closed
            print(text, file=sys.stderr)  # noqa: T201  # there is no other place left to say it
