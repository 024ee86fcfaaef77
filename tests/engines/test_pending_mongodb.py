"""How a relay finds what is pending in a collection: by its index alone, whatever the ids, and past what cannot be read."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import bson
import pytest
from bson import Binary, DatetimeMS, DBRef, Decimal128, Int64, ObjectId, UuidRepresentation
from bson.code import Code
from bson.codec_options import CodecOptions, DatetimeConversion, TypeDecoder, TypeRegistry
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.errors import CursorNotFound
from pymongo.synchronous.cursor import Cursor

from onewrite import Event, HighWaterMark, InSequence, Message, Outbox, SeenIds, Tombstones
from onewrite.core.ledgers import Ledger
from onewrite.mongodb import GuardedCollection
from onewrite.operate.mongodb import CollectionStore
from onewrite.outbox import Outgoing, Relay
from onewrite.testing.servers.engines import Mongod
from tests.engines.stores import Commands

Documents = Collection[dict[str, Any]]
NOW = 1_790_000_000.0
OUTBOX = Outbox("shop")


@pytest.fixture
def heard(mongod: Mongod, collection: Documents) -> Iterator[tuple[Documents, Commands]]:
    """The collection, with its documented index, and the commands that are sent to it."""
    commands = Commands()
    collection.create_index("ow_due", sparse=True)
    with MongoClient[dict[str, Any]](mongod.uri, event_listeners=[commands]) as client:
        yield client.test[collection.name], commands


def emitting(collection: Documents, names: Any, *, now: float = NOW) -> GuardedCollection:
    store = GuardedCollection(collection, SeenIds(), outbox=OUTBOX, clock=lambda: now)
    for n, name in enumerate(names):
        store.update_one(Message(f"m{n}"), {"_id": {"$eq": name}}, {"$set": {"n": 1}}, upsert=True, emit=[Event("A", n)])
    return store


_OF_A_SESSION = {"lsid", "txnNumber", "autocommit", "startTransaction", "writeConcern", "readConcern"}


def examined(collection: Documents, command: dict[str, Any]) -> tuple[int, int]:
    """How much of an index, and how many documents, the server looks at for this command."""
    kept = {name: value for name, value in command.items() if not name.startswith("$") and name not in _OF_A_SESSION}
    stats = collection.database.command("explain", kept, verbosity="executionStats")["executionStats"]
    return stats["totalKeysExamined"], stats["totalDocsExamined"]


def most_examined(collection: Documents, commands: Commands) -> int:
    """The most keys or documents that the server has looked at for a command."""
    looked = [command for command in commands.sent if {"find", "update", "findAndModify"} & command.keys()]
    assert len(looked) > 15
    return max(max(examined(collection, command)) for command in looked)


@pytest.mark.parametrize("is_equal", [True, False], ids=["at one moment", "at different ones"])
@pytest.mark.parametrize("verb", ["sweep", "waiting", "broken", "skip"])
@pytest.mark.few(1)
def test_sweeps_and_operator_calls_read_only_pending_entities(
    heard: tuple[Documents, Commands], verb: str, is_equal: bool
) -> None:
    collection, commands = heard
    count = 250  # more than a batch of a cursor
    collection.insert_many([{"_id": f"idle{n}", "n": n} for n in range(1000)])
    for n in range(count):
        emitting(collection, [f"o{n}"], now=NOW if is_equal else NOW + n)
    store = GuardedCollection(collection, SeenIds(), outbox=OUTBOX)
    relay = Relay(store, lambda _: None, clock=lambda: NOW + 10_000)
    commands.sent.clear()
    match verb:
        case "sweep":
            assert relay.sweep().published == count
        case "waiting":
            assert len(relay.pending(limit=count)) == count
        case "broken":
            assert relay.broken() == []
        case _:
            event = relay.pending(limit=1)[0].event
            assert relay.skip(dict(event.entity), id=event.id) is not None
    searches = [command for command in commands.sent if "ow_due" in command.get("filter", {})]
    assert len(searches) == 1  # one cursor, and no search for each
    assert examined(collection, searches[0])[1] <= count
    finds = [command for command in commands.sent if "find" in command or "getMore" in command]
    assert len(finds) <= 1.2 * count + 10


@pytest.mark.parametrize("ledger", [SeenIds(), SeenIds(readable=True), HighWaterMark(), InSequence()], ids=str)
def test_each_command_examines_only_its_own_document(heard: tuple[Documents, Commands], ledger: Ledger) -> None:
    collection, commands = heard
    collection.insert_many([{"_id": f"idle{n}", "n": n} for n in range(500)])

    store = GuardedCollection(collection, ledger, outbox=OUTBOX, tombstones=Tombstones(timedelta(days=1)), clock=lambda: NOW)
    relay, first, second = Relay(store, lambda _: None), Message("m1", "s", 1), Message("m2", "s", 2)
    effect: Any = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(0)}
    for _ in range(2):
        store.update_one(first, {"_id": "o"}, {"$inc": {"n": 1}}, upsert=True, emit=[Event("A", 1)])
        store.update_one(second, {"_id": "o", "n": {"$gt": 100}}, {"$inc": {"n": 1}})
        store.find_one_and_update(second, {"_id": "o"}, {"$inc": {"n": 1}})
        relay.flush({"_id": "o"})
        store.insert_one(first, {"_id": "p", "n": 1})
        begun: Any = store.begin_effect(Message("m3", "s", 3), "charge", {"_id": "o"}, **effect)
        if hasattr(begun, "fence"):
            store.remember(Message("m3", "s", 3), {"_id": "o"}, finishes=begun)
        store.find_one({"_id": "o"})
        store.preview(second, {"_id": "o"})
        store.open_effects({"_id": "o"})
        store.delete_one(Message("m4", "s", 4), {"_id": "o"})
    assert most_examined(collection, commands) == 1


def test_call_for_one_entity_reads_only_that_entity(
    heard: tuple[Documents, Commands],
) -> None:
    collection, commands = heard
    collection.create_index("email", unique=True)
    collection.insert_many([{"_id": f"o{n}", "email": f"{n}@example.com", "n": n} for n in range(500)])
    store = GuardedCollection(collection, SeenIds(), key=("email",), outbox=OUTBOX, clock=lambda: NOW)
    add, named = {"$inc": {"n": 1}}, {"email": "7@example.com"}
    commands.sent.clear()
    for _ in range(2):
        store.update_one(Message("m1"), named, add)
        store.update_one(Message("m2"), {**named, "n": -1}, add)
        store.find_one_and_update(Message("m3"), named, add, emit=[Event("A", 1)])
        store.preview(Message("m3"), named)
        store.update_batch([Message("m4"), Message("m5")], lambda _: {"filter": named, "update": add})
    assert most_examined(collection, commands) == 1


class _AsText(TypeDecoder):
    bson_type = ObjectId

    def transform_bson(self, value: Any) -> Any:
        return str(value)


class _Failing(TypeDecoder):
    bson_type = Binary

    def transform_bson(self, value: Any) -> Any:
        raise ValueError("never")


CODECS: dict[str, CodecOptions[Any]] = {
    "ids as text": CodecOptions(type_registry=TypeRegistry([_AsText()])),
    "times clamped": CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_CLAMP),
    "times with zones": CodecOptions(tz_aware=True, uuid_representation=UuidRepresentation.STANDARD),
    "old uuids": CodecOptions(uuid_representation=UuidRepresentation.JAVA_LEGACY),
    "no uuids": CodecOptions(uuid_representation=UuidRepresentation.UNSPECIFIED),
    "raw documents": CodecOptions(document_class=RawBSONDocument),
    "a decoder that fails": CodecOptions(type_registry=TypeRegistry([_Failing()])),
}
IDS: list[Any] = [
    *("text", 1, 1.5, Int64(2**40), Decimal128("2.5"), True, ObjectId("6" * 24), {"b": 1, "a": {"c": 2}}),
    *(datetime(2026, 1, 1, tzinfo=UTC), DatetimeMS(2**60), DatetimeMS(-(2**60))),
    *(b"bytes", Binary(b"b", 128), Binary.from_uuid(UUID(int=7)), Binary(b"7" * 16, 3)),
    *(Decimal128("sNaN"), Code("text"), Code("text", {"n": 1}), DBRef("c", 1), {"deep": {"at": DatetimeMS(2**61)}}),
    *({"id": ObjectId("6" * 24)}, {"codes": [Code("x"), None]}),
]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_operator_and_relay_act_on_entities_of_any_id_type(collection: Documents, codec: CodecOptions[Any]) -> None:
    collection.create_index("ow_due", sparse=True)
    emitting(collection.with_options(codec_options=CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)), IDS)
    store = GuardedCollection(collection.with_options(codec_options=codec), SeenIds(), outbox=OUTBOX)
    told: list[Outgoing] = []
    relay = Relay(store, told.extend, clock=lambda: NOW + 10)
    waiting = relay.pending(limit=100)
    assert len(waiting) == len(IDS)
    for source in [each.event.source for each in waiting]:
        state = relay.peek(source)
        assert state is not None
        assert state.source == source
        skipped = relay.skip(source=source, id=state.pending[0].id)
        assert skipped is not None
        assert relay.restart(source=source)
    swept = relay.sweep()
    assert (swept.published, swept.complete, swept.broken, swept.failed) == (len(IDS), True, [], [])
    assert len({event.source for event in told}) == len(told) == len(IDS)
    assert {event.type for event in told} == {"onewrite.skipped"}
    assert collection.count_documents({"ow_due": {"$exists": True}}) == 0
    assert relay.sweep().entities == 0


def _bson(*elements: bytes) -> bytes:
    return struct.pack("<i", sum(map(len, elements)) + 5) + b"".join(elements) + b"\0"


_POINTER = b"\x0c%s\0" + struct.pack("<i", 2) + b"c\0" + b"\x01" * 12
_UNDEFINED, _ONE, _TWO = b"\x06a\0", b"\x10a\0\x01\0\0\0", b"\x10a\0\x02\0\0\0"
# What the driver reads as something other than it writes, or not at all.
UNWRITABLE: dict[str, bytes] = {
    "undefined in a document": b"\x03_id\0" + _bson(_UNDEFINED),
    "DBPointer": _POINTER % b"_id",
    "DBPointer in a document": b"\x03_id\0" + _bson(_POINTER % b"a"),
    "a name twice in a document": b"\x03_id\0" + _bson(_ONE, _TWO),
    "UUID of three bytes": b"\x03_id\0" + _bson(b"\x05a\0" + struct.pack("<i", 3) + b"\x04abc"),
    "a text that is no UTF-8": b"\x02_id\0" + struct.pack("<i", 5) + b"caf\xe9\0",
    "old binary without its length": b"\x05_id\0" + struct.pack("<i", 3) + b"\x02abc",
}


@pytest.mark.parametrize("element", UNWRITABLE.values(), ids=UNWRITABLE)
@pytest.mark.parametrize("is_indexed", [True, False], ids=["index", "no index"])
def test_document_with_unwritable_id_is_published_or_reported(
    collection: Documents, element: bytes, is_indexed: bool
) -> None:
    if is_indexed:
        collection.create_index("ow_due", sparse=True)
    emitting(collection, ["odd"])
    rest = {name: value for name, value in (collection.find_one() or {}).items() if name != "_id"}
    collection.delete_many({})
    collection.insert_one(RawBSONDocument(_bson(element, bson.encode(rest)[4:-1])))
    store, told = emitting(collection, ["good"]), list[Outgoing]()
    relay = Relay(store, told.extend, clock=lambda: NOW + 10)
    swept = relay.sweep()
    assert {"_id": "good"} in [event.entity for event in told]
    left = collection.count_documents({"ow_events": {"$exists": True}})
    assert (left == 0, not swept.broken, swept.complete, not relay.broken()) in [(True,) * 4, (False,) * 4]


def test_effect_is_found_after_a_document_with_unreadable_id(collection: Documents) -> None:
    codec: CodecOptions[Any] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
    wide = collection.with_options(codec_options=codec)
    for name in (DatetimeMS(2**61), "ok"):
        wide.insert_one({"_id": name})
        effect: Any = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(0)}
        GuardedCollection(wide, SeenIds()).begin_effect(Message("m"), "charge", {"_id": name}, **effect)
    pages = CollectionStore(collection).list_pages("ow_effects")
    assert len([effect for images in pages for image in images for effect in image.effects.values()]) == 2


def test_entity_is_listed_once_if_written_during_listing(collection: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its new time is behind the cursor's place, which meets it again."""
    collection.create_index("ow_due", sparse=True)
    store, reads, find_one = emitting(collection, range(150)), itertools.count(), Collection.find_one

    def busy(self: Documents, query: Any, *args: Any, **more: Any) -> Any:
        due = datetime(2099, 1, 1, tzinfo=UTC) + timedelta(seconds=next(reads))
        collection.update_one({"_id": query["_id"]}, {"$set": {"ow_due": f"{due:%Y-%m-%dT%H:%M:%S}.000Z"}})
        return find_one(self, query, *args, **more)

    monkeypatch.setattr(Collection, "find_one", busy)
    found = [each.entity["_id"] for each in Relay(store, lambda _: None).pending(limit=1000)]
    assert sorted(found) == [*range(150)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [int, UUID])
def test_search_ends_if_the_server_drops_each_cursor(
    collection: Documents, monkeypatch: pytest.MonkeyPatch, kind: type[int | UUID]
) -> None:
    """As behind a balancer in front of several routers. All are due at one moment, and are more than a page."""
    collection.create_index("ow_due", sparse=True)
    documents: Documents = collection.with_options(
        codec_options=CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
    )
    keys = [UUID(int=n) if kind is UUID else n for n in range(250)]
    store, told, refresh = emitting(documents, keys), list[Outgoing](), Cursor._refresh

    def lost(self: Any) -> int:
        if self._id:
            raise CursorNotFound("cursor id not found", 43, {})
        return refresh(self)

    monkeypatch.setattr(Cursor, "_refresh", lost)
    relay = Relay(store, told.extend, clock=lambda: NOW + 10)
    assert (len(relay.pending(limit=1000)), relay.broken(limit=1000)) == (250, [])
    swept = relay.sweep()
    assert (swept.published, swept.complete, len({event.id for event in told})) == (250, True, 250)
