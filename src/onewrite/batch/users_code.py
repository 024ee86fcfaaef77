"""Which lines are the user's own, for those who look for what failed or hangs.

The user's code is what belongs to the package of the function, and whatever else is neither Python's own, nor installed, nor
ours. In a Lambda function the packages are installed beside the user's code, so that a path alone tells nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import PurePath
from types import FrameType

from onewrite.batch.function import home_of
from onewrite.message import printable

_INSTALLED = frozenset({"site-packages", "dist-packages"})


def innermost(places: Iterable[tuple[FrameType, int]], each: object) -> str | None:
    """The file, the line and the function of the user's innermost place. The places are frames with their lines, outermost first."""
    root, _ = home_of(each)
    found = [place for place in places if _is_users(place[0], root)]
    return line_of(*found[-1]) if found else None


def line_of(frame: FrameType, line: int) -> str:
    code = frame.f_code
    return printable(f"{PurePath(code.co_filename).name}:{line} {code.co_qualname}")


def _is_users(frame: FrameType, root: str) -> bool:
    module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if module == root:
        return True
    file = frame.f_code.co_filename
    return (
        module != "onewrite"
        and module not in sys.stdlib_module_names
        and not file.startswith("<")  # no file: code that was made at run time, as dataclasses make it
        and _INSTALLED.isdisjoint(PurePath(file).parts)
        and module not in _installed()
    )


@cache
def _installed() -> frozenset[str]:
    """The modules and packages that come from a distribution, wherever it is installed."""
    try:
        return frozenset(packages_distributions())
    except Exception:  # The metadata of some distribution cannot be read. To log a failure must not fail.
        return frozenset()
