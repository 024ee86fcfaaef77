"""The commands of the runbook and of docs/cli.md, as they are written, on servers of both engines."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest

from onewrite import Applied, Deferred, Event, HighWaterMark, InSequence, LedgerMismatch, Message, Outbox, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.values import typed_values
from onewrite.mongodb import GuardedCollection
from onewrite.operate import main
from onewrite.outbox import Relay
from onewrite.testing.servers.engines import REGION
from tests.engines.stores import create_table_with_outbox
from tests.support.repairs import log_as_it_was

pytestmark = pytest.mark.measured

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "operations.md").read_text().partition("## Runbook")[2]
REFERENCE = (ROOT / "docs" / "cli.md").read_text()
TABLE, COLLECTION = "--table orders", "--collection mongodb://localhost/shop.orders"


class Shop:
    """The table or collection `orders`, whose only entity has the key of the pages."""

    def __init__(
        self, make_store: Callable[..., Any], write: Callable[..., Any], put: Callable[..., Any], option: str
    ) -> None:
        self.make_store, self.write, self.put, self.option = make_store, write, put, option

    def run(self, command: str) -> int:
        """Run a command of a page. For MongoDB it is changed as the page says."""
        name, *arguments = shlex.split(command.replace(TABLE, self.option).replace(COLLECTION, self.option))
        assert name == "onewrite"
        if "--collection" in arguments and "--key" in arguments:
            arguments[arguments.index("--key") + 1] = "o-1"
        elif "--key" in arguments:
            arguments[arguments.index("--key") + 1] = '{"id": "o-1"}'
        return main(arguments)


@pytest.fixture(params=["dynamodb", "mongodb"])
def shop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    with log_as_it_was():
        if request.param == "mongodb":
            server = request.getfixturevalue("mongod")
            documents = request.getfixturevalue("mongo").runbook.orders
            documents.drop()
            uri = server.uri.replace("/?", "/runbook.orders?")
            yield Shop(
                lambda ledger, **more: GuardedCollection(documents, ledger, **more),
                lambda store, message, **more: store.update_one(
                    message, {"_id": "o-1"}, {"$inc": {"n": 1}}, upsert=True, **more
                ),
                lambda **fields: documents.insert_one({"_id": "o-1", **fields}),
                f"--collection {shlex.quote(uri)}",
            )
            return
        server = request.getfixturevalue("dynoxide")
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", f"http://127.0.0.1:{server.port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
        client: Any = boto3.client("dynamodb")
        create_table_with_outbox(client, "orders")
        add = {"Key": {"id": "o-1"}, "UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}
        yield Shop(
            lambda ledger, **more: GuardedTable(client, ledger, table_name="orders", **more),
            lambda store, message, **more: store.update_item(message, **add, **more),
            lambda **fields: client.put_item(TableName="orders", Item=typed_values({"id": "o-1", **fields})),
            TABLE,
        )
        client.delete_table(TableName="orders")


def find_commands(page: str, verb: str) -> list[str]:
    """The commands of a page's code, without their comments."""
    lines = "".join(re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)).splitlines()
    return [re.sub(r" +# .*", "", line) for line in lines if line.startswith(f"onewrite {verb} ")]


def numbered(sequence: int) -> Message:
    return Message(f"evt-{40 + sequence}", source="order-7", sequence=sequence)


def test_every_command_of_the_runbook_is_tried_here() -> None:
    verbs = re.findall(r"^onewrite (\S+)", RUNBOOK, re.MULTILINE)
    assert verbs == ["inspect", "effects", "relay", "doctor", "inspect", "set-mark"]


