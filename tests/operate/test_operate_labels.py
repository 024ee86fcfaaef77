"""Which ledgers an entity holds, read from its labels alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onewrite import HighWaterMark, LedgerMismatch, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.operate.image import LabelledLedger, find_labels


@pytest.mark.parametrize(
    "ledger",
    [
        SeenIds(timedelta(hours=36), name="mine", readable=True),
        SeenIds(timedelta(seconds=1, microseconds=5)),
        SeenIds(None),
        HighWaterMark(name="marks"),
    ],
    ids=lambda ledger: ledger.layout,
)
def test_ledger_can_be_recreated_from_its_label(ledger: Ledger) -> None:
    (label,) = ledger.terms.labels
    (kept,) = find_labels([("id", "e"), (label.slot.group, label.text)])
    assert kept.ledger == ledger
    assert kept.moved_to is None


def test_outbox_and_user_field_are_not_ledgers() -> None:
    others: list[tuple[str, object]] = [("ow_o", "ow1 outbox shop/orders"), ("ow_l", None), ("x_ow_l", "ow1 14d")]
    assert find_labels(others) == []


def test_moved_ledger_names_its_new_attribute() -> None:
    found = find_labels([("ow_seen:l", "ow1 14d"), ("ow_l", "ow1 > ow_seen:l")])
    assert found == [LabelledLedger("ow_l", "> ow_seen:l"), LabelledLedger("ow_seen:l", "14d")]
    assert [kept.moved_to for kept in found] == ["ow_seen:l", None]


@pytest.mark.parametrize("layout", ["14w", "all texts", "> seen", "> ", "numbers 500", "40000d", "9999999999999d"])
def test_unknown_layout_is_refused_with_its_text(layout: str) -> None:
    with pytest.raises(LedgerMismatch, match=f"{layout!r}, and this version"):
        _ = LabelledLedger("ow_l", layout).ledger
