"""Finding out where the code of a record hangs."""

from __future__ import annotations

import sys
from types import FrameType

from onewrite.batch.users_code import innermost, line_of


def where_thread_stands(ident: int | None, each: object) -> str | None:
    """The line of the user's code at which a thread stands that runs the function `each`."""
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # documented, in spite of its name
    return None if ident is None else where_frame_stands(frames.get(ident), each)


def where_frame_stands(frame: FrameType | None, each: object) -> str | None:
    """Without a line of the user's, the very line is named."""
    places = [(frame, frame.f_lineno)] if frame is not None else []
    while places and (outer := places[-1][0].f_back) is not None:
        places.append((outer, outer.f_lineno))
    return innermost(reversed(places), each) or (line_of(*places[0]) if places else None)
