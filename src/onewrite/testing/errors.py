"""The errors of a test that an engine or a stand-in can't serve."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from unittest import SkipTest

from onewrite.core.extras import find_package
from onewrite.errors import ConfigurationError, OnewriteError


class UnsupportedByStandIn(OnewriteError, NotImplementedError):
    """The stand-in would answer this differently from the engine that it stands for: run this test on the engine."""


class ProgramMissing(ConfigurationError, SkipTest):
    """The program of this engine is not here. A test that needs it is skipped, by pytest as well as by unittest."""


@contextmanager
def needed_by(name: str, extra: str = "testing") -> Generator[None, None, None]:
    """Say which extra to install, where an import in this block fails."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f'{name} needs {find_package(missing)}, which is not installed: pip install "onewrite[{extra}]"'
        ) from missing
