"""The `relay` verb: one pass, what is stuck, and an operator's acts; of a module's relay, and of a store that is named."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, cast

import boto3
import pytest

from onewrite import ConfigurationError, Event, Message, Outbox, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.operate import main
from onewrite.operate.stores import make_relay
from tests.engines.stores import create_table_with_outbox

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


@pytest.fixture(autouse=True)
def _log_is_not_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of its own. pytest has set it up in this one."""
    monkeypatch.setattr(logging, "basicConfig", partial(logging.basicConfig, force=True))


@pytest.fixture
def module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with a relay, and three pending events, one of which no broker takes."""
    (folder / "shop_relays.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    import shop_relays  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]  # noqa: PLC0415  # it was written just now

    for n, events in enumerate(([Event("Poison", {"n": 1})], [Event("A", 1), Event("B", 2)]), 1):
        shop_relays.orders.update_one(Message(f"m{n}"), {"_id": n}, {"$set": {"n": 1}}, upsert=True, emit=events)
    return shop_relays


NAME = "shop_relays:relay"
NOTHING: dict[str, Any] = dict.fromkeys(("table", "collection", "region", "endpoint_url"))


def test_exit_code_of_one_pass_shows_remaining_events(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relay", NAME, "--once"]) == 5
    assert module.told == ["A", "B"]
    err = capsys.readouterr().err
    assert "2 published, 1 pending, 1 refused, the oldest for 0:00:0" in err
    assert "Its entity publishes no later event until" in err
    assert err.endswith("the relay has stopped\n")
    assert main(["relay", NAME, "--once"]) == 5  # the refused event waits for its next attempt
    err = capsys.readouterr().err
    assert re.search(r"Relay: still pending: 0:00:0\d  1 pending  Poison [0-9a-f-]+  number 1 of shop/orders/_id=N:1/", err)


def test_events_of_many_entities_are_counted_after_one_pass(
    module: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onewrite.operate.relay._MAX_LOGGED", 1)
    module.orders.update_one(Message("m3"), {"_id": 3}, {"$set": {"n": 1}}, upsert=True, emit=[Event("Poison", {"n": 1})])
    assert main(["relay", NAME, "--once"]) == 5
    err = capsys.readouterr().err
    assert (err.count("still pending"), "more entities have pending events: 1." in err) == (1, True)


def test_relay_runs_until_stopped_and_reports_metrics(
    module: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module.told.append("one before")
    monkeypatch.setenv("ONEWRITE_RELAY_LOG_FORMAT", "json")
    monkeypatch.setenv("ONEWRITE_RELAY_METRICS", "emf opentelemetry")
    assert main(["relay", NAME, "--log-level", "info"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["EventsPublished"] == 2
    told = [json.loads(line) for line in err.splitlines()]
    (summary,) = [line["onewrite"] for line in told if "onewrite" in line]
    assert (summary["published"], told[-1]["message"]) == (2, "the relay has stopped")


def test_module_takes_precedence_over_environment_variables(
    module: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TABLE", "RELAY_OUTBOX", "RELAY_TO"):
        monkeypatch.setenv(f"ONEWRITE_{name}", "other")
    assert main(["relay", NAME, "--stuck"]) == 5
    monkeypatch.setenv("ONEWRITE_RELAY", NAME)
    assert main(["relay", "--stuck"]) == 5
    assert capsys.readouterr().out.count("1 pending  Poison") == 2


def stuck(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The id and the source of what is listed."""
    main(["relay", NAME, "--once"])
    capsys.readouterr()
    assert main(["relay", NAME, "--stuck"]) == 5
    (line,) = capsys.readouterr().out.splitlines()
    assert "1 pending  Poison" in line
    assert "number 1 of shop/orders/_id=N:1/" in line
    return line.split("Poison ")[1].split()[0], line.rpartition(" ")[2]


