"""The permissions on docs/permissions.md are those that each method and verb needs: with them it works, and without any one of
them it fails."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from onewrite import Begun, Event, Message, Outbox, SeenIds, Tombstones
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.operate import main
from onewrite.outbox import Relay, SweepReport
from onewrite.testing.servers.engines import REGION, Dynoxide, Mongod
from tests.engines.stores import create_table, create_table_with_outbox
from tests.support.engines import mongod_binary, require
from tests.support.pages import ROOT

sdk: Any = boto3  # its types know two services
TEXT = (ROOT / "docs" / "permissions.md").read_text()
ROW = re.compile(r"^\| (`.+?`.*?) \| ((?:`[\w:]+`(?:, )?)+) \|$", re.MULTILINE)
LEASE: Any = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(hours=1)}
M = [Message(f"m-{n}") for n in range(4)]
KEY = {"id": "e"}
ADD: Any = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}
IMPOSSIBLE_AND_TWICE: list[Any] = [{"ConditionExpression": "attribute_exists(nothing)"}, {}, {}]
ONE = {"_id": "e"}
INC = {"$inc": {"n": 1}}


class RefusedError(Exception):
    """A verb has ended with an exit code, or a pass of a relay with an error."""


def ended(swept: SweepReport) -> None:
    if swept.error is not None:
        raise RefusedError from swept.error


def waiting(relay: Relay) -> None:
    relay.pending()
    if relay.broken():  # what cannot be read is told, and holds up nothing
        raise RefusedError


def verb(*arguments: str) -> None:
    with redirect_stdout(StringIO()) as told:
        code = main([*arguments])
    if code not in (0, 5) or ("--stuck" in arguments and json.loads(told.getvalue())["unread"]):
        raise RefusedError(f"exit code {code}")


def in_turn(*acts: Callable[[], object]) -> None:
    for act in acts:
        act()


def effects(begin: Callable[[Message], object], release: Callable[[Begun], None]) -> None:
    """An effect that is begun, one that is Busy, one that is let go, and one that is taken over."""
    begun = begin(M[1])
    begin(M[1])
    assert isinstance(begun, Begun)
    release(begun)
    begin(M[1])


@dataclass(slots=True)
class OfTable:
    """A table whose item `e` has had a message, and has an event pending, but where all of ours is to be removed."""

    client: Any
    name: str
    indexed: bool
    endpoint: str
    table: GuardedTable = field(init=False)

    def __post_init__(self) -> None:
        outbox = Outbox("shop/orders", index="pending" if self.indexed else None)
        tombstones = Tombstones(timedelta(days=30))
        self.table = GuardedTable(self.client, SeenIds(), table_name=self.name, outbox=outbox, tombstones=tombstones)
        self.table.update_item(M[0], Key=KEY, **ADD, emit=[Event("Paid", {})])
        old = {
            "Key": {"id": {"S": "e"}},
            "UpdateExpression": "SET handled = :old",
            "ExpressionAttributeValues": {":old": {"SS": ["x"]}},
        }
        self.client.update_item(TableName=self.name, **old)

    @property
    def relay(self) -> Relay:
        return Relay(self.table, lambda events: None)

    def skip(self) -> None:
        source = f"shop/orders/id=S:{KEY['id']}"
        state = self.relay.peek(source)
        assert state is not None
        assert self.relay.skip(Key=KEY, id=state.pending[0].id) is not None

    def verb(self, *arguments: str, key: bool = True) -> None:
        at = ["--key", json.dumps(KEY)] if key else []
        verb(*arguments, "--table", self.name, "--endpoint-url", self.endpoint, "--region", REGION, *at)


def look(of: OfTable) -> None:
    of.table.preview(M[0], Key=KEY)
    of.table.get_item(Key=KEY)
    of.table.open_effects(Key=KEY)


OUTBOX = ["--outbox", "shop/orders"]
# Each does what its method can do: fresh, duplicate, refused.
ON_TABLE: dict[str, Callable[[OfTable], object]] = {
    "`update_item`": lambda of: [of.table.update_item(M[1], Key=KEY, **ADD, **more) for more in IMPOSSIBLE_AND_TWICE],
    "`put_item`": lambda of: [of.table.put_item(message, Item={"id": "new"}) for message in (M[1], M[1], M[2])],
    "`remember`": lambda of: [of.table.remember(M[1], Key=KEY) for _ in range(2)],
    "`delete_item`": lambda of: [of.table.delete_item(M[1], Key=KEY) for _ in range(2)],
    "`update_batch`": lambda of: of.table.update_batch(M, lambda fresh: {"Key": KEY, **ADD}),
    "`preview`, `get_item`, `open_effects`": look,
    "`begin_effect`, `release_effect`": lambda of: effects(
        lambda m: of.table.begin_effect(m, "charge", Key=KEY, **LEASE), of.table.release_effect
    ),
    "`perform_effect`": lambda of: of.table.perform_effect(
        M[1], "charge", lambda effect: None, then=lambda none: ADD, Key=KEY, **LEASE
    ),
    "`Relay.flush`, `notify`": lambda of: in_turn(lambda: of.relay.flush(Key=KEY), lambda: ended(of.relay.notify([KEY]))),
    "`Relay.sweep`, `run`, with an index": lambda of: ended(of.relay.sweep()),
    "`Relay.sweep`, `run`, without an index": lambda of: ended(of.relay.sweep()),
    "`Relay.pending`, `broken`, with an index": lambda of: waiting(of.relay),
    "`Relay.pending`, `broken`, without an index": lambda of: waiting(of.relay),
    "`Relay.peek`": lambda of: of.relay.peek("shop/orders/id=S:e"),
    "`Relay.skip`, `restart`": lambda of: in_turn(of.skip, lambda: of.relay.restart(Key=KEY)),
    "`onewrite inspect`": lambda of: of.verb("inspect"),
    "`onewrite forget`, `clear`, `set-mark`": lambda of: of.verb("forget", "--message", M[0].id, "--yes"),
    "`onewrite effects`": lambda of: of.verb("effects", key=False),
    "`onewrite relay --stuck`": lambda of: of.verb("relay", "--stuck", "--json", *OUTBOX, key=False),
}


@dataclass(slots=True)
class OfCollection:
    """A collection whose document `e` has had a message, and has an event pending. `root` may do all, and prepares it."""

    root: Any
    collection: Any
    uri: str

    def __post_init__(self) -> None:
        self.root.drop()
        self.root.create_index([("ow_due", 1)])
        self.root.insert_many([{"_id": "sibling"}, {**ONE, "handled": ["x"]}])
        store = GuardedCollection(self.root, SeenIds(), outbox=Outbox("shop/orders"))
        store.update_one(M[0], ONE, INC, emit=[Event("Paid", {})])

    @property
    def stock(self) -> GuardedCollection:
        tombstones = Tombstones(timedelta(days=30))
        return GuardedCollection(self.collection, SeenIds(), outbox=Outbox("shop/orders"), tombstones=tombstones)

    @property
    def relay(self) -> Relay:
        return Relay(self.stock, lambda events: None)

    def perform_effect(self) -> None:
        self.stock.perform_effect(M[1], "charge", lambda effect: None, ONE, then=lambda none: {"update": INC}, **LEASE)

    def skip(self) -> None:
        state = self.relay.peek("shop/orders/_id=S:e")
        assert state is not None
        assert self.relay.skip(ONE, id=state.pending[0].id) is not None

    def verb(self, *arguments: str, key: bool = True) -> None:
        verb(*arguments, "--collection", self.uri, *(["--key", "e"] if key else []))


def look_at_document(of: OfCollection) -> None:
    of.stock.preview(M[0], ONE)
    of.stock.find_one(ONE)
    of.stock.open_effects(ONE)


ON_COLLECTION: dict[str, Callable[[OfCollection], object]] = {
    "`update_one`": lambda of: [of.stock.update_one(M[1], {**ONE, **more}, INC) for more in ({"no": 1}, {}, {})],
    "`update_one` with `upsert=True`": lambda of: [
        of.stock.update_one(M[1], {"_id": "new"}, INC, upsert=True) for _ in range(2)
    ],
    "`insert_one`": lambda of: [of.stock.insert_one(message, {"_id": "new"}) for message in (M[1], M[1], M[2])],
    "`find_one_and_update`": lambda of: [of.stock.find_one_and_update(M[1], ONE, INC) for _ in range(2)],
    "`remember`": lambda of: [of.stock.remember(M[1], ONE) for _ in range(2)],
    "`delete_one`, `find_one_and_delete`": lambda of: [of.stock.delete_one(M[1], ONE) for _ in range(2)],
    "`update_batch`": lambda of: of.stock.update_batch(M, lambda fresh: {"filter": ONE, "update": INC}),
    "`preview`, `find_one`, `open_effects`": look_at_document,
    "`begin_effect`, `release_effect`": lambda of: effects(
        lambda m: of.stock.begin_effect(m, "charge", ONE, **LEASE), of.stock.release_effect
    ),
    "`perform_effect`": lambda of: in_turn(of.perform_effect, of.perform_effect),
    "`Relay.flush`, `notify`": lambda of: in_turn(lambda: of.relay.flush(ONE), lambda: ended(of.relay.notify([ONE]))),
    "`Relay.sweep`, `run`": lambda of: ended(of.relay.sweep()),
    "`Relay.pending`, `broken`, `peek`": lambda of: in_turn(
        lambda: waiting(of.relay), lambda: of.relay.peek("shop/orders/_id=S:e")
    ),
    "`Relay.skip`, `restart`": lambda of: in_turn(of.skip, lambda: of.relay.restart(ONE)),
    "`onewrite inspect`, `effects`, `relay --stuck`": lambda of: in_turn(
        lambda: of.verb("inspect"),
        lambda: of.verb("effects", key=False),
        lambda: of.verb("relay", "--stuck", "--json", *OUTBOX, key=False),
    ),
    "`onewrite forget`, `clear`, `set-mark`": lambda of: of.verb("forget", "--message", M[0].id, "--yes"),
}


def named(text: str) -> dict[str, set[str]]:
    """What needs these rights, by the names between semicolons."""
    return {use: set(re.findall(r"`([^`]+)`", row[2])) for row in ROW.finditer(text) for use in row[1].split("; ")}


DYNAMODB, MONGODB = map(named, TEXT.split("| MongoDB | privileges on the collection |"))


def test_each_row_of_the_permissions_page_is_tested() -> None:
    assert DYNAMODB.keys() == ON_TABLE.keys()
    assert MONGODB.keys() == ON_COLLECTION.keys()


# ---------------------------------------------------------------- DynamoDB


@dataclass(slots=True)
class Rights:
    """What may be asked of DynamoDB by clients of the default session, and what was asked."""

    allowed: set[str] | None = None
    asked: set[str] = field(default_factory=set)

    def check(self, model: Any, **_: Any) -> None:
        action = f"dynamodb:{model.name}"
        self.asked.add(action)
        if self.allowed is not None and action not in self.allowed:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no right"}}, model.name)


@pytest.fixture
def rights(monkeypatch: pytest.MonkeyPatch) -> Rights:
    session = sdk.Session(aws_access_key_id="dummy", aws_secret_access_key="dummy", region_name=REGION)
    found = Rights()
    session.events.register("before-call.dynamodb", found.check)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", session)
    return found


_tables = iter(range(1000))


def table_of(row: str, dynoxide: Dynoxide) -> OfTable:
    client = sdk.client("dynamodb", endpoint_url=dynoxide.endpoint)
    indexed = "with an index" in row
    name = f"rights-{next(_tables)}"
    (create_table_with_outbox if indexed else create_table)(client, name)
    return OfTable(client, name, indexed, dynoxide.endpoint)


@pytest.mark.parametrize("row", ON_TABLE)
def test_table_method_needs_exactly_the_documented_actions(row: str, dynoxide: Dynoxide, rights: Rights) -> None:
    of = table_of(row, dynoxide)
    rights.allowed = DYNAMODB[row]
    ON_TABLE[row](of)
    for action in DYNAMODB[row]:
        rights.allowed = None
        of = table_of(row, dynoxide)
        rights.allowed = DYNAMODB[row] - {action}
        with pytest.raises((ClientError, RefusedError)):
            ON_TABLE[row](of)


# ---------------------------------------------------------------- MongoDB


class Locked(Mongod):
    """A replica set of one that asks everybody for a password. Its user `root` may do all."""

    def _make_command(self, folder: Path) -> list[str]:
        key = folder / "key"
        key.write_text("k" * 32)
        key.chmod(0o600)
        return [*super()._make_command(folder), "--auth", "--keyFile", str(key)]

    def _is_ready(self) -> bool:
        with self._connect(serverSelectionTimeoutMS=2000, connectTimeoutMS=2000) as client:
            try:  # until there is a user, who comes from this machine may make one
                if not self._initiated:
                    member = {"_id": 0, "host": f"127.0.0.1:{self.port}"}
                    client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
                    self._initiated = True
                if not self._wait_until_writable(client):
                    return False
                client.admin.command("createUser", "root", pwd="root", roles=["root"])
            except PyMongoError:
                return False
            return True


@pytest.fixture(scope="module")
def locked() -> Iterator[tuple[Mongod, Any]]:
    require(mongod_binary)
    with (
        Locked() as server,
        MongoClient[Any](server.uri, username="root", password="root") as root,
    ):  # a server of this test's
        root.admin.command("createRole", "some", privileges=[], roles=[])
        root.admin.command("createUser", "some", pwd="some", roles=["some"])
        yield server, root


def grant(root: Any, collection: str, actions: set[str]) -> None:
    """From now on the user `some` may do this, and nothing else. To list collections is a right on the database."""
    of_database = {"listCollections"}
    whole = {"resource": {"db": "rights", "collection": ""}, "actions": sorted(actions & of_database)}
    one = {"resource": {"db": "rights", "collection": collection}, "actions": sorted(actions - of_database)}
    root.admin.command("updateRole", "some", privileges=[each for each in (whole, one) if each["actions"]])


@pytest.mark.parametrize("row", ON_COLLECTION)
def test_collection_method_needs_exactly_the_documented_privileges(row: str, locked: tuple[Mongod, Any]) -> None:
    server, root = locked
    name = f"of{list(ON_COLLECTION).index(row)}"
    uri = f"mongodb://some:some@127.0.0.1:{server.port}/rights.{name}?directConnection=true&authSource=admin"
    with MongoClient[Any](server.uri, username="some", password="some") as client:  # as above
        for missing in (None, *sorted(MONGODB[row])):
            of = OfCollection(root.rights[name], client.rights[name], uri)
            grant(root, name, MONGODB[row] - {missing})
            if missing is None:
                ON_COLLECTION[row](of)
                continue
            with pytest.raises((OperationFailure, RefusedError)):
                ON_COLLECTION[row](of)


def test_effects_command_distinguishes_empty_and_missing_collection(locked: tuple[Mongod, Any]) -> None:
    server, root = locked
    name = "empty"
    uri = f"mongodb://some:some@127.0.0.1:{server.port}/rights.{name}?directConnection=true&authSource=admin"
    grant(root, name, {"find", "update"})
    assert main(["effects", "--collection", uri]) == 3
    root.rights.create_collection(name)
    assert main(["effects", "--collection", uri]) == 0
