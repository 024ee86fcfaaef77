"""Whatever happens at whatever moment: the card is charged once at most, the payment recorded once, and the answer given again."""

from __future__ import annotations

import pytest

from payment.count import Counting
from payment.moments import Count, World, die

ONCE = Count(charges=1, records=1, events=1, effects=0)
HOUR, TWO_DAYS = 3600.0, 2 * 86_400.0
MOMENTS = [
    "before PutItem",
    "after PutItem",
    "before UpdateItem",
    "after UpdateItem",
    "before the charge",
    "after the charge",
    "before UpdateItem",
    "after UpdateItem",
]
at_every_moment = pytest.mark.parametrize("number", range(len(MOMENTS)), ids=lambda number: f"{number} {MOMENTS[number]}")


def ends_well(world: World) -> None:
    """The client has an answer, the same each time, and all is counted once."""
    reply = world.ask()
    assert reply is not None
    assert reply.status == 201
    assert world.work() == reply
    assert world.count() == ONCE


def test_payment_without_faults_takes_three_requests(counting: Counting) -> None:
    assert counting.moments("eager") == MOMENTS


@at_every_moment
def test_crash_charges_once_if_the_client_retries_soon(counting: Counting, number: int) -> None:
    with counting.world("eager").watched() as world:
        world.moments.plan[number] = die
        assert world.work() is None
        ends_well(world)


@pytest.mark.slow
@at_every_moment
def test_two_crashes_in_a_row_charge_once(counting: Counting, number: int) -> None:
    """The second dies at each moment of its own that there is, until there is none at which it can."""
    for later in range(number + 1, 100):
        with counting.world("eager").watched() as world:
            world.moments.plan |= {number: die, later: die}
            world.ask()
            there_was_none = bool(world.moments.plan)
            world.moments.plan.clear()
            ends_well(world)
        if there_was_none:
            break


@at_every_moment
def test_retry_after_the_key_expired_is_uncertain(counting: Counting, number: int) -> None:
    """Then it may be uncertain, and is not charged again. The look-up in the provider's books brings it to its end."""
    with counting.world("eager").watched() as world:
        world.moments.plan[number] = die
        world.work()
        world.wait(TWO_DAYS)
        world.ask()
        verdict = world.count().verdict
        assert verdict == ("uncertain" if 3 <= number <= 6 else "once")
        world.payments.look_up(world.payment.id)
        ends_well(world)


@at_every_moment
def test_crash_is_harmless_if_the_client_never_retries(counting: Counting, number: int) -> None:
    """What was charged is recorded, or an open effect says that it may have been: nothing is lost."""
    with counting.world("eager").watched() as world:
        world.moments.plan[number] = die
        world.work()
        assert world.count().verdict in ("nothing", "uncertain", "once")


@at_every_moment
@pytest.mark.parametrize("seconds", [0.0, HOUR, TWO_DAYS])
def test_paused_worker_does_no_harm_if_another_takes_over(counting: Counting, number: int, seconds: float) -> None:
    with counting.world("eager").watched() as world:

        def meanwhile() -> None:
            world.wait(seconds)
            world.ask()

        world.moments.plan[number] = meanwhile
        world.work()
        ends_well(world)


@at_every_moment
def test_lost_response_and_crash_charge_once(counting: Counting, number: int) -> None:
    with counting.world("eager", "answer lost").watched() as world:
        world.work()
        world.moments.plan[len(world.moments.names) + number] = die
        ends_well(world)


def test_lost_response_is_looked_up_after_the_key_expired(
    counting: Counting,
) -> None:
    world = counting.world("eager", "answer lost")
    world.work()
    world.wait(TWO_DAYS)
    world.ask()
    assert world.count().verdict == "uncertain"
    assert len(world.provider.requests) == 1
    world.payments.look_up(world.payment.id)
    ends_well(world)


def test_look_up_ignores_payments_in_progress(counting: Counting) -> None:
    with counting.world("eager").watched() as world:
        world.moments.plan[4] = lambda: world.payments.look_up(world.payment.id)
        ends_well(world)
    assert len(world.provider.requests) == 1


def test_charge_sent_days_after_the_lease_is_made_twice(counting: Counting) -> None:
    """Another worker has charged meanwhile, and the provider has forgotten that. Only a deadline in the provider's request would help."""
    with counting.world("eager").watched() as world:

        def meanwhile() -> None:
            world.wait(HOUR)
            world.ask()
            world.wait(TWO_DAYS)

        world.moments.plan[4] = meanwhile
        world.work()
    assert world.count().verdict == "TWICE"
