"""What a store may be made with so it can delete, and what a tombstone says."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from onewrite import ConfigurationError, IdSet, LedgerMismatch, SeenIds, Tombstones
from onewrite.core.features.tombstone import make_tombstone, read_tombstone
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.standins.stores import mongomock_collection
from tests.support.driven import Table


@pytest.mark.parametrize("retention", [14, timedelta(seconds=1) - timedelta.resolution, timedelta(days=36_525, seconds=1)])
def test_retention_is_a_second_to_a_hundred_years(retention: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^Tombstones\(retention=.*timedelta\(days=14\)"):
        Tombstones(retention)
    for right in (timedelta(seconds=1), timedelta(days=36_525)):
        assert Tombstones(right).retention == right


@pytest.mark.parametrize("attribute", ["", "a.b", "$a", "_id", 7, "ow_", "ow_mine"])
def test_the_ttl_attribute_is_a_top_level_name(attribute: Any) -> None:
    with pytest.raises(ConfigurationError, match="isn't a valid attribute name"):
        Tombstones(timedelta(days=1), attribute)


def test_ttl_attribute_cannot_be_a_reserved_name() -> None:
    more: Any = {"tombstones": Tombstones(timedelta(days=1), "messageIDs")}
    with pytest.raises(ConfigurationError, match="Choose a different one"):
        GuardedTable(Table(), IdSet("messageIDs"), **more)
    with pytest.raises(ConfigurationError, match="Choose a different one"):
        GuardedCollection(mongomock_collection(), SeenIds(previous=IdSet("messageIDs")), **more)


def test_ttl_field_cannot_identify_a_document() -> None:
    with pytest.raises(ConfigurationError, match="Choose a different one"):
        GuardedCollection(
            mongomock_collection(), SeenIds(), key=("email",), tombstones=Tombstones(timedelta(days=1), "email")
        )


def test_invalid_tombstones_setting_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"tombstones=Tombstones\(timedelta"):
        GuardedTable(Table(), SeenIds(), tombstones=timedelta(days=14))  # type: ignore[call-overload]  # the point  # pyright: ignore[reportArgumentType]


def test_a_tombstone_is_read_as_it_was_stored() -> None:
    tombstone = make_tombstone(Tombstones(timedelta(days=1, microseconds=1), "gone_at"), 1.5, "call", ["b", "a"])
    fields = {"ttl": "gone_at", "seconds": 86_401, "by": "da2ad283ad3e175f", "key": ["a", "b"]}
    assert tombstone.as_fields() == {"at": "1970-01-01T00:00:01.500Z", **fields}
    assert read_tombstone(tombstone.as_fields()) == tombstone
    assert tombstone.expiry(1.5) == 86_403 + 3600  # the delete can land an hour after its clock was read


ENDLESS = {"at": "", "ttl": "", "seconds": math.inf, "by": "", "key": []}


@pytest.mark.parametrize("held", ["text", None, {}, {"at": "", "ttl": "", "seconds": "x", "by": "", "key": []}, 7, ENDLESS])
def test_invalid_stored_tombstone_is_a_mismatch(held: object) -> None:
    with pytest.raises(LedgerMismatch, match="ow_tombstone"):
        read_tombstone(held)
