"""The relay's flows under every order of steps within bounds, and what each of its rules is for."""

from __future__ import annotations

import os

import pytest

from tests.support.outbox_model import Bounds, Model, Rules, Wrong

# More relays, events and faults: minutes instead of seconds.
LARGE = os.environ.get("ONEWRITE_MODEL") == "large"

WORLDS = {
    "two relays that work side by side": Bounds(scripts=(("emit1", "emit1", "emit1"),), faults=2),
    "a prefix that is cleared while more is emitted": Bounds(scripts=(("emit2", "emit1"),), faults=2),
    "two writers": Bounds(scripts=(("emit1",), ("emit2",)), faults=1),
    "an entity that is deleted and created again": Bounds(scripts=(("emit1", "delete", "emit1"),), faults=1),
    "a delete at any time": Bounds(scripts=(("emit1", "emit1"), ("delete",)), faults=1),
    "a guarded delete at any time": Bounds(scripts=(("emit1", "emit1"), ("bury", "clean up")), faults=1),
    "an operator who skips": Bounds(scripts=(("emit2",),), operators=("skip",), faults=2),
    "a restore from a backup": Bounds(
        scripts=(("emit2", "back up", "emit1", "restore", "emit1"),), operators=("restart",), faults=0
    ),
}
LARGE_WORLDS = {
    "three relays": Bounds(relays=3, scripts=(("emit1", "emit1", "emit1"),), faults=1),
    "four events": Bounds(passes=3, scripts=(("emit2", "emit1", "emit1"),), faults=2),
    "guarded deletes and skips": Bounds(scripts=(("emit2", "emit1"), ("bury", "clean up")), operators=("skip",), faults=1),
    "deletes and skips": Bounds(scripts=(("emit2", "emit1"), ("delete",)), operators=("skip",), faults=2),
    "a restore with faults": Bounds(
        passes=3, scripts=(("emit2", "back up", "emit1", "restore", "emit1"),), operators=("restart",), faults=1
    ),
}


@pytest.mark.parametrize("bounds", WORLDS.values(), ids=WORLDS)
@pytest.mark.few(3)
def test_consumers_see_each_event_once_in_order_whatever_happens(bounds: Bounds) -> None:
    assert Model(bounds).explore() > 500


@pytest.mark.skipif(not LARGE, reason="ONEWRITE_MODEL=large asks for it; make chaos sets it")
@pytest.mark.parametrize("bounds", LARGE_WORLDS.values(), ids=LARGE_WORLDS)
def test_consumers_see_each_event_once_in_order_in_larger_worlds(bounds: Bounds) -> None:
    assert Model(bounds).explore() > 10_000


BROKEN = [
    (Rules(nonce=False), "an entity that is deleted and created again", "were never shown"),
    (Rules(count=False, nonce=False), "two relays that work side by side", "were never shown"),
    (Rules(incarnation=False, count=False), "a restore from a backup", "is shown"),
    (Rules(tombstone=False), "a guarded delete at any time", "stays for ever"),
    (Rules(stops_at_refusal=False), "a prefix that is cleared while more is emitted", "consumers have seen 0 so far"),
]


@pytest.mark.parametrize(("rules", "world", "harm"), BROKEN)
@pytest.mark.few(2)
def test_each_rule_keeps_from_harm_that_the_model_finds_without_it(rules: Rules, world: str, harm: str) -> None:
    with pytest.raises(Wrong, match=harm):
        Model(WORLDS[world], rules).explore()
