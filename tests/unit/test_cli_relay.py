"""The `relay` verb: one pass, what is stuck, and an operator's skip."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onewrite import Event, Message
from onewrite.cli import main

MODULE = """
from onewrite import Outbox, SeenIds
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay
from onewrite.testing.standins.collection import StandInClient

orders = GuardedCollection(StandInClient().shop.orders, SeenIds(), outbox=Outbox("shop/orders"))
told = []

def publish(events):
    refused = [event for event in events if event.type == "Poison"]
    told.extend(event.type for event in events if event not in refused)
    if len(told) >= 3:
        relay.stop()
    return refused

relay = Relay(orders, publish)
nothing = None
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module with a relay, and three pending events, one of which no broker takes."""
    (tmp_path / "shop_relays.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import shop_relays  # type: ignore[import-not-found]  # noqa: PLC0415  # it was written just now

    handlers = logging.root.handlers[:]
    shop_relays.orders.update_one(
        Message("m1"), {"_id": 1}, {"$set": {"n": 1}}, upsert=True, emit=[Event("Poison", {"n": 1})]
    )
    shop_relays.orders.update_one(
        Message("m2"), {"_id": 2}, {"$set": {"n": 1}}, upsert=True, emit=[Event("A", 1), Event("B", 2)]
    )
    yield shop_relays
    logging.root.handlers[:] = handlers
    del sys.modules["shop_relays"]


NAME = "shop_relays:relay"


def test_one_pass_publishes_and_says_by_its_exit_code_that_something_is_left(
    module: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["relay", NAME, "--once"]) == 1
    assert module.told == ["A", "B"]
    assert "2 published, 1 pending, 1 refused, the oldest for 0:00:0" in capsys.readouterr().err
    assert main(["relay", NAME, "--once"]) == 0


def test_what_is_stuck_is_listed_and_skipped_after_a_question(
    module: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["relay", NAME, "--once"])
    capsys.readouterr()
    assert main(["relay", NAME, "--stuck"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "1 pending  Poison" in line
    assert "number 1 of shop/orders/_id=N:1/" in line
    event_id = line.split("Poison ")[1].split()[0]
    monkeypatch.setattr("typer.confirm", lambda _: False)
    assert main(["relay", NAME, "--skip", event_id]) == 1
    assert main(["relay", NAME, "--skip", event_id, "--yes"]) == 0
    assert 'Its body was: {"n":1}' in capsys.readouterr().out
    assert main(["relay", NAME, "--skip", "no such id", "--yes"]) == 1
    monkeypatch.setattr(module.relay, "skip_oldest", lambda _: None)
    assert main(["relay", NAME, "--skip", event_id, "--yes"]) == 1
    assert main(["relay", NAME]) == 0  # it runs until its publisher stops it
    assert module.told == ["A", "B", "onewrite.skipped"]


def test_what_cannot_be_run_as_it_was_asked_for_has_exit_code_2(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["relay", "shop_relays:nothing"]) == 2
    monkeypatch.setattr(module.relay, "_publish", lambda _: True)
    assert main(["relay", NAME, "--once"]) == 2
