"""`onewrite demo`: its numbers are counted, depend on the seed only, and are shown as the output allows."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from onewrite import Message
from onewrite.operate import main
from onewrite.operate.demo import cells, comparison, meaning, plain_text, show
from onewrite.operate.demo.comparison import (
    HANDLERS,
    ONEWRITE,
    START,
    Broker,
    Comparison,
    Copy,
    RequestResult,
    Row,
    ShopHandler,
    SimulatedClock,
    Steps,
    claim_then_write,
    compare,
    deliver,
    guarded_write,
    order_events,
    plain_write,
    sendings,
    times_applied,
)
from onewrite.operate.demo.shops import Engine, shops
from onewrite.operate.report import is_plain
from tests.support.examples import examples

ENGINES = list(Engine)
PLAIN, CLAIM = "plain write", "claim, then write"


def rows_of(result: Comparison) -> dict[str, Row]:
    return {row.handler: row for row in result.rows}


def quietly(engine: Engine, messages: int, seed: int) -> Comparison:
    return compare(engine, messages, seed, lambda _: None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# The claim of the table


@given(seed=st.integers(), messages=st.integers(1, 60))
@settings(deadline=None, max_examples=examples(60))
def test_onewrite_applies_every_message_once_whatever_the_seed(seed: int, messages: int) -> None:
    result = quietly(Engine.MONGODB, messages, seed)
    assert result.exactly_once
    assert [(row.applied_twice, row.lost) for row in result.rows if row.handler == ONEWRITE] == [(0, 0)]


@pytest.mark.parametrize("seed", range(6))
def test_onewrite_applies_every_message_once_on_dynamodb(seed: int) -> None:
    assert quietly(Engine.DYNAMODB, 12, seed).exactly_once


@pytest.mark.parametrize("engine", ENGINES)
def test_the_others_double_or_lose_where_messages_come_again(engine: Engine) -> None:
    rows = rows_of(quietly(engine, 60, 1))
    assert rows[PLAIN].applied_twice > 0
    assert rows[PLAIN].lost == 0
    assert rows[CLAIM].applied_twice == 0
    assert rows[CLAIM].lost > 0


def test_both_engines_tell_the_same_of_all_but_requests() -> None:
    dynamodb, mongodb = (quietly(engine, 30, 4) for engine in ENGINES)
    told = [
        [(row.handler, row.deliveries, row.applied_twice, row.lost) for row in each.rows] for each in (dynamodb, mongodb)
    ]
    assert told[0] == told[1]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_order_has_the_numbers_that_its_journal_adds_up_to(engine: Engine) -> None:
    events = order_events(30, 2)
    with shops(engine) as open_shop:
        for number, handle in enumerate(HANDLERS.values()):
            clock = SimulatedClock()
            shop = open_shop(f"shop-{number}", clock)
            deliver(Broker(sendings(events, 2)), partial(handle, shop), clock, seed=2, settled=lambda: None)
            for order in {event.body["order"] for event in events}:
                entity = shop.order(order)
                journal = entity.pop("journal", ())
                assert {key: value for key, value in entity.items() if key not in ("name", "_id")} == _added_up(
                    journal, events
                )


def _added_up(journal: Sequence[str], events: Sequence[Message]) -> Counter[str]:
    bodies = {event.id: event.body for event in events}
    numbers = Counter[str]()
    for entry in journal:
        numbers[bodies[entry]["field"]] += bodies[entry]["amount"]
    return numbers


def test_a_broken_onewrite_row_ends_with_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(comparison, "HANDLERS", MappingProxyType({ONEWRITE: plain_write}))
    assert main(["demo", "--engine", "mongodb", "--messages", "60"]) == 1
    assert "bug" in capsys.readouterr().out


# The handlers, with a death at a chosen place


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("handle", "steps_before_death", "times"),
    [
        (plain_write, 1, 1),  # before the request
        (plain_write, 2, 2),  # after it
        (claim_then_write, 1, 1),
        (claim_then_write, 2, 0),  # between the claim and the write
        (claim_then_write, 3, 1),
        (guarded_write, 1, 1),
        (guarded_write, 2, 1),
    ],
)
def test_what_a_death_between_the_steps_does_to_the_effect(
    engine: Engine, handle: ShopHandler, steps_before_death: int, times: int
) -> None:
    event = Message("e-1", body={"order": "o-1", "field": "paidCents", "amount": 5})
    with shops(engine) as open_shop:
        shop = open_shop("one-shop", SimulatedClock())
        dying = handle(shop, event)
        for _ in range(steps_before_death):
            next(dying, None)
        dying.close()
        list(handle(shop, event))
        assert times_applied(shop, [event])["e-1"] == times
        assert shop.order("o-1").get("paidCents", 0) == 5 * times


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("handle", "fresh"), [(plain_write, 1), (claim_then_write, 2), (guarded_write, 1)])
def test_requests_are_counted_where_they_are_sent(engine: Engine, handle: ShopHandler, fresh: int) -> None:
    event = Message("e-1", body={"order": "o-1", "field": "paidCents", "amount": 5})
    with shops(engine) as open_shop:
        shop = open_shop("one-shop", SimulatedClock())
        assert shop.requests == 0
        list(handle(shop, event))
        assert shop.requests == fresh


# The simulation


def test_every_copy_is_settled_and_redelivery_overtaking_and_doubles_all_happen() -> None:
    copies = sendings(order_events(100, 3), 3)
    broker = Broker(copies)
    settled: list[int] = []
    handed: list[str] = []

    def handle(message: Message) -> Steps:
        handed.append(message.id)
        yield None
        return RequestResult.WRITTEN

    deliver(broker, handle, SimulatedClock(), seed=3, settled=lambda: settled.append(1))
    assert all(copy.acknowledged for copy in copies)
    assert len(settled) == len(copies) > 100  # the producer sent some twice
    assert len(handed) == broker.deliveries > len(copies)  # the broker gave some again
    first_seen = list(dict.fromkeys(handed))
    assert first_seen != sorted(first_seen, key=lambda name: int(name.removeprefix("event-")))


def test_both_workers_may_hold_one_message_at_once() -> None:
    held = Counter[str]()
    at_once: list[int] = []

    def handle(message: Message) -> Steps:
        held[message.id] += 1
        at_once.append(held[message.id])
        try:
            yield None
        finally:
            held[message.id] -= 1
        return RequestResult.WRITTEN

    deliver(Broker(sendings(order_events(100, 2), 2)), handle, SimulatedClock(), seed=2, settled=lambda: None)
    assert max(at_once) == 2


def test_a_copy_comes_again_until_it_is_acknowledged() -> None:
    copy = Copy(0, Message("e-1"), START)
    broker = Broker([copy])
    assert broker.receive(START - 1) is None
    assert broker.receive(START) is copy
    assert broker.receive(START) is None  # hidden for a while
    again = broker.next_due()
    assert again is not None
    assert broker.receive(again) is copy
    copy.acknowledged = True
    assert broker.next_due() is None
    assert broker.receive(again + 1000) is None
    assert copy.receives == broker.deliveries == 2


@pytest.mark.parametrize("seed", range(5))  # at 2 and 3 it does happen
def test_a_copy_that_both_workers_finish_is_settled_once(seed: int) -> None:
    """Slow handlers: the copy comes again while the first worker still has it."""
    copies = sendings(order_events(20, seed), seed)
    settled: list[int] = []

    def slow(_: Message) -> Steps:
        yield from [None] * 12
        return RequestResult.WRITTEN

    deliver(Broker(copies), slow, SimulatedClock(), seed=seed, settled=lambda: settled.append(1))
    assert len(settled) == len(copies)


# Seeds


@pytest.mark.parametrize("engine", ["dynamodb", "mongodb"])
@pytest.mark.few(1)
def test_the_same_seed_prints_the_same_bytes_whatever_the_hash_seed_and_nothing_on_stderr(engine: str) -> None:
    arguments = [sys.executable, "-W", "error", "-m", "onewrite", "demo", "--json", "--engine", engine, "--messages", "20"]
    runs = [
        subprocess.run(arguments, env=_environment(PYTHONHASHSEED=f"{n}"), capture_output=True, check=True) for n in (1, 2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert [run.stderr for run in runs] == [b"", b""]


def test_another_seed_gives_other_numbers() -> None:
    assert quietly(Engine.MONGODB, 60, 1).rows != quietly(Engine.MONGODB, 60, 2).rows


# The account


def test_nothing_of_the_callers_aws_environment_is_used_and_all_of_it_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.delenv("AWS_CONFIG_FILE", raising=False)
    before = dict(os.environ)
    assert quietly(Engine.DYNAMODB, 2, 1).exactly_once
    assert dict(os.environ) == before


# What is printed


def test_json_is_one_document_with_the_numbers_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["demo", "--engine", "mongodb", "--messages", "40", "--seed", "7"]
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(arguments) == 0
    table = capsys.readouterr().out.splitlines()[4:7]
    assert {name: document[name] for name in ("engine", "messages", "seed", "exactly_once")} == {
        "engine": "mongodb",
        "messages": 40,
        "seed": 7,
        "exactly_once": True,
    }
    shown = [
        [
            row["handler"],
            f"{row['deliveries']}",
            f"{row['requests_per_message']:.2f}",
            f"{row['applied_twice']}",
            f"{row['lost']}",
        ]
        for row in document["rows"]
    ]
    assert [line.rsplit(maxsplit=4) for line in table] == shown
    assert all(row["requests_per_message"] == round(row["requests"] / 40, 2) for row in document["rows"])


def test_the_page_about_it_shows_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "demo.md").read_text()
    shown = re.search(r"^```sh\n\$ onewrite (.*)\n((?:.*\n)*?)```$", page, re.MULTILINE)
    assert shown is not None
    assert main(shown[1].split()) == 0
    assert capsys.readouterr().out == shown[2]


def test_what_is_not_a_terminal_gets_plain_ascii_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--engine", "mongodb", "--messages", "5"]) == 0
    printed = capsys.readouterr()
    assert printed.out.isascii()
    assert "\x1b" not in printed.out
    assert printed.err == ""
    assert printed.out.startswith("5 messages, seed 1, MongoDB (mongomock)\n\nhandler ")
    assert printed.out.splitlines()[-1] == meaning(quietly(Engine.MONGODB, 5, 1))


def test_a_terminal_gets_colours_and_a_bar_for_each_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["demo", "--engine", "mongodb", "--messages", "5"]) == 0
    assert "\x1b[" in terminal.getvalue()


def test_the_table_of_a_terminal_has_the_same_cells() -> None:
    printed = io.StringIO()
    console = Console(file=printed, force_terminal=True, width=120)
    result = show(console, Engine.MONGODB, 30, 5)
    text = printed.getvalue()
    assert "\x1b[" in text
    for row in result.rows:
        assert all(cell in text for cell in cells(row))
    assert meaning(result) in text


@pytest.mark.parametrize(
    ("stream", "environ", "plain"),
    [
        (Terminal(), {"TERM": "xterm"}, False),
        (Terminal(), {"NO_COLOR": ""}, False),
        (Terminal(), {"NO_COLOR": "1"}, True),
        (Terminal(), {"TERM": "dumb"}, True),
        (io.StringIO(), {"TERM": "xterm"}, True),
    ],
)
def test_plain_is_what_is_no_terminal_or_wants_no_colour(stream: io.StringIO, environ: dict[str, str], plain: bool) -> None:
    assert is_plain(stream, environ) is plain


def test_one_message_is_a_stream_too(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    result = show(console, Engine.MONGODB, 1, 2)
    assert [row.deliveries for row in result.rows] == [1, 1, 1]  # nothing happens to this one
    assert plain_text(result).startswith("1 message, seed 2, ")
    assert main(["demo", "--engine", "mongodb", "--messages", "1", "--seed", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [asdict(row) for row in result.rows]


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **more}
