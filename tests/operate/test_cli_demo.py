"""`onewrite demo`: its numbers are counted, depend on the seed only, and are shown as the output allows."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from onewrite import Message
from onewrite.operate import main
from onewrite.operate.demo import cells, comparison, meaning, show
from onewrite.operate.demo.comparison import (
    ONEWRITE,
    Comparison,
    Row,
    ShopHandler,
    SimulatedClock,
    claim_then_write,
    compare,
    guarded_write,
    plain_write,
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


@pytest.mark.parametrize("seed", range(3))
def test_onewrite_applies_every_message_once_on_dynamodb(seed: int) -> None:
    assert quietly(Engine.DYNAMODB, 12, seed).exactly_once


@pytest.mark.parametrize("engine", ENGINES)
def test_the_others_double_or_lose_where_messages_come_again(engine: Engine) -> None:
    rows = rows_of(quietly(engine, 60, 1))
    assert rows[PLAIN].applied_twice > 0
    assert rows[PLAIN].lost == 0
    assert rows[CLAIM].applied_twice == 0
    assert rows[CLAIM].lost > 0


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


# Seeds


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["dynamodb", "mongodb"])
@pytest.mark.few(1)
def test_the_same_seed_prints_the_same_bytes_whatever_the_hash_seed_and_nothing_on_stderr(engine: str) -> None:
    arguments = [sys.executable, "-W", "error", "-m", "onewrite", "demo", "--json", "--engine", engine, "--messages", "20"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environments = [{**environment, "PYTHONHASHSEED": f"{n}"} for n in (1, 2)]
    runs = [subprocess.run(arguments, env=each, capture_output=True, check=True) for each in environments]
    assert runs[0].stdout == runs[1].stdout
    assert [run.stderr for run in runs] == [b"", b""]


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
    result = quietly(Engine.MONGODB, 40, 7)
    assert document["rows"] == [asdict(row) for row in result.rows]
    assert [line.rsplit(maxsplit=4) for line in table] == [list(cells(row)) for row in result.rows]


def test_the_page_about_it_shows_what_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "demo.md").read_text()
    shown = re.search(r"^```sh\n\$ onewrite (.*)\n((?:.*\n)*?)```$", page, re.MULTILINE)
    assert shown is not None
    assert main(shown[1].split()) == 0
    assert capsys.readouterr().out == shown[2]


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