def test_stuck_event_is_listed_and_skipped(
    module: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    event_id, source = stuck(capsys)
    for answer, code, told in (("n\n", 0, "Nothing was skipped."), ("", 2, "To skip the question, pass --yes.")):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert main(["relay", NAME, "--skip", event_id]) == code
        out, err = capsys.readouterr()
        assert "Skip it? [y/N]" in err
        assert told in out + err
    monkeypatch.setenv("ONEWRITE_RELAY_LOG_LEVEL", "ERROR")  # which leaves out no operator's action
    assert main(["relay", NAME, "--skip", event_id, "--yes", "--operator", "ann"]) == 0
    out, err = capsys.readouterr()
    record = f"Skipped Poison {event_id}, number 1 of {source}."
    assert f'{record}\nIts body was: {{"n":1}}' in out
    assert f"{record} Requested by ann." in err
    assert '"n":1' not in err
    assert main(["relay", NAME, "--skip", "no such id", "--yes"]) == 3
    monkeypatch.setattr(module.relay, "skip", lambda **_: None)
    assert main(["relay", NAME, "--skip", event_id, "--yes"]) == 4
    assert main(["relay", NAME]) == 0  # it runs until its publisher stops it
    assert module.told == ["A", "B", "onewrite.skipped"]


def test_restart_shows_consequences_before_confirmation(
    module: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, source = stuck(capsys)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert main(["relay", NAME, "--restart", source]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{source}: 0 sent, 1 pending.")
    assert "Consumers will see a new source" in out
    assert module.relay.peek(source).source == source

    arguments = ["relay", NAME, "--restart", source, "--yes", "--operator", "ann", "--log-format", "json"]
    assert main(arguments) == 0
    record = json.loads(capsys.readouterr().err)["onewrite"]
    restarted = module.relay.peek(source).source
    assert (record["act"], record["source"], record["operator"]) == ("restart", source, "ann")
    assert restarted != source
    assert main(arguments) == 2
    assert f"source is now {restarted}" in capsys.readouterr().err


def test_wrong_relay_arguments_return_2(
    module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["relay", "shop_relays:nothing"]) == 2
    assert main(["relay", NAME, "--skip", "id", "--stuck"]) == 2
    assert "Pass only one of" in capsys.readouterr().err
    assert main(["relay", NAME, "--outbox", "shop/orders"]) == 2
    assert "Remove --outbox or shop_relays:relay: the module's Relay already determines it." in capsys.readouterr().err
    assert main(["relay", NAME, "--restart", "elsewhere"]) == 2
    monkeypatch.setattr(module.relay, "_publish", lambda _: True)
    assert main(["relay", NAME, "--once"]) == 2


# ---------------------------------------------------------------- a store that is named


def table() -> GuardedTable:
    """A table with an outbox that has an index."""
    client = boto3.client("dynamodb")
    create_table_with_outbox(client, "orders", key="orderId")
    outbox = Outbox("shop/orders", index="pending", shards=3)
    return GuardedTable(client, SeenIds(), table_name="orders", outbox=outbox)


OF_THE_TABLE = ["--table", "orders", "--outbox", "shop/orders", "--index", "pending"]


def paid(orders: GuardedTable) -> None:
    orders.update_item(Message("m1"), Key={"orderId": "o"}, UpdateExpression="REMOVE unpaid", emit=[Event("Paid", 1)])


def test_table_is_relayed_to_a_queue_without_a_module(amazon: None) -> None:
    orders, sqs = table(), cast("Any", boto3.client("sqs"))
    url = sqs.create_queue(QueueName="told.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    paid(orders)
    assert main(["relay", *OF_THE_TABLE, "--once", "--to", url]) == 0
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert json.loads(message["Body"])["source"].startswith("shop/orders/orderId=S:o/")
    assert "ow_events" not in cast("Any", boto3.resource("dynamodb")).Table("orders").get_item(Key={"orderId": "o"})["Item"]


def test_operator_command_of_a_table_needs_no_target(
    amazon: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paid(table())
    monkeypatch.setenv("ONEWRITE_RELAY", "nowhere_to_be_found:relay")  # less than what the command line says
    assert main(["relay", *OF_THE_TABLE, "--stuck"]) == 5
    source = capsys.readouterr().out.split()[-1]
    assert main(["relay", *OF_THE_TABLE, "--restart", source, "--yes"]) == 0
    assert main(["relay", *OF_THE_TABLE, "--once"]) == 2
    assert "Pass --to" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="doesn't have a destination"):
        make_relay({**NOTHING, "table": "orders"}, Outbox("shop/orders"), None).sweep()


@pytest.mark.parametrize(
    ("to", "service", "region", "endpoint"),
    [
        ("https://sqs.eu-north-1.amazonaws.com/123456789012/told", "sqs", "eu-north-1", None),
        ("https://sqs-fips.us-east-1.amazonaws.com/1/told", "sqs", "us-east-1", "https://sqs-fips.us-east-1.amazonaws.com"),
        ("http://127.0.0.1:4566/000000000000/told", "sqs", None, "http://127.0.0.1:4566"),
        ("arn:aws:sns:eu-north-1:123456789012:told.fifo", "sns", "eu-north-1", None),
        ("arn:aws:events:eu-north-1:123456789012:event-bus/shop", "events", "eu-north-1", None),
    ],
)
def test_target_determines_service_region_and_endpoint(
    amazon: None, monkeypatch: pytest.MonkeyPatch, to: str, service: str, region: str | None, endpoint: str | None
) -> None:
    made: list[tuple[Any, ...]] = []
    client = boto3.client

    def spied(service: Any, **options: Any) -> Any:
        made.append((service, options["region_name"], options["endpoint_url"]))
        return client(service, **options)

    monkeypatch.setattr(boto3, "client", spied)
    make_relay({**NOTHING, "table": "orders"}, Outbox("shop/orders"), to)
    assert made == [("dynamodb", None, None), (service, region, endpoint)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--table", "orders"], "Pass --outbox"),
        (["--table", "orders", "--outbox", "shop orders"], "URI reference"),
        (["--collection", "mongodb://h/shop.orders", "--outbox", "o", "--index", "i"], "a DynamoDB index"),
        (["--table", "orders", "--outbox", "o", "--to", "arn:aws:sqs:eu-west-1:1:q"], "expected the URL of an SQS queue"),
        (["--table", "orders", "--outbox", "o", "--to", "http://:x:/q"], "can't create a client for sqs"),
    ],
)
def test_missing_store_or_target_is_explained(
    amazon: None, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    to = [] if "--to" in arguments else ["--to", "https://q/1/2"]
    assert main(["relay", *to, *arguments]) == 2
    assert says in capsys.readouterr().err


# ---------------------------------------------------------------- processes

SIGNALLED = """
import atexit, os, signal
from onewrite import Event, Message, Outbox, SeenIds
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay
from onewrite.testing.standins.collection import StandInClient

orders = GuardedCollection(StandInClient().shop.orders, SeenIds(), outbox=Outbox("shop/orders"))
for n in range(3):
    orders.update_one(Message(str(n)), {"_id": n}, {"$set": {"n": n}}, upsert=True, emit=[Event("A", n), Event("B", n)])
told = []

def publish(events):
    told.extend(event.id for event in events)
    if len(told) == 3:
        os.kill(os.getpid(), signal.SIGTERM)

relay = Relay(orders, publish, batch=3)

@atexit.register
def tell():
    left = relay.pending()
    print(len(told), sum(each.pending for each in left), len({each.event.id for each in left} & set(told)))
"""


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--once"], 5)])
@pytest.mark.few(1)
def test_signal_during_a_pass_clears_published_events(tmp_path: Path, options: list[str], code: int) -> None:
    (tmp_path / "shop_relays.py").write_text(SIGNALLED)
    command = [sys.executable, "-m", "onewrite", "relay", NAME, *options]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (process.stdout, process.returncode) == ("3 3 0\n", code)
    assert "the relay has stopped" in process.stderr
