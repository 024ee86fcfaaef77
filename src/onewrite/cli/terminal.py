"""What a command may print to where it prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO


def is_plain(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether the output should have no colours and no progress bars."""
    return not stream.isatty() or bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
