"""A write that takes effect long after it read its clock, as after a wait for a connection, neither forgets nor repeats a message."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onewrite import Applied, Duplicate, Message, SeenIds
from tests.contract.stores import MakeShop

HOUR = 3600.0


@pytest.mark.parametrize("retention", [timedelta(seconds=1), timedelta(minutes=1), timedelta(days=14)], ids=str)
def test_late_write_and_late_copy_respect_other_marks(make_shop: MakeShop, retention: timedelta) -> None:
    shop = make_shop(SeenIds(retention))
    pause = retention.total_seconds() / 5 + HOUR / 7  # comes to every place of a generation
    for number in range(25):
        message, late = Message(f"m-{number}"), Message(f"late-{number}")
        assert isinstance(shop.add(message, "o"), Applied)
        shop.clock.now -= HOUR  # the clock that the next two requests read before they waited
        assert isinstance(shop.add(late, "o"), Applied)
        assert isinstance(shop.add(message, "o"), Duplicate)
        shop.clock.now += HOUR
        assert isinstance(shop.add(message, "o"), Duplicate)
        assert isinstance(shop.add(late, "o"), Duplicate)
        shop.clock.now += pause
