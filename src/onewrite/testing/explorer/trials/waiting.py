"""Which deliveries wait for the transactions of others. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet


def must_wait(name: str, waited_for: Mapping[str, AbstractSet[str]]) -> bool:
    """Must this delivery wait until another has ended its transaction?

    `waited_for` has every delivery that is under way, with those whose transactions keep its request from being answered. Who waits
    in a circle need not wait here: the server ends the transactions of a circle when they are too old, and so it ends those
    that belong to nobody under way.
    """
    reached: set[str] = set()
    todo = [name]
    while todo:
        new = waited_for.get(todo.pop(), frozenset[str]()) - reached
        reached |= new
        todo += new
    return bool(waited_for[name]) and name not in reached and waited_for[name] <= waited_for.keys()
