"""Processing one record, and finding out where that hangs.

Nothing that the code of a record raises gets any further: also SystemExit and KeyboardInterrupt fail that record alone. Only a
real signal ends the worker.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import PurePath
from types import FrameType
from typing import Any

from onewrite.batch.handler import Handler
from onewrite.batch.report import Result
from onewrite.identity import record_id

_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_OURS = str(PurePath(__file__).parents[1])


def process(handler: Handler[Any], record: dict[str, Any]) -> Result:
    """What became of a record."""
    try:
        return handler.process(record)
    except BaseException as error:  # an exit: see above
        return failure(record, error)


async def aprocess(handler: Handler[Any], record: dict[str, Any]) -> Result:
    """`process`, for an asynchronous function. An exit would end the event loop, and with it all other tasks."""
    try:
        return await handler.aprocess(record)
    except BaseException as error:
        return failure(record, error)


def failure(record: dict[str, Any], error: BaseException) -> Result:
    """What became of a record whose code raised an exit."""
    return Result(record, record_id(record), None, (), error, 0.0)


def where_thread_stands(ident: int | None) -> str | None:
    """The line of the user's code at which a thread stands."""
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # documented, in spite of its name
    return None if ident is None else line_of(frames.get(ident))


def line_of(frame: FrameType | None) -> str | None:
    """Where the innermost code stands that is not installed: the user's own."""
    found = innermost = frame
    while found is not None and found.f_code.co_filename.startswith((*_INSTALLED, _OURS)):
        found = found.f_back
    shown = found or innermost
    if shown is None:
        return None
    return f"{PurePath(shown.f_code.co_filename).name}:{shown.f_lineno} {shown.f_code.co_qualname}"
