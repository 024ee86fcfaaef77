from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.gallery.cases import Worlds


@pytest.fixture
def worlds(moto_table: Any, mongomock_collection: Any) -> Worlds:
    """For an engine and the names of stores: what makes them, one alone or a dict of several."""

    def make(engine: str, names: Sequence[str]) -> Callable[[], Any]:
        def new(name: str) -> Any:
            return moto_table(name, key="id") if engine == "dynamodb" else mongomock_collection(name)

        return lambda: new(names[0]) if len(names) == 1 else {name: new(name) for name in names}

    return make
