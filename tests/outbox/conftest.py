"""A collection of orders in memory, whose outbox the tests relay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from onewrite.testing import mongomock_collection


@pytest.fixture
def collection() -> Iterator[Any]:
    with mongomock_collection("orders") as found:
        yield found
