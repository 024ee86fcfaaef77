"""Name the extra that installs a missing package."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

_PACKAGES = frozenset({"boto3", "botocore", "pymongo"})
_ELSEWHERE = {"bson": "pymongo"}  # the package named bson on PyPI is a different one, and breaks pymongo


@contextmanager
def name_extra(extra: str, name: str) -> Generator[None, None, None]:
    """Name the extra if an import in this block fails because a package is missing. `name` is the part of onewrite that needs the package."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = find_package(error)
        if package not in _PACKAGES:  # an import inside that package failed
            raise
        text = f'{name} needs {package}, which is not installed: pip install "onewrite[{extra}]"'
        raise ModuleNotFoundError(text, name=error.name) from None  # the original error would name bson


def find_package(error: ModuleNotFoundError) -> str:
    """Return the package that has the module."""
    root = (error.name or "").partition(".")[0]
    return _ELSEWHERE.get(root, root)
