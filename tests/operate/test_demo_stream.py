"""The page of `onewrite demo --web` shows what the three handlers really do, turn by turn, as the seed and the visitor decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onewrite import Message
from onewrite.operate.demo.comparison import CLAIM, ONEWRITE, PLAIN, START, Copy, SimulatedClock
from onewrite.operate.demo.shops import Engine, Shop, shops
from onewrite.operate.demo.stream import (
    Change,
    Command,
    HandlerLane,
    Incident,
    Kill,
    PaymentStream,
    Restart,
    SingleTurn,
    command,
)
from tests.support.examples import examples

LANES = [PLAIN, CLAIM, ONEWRITE]
CALM = Change({"duplicates": 0, "crashes": 0})


def payment(number: int = 1, amount: int = 2000) -> Message:
    body = {"number": number, "order": "order-1", "field": "paidCents", "amount": amount}
    return Message(f"payment-{number}", body=body)


@pytest.fixture(params=list(Engine))
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with shops(request.param) as open_shop:
        yield open_shop("one-shop", SimulatedClock())


@pytest.fixture
def stream() -> Iterator[PaymentStream]:
    with shops(Engine.MONGODB) as open_shop:
        yield PaymentStream(open_shop, 1)


def ticks(stream: PaymentStream, times: int) -> dict[str, Mapping[str, Any]]:
    for _ in range(times):
        stream.tick()
    return {lane["name"]: lane for lane in stream.view()["lanes"]}


def drift(lane: Mapping[str, Any]) -> int:
    difference: int = lane["balance"] - lane["expected"]
    assert lane["drifts"][-1] == difference
    return difference


def played(lane: HandlerLane, turns: int) -> list[Incident]:
    """What was remarked while the lane went on alone, with no death by chance."""
    return [what for n in range(1, turns + 1) for what, _ in lane.turn(START + n, 0)]


# One lane


@pytest.mark.parametrize(
    ("name", "after_one", "remarks", "drifts", "requests"),
    [
        (PLAIN, 2000, [Incident.DIED_WRITTEN, Incident.DOUBLED], 2000, 2),
        (CLAIM, 0, [Incident.DIED_CLAIMED, Incident.LOST], -2000, 2),
        (ONEWRITE, 2000, [Incident.DIED_WRITTEN, Incident.DROPPED], 0, None),
    ],
)
def test_a_killed_worker_dies_where_it_hurts_and_the_redelivery_shows_what_it_did(
    shop: Shop, name: str, after_one: int, remarks: list[Incident], drifts: int, requests: int | None
) -> None:
    lane = HandlerLane(name, shop, 1)
    lane.send(Copy(1, payment(), START))
    lane.kill()
    assert lane.view(START)["worker"]["doomed"]
    assert played(lane, 3) == remarks[:1]
    dead = lane.view(START + 3)
    assert (dead["worker"]["dead"], dead["worker"]["doomed"], dead["balance"]) == (True, False, after_one)
    assert [what for n in range(4, 20) for what, _ in lane.turn(START + n, 0)] == remarks[1:]
    end = lane.view(START + 20)
    assert drift(end) == drifts
    assert (end["queue"], end["worker"]["dead"]) == ([], False)
    assert requests is None or end["perMessage"] == requests


@pytest.mark.parametrize(
    ("name", "turns", "what"),
    [
        (PLAIN, 1, Incident.DIED_EARLY),
        (CLAIM, 2, Incident.DIED_CLAIMED),
        (CLAIM, 3, Incident.DIED_WRITTEN),
        (ONEWRITE, 2, Incident.DIED_WRITTEN),
    ],
)
def test_a_death_by_chance_is_told_by_what_was_done_before_it(shop: Shop, name: str, turns: int, what: Incident) -> None:
    lane = HandlerLane(name, shop, 1)
    lane.send(Copy(1, payment(), START))
    played(lane, turns)
    assert [told for told, _ in lane.turn(START + 9, 1.0)] == [what]


# The stream


@given(
    seed=st.integers(),
    deeds=st.lists(
        st.one_of(
            st.sampled_from([None, Kill(None), Kill(ONEWRITE), Kill(CLAIM)]),
            st.builds(lambda d, c: Change({"duplicates": d, "crashes": c}), st.integers(0, 60), st.integers(0, 30)),
        ),
        max_size=8,
    ),
)
@settings(deadline=None, max_examples=examples(40))
def test_onewrite_never_drifts_whatever_the_visitor_does(seed: int, deeds: list[Command | None]) -> None:
    with shops(Engine.MONGODB) as open_shop:
        stream = PaymentStream(open_shop, seed)
        for deed in [*deeds, Change({"duplicates": 60, "crashes": 30})]:
            if deed is not None:
                stream.obey(deed)
            for _ in range(20):
                lanes = ticks(stream, 1)
                assert (drift(lanes[ONEWRITE]), lanes[ONEWRITE]["doubled"], lanes[ONEWRITE]["lost"]) == (0, 0, 0)


@pytest.mark.parametrize("engine", list(Engine))
def test_the_others_drift_where_messages_come_again(engine: Engine) -> None:
    with shops(engine) as open_shop:
        lanes = ticks(PaymentStream(open_shop, 1), 40)
    assert drift(lanes[PLAIN]) > 0 == lanes[PLAIN]["lost"]
    assert drift(lanes[CLAIM]) < 0 == lanes[CLAIM]["doubled"]
    assert drift(lanes[ONEWRITE]) == 0 < lanes[ONEWRITE]["dropped"]


def test_without_faults_all_are_exact_and_cost_what_they_cost(stream: PaymentStream) -> None:
    stream.obey(CALM)
    lanes = ticks(stream, 104)
    assert [(drift(lane), lane["dropped"]) for lane in lanes.values()] == [(0, 0)] * 3
    assert [lanes[name]["perMessage"] for name in LANES] == [1, 2, 1]
    assert stream.view()["remarks"] == []


def test_starting_again_forgets_all_but_the_settings(stream: PaymentStream) -> None:
    stream.obey(Change({"speed": 9}))
    first = ticks(stream, 30)
    stream.obey(Restart())
    view = stream.view()
    assert (view["run"], view["tick"], view["remarks"], view["settings"]["speed"]) == (1, 0, [], 9)
    assert {lane["balance"] for lane in view["lanes"]} == {0}
    assert ticks(stream, 30) == first  # the same seed


def test_a_step_is_a_turn_and_a_kill_of_all_dooms_each_worker(stream: PaymentStream) -> None:
    stream.obey(CALM)
    stream.obey(Kill(None))
    stream.obey(SingleTurn())
    view = stream.view()
    assert view["tick"] == 1
    assert [lane["worker"]["doomed"] for lane in view["lanes"]] == [True] * 3
    stream.obey(Restart())
    stream.obey(Kill(CLAIM))
    assert [lane["worker"]["doomed"] for lane in stream.view()["lanes"]] == [False, True, False]


# What is asked for


@pytest.mark.parametrize(
    ("name", "body", "says"),
    [
        ("settings", [], "must be a JSON object"),
        ("settings", {"speed": 13}, "speed must be a whole number from 1 to 12"),
        ("settings", {"running": 1}, "true or false"),
        ("settings", {"colour": 1}, "no setting 'colour'"),
        ("kill", {}, "lane must be null or one of plain write, claim, then write, onewrite"),
        ("step", {"times": 2}, "step takes no values"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(name: str, body: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        command(name, body)
