"""The verbs of a store and a relay, as `help`, an editor, and a mock show them."""

from __future__ import annotations

import inspect
import pydoc
import sys
from typing import Any, NamedTuple
from unittest.mock import create_autospec

import pytest

from onewrite.dynamodb import AsyncGuardedTable, GuardedTable, table
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection, collection
from onewrite.outbox import AsyncRelay, Relay

BLOCKING = [GuardedTable, GuardedCollection]
ASYNCHRONOUS = [AsyncGuardedTable, AsyncGuardedCollection]


class Twins(NamedTuple):
    """A verb of a class and of its asynchronous counterpart."""

    name: str
    blocking: Any
    asynchronous: Any


VERBS = [
    Twins(name, getattr(blocking, name), getattr(asynchronous, name))
    for blocking, asynchronous, module in zip(BLOCKING, ASYNCHRONOUS, (table, collection), strict=True)
    for name in module.VERBS
] + [
    Twins(name, getattr(Relay, name), getattr(AsyncRelay, name))
    for name in ("flush", "notify", "sweep", "skip", "restart", "peek", "pending", "broken", "run")
]


def words(text: str | None) -> str:
    return " ".join((text or "").split())


@pytest.mark.parametrize("twins", VERBS, ids=lambda twins: twins.blocking.__qualname__)
def test_help_shows_a_verbs_name_and_parameters(twins: Twins) -> None:
    for verb in (twins.blocking, twins.asynchronous):
        shown = pydoc.plain(pydoc.render_doc(verb))
        assert f"{twins.name}(self, " in words(shown).replace("( ", "(")  # Python 3.13 breaks long signatures into lines
        assert words(verb.__doc__) in words(shown)
        assert {"args", "kwargs"}.isdisjoint(inspect.signature(verb).parameters)
    assert twins.asynchronous.__qualname__ == f"Async{twins.blocking.__qualname__}"


@pytest.mark.parametrize("twins", VERBS, ids=lambda twins: twins.blocking.__qualname__)
def test_asynchronous_verb_has_signature_and_help_of_its_counterpart(twins: Twins) -> None:
    assert inspect.iscoroutinefunction(twins.asynchronous) or sys.version_info < (3, 12)  # which has no mark for it
    assert words(twins.asynchronous.__doc__).startswith(words(twins.blocking.__doc__))
    if twins.name != "update_batch":  # its function can be asynchronous
        assert inspect.signature(twins.asynchronous) == inspect.signature(twins.blocking)


@pytest.mark.parametrize("store", BLOCKING)
def test_an_autospec_refuses_a_write_without_a_message(store: Any) -> None:
    mocked = create_autospec(store, instance=True)
    with pytest.raises(TypeError, match="missing a required argument: 'message'"):
        mocked.remember()
