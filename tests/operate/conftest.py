"""What the command's tests have in common: a log that is put back, an account of moto's, and a current directory with modules."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from onewrite.testing.servers.engines import REGION
from tests.support.repairs import log_as_it_was


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    with log_as_it_was():
        yield


@pytest.fixture
def amazon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory. The command imports modules from it, which are forgotten at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    before = {*sys.modules}
    yield tmp_path
    for name in {*sys.modules} - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]
