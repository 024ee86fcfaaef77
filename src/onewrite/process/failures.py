"""The reason of a failure, and the line of the user's code where it happened, for logs. They quote no content.

The user's code is the package of the function, and any other module that belongs neither to Python, nor to onewrite and its drivers, nor
to an installed package. In a Lambda function, installed packages are next to the user's code, so some of their lines count as the user's.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import PurePath
from traceback import walk_stack, walk_tb
from types import CodeType, FrameType
from typing import Any, cast

from onewrite.errors import OnewriteError
from onewrite.message import printable

_LIBRARIES = sys.stdlib_module_names | {
    "onewrite",
    "boto3",
    "botocore",
    "aiobotocore",
    "aioboto3",
    "pymongo",
    "bson",
    "motor",
    "aiohttp",
}
_INSTALL_FOLDERS = frozenset({"site-packages", "dist-packages"})
_MAX_REASON = 1000  # characters; the longest texts with their remedies have some hundred


def describe_error(error: BaseException, function: object) -> str:
    """Return an error's type, its reason if it can be logged, and the line of the user's code.

    >>> describe_error(ValueError("4111 1111 1111 1111"), None)
    'ValueError'
    """
    reason, line = find_reason(error), find_user_line(error, function)
    return f"{type(error).__name__}{'' if reason is None else f' ({reason})'}{'' if line is None else f' at {line}'}"


def find_reason(error: BaseException) -> str | None:
    """Return what an error's own text says, if it's onewrite's, or the code of a database's or broker's error, or None.

    Any other text can quote a body or a password. Of a group, the first error counts.
    """
    if isinstance(error, OnewriteError):
        return printable(str(error), _MAX_REASON)
    if isinstance(error, BaseExceptionGroup):
        first: BaseException = cast("Any", error).exceptions[0]
        reason = find_reason(first)
        return f"{type(first).__name__}{'' if reason is None else f': {reason}'}"
    code: object = None
    with suppress(Exception):  # other errors have no `response`, or one whose access raises
        code = cast("Any", error).response["Error"]["Code"]
    with suppress(Exception):  # pymongo's
        code = code or cast("Any", error).details.get("codeName") or f"code {cast('Any', error).details['code']}"
    return printable(code) if isinstance(code, str) else None


def find_user_line(error: BaseException, function: object) -> str | None:
    """Return the file, line, and function of the innermost frame of the user's code in the error's traceback, or None."""
    return _find_innermost_line(walk_tb(error.__traceback__), function)


def shorten_name(qualified_name: str) -> str:
    """Return a function's name without the functions that define it, for logs."""
    return qualified_name.rpartition("<locals>.")[2]


def find_home(function: Any) -> tuple[str, str | None]:
    """Return the root package or module of the function, and the line of its definition, or None for a function without code."""
    while (inner := _find_wrapped(function)) is not None:
        function = inner
    module = str(getattr(function, "__module__", ""))
    callee: Any = function if hasattr(function, "__code__") else type(function).__call__
    code = getattr(callee, "__code__", None)
    return module.partition(".")[0], None if code is None else format_line(code, code.co_firstlineno)


def _find_wrapped(function: Any) -> Any:
    """Return the function that a partial or a wrapper calls, or None for any other function."""
    return function.func if isinstance(function, functools.partial) else getattr(function, "__wrapped__", None)


def _find_innermost_line(places: Iterable[tuple[FrameType, int]], function: object) -> str | None:
    """Return the file, line, and function of the innermost frame in the user's code, or None without one.

    `places` are frames with their lines, outermost first.
    """
    home, _ = find_home(function)
    root = "" if home in _LIBRARIES else home  # a relay's `publish` can be a publisher of onewrite
    user_places = [place for place in places if _is_user_code(place[0], root)]
    return _format_line(*user_places[-1]) if user_places else None


def _format_line(frame: FrameType, line: int) -> str:
    return format_line(frame.f_code, line)


def format_line(code: CodeType, line: int) -> str:
    return printable(f"{PurePath(code.co_filename).name}:{line} {shorten_name(code.co_qualname)}")


def find_thread_line(ident: int | None, function: object) -> str | None:
    """Return the line of the user's code that a thread is executing, or None if it executes none."""
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # documented, in spite of its name
    frame = None if ident is None else frames.get(ident)
    places = [] if frame is None else [*walk_stack(frame)]
    return _choose_line(places[::-1], function)


def find_coroutine_line(coroutine: object, function: object) -> str | None:
    """Return the line of the user's code where a coroutine, or one that it awaits, is waiting, or None."""
    places: list[tuple[FrameType, int]] = []
    while coroutine is not None:
        # Coroutines, asynchronous generators, and generators name these attributes differently.
        prefix = next((prefix for prefix in ("cr", "ag", "gi") if hasattr(coroutine, f"{prefix}_frame")), None)
        if prefix is None:  # a future, or an awaitable of a C library
            break
        frame = getattr(coroutine, f"{prefix}_frame")
        if frame is not None:
            places.append((frame, frame.f_lineno))
        coroutine = getattr(coroutine, "gi_yieldfrom" if prefix == "gi" else f"{prefix}_await")
    return _choose_line(places, function)


def _choose_line(places: list[tuple[FrameType, int]], function: object) -> str | None:
    """Return the innermost line of the user's code, or else the innermost line of all, or None without places."""
    line = _find_innermost_line(places, function)
    return _format_line(*places[-1]) if line is None and places else line


def _is_user_code(frame: FrameType, root: str) -> bool:
    """Whether the code belongs to the package `root`, or to another file outside known libraries and installed packages."""
    module, file = str(frame.f_globals.get("__name__", "")).partition(".")[0], frame.f_code.co_filename
    is_installed = not _INSTALL_FOLDERS.isdisjoint(PurePath(file).parts)
    return module == root or not (module in _LIBRARIES or is_installed or file.startswith("<"))


def find_caller_line() -> tuple[CodeType | None, int]:
    """Return the code and line of the nearest caller outside onewrite and the standard library.

    Return `(None, 0)` if a task or thread runs the call directly.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # documented, in spite of its name
    while frame is not None:
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if root != "onewrite" and root not in sys.stdlib_module_names:
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None, 0
