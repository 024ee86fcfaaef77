from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from saga import Shop, shop_on
from saga.bad_day import Stores, opened


@pytest.fixture
def stores() -> Iterator[Stores]:
    with opened() as stores:
        yield stores


@pytest.fixture
def shop(stores: Stores) -> Shop:
    numbers = itertools.count()
    return shop_on(
        stores.orders, stores.accounts, stores.parcels, clock=lambda: 1_772_438_400.0, names=lambda: f"name-{next(numbers)}"
    )
