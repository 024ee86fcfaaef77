from __future__ import annotations

from typing import Any

import mongomock
import pytest

from credit import Customers


@pytest.fixture
def collection() -> Any:
    return mongomock.MongoClient().shop.customers


@pytest.fixture
def customers(collection: Any) -> Customers:
    return Customers(collection, default_limit=5000)
