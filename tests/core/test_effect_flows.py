"""What beginning, finishing and letting go of an effect take, each flow driven by hand with the answers that an engine would give."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onewrite import Begun, Busy, EntityTooLarge, HighWaterMark, InSequence, LedgerMismatch, Message, Rejected, SeenIds
from onewrite.core.effect import Effect
from onewrite.core.features.effects import EffectRequest, begin_effect, finish, make_effect, perform_effect
from onewrite.core.flow import Call, Do
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.seen_ids import hash_message
from onewrite.dynamodb.flows import Flows as TableFlows
from onewrite.mongodb.flows import Flows as CollectionFlows
from tests.support.driven import Collection, Table, failure, play, refusal, reply, too_large

NOW = 1_790_000_000.0
M = Message("m5", source="s", sequence=5)
REQUEST = EffectRequest("charge", timedelta(minutes=1), timedelta(days=1))
ASKED: dict[str, Any] = {"name": "charge", "lease": REQUEST.lease, "key_valid_for": REQUEST.key_valid_for}
KEY: dict[str, Any] = {"Key": {"orderId": "o-1"}}
QUERY = {"_id": "o-1"}
DONE: dict[str, Any] = {}


def effect(call: str = "another", ago: float = 3600.0, ledger: str = "ow_l") -> Effect:
    """An effect that another call has begun, whose lease is over."""
    return make_effect(ledger, M, REQUEST, call, NOW - ago)


def item(*effects: Effect, **more: Any) -> dict[str, Any]:
    held: dict[str, Any] = {"orderId": "o-1", "n": 1, **more}
    for each in effects:
        mark = hash_message(M, each.ledger)
        held |= {"ow_effects": {mark}, f"ow_effect_{mark}": each.as_fields()}
    return held


def document(*effects: Effect, **more: Any) -> dict[str, Any]:
    return {"_id": "o-1", "ow_effects": {hash_message(M, each.ledger): each.as_fields() for each in effects}, **more}


LANDED, NOTHING = reply(1), reply()


def table(ledger: Ledger | None = None) -> TableFlows:
    return TableFlows(Table(), ledger or SeenIds(), None, lambda: NOW, lambda: "mine", is_async=False)


def collection(ledger: Ledger | None = None) -> CollectionFlows:
    return CollectionFlows(
        Collection(), ledger or SeenIds(), lambda: NOW, (), "majority", name_call=lambda: "mine", is_async=False
    )


def mine() -> Effect:
    return make_effect("ow_l", M, REQUEST, "mine", NOW)


def claim(held: Effect) -> Begun:
    return held.as_begun(M, KEY["Key"], lambda: NOW)


# --- DynamoDB ---------------------------------------------------------------------------------------------------------


def test_effect_is_begun_again_if_released_before_a_takeover() -> None:
    begun, effects = play(begin_effect(table(), M, native=KEY, **ASKED), refusal(item(effect())), refusal(item()), DONE)
    assert isinstance(begun, Begun)
    assert (begun.since, begun.first, len(effects)) == (NOW, True, 3)


def test_who_always_comes_second_is_told_to_come_again() -> None:
    others = [refusal(item(effect(f"other {n}"))) for n in range(6)]
    assert play(begin_effect(table(), M, native=KEY, **ASKED), *others)[0] == Busy(M, NOW)


@pytest.mark.parametrize("ledger", [SeenIds(), HighWaterMark(), InSequence()], ids=["ids", "mark", "sequence"])
def test_too_large_finish_is_reported_if_item_is_unreadable(ledger: Ledger) -> None:
    with pytest.raises(EntityTooLarge, match="isn't known"):
        play(finish(table(ledger), M, KEY, claim(mine())), too_large(), failure("AccessDeniedException"))


@pytest.mark.parametrize("marks", [[4], [7, 4, 7, 4, 7, 4]], ids=["it would fit", "moved back and forth"])
def test_a_finish_that_never_fits_is_a_mismatch(marks: list[int]) -> None:
    refusals = [refusal(item(mine(), ow_l="ow1 marks", **{"ow_@s": mark})) for mark in marks]
    with pytest.raises(LedgerMismatch, match="The mark was moved back"):
        play(finish(table(InSequence()), M, KEY, claim(mine())), *refusals)


# --- MongoDB ----------------------------------------------------------------------------------------------------------


def test_unexplained_refusal_is_retried_on_mongodb() -> None:
    assert isinstance(
        play(begin_effect(collection(), M, native={"filter": QUERY}, **ASKED), NOTHING, document(), LANDED)[0], Begun
    )
    never = play(begin_effect(collection(), M, native={"filter": QUERY}, **ASKED), *[NOTHING, document()] * 6)
    assert never[0] == Rejected(M, settled=False)


# --- perform ----------------------------------------------------------------------------------------------------------


def test_error_reports_failed_effect_and_failed_release() -> None:
    flow = perform_effect(table(), M, function=lambda _: None, native=KEY, then=dict, **ASKED)
    assert isinstance(next(flow), Call)
    assert isinstance(flow.send(DONE), Do)
    assert isinstance(flow.throw(TimeoutError("no answer")), Call)
    with pytest.raises(TimeoutError, match="no answer") as raised:
        flow.throw(failure("ThrottlingException"))
    assert "stays open until its lease ends" in raised.value.__notes__[0]
