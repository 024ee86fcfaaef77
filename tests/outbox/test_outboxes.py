"""What a relay asks of a store, request by request: each flow is driven by hand, with the answers that an engine would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from boto3.dynamodb.types import Binary
from botocore.exceptions import ClientError
from bson import BSON, ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo.errors import CursorNotFound

from onewrite import ConfigurationError, Outbox
from onewrite.core.features.pending import Box, BrokenOutbox, PendingEvent, Search
from onewrite.core.flow import Call, drive
from onewrite.dynamodb.outboxes import Outboxes as ItemOutboxes
from onewrite.mongodb.outboxes import Outboxes as DocumentOutboxes
from onewrite.outbox.passes import Passes, keep_order
from onewrite.testing import mongomock_collection
from tests.support import driven

NOW = 1_790_000_000.0
FIRST = PendingEvent("i1", "A", "1", "2026-09-21T14:13:20.000Z", "n1", "m1")
SECOND = PendingEvent("i2", "B", "2", "2026-09-21T14:13:21.000Z", "n2", "m2")


class Table:
    name = "orders"


ITEMS = ItemOutboxes(Table(), None, Outbox("shop", index="pending"))
BOX = Box({"id": "o"}, "shop/id=S:o", events=(FIRST, SECOND))
LATER = Box({"id": "o"}, "shop/id=S:o", sent_count=4, incarnation="n0", events=(FIRST, SECOND))


def test_scan_continues_page_by_page() -> None:
    finder = ItemOutboxes(object(), "orders", Outbox("shop")).finder(None, keep_order)
    finding: Any = finder.next()
    assert next(finding).method == "describe_table"
    request = finding.send({"Table": {"KeySchema": [{"AttributeName": "id"}, {"AttributeName": "at"}]}}).kwargs
    assert (request["ProjectionExpression"], request["ConsistentRead"]) == ("#ow_0,#ow_1", True)
    assert "ExclusiveStartKey" not in request
    assert _last(finding, {"Items": [], "LastEvaluatedKey": {"id": {"S": "k"}}}) is Search.CONTINUES
    finding = finder.next()
    assert next(finding).kwargs["ExclusiveStartKey"] == {"id": {"S": "k"}}
    assert _last(finding, {"Items": []}) is Search.CONTINUES
    assert _last(finder.next(), None) is None


@pytest.mark.parametrize(("filter", "key"), [({"id": "o"}, {"id": "o"}), (None, None), (None, {}), (None, "o")])
def test_entity_of_a_table_is_named_by_its_key(filter: Any, key: Any) -> None:
    with pytest.raises(ConfigurationError, match="Pass Key="):
        ITEMS.entity(filter, key)


def test_stale_index_entry_is_skipped() -> None:
    finder = ItemOutboxes(object(), "orders", Outbox("shop", index="pending", shards=1)).finder(
        "2026-09-21T14:13:20.500Z", keep_order
    )
    finding: Any = finder.next()
    assert next(finding).method == "scan"
    shown = {"id": {"S": "o"}, "ow_due": {"S": "x"}, "ow_shard": {"N": "0"}}
    assert _last(finding, {"Items": [shown]}) is Search.CONTINUES
    finding = finder.next()
    assert next(finding).method == "get_item"
    assert _last(finding, {}) is Search.CONTINUES
    assert _last(finder.next(), None) is None


def test_outbox_is_read_consistently() -> None:
    request = next(ITEMS.read({"id": "o"}))
    assert isinstance(request, Call)
    assert (request.method, request.kwargs["ConsistentRead"]) == ("get_item", True)


def test_restart_of_an_empty_outbox_requires_no_event() -> None:
    request: Any = next(ITEMS.restart(Box({"id": "o"}, "shop/id=S:o"), "again"))
    assert "ow_events" not in request.kwargs["ConditionExpression"]


def test_denied_change_of_an_outbox_raises_its_error() -> None:
    with pytest.raises(ClientError, match="AccessDenied"):
        driven.play(ITEMS.clear(BOX, 1, NOW), driven.failure("AccessDeniedException"))


def _last(flow: Any, answer: Any) -> Any:
    """What the flow returns once it has that answer."""
    with pytest.raises(StopIteration) as done:
        flow.send(answer)
    return done.value.value


# --- an operator and an entity that never rests ---------------------------------------------------------------------------


class Restless:
    """An entity that another writer changes before each request."""

    target = None

    def __init__(self, boxes: Sequence[Box | None]) -> None:
        self._boxes = [*boxes]
        self.cleared: list[Box] = []  # as whoever asked for it believed them to be

    def read(self, entity: object, /) -> Any:
        return self._boxes.pop(0)
        yield

    def replace(self, box: Box, place: int, event: PendingEvent) -> Any:
        return self._boxes.pop(0)
        yield

    def restart(self, box: Box, incarnation: str) -> Any:
        return self._boxes.pop(0)
        yield

    def clear(self, box: Box, count: int, now: float) -> Any:
        self.cleared.append(box)
        return self._boxes.pop(0)
        yield


# The box with more behind what was read.
BOX_WITH = [Box(BOX.entity, BOX.origin, events=(FIRST, SECOND, *[SECOND] * n)) for n in range(4)]


def _restless(*boxes: Box | None) -> Any:
    """What is read, and then found at each change; None: it is done."""
    return Restless(boxes)


def _result(flow: Any) -> Any:
    with pytest.raises(StopIteration) as done:
        next(flow)
    return done.value.value


def _passes(boxes: Any, clock: Callable[[], float] = lambda: NOW) -> Passes:
    return Passes(boxes, lambda _: None, 10, clock)


def test_operator_action_is_refused_if_the_entity_changed() -> None:
    published = BOX.outgoing(0).id
    skipped = _result(_passes(_restless(BOX, None))._skip({}, published))
    assert (skipped.id, skipped.type) == (published, "onewrite.skipped")
    assert _result(_passes(_restless(LATER))._skip({}, published)) is None
    assert _result(_passes(_restless(BOX, None))._restart({}, "again")) == "shop/id=S:o/again"
    landed = Box(BOX.entity, BOX.origin, sent_count=1, incarnation="again")  # and an event was published since
    assert _result(_passes(_restless(BOX, landed))._restart({}, "again", BOX.source)) == "shop/id=S:o/again"
    with pytest.raises(ConfigurationError, match="wasn't skipped"):
        next(_passes(_restless(BOX, LATER))._skip({}, published))
    with pytest.raises(ConfigurationError, match="wasn't restarted"):
        next(_passes(_restless(BOX, LATER))._restart({}, "again"))


@pytest.mark.parametrize(
    ("found", "is_cleared"),
    [
        ([BOX_WITH[1], BOX_WITH[2], BOX_WITH[3]], False),
        ([LATER], False),
        ([BOX_WITH[1], LATER], False),
        ([BOX.after(2)], True),
        ([BOX_WITH[1], BOX_WITH[1].after(2)], True),
        ([BOX_WITH[1], BOX_WITH[2], None], True),
    ],
    ids=["busy", "another", "busy and another", "lost response", "busy and lost response", "busy and done"],
)
def test_clear_is_repeated_if_the_entity_emitted_more(found: list[Box | None], is_cleared: bool) -> None:
    boxes = _restless(BOX, *found)
    flushed = drive(_passes(boxes)._flush({}), lambda _: None)
    assert (len(flushed.published), flushed.cleared) == (2, is_cleared)
    assert boxes.cleared == [BOX, *found][: len(boxes.cleared)]


# --- MongoDB -------------------------------------------------------------------------------------------------------------


def test_base64_key_of_a_lambda_event_is_read() -> None:
    told = {"id": {"B": "AP8="}, "place": {"S": "B"}}
    assert ItemOutboxes(object(), "orders", Outbox("shop")).read_notified(told) == {"id": Binary(b"\0\xff"), "place": "B"}


def _document_boxes() -> DocumentOutboxes:
    with mongomock_collection("orders") as collection:
        return DocumentOutboxes(collection, (), Outbox("shop"))


@pytest.mark.parametrize(("filter", "key"), [({"_id": 1}, {"_id": 1}), ("o", None)])
def test_entity_of_a_collection_is_named_by_its_filter(filter: Any, key: Any) -> None:
    with pytest.raises(ConfigurationError, match="identified by a filter"):
        _document_boxes().entity(filter, key)


def test_lost_cursor_is_reopened_at_its_position() -> None:
    finder = _document_boxes().finder(None, keep_order)
    finding: Any = finder.next()
    assert next(finding).args[0] == {"ow_due": {"$exists": True}}
    finding.send([])
    page = [{"_id": n, "ow_due": due} for n, due in ((1, "early"), (2, "late"), (3, "late"))]
    assert _last(finding, (page, False)) is Search.CONTINUES
    for n in (1, 2, 3):
        reading: Any = finder.next()
        assert next(reading).args[0] == {"_id": n}
        assert _last(reading, {"_id": n}) is Search.CONTINUES  # its outbox is empty by now
    finding = finder.next()
    next(finding)
    with pytest.raises(StopIteration) as done:
        finding.throw(CursorNotFound("given up"))
    assert done.value.value is Search.CONTINUES
    finding = finder.next()
    assert next(finding).args[0] == {"ow_due": {"$exists": True, "$gte": "late"}, "_id": {"$nin": [2, 3]}}
    finding.send([])
    with pytest.raises(CursorNotFound):  # one that shows nothing is not opened forever
        finding.throw(CursorNotFound("given up"))


def _raw(document: Any) -> RawBSONDocument:
    return RawBSONDocument(document if isinstance(document, bytes) else BSON.encode(document))


def test_unreadable_id_does_not_block_others() -> None:
    finder = _document_boxes().finder(None, keep_order)
    finding: Any = finder.next()
    next(finding)
    finding.send([])
    text = BSON.encode({"_id": "o-1", "ow_due": "x"})
    no_text, symbol = text.replace(b"o-1", b"o-\xff"), text.replace(b"\x02_id", b"\x0e_id")
    ids: list[Any] = ["o-1", 7, ObjectId("65f0a1b2c3d4e5f60718293a"), {"a": 1, "b": 2}]
    stored = [_raw(no_text), _raw(symbol), *[_raw({"_id": each, "ow_due": "x"}) for each in ids]]
    assert _last(finding, (stored, False)) is Search.CONTINUES
    for shown in ("o-\N{REPLACEMENT CHARACTER}", "o-1"):
        broken = _result(finder.next())
        assert isinstance(broken, BrokenOutbox)
        assert broken.entity == {"_id": shown}
    for each in ids:
        reading: Any = finder.next()
        assert next(reading).args[0] == {"_id": each}
