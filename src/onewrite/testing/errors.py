"""What can be missing or untrue about an engine that a test runs on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from unittest import SkipTest

from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.extras import package_of


class StandInLies(OnewriteError, NotImplementedError):
    """The stand-in would answer this otherwise than the engine that it stands for: run this test on the engine."""


class ProgramMissing(ConfigurationError, SkipTest):
    """The program of this engine is not here: a test that needs it is skipped, by pytest and by unittest alike."""


@contextmanager
def needed_by(name: str, extra: str = "testing") -> Generator[None, None, None]:
    """Around the imports of what an extra installs."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f'{name} needs {package_of(missing)}, which is not installed: pip install "onewrite[{extra}]"'
        ) from missing
