"""The orders in which the parts of the messages may be processed when nothing disturbs them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onewrite.testing.explorer.trials.subject import Subject


def predecessors_of(subject: Subject) -> Iterator[tuple[int, ...]]:
    """For each part, those that come before it in every order.

    A record that fails comes again after the others, which changes their order, except for those that its source keeps in
    order: the records of a lane.
    """
    parts = subject.start.parts
    for message, earlier in enumerate(subject.start.predecessors):
        lanes = subject.deliverables[message].lanes
        before = [part for other in earlier for part in parts[other]]
        for place, lane in enumerate(lanes):
            same_lane = [parts[message][other] for other in range(place) if lane is not None and lanes[other] == lane]
            yield *before, *same_lane


def orders_of(predecessors: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """The orders of the parts in which each comes after its predecessors."""

    def extend(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == len(predecessors):
            yield order
        for part, earlier in enumerate(predecessors):
            if part not in order and set(earlier) <= set(order):
                yield from extend((*order, part))

    return extend(())
