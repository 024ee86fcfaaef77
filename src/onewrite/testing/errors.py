"""Errors for tests whose engine isn't installed, or whose stand-in doesn't support a request."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from unittest import SkipTest

from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.process.extras import find_package


class UnsupportedByStandIn(OnewriteError, NotImplementedError):
    """Raised for a request to which the stand-in would respond differently from the real engine. Run the test on the engine."""


class ProgramMissing(ConfigurationError, SkipTest):
    """Raised if an engine's program isn't installed. pytest and unittest skip the test."""


@contextmanager
def needed_by(name: str, extra: str = "testing") -> Generator[None, None, None]:
    """Name the extra to install if an import in the `with` block fails."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f'{name} needs {find_package(missing)}, which is not installed: pip install "onewrite[{extra}]"'
        ) from missing
