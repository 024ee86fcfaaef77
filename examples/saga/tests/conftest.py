from __future__ import annotations

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
    return shop_on(stores.orders, stores.accounts, stores.parcels, clock=lambda: 1_772_438_400.0)
