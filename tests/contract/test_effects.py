"""What every store and every client promises of an effect outside of the entity: begun before it, finished with the write."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onewrite import (
    Applied,
    Begun,
    Busy,
    Deferred,
    Duplicate,
    Event,
    HighWaterMark,
    IdSet,
    InSequence,
    InvalidMessage,
    InvalidUpdate,
    LedgerMismatch,
    Message,
    Missing,
    Outbox,
    Outcome,
    Rejected,
    SeenIds,
    Stale,
    TakenOver,
    Uncertain,
)
from onewrite.core.features.effects import MAX_EFFECT_SKEW
from onewrite.core.ledgers import Ledger
from tests.contract.stores import NOW, MakeShop, Shop

MINUTE, DAY = 60.0, 86_400.0
LEDGERS: dict[str, Ledger] = {
    "seen": SeenIds(),
    "ids": IdSet("messageIDs"),
    "mark": HighWaterMark(),
    "sequence": InSequence(),
}


def message(n: int, source: str = "s") -> Message:
    return Message(f"m{n}", source=source, sequence=n)


M1, M2, M3 = message(1), message(2), message(3)


@pytest.fixture(params=list(LEDGERS))
def shop(request: pytest.FixtureRequest, make_shop: MakeShop) -> Shop:
    shop = make_shop(LEDGERS[request.param])
    shop.put_raw("o", n=0)
    return shop


seen_only = pytest.mark.parametrize("shop", ["seen"], indirect=True)


def begin_effect(shop: Shop, m: Message = M1, **asked: Any) -> Begun:
    effect = shop.begin_effect(m, "o", **asked)
    assert isinstance(effect, Begun), effect
    return effect


def n_of(shop: Shop) -> Any:
    return (shop.get("o") or {}).get("n")


def test_effect_takes_two_requests_and_is_hidden_meanwhile(shop: Shop) -> None:
    effect = begin_effect(shop)
    assert (effect.key, effect.since, effect.until) == (M1.child("charge"), NOW, NOW + MINUTE)
    assert effect.time_left() == MINUTE
    assert len(shop.get("o") or {}) == 2  # its key, and n
    assert isinstance(shop.add(M1, "o", finishes=effect), Applied)
    assert n_of(shop) == 1
    assert shop.open_effects("o") == []
    assert isinstance(shop.begin_effect(M1, "o"), Duplicate)


def test_effect_does_not_create_a_missing_entity(shop: Shop) -> None:
    assert shop.begin_effect(M1, "missing") == Missing(M1)
    counts = isinstance(shop.begin_effect(M2, "missing"), Deferred)
    assert shop.begin_effect(M1, "missing", missing_ok=True) == Missing(M1, settled=not counts)
    sent: list[Any] = []
    assert shop.perform_effect(M1, "missing", sent.append, lambda amount: amount) == Missing(M1)
    assert sent == []
    assert shop.raw("missing") is None


def test_callers_condition_is_checked_when_the_effect_begins(shop: Shop) -> None:
    shop.put_raw("closed", n=0, closed=True)
    assert isinstance(shop.begin_effect(M1, "closed", if_open=True), Rejected)
    effect = begin_effect(shop, if_open=True)
    with pytest.raises(InvalidUpdate, match="can't have a condition"):
        shop.add(M1, "o", if_open=True, finishes=effect)
    assert isinstance(shop.add(M1, "o", finishes=effect), Applied)


def test_effect_is_busy_for_other_workers_until_its_lease_ends(shop: Shop) -> None:
    begin_effect(shop)
    shop.clock.now += MINUTE - 1
    assert shop.begin_effect(M1, "o") == Busy(M1, NOW + MINUTE)
    shop.clock.now += 1
    assert isinstance(shop.begin_effect(M1, "o"), Begun)


def test_takeover_keeps_key_and_time_and_changes_the_fence(shop: Shop) -> None:
    first = begin_effect(shop)
    shop.clock.now += MINUTE
    second = begin_effect(shop, name="renamed by a deployment")
    assert (second.key, second.since) == (first.key, first.since)
    assert second.fence != first.fence
    assert second.until == NOW + 2 * MINUTE


def test_only_the_worker_that_took_over_finishes_an_effect(shop: Shop) -> None:
    first = begin_effect(shop)
    shop.clock.now += MINUTE
    second = begin_effect(shop)
    assert isinstance(shop.add(M1, "o", finishes=first), TakenOver)
    assert isinstance(shop.add(M1, "o", finishes=second), Applied)
    assert isinstance(shop.add(M1, "o", finishes=first), Duplicate)
    assert n_of(shop) == 1


def test_effect_is_taken_over_while_its_key_is_known(shop: Shop) -> None:
    effect = begin_effect(shop)
    last = NOW + DAY - MINUTE - 2 * MAX_EFFECT_SKEW.total_seconds()
    shop.clock.now = last + 1
    uncertain = shop.begin_effect(M1, "o")
    assert uncertain == Uncertain(M1, NOW, effect.fence, effect.key)
    assert isinstance(shop.add(M1, "o"), Uncertain)
    shop.clock.now = last
    assert isinstance(shop.begin_effect(M1, "o"), Begun)


def uncertain(shop: Shop) -> Uncertain:
    begin_effect(shop, key_valid_for=timedelta(0))
    shop.clock.now += MINUTE
    answer = shop.begin_effect(M1, "o", key_valid_for=timedelta(0))
    assert isinstance(answer, Uncertain)
    return answer


def test_operators_finding_finishes_an_uncertain_effect(shop: Shop) -> None:
    found = uncertain(shop)
    assert isinstance(shop.add(M1, "o", finishes=found), Applied)
    assert n_of(shop) == 1
    assert isinstance(shop.add(M1, "o", finishes=found), Duplicate)


def test_operator_can_allow_another_attempt_at_the_effect(shop: Shop) -> None:
    found = uncertain(shop)
    again = begin_effect(shop, after=found, key_valid_for=timedelta(0))
    assert (again.key, again.since) == (found.key, NOW + MINUTE)
    assert isinstance(shop.begin_effect(M1, "o", after=found, key_valid_for=timedelta(0)), Busy)
    assert isinstance(shop.add(M1, "o", finishes=again), Applied)


@pytest.mark.parametrize(("message", "order"), [(M2, "o"), (M1, "p")], ids=["message", "entity"])
def test_attempt_is_not_allowed_by_the_effect_of_another(shop: Shop, message: Message, order: str) -> None:
    found = uncertain(shop)
    with pytest.raises(InvalidUpdate, match=r"The effect .*belongs to"):
        shop.begin_effect(message, order, after=found, key_valid_for=timedelta(0))
    assert shop.open_effects("o") == [found]


@seen_only
def test_sequence_an_effect_cannot_store_is_refused_with_remedy(shop: Shop) -> None:
    huge = Message("m1", source="s", sequence=10**50)
    with pytest.raises(InvalidMessage, match=r"Pass onewrite\.sortable\(n\)"):
        shop.begin_effect(huge, "o")
    assert isinstance(shop.add(huge, "o"), Applied)  # SeenIds does not look at it


@seen_only
def test_begun_effect_keeps_its_window(shop: Shop) -> None:
    """Its key is known since the first begin. Under a new one a takeover could charge again what the provider has forgotten."""
    effect = begin_effect(shop)
    with pytest.raises(InvalidUpdate, match="after= is a Begun: expected the Uncertain of an effect"):
        shop.begin_effect(M1, "o", after=effect)
    assert isinstance(shop.add(M1, "o", finishes=effect), Applied)


def test_plain_write_does_not_overtake_its_own_effect(shop: Shop) -> None:
    effect = begin_effect(shop)
    assert isinstance(shop.add(M1, "o"), Busy)
    assert isinstance(shop.preview(M1, "o"), Busy)
    shop.clock.now += MINUTE
    assert isinstance(shop.add(M1, "o"), Uncertain)
    assert isinstance(shop.add(M1, "o", finishes=effect), Applied)
    assert n_of(shop) == 1


@pytest.mark.parametrize("shop", ["seen", "mark"], indirect=True)
def test_other_messages_are_written_while_an_effect_is_open(shop: Shop, make_shop: MakeShop) -> None:
    effect = begin_effect(shop)
    assert isinstance(shop.add(M2, "o"), Applied)
    assert isinstance(shop.add(M3, "o", if_open=True), Applied)
    assert isinstance(shop.add(M1, "o", finishes=effect), Applied)
    assert n_of(shop) == 3


@pytest.mark.parametrize("name", LEDGERS)
def test_new_store_applies_open_effect_only_to_its_message(name: str, make_shop: MakeShop) -> None:
    def new_shop() -> Shop:
        return make_shop(LEDGERS[name])

    of_another_ledger = make_shop(SeenIds(name="other"))
    of_another_ledger.put_raw("o", n=0)
    assert isinstance(of_another_ledger.begin_effect(M1, "o"), Begun)
    assert isinstance(new_shop().add(M1, "o"), Applied)
    assert isinstance(new_shop().add(M1, "o"), Duplicate)
    assert isinstance(new_shop().add(M2, "o", if_open=True), Applied)
    of_another_ledger.put_raw("closed", n=0, closed=True)
    assert isinstance(of_another_ledger.begin_effect(M1, "closed"), Begun)
    assert isinstance(new_shop().add(M1, "closed", if_open=True), Rejected)
    assert isinstance(new_shop().remember(M3, "o"), Applied)
    assert [type(outcome) for outcome in new_shop().update_batch([M3, message(4), message(5)], "o")] == [
        Duplicate,
        Applied,
        Applied,
    ]
    assert n_of(new_shop()) == 4


@pytest.mark.parametrize("ledger", [SeenIds(), SeenIds(name="billing")], ids=["unnamed", "named"])
def test_new_store_is_busy_by_its_own_messages_effect(ledger: Ledger, make_shop: MakeShop) -> None:
    shop = make_shop(ledger)
    shop.put_raw("o", n=0)
    begin_effect(shop)
    for write in ("add", "remember", "preview"):
        other = make_shop(ledger)
        assert isinstance(getattr(other, write)(M1, "o"), Busy), write
    assert n_of(shop) == 0


@pytest.mark.parametrize("shop", ["mark"], indirect=True)
def test_finish_of_an_overtaken_message_keeps_the_mark(shop: Shop) -> None:
    effect = begin_effect(shop)
    shop.add(M3, "o")
    assert isinstance(shop.add(M1, "o", finishes=effect), Applied)
    assert isinstance(shop.add(M2, "o"), Stale)
    assert n_of(shop) == 2


@pytest.mark.parametrize("shop", ["sequence"], indirect=True)
def test_gap_defers_an_effect_and_open_effect_its_source(shop: Shop) -> None:
    assert isinstance(shop.begin_effect(M2, "o"), Deferred)
    effect = begin_effect(shop)
    assert isinstance(shop.add(M2, "o"), Deferred)
    assert isinstance(shop.add(M1, "o", finishes=effect), Applied)
    assert isinstance(shop.begin_effect(M2, "o"), Begun)


def test_finish_behind_a_gap_waits_for_the_missing_message(make_shop: MakeShop) -> None:
    """As where the ledger counts from now on, and the effect was begun when it did not."""
    earlier, shop = make_shop(HighWaterMark()), make_shop(InSequence())
    earlier.put_raw("o", n=0)
    earlier.add(M1, "o")
    effect = begin_effect(earlier, M3)
    outcome = shop.add(M3, "o", finishes=effect)
    assert (outcome, outcome.settled) == (Deferred(M3, 2, shop.get("o")), False)
    assert shop.open_effects("o") == [Busy(M3, effect.until)]
    assert isinstance(shop.add(M2, "o"), Applied)
    assert isinstance(shop.add(M3, "o", finishes=effect), Applied)
    assert (n_of(shop), shop.open_effects("o")) == (3, [])


@pytest.mark.parametrize("shop", ["sequence"], indirect=True)
def test_effect_refused_by_the_callers_condition_moves_the_mark(shop: Shop) -> None:
    shop.put_raw("closed", n=0, closed=True)
    assert shop.begin_effect(M1, "closed", if_open=True, rejected_ok=True).settled
    assert isinstance(shop.begin_effect(M2, "closed"), Begun)


def test_unsent_effect_can_begin_again(shop: Shop) -> None:
    before = shop.get("o")
    effect = begin_effect(shop)
    shop.release_effect(effect, sent=False)
    assert shop.get("o") == before
    assert all(
        isinstance(each, Busy) and each.until == NOW for each in shop.open_effects("o")
    )  # none, if none may be overtaken
    shop.clock.now += 2 * DAY
    again = begin_effect(shop)
    assert (again.since, again.first) == (NOW + 2 * DAY, True)
    assert isinstance(shop.add(M1, "o", finishes=effect), TakenOver)
    assert isinstance(shop.add(M1, "o", finishes=again), Applied)


@pytest.mark.parametrize("shop", ["seen", "ids", "sequence"], indirect=True)
def test_unsent_effect_is_withdrawn_if_nothing_overtakes_it(shop: Shop) -> None:
    effect = begin_effect(shop)
    shop.release_effect(effect, sent=False)
    assert shop.open_effects("o") == []
    assert isinstance(shop.add(M1, "o", finishes=effect), TakenOver)


def text(n: int) -> Message:
    return Message(f"m{n}", source="s", sequence=f"#{n:04}")


# A ledger, a message that is begun, and those that overtake it.
OVERTAKEN: dict[str, tuple[Ledger, Message, list[Message]]] = {
    "a mark": (HighWaterMark(), M1, [M2]),
    "a mark, by many": (HighWaterMark(), M1, [M2, message(50), message(1000)]),
    "text": (HighWaterMark(), text(1), [text(2)]),
    "marks after ids": (HighWaterMark(previous=SeenIds()), M1, [M2]),
}


WRITES: dict[str, Callable[[Shop, Message], Outcome]] = {
    "an update": lambda shop, begun: shop.add(begun, "o"),
    "an update under a condition": lambda shop, begun: shop.add(begun, "o", if_open=True),
    "a remembered one": lambda shop, begun: shop.remember(begun, "o"),
    "a batch": lambda shop, begun: shop.update_batch([begun, message(9, "another")], "o")[0],
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("is_overtaken", [False, True])
@pytest.mark.parametrize(("ledger", "begun", "later"), [OVERTAKEN["a mark"], OVERTAKEN["marks after ids"]])
def test_plain_write_is_applied_once_after_an_unsent_release(
    make_shop: MakeShop,
    ledger: Ledger,
    begun: Message,
    later: list[Message],
    is_overtaken: bool,
    write: Callable[[Shop, Message], Outcome],
) -> None:
    shop = make_shop(ledger)
    shop.put_raw("o", n=0)
    shop.release_effect(begin_effect(shop, begun), sent=False)
    if is_overtaken:
        assert all(isinstance(shop.add(each, "o"), Applied) for each in later)
    assert isinstance(shop.preview(begun, "o"), Applied)
    assert isinstance(write(shop, begun), Applied)
    assert shop.open_effects("o") == []
    n = n_of(shop)
    assert isinstance(write(shop, begun), Duplicate | Stale)
    assert n_of(shop) == n


@pytest.mark.parametrize("is_overtaken", [False, True])
@pytest.mark.parametrize(("ledger", "begun", "later"), [OVERTAKEN["a mark"], OVERTAKEN["marks after ids"]])
def test_refused_plain_write_leaves_no_unsent_effect(
    make_shop: MakeShop, ledger: Ledger, begun: Message, later: list[Message], is_overtaken: bool
) -> None:
    shop = make_shop(ledger)
    shop.put_raw("o", n=0, closed=True)
    shop.release_effect(begin_effect(shop, begun), sent=False)
    if is_overtaken:
        assert all(isinstance(shop.add(each, "o"), Applied) for each in later)
    refused = shop.add(begun, "o", if_open=True, rejected_ok=True)
    assert isinstance(refused, Rejected)
    assert refused.settled
    assert shop.open_effects("o") == []
    assert isinstance(shop.add(begun, "o"), Stale if is_overtaken else Applied)


def test_write_behind_a_gap_waits_after_an_unsent_release(make_shop: MakeShop) -> None:
    earlier, shop = make_shop(HighWaterMark()), make_shop(InSequence())
    earlier.put_raw("o", n=0, closed=True)
    earlier.add(M1, "o")
    earlier.release_effect(begin_effect(earlier, M3), sent=False)
    assert isinstance(shop.add(M3, "o"), Deferred)
    assert isinstance(shop.add(M2, "o"), Applied)
    refused = shop.add(M3, "o", if_open=True, rejected_ok=True)
    assert isinstance(refused, Rejected)
    assert refused.settled
    assert isinstance(shop.add(message(4), "o"), Applied)


@pytest.mark.parametrize(
    ("key_valid_for", "waits"), [(timedelta(0), 0.0), (timedelta(days=1), 30 * DAY)], ids=["no key", "its key forgotten"]
)
@pytest.mark.parametrize(("ledger", "begun", "later"), OVERTAKEN.values(), ids=OVERTAKEN)
def test_message_overtaken_after_an_unsent_effect_is_done_once(
    make_shop: MakeShop, ledger: Ledger, begun: Message, later: list[Message], key_valid_for: timedelta, waits: float
) -> None:
    shop, sent = make_shop(ledger), list[str]()
    shop.put_raw("o", n=0)
    effect = begin_effect(shop, begun, key_valid_for=key_valid_for)
    shop.release_effect(effect, sent=False)
    assert all(isinstance(shop.add(each, "o"), Applied) for each in later)
    assert isinstance(shop.open_effects("o")[0], Busy)  # nothing about it is uncertain
    shop.clock.now += waits

    def send(effect: Begun) -> int:
        assert (effect.first, effect.since) == (True, shop.clock.now)
        sent.append(effect.key)
        return 1

    assert isinstance(shop.perform_effect(begun, "o", send, _same, key_valid_for=key_valid_for), Applied)
    assert isinstance(shop.perform_effect(begun, "o", send, _same, key_valid_for=key_valid_for), Duplicate | Stale)
    assert sent == [effect.key]
    assert n_of(shop) == len(later) + 1
    assert shop.open_effects("o") == []


@pytest.mark.parametrize(("ledger", "begun", "later"), OVERTAKEN.values(), ids=OVERTAKEN)
def test_worker_paused_past_its_lease_loses_no_effect(
    make_shop: MakeShop, ledger: Ledger, begun: Message, later: list[Message]
) -> None:
    shop, sent = make_shop(ledger), list[str]()
    shop.put_raw("o", n=0)

    def send(effect: Begun) -> int:
        sent.append(effect.key)
        return 1

    asked = {"lease": timedelta(seconds=1)}
    held = begin_effect(shop, begun, **asked)
    assert all(isinstance(shop.add(each, "o"), Applied) for each in later)
    shop.clock.now += MINUTE
    assert held.time_left() == 0
    shop.release_effect(held, sent=False)
    assert isinstance(shop.perform_effect(begun, "o", send, lambda amount: amount), Applied)
    assert isinstance(shop.perform_effect(begun, "o", send, lambda amount: amount), Duplicate | Stale)
    assert sent == [held.key]


def test_released_effect_is_remembered_if_possibly_sent(shop: Shop) -> None:
    first = begin_effect(shop)
    shop.release_effect(first)
    second = begin_effect(shop)
    assert (second.since, second.key) == (first.since, first.key)
    shop.release_effect(second, sent=False)  # the first worker may have sent it
    shop.clock.now += DAY
    assert isinstance(shop.begin_effect(M1, "o"), Uncertain)


def test_effect_is_not_released_by_another_worker(shop: Shop) -> None:
    first = begin_effect(shop)
    shop.clock.now += MINUTE
    second = begin_effect(shop)
    shop.release_effect(first, sent=False)
    shop.release_effect(first)
    assert shop.begin_effect(M1, "o") == Busy(M1, second.until)


def test_open_effects_are_listed_with_details_for_operators(shop: Shop) -> None:
    assert shop.open_effects("o") == []
    assert shop.open_effects("missing") == []
    effect = begin_effect(shop)
    assert shop.open_effects("o") == [Busy(M1, effect.until)]
    shop.clock.now += MINUTE
    (found,) = shop.open_effects("o")
    assert found == Uncertain(M1, NOW, effect.fence, effect.key)
    assert isinstance(found, Uncertain)
    assert isinstance(shop.add(M1, "o", finishes=found), Applied)


def test_effect_is_finished_by_its_own_message_and_entity(shop: Shop) -> None:
    effect = begin_effect(shop)
    with pytest.raises(InvalidUpdate, match="belongs to message m1"):
        shop.add(M2, "o", finishes=effect)
    with pytest.raises(InvalidUpdate, match="belongs to a different entity"):
        shop.add(M1, "another", finishes=effect)
    wrong: Any = "effect"
    with pytest.raises(InvalidUpdate, match="got str"):
        shop.add(M1, "o", finishes=wrong)


@seen_only
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": ""}, "name is ''"),
        ({"lease": timedelta(0)}, "lease="),
        ({"lease": 60}, "lease=60"),
        ({"key_valid_for": timedelta(-1)}, "key_valid_for="),
        ({"key_valid_for": None}, "key_valid_for=None"),
        (
            {"key_valid_for": timedelta(minutes=11, seconds=-1)},
            r"key_valid_for=0:10:59 is too short for lease=0:01:00\. It must be at least 0:11:00.* Shorten the lease, or pass",
        ),
        ({"key_valid_for": timedelta(minutes=5)}, r"Pass key_valid_for=timedelta\(0\) if"),  # no lease is short enough
    ],
)
def test_invalid_effect_is_refused_before_sending(shop: Shop, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidUpdate, match=said):
        shop.begin_effect(M1, "o", **asked)
    assert shop.open_effects("o") == []
    begin_effect(shop, key_valid_for=timedelta(minutes=11))  # the shortest that this lease allows


@pytest.mark.parametrize("outbox", [Outbox("shop/orders"), Outbox("shop/orders", index="pending", shards=1)])
def test_event_is_emitted_with_the_finishing_write(make_shop: MakeShop, outbox: Outbox) -> None:
    shop = make_shop(SeenIds(), outbox)
    shop.put_raw("o", n=0)
    assert isinstance(shop.add(M1, "o", finishes=begin_effect(shop), emit=[Event("Paid", 1)]), Applied)
    shop.perform_effect(M2, "o", Provider(), lambda n: {**shop.adds(n), "emit": [Event("Charged", n)]})
    assert [event["type"] for event in (shop.raw("o") or {})["ow_events"]] == ["Paid", "Charged"]


def test_outbox_of_another_name_is_refused_before_the_effect(make_shop: MakeShop) -> None:
    sent = list[Any]()
    shop, other = make_shop(SeenIds(), Outbox("shop/orders")), make_shop(SeenIds(), Outbox("shop/bills"))
    shop.put_raw("o", n=0)
    begin_effect(other, M3)  # nobody has emitted yet
    shop.add(M1, "o", emit=[Event("Paid", 1)])
    with pytest.raises(LedgerMismatch, match="To rename an outbox"):
        other.begin_effect(M2, "o")
    with pytest.raises(LedgerMismatch, match="To rename an outbox"):
        other.perform_effect(M2, "o", sent.append, _same)
    assert (sent, len(shop.open_effects("o"))) == ([], 1)
    assert isinstance(shop.add(M2, "o", finishes=begin_effect(shop, M2)), Applied)
    shop.clock.now += MINUTE
    with pytest.raises(LedgerMismatch, match="To rename an outbox"):
        other.begin_effect(M3, "o")  # it could not be finished


# --- perform ----------------------------------------------------------------------------------------------------------


class Provider:
    """Charges once a key, as long as it remembers it."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.fails = 0

    def __call__(self, effect: Begun) -> int:
        self.keys.append(effect.key)
        if self.fails:
            self.fails -= 1
            raise TimeoutError("the provider does not answer")
        return 5