def test_first_commands_answer_their_questions(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    store = shop.make_store(SeenIds(), outbox=Outbox("shop/orders"))
    assert isinstance(shop.write(store, Message("evt-42"), emit=[Event("Paid", 1)]), Applied)
    commands = [find_commands(RUNBOOK, verb)[0] for verb in ("inspect", "effects", "relay", "doctor")]
    told = []
    for command, code in zip(commands, (0, 0, 5, 0), strict=True):
        assert shop.run(f"{command} --accept outbox-index" if "doctor" in command else command) == code, capsys.readouterr()
        told.append(capsys.readouterr().out)
    assert "Duplicate from SeenIds(14d)" in told[0]
    assert told[1] == "No effect is open.\n"
    assert "1 pending  Paid" in told[2]
    assert "Passed" in told[3]


def test_deferred_messages_are_explained_and_released(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    store = shop.make_store(InSequence())
    for sequence in (1, 2, 3):
        assert isinstance(shop.write(store, numbered(sequence)), Applied)
    assert isinstance(shop.write(store, numbered(5)), Deferred)
    inspect, (set_mark,) = find_commands(RUNBOOK, "inspect")[1], find_commands(RUNBOOK, "set-mark")
    assert shop.run(inspect) == 0
    assert "Deferred from InSequence(first=1) in ow_l: number 4 of the source is missing" in capsys.readouterr().out
    assert shop.run(set_mark) == 0
    assert "Nothing was written" in capsys.readouterr().out
    assert shop.run(f"{set_mark} --yes") == 0
    assert isinstance(shop.write(store, numbered(5)), Applied)


def test_repairs_of_the_reference_work(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    (forget,), (clear,) = find_commands(REFERENCE, "forget"), find_commands(REFERENCE, "clear")
    store = shop.make_store(SeenIds())
    for command in (forget, clear):
        assert isinstance(shop.write(store, Message("evt-42")), Applied)
        assert shop.run(command) == 0
        assert "Nothing was written" in capsys.readouterr().out
        assert shop.run(f"{command} --yes") == 0
    assert isinstance(shop.write(store, Message("evt-42")), Applied)


def test_set_mark_of_the_reference_works(shop: Shop) -> None:
    (set_mark,) = find_commands(REFERENCE, "set-mark")
    store = shop.make_store(HighWaterMark())
    assert isinstance(shop.write(store, numbered(9)), Applied)
    assert shop.run(set_mark) == 0
    assert isinstance(shop.write(store, numbered(6)), Applied)


def test_one_pass_publishes_or_names_each_event(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = shop.make_store(SeenIds(), outbox=Outbox("shop/orders"))
    shop.write(store, Message("m1"), emit=[Event("Paid", 1), Event("Sent", 1)])
    module, accepts = ModuleType("runbook_relays"), False
    module.orders = Relay(store, lambda events: None if accepts else events)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for _ in range(2):  # the second pass leaves the postponed entity alone
        caplog.clear()
        assert shop.run("onewrite relay runbook_relays:orders --once") == 5
        assert "still pending" in caplog.text
    accepts = True
    module.orders.flush(Key={"id": "o-1"}) if isinstance(store, GuardedTable) else module.orders.flush({"_id": "o-1"})
    assert shop.run("onewrite relay runbook_relays:orders --once") == 0


@pytest.mark.parametrize(
    ("before", "after", "remedy"),
    [
        (SeenIds(), SeenIds(timedelta(days=3)), "previous=SeenIds(timedelta(days=14))"),
        (SeenIds(), SeenIds(timedelta(days=3), previous=SeenIds()), None),
        (SeenIds(), HighWaterMark(), "previous=SeenIds(timedelta(days=14))"),
        (SeenIds(), InSequence(), "HighWaterMark(previous=SeenIds(timedelta(days=14)))"),
        (HighWaterMark(), InSequence(), None),
        (SeenIds(name="a"), SeenIds(retention=None, name="a"), "previous=SeenIds(timedelta(days=14), name='a')"),
    ],
)
def test_doctor_finds_a_mismatch_before_the_deploy(
    before: Ledger,
    after: Ledger,
    remedy: str | None,
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert isinstance(shop.write(shop.make_store(before), numbered(1)), Applied)
    module, store = ModuleType("next_release"), shop.make_store(after)
    module.orders = store  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    code, told = shop.run(f"onewrite doctor next_release {TABLE}"), capsys.readouterr().out
    if remedy is None:
        assert code == 0
        assert type(shop.write(store, numbered(2))) is Applied
    else:
        assert (code, remedy in " ".join(told.split())) == (5, True)
        with pytest.raises(LedgerMismatch):
            shop.write(store, numbered(2))


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("inspect --key o-1", 3),
        ("effects", 3),
        ("clear --key o-1", 3),
        ("relay --outbox shop/orders --stuck", 3),
        ("relay --outbox shop/orders --skip e --yes", 3),
        ("relay --outbox shop/orders --once --to https://sqs.eu-west-1.amazonaws.com/1/q", 3),
        ("doctor", 1),
    ],
)
def test_missing_table_or_collection_is_named(
    command: str, code: int, shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    verb, *options = command.split()
    shop.option = shop.option.replace("orders", "ordres")
    assert shop.run(" ".join(["onewrite", verb, TABLE, *options])) == code
    told = " ".join("".join(capsys.readouterr()).split())
    assert "ordres" in told or "Requested resource not found" in told
    assert re.search("Check .*--(region|collection)", told), told


def test_damaged_entity_is_described_by_every_verb(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.put(ow_l=5, ow_effects="x", ow_tombstone="x", ow_o="x", ow_events="x")
    for verb, code in (
        ("inspect --message m", 0),
        ("forget --message m", 2),
        ("clear", 2),
        ("set-mark --source s --sequence 1", 2),
    ):
        assert shop.run(f"onewrite {verb} {TABLE} --key o-1") == code
        assert "another writer uses" in "".join(capsys.readouterr())
    assert shop.run(f"onewrite effects {TABLE}") == 5
    assert "another writer uses" in capsys.readouterr().err
