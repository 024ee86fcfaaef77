"""Count what is doubled, lost, or uncertain if a worker crashes at each moment. This is the table of the README."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, get_args

import boto3
from moto import mock_aws

from payment.moments import Verdict, World, die
from payment.provider import Trouble
from payment.table import create_table
from payment.ways import Way

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

WAYS: tuple[Way, ...] = get_args(Way)
_HOUR, _TWO_DAYS = (
    3600.0,
    2 * 86_400.0,
)  # The provider still knows a key after the first, and has forgotten it after the second.
COMES_AGAIN = {"soon": 1.0, "after two days": _TWO_DAYS, "never": None}


@contextmanager
def opened() -> Iterator[Table]:
    """Open an empty table in memory."""
    with mock_aws():
        yield create_table(boto3.resource("dynamodb", region_name="eu-west-1"), "payments")


class Counting:
    """Cases that share one table, because each has its own request."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._keys = itertools.count()
        self._moments: dict[Way, list[str]] = {}

    def world(self, way: Way, *troubles: Trouble, card: str = "card-1") -> World:
        return World(self._table, way, f"key-{next(self._keys)}", troubles=troubles, card=card)

    def moments(self, way: Way) -> list[str]:
        """Return the moments of a worker that doesn't crash."""
        if way not in self._moments:
            with self.world(way).watched() as world:
                world.ask()
            self._moments[way] = world.moments.names
        return self._moments[way]

    def dies(self, way: Way, number: int, comes_again: float | None) -> Verdict:
        """Crash the worker at that moment. The client comes back after so many seconds, or never."""
        with self.world(way).watched() as world:
            world.moments.plan[number] = die
            world.work()
            _come_again(world, comes_again)
        return world.count().verdict

    def loses_the_answer(self, way: Way, comes_again: float | None) -> Verdict:
        """Charge the card, and lose the provider's response."""
        world = self.world(way, "answer lost")
        world.work()
        _come_again(world, comes_again)
        return world.count().verdict

    def stands_still(self, way: Way, seconds: float) -> Verdict:
        """Let another worker run just before the charge. Then the first one waits for so long, and continues."""
        number = self.moments(way).index("before the charge")
        with self.world(way).watched() as world:

            def meanwhile() -> None:
                if seconds:
                    world.ask()  # until there is an answer
                else:
                    world.work()
                world.wait(seconds)

            world.moments.plan[number] = meanwhile
            world.ask()
        return world.count().verdict


def _come_again(world: World, after: float | None) -> None:
    if after is not None:
        world.wait(after)
        world.ask()


def rows(counting: Counting) -> Iterator[tuple[str, list[str]]]:
    """Return the verdicts for each moment: by way, and by when the client comes back."""

    def each(case: Callable[[Way, float | None], Verdict]) -> list[str]:
        return [case(way, after) for way in WAYS for after in COMES_AGAIN.values()]

    def dying(place: Callable[[list[str]], int]) -> list[str]:
        return each(lambda way, after: counting.dies(way, place(counting.moments(way)), after))

    yield "dies before the charge", dying(lambda names: names.index("before the charge"))
    yield "dies after the charge", dying(lambda names: names.index("after the charge"))
    yield "dies after the record", dying(lambda names: len(names) - 1)
    yield "the provider's answer is lost", each(counting.loses_the_answer)
    for name, seconds in (
        ("two workers at the same time", 0.0),
        ("stands still for an hour", _HOUR),
        ("stands still for two days", _TWO_DAYS),
    ):
        yield name, [verdict for way in WAYS for verdict in (counting.stands_still(way, seconds), "", "")]
