"""Finding out where the code of a record hangs."""

from __future__ import annotations

import sys
from types import FrameType

from onewrite.batch.function import innermost, line_of


def where_thread_stands(ident: int | None, each: object) -> str | None:
    """The line of the user's code at which a thread stands that runs the function `each`."""
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # documented, in spite of its name
    return None if ident is None else where_frame_stands(frames.get(ident), each)


def where_frame_stands(frame: FrameType | None, each: object) -> str | None:
    """Without a line of the user's, the very line is named."""
    places: list[tuple[FrameType, int]] = []
    while frame is not None:
        places.append((frame, frame.f_lineno))
        frame = frame.f_back
    return _named([*reversed(places)], each)


def where_coroutine_stands(coroutine: object, each: object) -> str | None:
    """The line of the user's code at which a coroutine waits, or one that it awaits. Its frame alone would be that of the outermost one."""
    places: list[tuple[FrameType, int]] = []
    while coroutine is not None:
        kind = next((kind for kind in ("cr", "ag", "gi") if hasattr(coroutine, f"{kind}_frame")), None)
        if kind is None:  # a future, or what a C library awaits
            break
        frame = getattr(coroutine, f"{kind}_frame")
        if frame is not None:
            places.append((frame, frame.f_lineno))
        coroutine = getattr(coroutine, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
    return _named(places, each)


def _named(places: list[tuple[FrameType, int]], each: object) -> str | None:
    return innermost(places, each) or (line_of(*places[-1]) if places else None)
