from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from onewrite.testing import dynoxide
from payment import create_table
from payment.count import Counting, opened
from tests.support.engines import dynoxide_binary, require


@pytest.fixture(scope="module", params=["moto", "dynoxide"])
def table(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Empty at first: each case has a payment of its own in it."""
    with ExitStack() as stack:
        if request.param == "moto":
            yield stack.enter_context(opened())
        else:
            require(dynoxide_binary)
            yield create_table(stack.enter_context(dynoxide()).resource(), "payments")


@pytest.fixture(scope="module")
def counting(table: Any) -> Counting:
    return Counting(table)
