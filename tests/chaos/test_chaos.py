"""The count must be right before a run says anything."""

from __future__ import annotations

import pytest

from tests.chaos.traffic import KINDS, Source, Traffic, damage
from tests.chaos.witness import Copy, Harm, Witness, bodies_of


def deliver(kind: str, count: int = 3, *, settled: bool = True) -> Source:
    """The first source of a traffic, of which so many messages were issued."""
    traffic = Traffic("t", [kind], largest=count)
    source = next(iter(traffic.sources.values()))
    for delivery in [source.issue() for _ in range(count)]:
        if settled:
            traffic.settle(delivery)
    return source


def effects_of(source: Source) -> list[str]:
    return [delivery.effect for delivery in source.deliveries()]


# What an entity shows after messages 0, 1 and 2: its counter, the places of its effects, and which of these are wrong.
SHOWN: dict[str, tuple[int, list[int], tuple[list[int], list[int], list[int]]]] = {
    "each once": (3, [0, 1, 2], ([], [], [])),
    "one lost": (2, [0, 2], ([1], [], [])),
    "one doubled": (4, [0, 1, 2, 2], ([], [2], [])),
    "one late": (3, [0, 2, 1], ([], [], [1])),
}


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("kind", ["SeenIds", "HighWaterMark", "InSequence"])
def test_entity_is_charged_with_its_damage(kind: str, shown: str) -> None:
    source = deliver(kind)
    ids, (n, places, wrong) = effects_of(source), SHOWN[shown]
    losses, doubles, late = ([ids[place] for place in each] for each in wrong)
    expected = (losses, doubles, late if KINDS[kind].in_order else [])
    assert damage(source.entity, [source], n, [ids[place] for place in places]) == expected


# ---------------------------------------------------------------- events

EFFECTS = [f"m-{number}" for number in (8, 1, 16)]  # of one event, two, and one
SOURCE = "chaos/id=S:e/life"


def harm_of(*numbers: int, more: Copy | None = None, effects: list[str] = EFFECTS) -> Harm:
    """What a witness says of entity e, which has these effects, when it was told of events of these numbers."""
    bodies = [f'"{body}"' for effect in EFFECTS for body in bodies_of(effect)]
    witness = Witness()
    for number in numbers:
        witness.take([Copy(SOURCE, number, f"id{number}", bodies[number - 1])])
    if more is not None:
        witness.take([more])
    return witness.harm("e", effects)


@pytest.mark.parametrize(
    ("harm", "counts"),
    [
        (harm_of(1, 2, 1, 2, 3, 4, 2), (0, 0, 0)),
        (harm_of(1, 2, 3), (1, 0, 0)),
        (harm_of(1, 2, 3, 4, effects=EFFECTS[:2]), (0, 1, 0)),
        (harm_of(1, 2, 3, 4, more=Copy("chaos/id=S:e/other", 1, "other", '"m-8/0"')), (0, 1, 0)),
        (harm_of(1, 3, 2, 4), (0, 0, 3)),
        (harm_of(1, 2, 3, 4, more=Copy(SOURCE, 2, "another id", '"m-1/0"')), (0, 0, 1)),
        (harm_of(1, 2, 3, 4, effects=["m-1", "m-8", "m-16"]), (0, 0, 1)),
        (harm_of(effects=[], more=Copy("chaos/id=S:other/life", 1, "id", '"m-8/0"')), (0, 0, 0)),
    ],
    ids=["copies", "lost", "invented", "two sources", "overtaken", "one number", "other order", "another entity"],
)
def test_witness_counts_the_harm_of_events(harm: Harm, counts: tuple[int, int, int]) -> None:
    assert (len(harm.losses), len(harm.inventions), len(harm.misplacements)) == counts
