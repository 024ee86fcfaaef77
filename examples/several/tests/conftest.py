from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from onewrite.testing import dynoxide, mongod
from tests.support.engines import dynoxide_binary, mongod_binary, require


@pytest.fixture(scope="session")
def start_engine() -> Iterator[Callable[[str], Any]]:
    """Return an engine of this name, which is started when a test first needs it."""
    started: dict[str, Any] = {}
    with ExitStack() as stack:

        def start(name: str) -> Any:
            if name not in started:
                require(mongod_binary if name == "mongod" else dynoxide_binary)
                started[name] = stack.enter_context(mongod() if name == "mongod" else dynoxide())
            return started[name]

        yield start
