from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from demo import Lane, MongoShop, PaymentStream, Shop
from demo.handlers import CLAIM, ONEWRITE, PLAIN
from tests.support.examples import examples


def lanes_after(stream: PaymentStream, turns: int, duplicates: int = 0, crashes: int = 0) -> dict[str, Lane]:
    for _ in range(turns):
        stream.turn(duplicates=duplicates, crashes=crashes)
    return stream.lanes


@given(
    seed=st.integers(),
    moments=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30), st.booleans()), max_size=6),
)
@settings(deadline=None, max_examples=examples(30))
def test_onewrite_adds_each_payment_once(seed: int, moments: list[tuple[int, int, bool]]) -> None:
    stream = PaymentStream(MongoShop, seed)
    for duplicates, crashes, kill in [*moments, (60, 30, True)]:
        if kill:
            stream.lanes[ONEWRITE].kill()
        for _ in range(20):
            account = lanes_after(stream, 1, duplicates, crashes)[ONEWRITE].account
            assert (account.drift, account.doubled, account.lost) == (0, 0, 0)


def test_other_handlers_double_or_lose(open_shop: Callable[[str], Shop]) -> None:
    lanes = lanes_after(PaymentStream(open_shop), 60, duplicates=40, crashes=10)

    plain, claim, guarded = (lanes[name].account for name in (PLAIN, CLAIM, ONEWRITE))
    assert plain.drift > 0 == plain.lost
    assert claim.drift < 0 == claim.doubled
    assert guarded.drift == 0 < lanes[ONEWRITE].dropped


def test_fresh_payment_costs_onewrite_one_request(open_shop: Callable[[str], Shop]) -> None:
    stream = PaymentStream(open_shop, payments=8)
    while not stream.is_done:
        stream.turn(duplicates=0, crashes=0)

    assert {name: lane.requests for name, lane in stream.lanes.items()} == {PLAIN: 8, CLAIM: 16, ONEWRITE: 8}


def test_worker_is_killed_at_its_most_harmful_moment() -> None:
    stream = PaymentStream(MongoShop, payments=1)
    for lane in stream.lanes.values():
        lane.kill()
    while not stream.is_done:
        stream.turn(duplicates=0, crashes=0)

    log = [(line["lane"], line["text"]) for line in stream.view()["log"]]
    amount = f"€{stream.view()['sent']['amount'] // 100}"
    assert log == [
        (PLAIN, "The worker dies after it has added payment 1, before it acknowledges the message."),
        (CLAIM, "The worker dies between the two requests for payment 1."),
        (ONEWRITE, "The worker dies after it has added payment 1, before it acknowledges the message."),
        (PLAIN, f"Payment 1 is added once more: {amount} too much."),
        (ONEWRITE, "Payment 1 arrives again, and is dropped."),
        (CLAIM, f"Payment 1 is dropped, and was never added: {amount} are lost."),
    ]
