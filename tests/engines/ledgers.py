"""The ledgers that most tests of an engine go through, by name."""

from __future__ import annotations

from typing import TypeAlias

import pytest

from onewrite import HighWaterMark, IdSet, InSequence, SeenIds

AnyLedger: TypeAlias = SeenIds | IdSet | HighWaterMark | InSequence

LEDGERS: dict[str, AnyLedger] = {
    "SeenIds": SeenIds(),
    "readable": SeenIds(readable=True),
    "for_ever": SeenIds(retention=None),
    "plain_set": IdSet("messageIDs"),
    "HighWaterMark": HighWaterMark(),
    "InSequence": InSequence(),
}

ledgers = pytest.mark.parametrize("ledger", LEDGERS.values(), ids=LEDGERS)
