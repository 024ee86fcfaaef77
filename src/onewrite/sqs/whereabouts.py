"""Finding out where the code of a record hangs."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import PurePath
from types import FrameType

_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_OURS = str(PurePath(__file__).parents[1])


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
