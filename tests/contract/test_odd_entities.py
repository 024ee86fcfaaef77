"""A message is not dropped because an odd value is where a ledger or an outbox keeps its own.

A `Rejected` says that the caller's own condition refused the message. These writes have no condition.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError

from onewrite import Applied, Begun, Deferred, Event, Gone, LedgerMismatch, Message, Outbox, Stale
from tests.contract.stores import MakeShop, Shop
from tests.contract.test_deletes import TOMBSTONES
from tests.engines.ledgers import AnyLedger, ledgers

PAID = [Event("OrderPaid", 1)]
M1, M2 = (Message(f"m{n}", "s", sequence=n) for n in (1, 2))
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 5, "", "x", "ow1 outbox shop/orders", "ow1 marks"),
    *([], [1], [[]], ["x"], [{"x": 1}], {}, {"0": 1}, {"%": None}, {"%": 0}, {"%": []}, {"r1": {}}),
)
OURS = ("messageIDs", "ow_l", "ow_r", "ow_@", "ow_all", "ow_sent", "ow_life", "ow_effects", "ow_tombstone")
WAYS: dict[str, Callable[[Any, Message], Any]] = {
    "update": lambda shop, m: shop.add(m, "o", create="dynamo" in shop.name, emit=PAID),
    "pipeline": lambda shop, m: shop._done(shop._guarded.update_one(m, shop.key("o"), [{"$set": {"n": 1}}], emit=PAID)),
    "delete": lambda shop, m: shop.delete(m, "o", emit=PAID),
    "begin_effect": lambda shop, m: shop.begin_effect(m, "o"),
}


@pytest.fixture(scope="module", params=[pytest.param("dynoxide client", marks=pytest.mark.slow), "mongod"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("way", WAYS)
@ledgers
@pytest.mark.few(1)
def test_message_is_not_dropped_for_an_odd_entity(make_shop: MakeShop, ledger: AnyLedger, way: str) -> None:
    shop: Shop = make_shop(ledger, Outbox("shop/orders"), TOMBSTONES)
    if way == "pipeline" and "dynamo" in shop.name:
        pytest.skip("DynamoDB has none")
    shop.add(M1, "o", emit=PAID)
    whole = {name: value for name, value in (shop.raw("o") or {}).items() if name not in shop.key("o")}
    names = {*OURS, *(name for name in whole if name.startswith("ow_"))}
    for name, value, others in itertools.product(names, ODD, ({}, whole)):
        shop.delete_raw("o")
        shop.put_raw("o", **{**others, name: value})
        # Dynoxide has words of its own for what is no list, which do not speak of types as those of DynamoDB do.
        with suppress(LedgerMismatch, ClientError):
            outcome = WAYS[way](shop, M2 if others else M1)
            assert isinstance(outcome, Applied | Begun | Deferred | Gone | Stale), (name, value, others)