def _same(value: Any) -> Any:
    return value


def test_perform_has_one_effect_in_one_call(shop: Shop) -> None:
    provider = Provider()
    assert isinstance(shop.perform_effect(M1, "o", provider, _same), Applied)
    assert isinstance(shop.perform_effect(M1, "o", provider, _same), Duplicate)
    assert (n_of(shop), provider.keys) == (5, [M1.child("charge")])


def test_failed_effect_is_retried_under_its_key(shop: Shop) -> None:
    provider = Provider()
    provider.fails = 1
    with pytest.raises(TimeoutError, match="does not answer"):
        shop.perform_effect(M1, "o", provider, _same)
    assert isinstance(shop.open_effects("o")[0], Uncertain)  # the effect may have happened
    assert isinstance(shop.perform_effect(M1, "o", provider, _same), Applied)
    assert (n_of(shop), provider.keys) == (5, [M1.child("charge")] * 2)


def test_effect_is_not_sent_after_its_lease_ends(shop: Shop) -> None:
    provider = Provider()
    shop.add(message(1, "another"), "another")  # the first write compares the clocks, which asks for the time too
    times = iter([NOW, NOW + MINUTE])
    clock, shop_clock = shop.clock, type(shop.clock)
    original = shop_clock.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shop_clock, "__call__", lambda each: next(times, original(each)))
        assert isinstance(shop.perform_effect(M1, "o", provider, _same), Busy)
    assert (provider.keys, clock.now) == ([], NOW)
    assert all(isinstance(each, Busy) for each in shop.open_effects("o"))  # nothing about it is uncertain
    assert isinstance(shop.perform_effect(M1, "o", provider, _same), Applied)
    assert (provider.keys, shop.open_effects("o")) == ([M1.child("charge")], [])


NO_ARGUMENTS = {
    "nothing": (None, "a NoneType"),
    "another's": ({"filter": {"_id": "o"}, "emit": []}, "'filter', which update_"),
    "two names": ({"table": "o", 1: 2}, "'table', 1, which update_"),
}


@pytest.mark.parametrize("made", NO_ARGUMENTS)
def test_effect_is_remembered_if_its_result_cannot_be_written(shop: Shop, made: str) -> None:
    result, words = NO_ARGUMENTS[made]
    with pytest.raises(
        InvalidUpdate, match=rf"then= returned {re.escape(words)}.*: expected .*the arguments of the write, for example"
    ):
        shop.perform_effect(M1, "o", Provider(), lambda _: result)
    assert isinstance(
        shop.perform_effect(M1, "o", Provider(), _same), Applied
    )  # the next delivery need not wait for the lease
