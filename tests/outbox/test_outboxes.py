"""What a relay asks of a store, request by request: each flow is driven by hand, with the answers that an engine would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from boto3.dynamodb.types import Binary
from botocore.exceptions import ClientError
from bson import BSON, Int64, ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo.errors import AutoReconnect, CursorNotFound, OperationFailure

from onewrite import ConfigurationError, Event, LedgerMismatch, Message, Outbox, SeenIds
from onewrite.core.flow import Call, Do, drive
from onewrite.core.pending import Box, Broken, PendingEvent, Search
from onewrite.dynamodb.outboxes import Outboxes as ItemOutboxes
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb.outboxes import Outboxes as DocumentOutboxes
from onewrite.outbox.following import FollowedPasses, TokenFile
from onewrite.testing import mongomock_collection

NOW = 1_790_000_000.0
FIRST = PendingEvent("i1", "A", "1", "2026-09-21T14:13:20.000Z", "n1", "m1")
SECOND = PendingEvent("i2", "B", "2", "2026-09-21T14:13:21.000Z", "n2", "m2")


class Table:
    name = "orders"


ITEMS = ItemOutboxes(Table(), None, Outbox("shop", index="pending"))
BOX = Box({"id": "o"}, "shop/id=S:o", events=(FIRST, SECOND))
LATER = Box({"id": "o"}, "shop/id=S:o", sent_count=4, incarnation="n0", events=(FIRST, SECOND))


def _names(request: dict[str, Any], text: str) -> str:
    """The expression with its placeholders replaced by what they stand for."""
    said = {**request["ExpressionAttributeNames"], **{k: repr(v) for k, v in request["ExpressionAttributeValues"].items()}}
    for placeholder in sorted(said, key=len, reverse=True):
        text = text.replace(placeholder, said[placeholder])
    return text


def _sent(flow: Any) -> tuple[str, str]:
    request = next(flow).kwargs
    flow.close()
    return _names(request, request["UpdateExpression"]), _names(request, request["ConditionExpression"])


def test_a_clear_of_all_demands_that_nothing_was_added_and_that_the_item_was_not_deleted() -> None:
    update, condition = _sent(ITEMS.clear(BOX, 2, 0.0))
    assert update == "SET ow_sent=2,ow_life='n1' REMOVE ow_events,ow_due,ow_shard"
    absent = "attribute_not_exists(ow_sent) AND attribute_not_exists(ow_life)"
    alive = "attribute_not_exists(ow_tombstone)"
    assert condition == f"{absent} AND ow_events[1].nonce='n2' AND size(ow_events)=2 AND {alive}"


def test_a_clear_of_a_prefix_removes_in_descending_order_and_moves_the_time_on() -> None:
    three = Box(LATER.entity, LATER.origin, 4, "n0", (FIRST, SECOND, FIRST))
    update, condition = _sent(ITEMS.clear(three, 2, 0.0))
    sets, removes = update.split(" REMOVE ")
    assert sets == "SET ow_sent=6,ow_life='n0',ow_due='2026-09-21T14:13:20.000Z'"
    assert removes == "ow_events[1],ow_events[0]"
    assert condition == "ow_sent=4 AND ow_life='n0' AND ow_events[1].nonce='n2'"


def test_a_restart_demands_what_was_read_also_where_nothing_is_pending() -> None:
    empty = Box({"id": "o"}, "shop/id=S:o", sent_count=4, incarnation="n0")
    assert _sent(ITEMS.restart(empty, "again")) == ("SET ow_sent=0,ow_life='again'", "ow_sent=4 AND ow_life='n0'")


def _refusal(code: str, **more: Any) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": ""}, **more}
    return ClientError(answer, "UpdateItem")


def test_a_refused_clear_shows_the_outbox_as_it_is_now_and_other_errors_pass_through() -> None:
    flow = ITEMS.clear(BOX, 2, 0.0)
    next(flow)
    with pytest.raises(StopIteration) as done:
        flow.throw(_refusal("ConditionalCheckFailedException", Item={"id": {"S": "o"}, "other": {"N": "1"}}))
    assert done.value.value == Box({"id": "o"}, "shop/id=S:o")
    flow = ITEMS.clear(BOX, 2, 0.0)
    next(flow)
    with pytest.raises(ClientError, match="AccessDenied"):
        flow.throw(_refusal("AccessDenied"))


def test_a_conflict_with_a_transaction_is_waited_for() -> None:
    flow = ITEMS.postpone(BOX, "later")
    call = next(flow)
    wait = flow.throw(_refusal("TransactionConflictException"))
    assert flow.send(None) == call != wait


def test_a_scan_asks_for_the_key_s_names_once_and_goes_on_page_by_page() -> None:
    finder = ItemOutboxes(object(), "orders", Outbox("shop")).finder(None)
    finding: Any = finder.next()
    assert next(finding).method == "describe_table"
    schema = {"Table": {"KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}]}}
    assert "ExclusiveStartKey" not in finding.send(schema).kwargs
    assert _last(finding, {"Items": [], "LastEvaluatedKey": {"id": {"S": "k"}}}) is Search.GOES_ON
    finding = finder.next()
    assert next(finding).kwargs["ExclusiveStartKey"] == {"id": {"S": "k"}}
    assert _last(finding, {"Items": []}) is Search.GOES_ON
    assert _last(finder.next(), None) is None


def test_what_an_index_shows_too_late_is_passed_over() -> None:
    finder = ItemOutboxes(object(), "orders", Outbox("shop", index="pending", shards=1)).finder("2026-09-21T14:13:20.500Z")
    finding: Any = finder.next()
    assert next(finding).method == "scan"
    shown = {"id": {"S": "o"}, "ow_due": {"S": "x"}, "ow_shard": {"N": "0"}}
    assert _last(finding, {"Items": [shown]}) is Search.GOES_ON
    finding = finder.next()
    assert next(finding).method == "get_item"
    assert _last(finding, {}) is Search.GOES_ON
    assert _last(finder.next(), None) is None


def _last(flow: Any, answer: Any) -> Any:
    """What the flow returns once it has that answer."""
    with pytest.raises(StopIteration) as done:
        flow.send(answer)
    return done.value.value


# --- an operator and an entity that never rests ---------------------------------------------------------------------------


class Restless:
    """An entity that another writer changes before each request."""

    outbox = Outbox("shop")
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


def _passes(boxes: Any, clock: Callable[[], float] = lambda: NOW) -> FollowedPasses:
    return FollowedPasses(boxes, lambda _: None, 10, clock)


def test_an_operator_s_act_is_refused_if_the_entity_changed_meanwhile() -> None:
    published = BOX.outgoing(0).id
    skipped = _result(_passes(_restless(BOX, None))._skip({}, published))
    assert (skipped.id, skipped.type) == (published, "onewrite.skipped")
    assert _result(_passes(_restless(LATER))._skip({}, published)) is None
    assert _result(_passes(_restless(BOX, None))._restart({}, "again")) == "shop/id=S:o/again"
    landed = Box(BOX.entity, BOX.origin, sent_count=1, incarnation="again")  # and an event was published since
    assert _result(_passes(_restless(BOX, landed))._restart({}, "again", BOX.source)) == "shop/id=S:o/again"
    with pytest.raises(ConfigurationError, match="try again"):
        next(_passes(_restless(BOX, LATER))._skip({}, published))
    with pytest.raises(ConfigurationError, match="stop its relays"):
        next(_passes(_restless(BOX, LATER))._restart({}, "again"))


@pytest.mark.parametrize("found", [[BOX_WITH[1], BOX_WITH[2], BOX_WITH[3]], [LATER], [BOX_WITH[1], LATER]])
def test_a_clear_is_given_up_where_more_is_emitted_at_each_try_or_another_entity_stands_there(found: list[Box]) -> None:
    flushed = drive(_passes(_restless(BOX, *found))._flush({}), lambda _: None)
    assert (len(flushed.published), flushed.cleared) == (2, False)


@pytest.mark.parametrize("found", [[BOX.after(2)], [BOX_WITH[1], BOX_WITH[1].after(2)], [BOX_WITH[1], None]])
def test_a_clear_counts_as_done_where_only_its_answer_was_lost(found: list[Box | None]) -> None:
    flushed = drive(_passes(_restless(BOX, *found))._flush({}), lambda _: None)
    assert (len(flushed.published), flushed.remaining, flushed.cleared) == (2, (), True)


def test_a_clear_is_tried_again_with_the_outbox_as_it_was_found() -> None:
    boxes = _restless(BOX, BOX_WITH[1], BOX_WITH[2], None)
    assert drive(_passes(boxes)._flush({}), lambda _: None).cleared
    assert boxes.cleared == [BOX, BOX_WITH[1], BOX_WITH[2]]


def test_a_document_s_restart_demands_what_was_read_also_where_nothing_is_pending() -> None:
    with mongomock_collection("orders") as collection:
        boxes = DocumentOutboxes(collection, (), Outbox("shop"))
    flow = boxes.restart(Box({"_id": 1}, "shop/_id=N:1", sent_count=4, incarnation="n0"), "again")
    assert next(flow).args[0] == {"_id": 1, "ow_sent": 4, "ow_life": "n0"}  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]  # a call


# --- MongoDB -------------------------------------------------------------------------------------------------------------


def test_events_are_emitted_by_every_method_of_a_collection() -> None:
    with mongomock_collection("orders") as collection:
        orders = GuardedCollection(collection, SeenIds(), outbox=Outbox("shop"), clock=lambda: NOW)
        event = [Event("A", "$n")]
        orders.insert_one(Message("m1"), {"_id": 1}, emit=event)
        orders.update_one(Message("m2"), {"_id": 1}, [{"$set": {"n": 1}}], emit=event)
        orders.find_one_and_update(Message("m3"), {"_id": 1}, {"$inc": {"n": 1}}, emit=event)
        orders.record(Message("m4"), {"_id": 1}, emit=event)
        found = collection.find_one({"_id": 1}) or {}
        assert [each["cause"] for each in found["ow_events"]] == ["m1", "m2", "m3", "m4"]
        assert {each["body"] for each in found["ow_events"]} == {'"$n"'}
        assert found["ow_due"] == "2026-09-21T14:13:20.000Z"
        assert orders.find_one({"_id": 1}) == {"_id": 1, "n": 2}


@pytest.mark.parametrize("shown", [{"ow_events": {"L": []}}, {"place": {"S": "p"}, "a": {"N": "1"}}], ids=str)
def test_an_index_that_shows_more_than_keys_is_refused_because_the_rest_would_be_taken_for_a_key(shown: Any) -> None:
    finding: Any = ItemOutboxes(object(), "orders", Outbox("shop", index="pending", shards=1)).finder(None).next()
    next(finding)
    item = {"id": {"S": "o"}, "ow_due": {"S": "x"}, "ow_shard": {"N": "0"}, **shown}
    with pytest.raises(ConfigurationError, match="'pending' shows more than keys"):
        finding.send({"Items": [item]})


def test_an_index_shows_a_key_of_two_attributes_beside_its_own_two() -> None:
    finder = ItemOutboxes(object(), "orders", Outbox("shop", index="pending", shards=1)).finder(None)
    finding: Any = finder.next()
    next(finding)
    key = {"id": {"S": "o"}, "place": {"S": "p"}}
    assert _last(finding, {"Items": [{**key, "ow_due": {"S": "x"}, "ow_shard": {"N": "0"}}]}) is Search.GOES_ON
    assert next(finder.next()).kwargs["Key"] == key  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]  # a call


def test_a_page_with_a_number_that_is_too_long_for_a_table_is_read_again_as_it_can_be_read() -> None:
    asked: list[str] = []
    events = SimpleNamespace(register_first=lambda name, *_, **__: asked.append(name))
    client = SimpleNamespace(meta=SimpleNamespace(events=events))
    table: Any = SimpleNamespace(name="orders", meta=SimpleNamespace(client=client))
    finding: Any = ItemOutboxes(table, None, Outbox("shop", index="pending")).finder(None).next()
    first = next(finding)
    assert (first.method, finding.throw(ArithmeticError("a number with 60 digits")), len(asked)) == ("scan", first, 1)


def test_an_outbox_is_read_as_the_last_write_has_left_it() -> None:
    request = next(ITEMS.read({"id": "o"}))
    assert isinstance(request, Call)
    assert (request.method, request.kwargs["ConsistentRead"]) == ("get_item", True)


def test_lambda_s_text_of_a_key_of_bytes_is_read_as_bytes() -> None:
    told = {"id": {"B": "AP8="}, "place": {"S": "B"}}
    assert ItemOutboxes(object(), "orders", Outbox("shop")).read_doorbell(told) == {"id": Binary(b"\0\xff"), "place": "B"}


def _document_boxes() -> DocumentOutboxes:
    with mongomock_collection("orders") as collection:
        return DocumentOutboxes(collection, (), Outbox("shop"))


def test_a_cursor_that_the_server_has_given_up_is_opened_again_where_it_was() -> None:
    finder = _document_boxes().finder(None)
    finding: Any = finder.next()
    assert next(finding).args[0] == {"ow_due": {"$exists": True}}
    finding.send([])
    page = [{"_id": n, "ow_due": due} for n, due in ((1, "early"), (2, "late"), (3, "late"))]
    assert _last(finding, page) is Search.GOES_ON
    for n in (1, 2, 3):
        reading: Any = finder.next()
        assert next(reading).args[0] == {"_id": n}
        assert _last(reading, {"_id": n}) is Search.GOES_ON  # its outbox is empty by now
    finding = finder.next()
    next(finding)
    with pytest.raises(StopIteration) as done:
        finding.throw(CursorNotFound("given up"))
    assert done.value.value is Search.GOES_ON
    finding = finder.next()
    assert next(finding).args[0] == {"ow_due": {"$exists": True, "$gte": "late"}, "_id": {"$nin": [2, 3]}}
    finding.send([])
    with pytest.raises(CursorNotFound):  # one that shows nothing is not opened forever
        finding.throw(CursorNotFound("given up"))


def test_a_page_of_what_a_search_finds_counts_as_a_request() -> None:
    finding: Any = _document_boxes().finder(None).next()
    next(finding)
    assert finding.send([]).sends


def test_a_cursor_that_is_given_up_before_it_has_shown_anything_is_the_driver_s_failure() -> None:
    finding: Any = _document_boxes().finder(None).next()
    next(finding)
    finding.send([])
    with pytest.raises(CursorNotFound):
        finding.throw(CursorNotFound("given up"))


def _raw(document: Any) -> RawBSONDocument:
    return RawBSONDocument(document if isinstance(document, bytes) else BSON.encode(document))


def test_an_id_is_read_as_it_is_stored_and_one_that_cannot_be_holds_up_no_other() -> None:
    finder = _document_boxes().finder(None)
    finding: Any = finder.next()
    next(finding)
    finding.send([])
    text = BSON.encode({"_id": "o-1", "ow_due": "x"})
    no_text, symbol = text.replace(b"o-1", b"o-\xff"), text.replace(b"\x02_id", b"\x0e_id")
    ids: list[Any] = ["o-1", 7, ObjectId("65f0a1b2c3d4e5f60718293a"), {"a": 1, "b": 2}]
    stored = [_raw(no_text), _raw(symbol), *[_raw({"_id": each, "ow_due": "x"}) for each in ids]]
    assert _last(finding, stored) is Search.GOES_ON
    for shown in ("o-\N{REPLACEMENT CHARACTER}", "o-1"):
        broken = _result(finder.next())
        assert isinstance(broken, Broken)
        assert broken.entity == {"_id": shown}
    for each in ids:
        assert next(finder.next()).args[0] == {"_id": each}  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]  # a call


def test_a_document_s_count_is_a_number_of_any_width_and_no_truth_value() -> None:
    boxes = _document_boxes()
    for count, expected in ((4, 4), (Int64(4), 4)):
        reading: Any = boxes.read({"_id": 1})
        next(reading)
        box = _last(reading, {"_id": 1, "ow_sent": count, "ow_life": "n0"})
        assert (box.sent_count, type(box.sent_count)) == (expected, int)
    reading = boxes.read({"_id": 1})
    next(reading)
    with pytest.raises(LedgerMismatch):
        reading.send({"_id": 1, "ow_sent": True, "ow_life": "n0"})


@pytest.mark.parametrize("token", [{"_data": "82"}, {"_data": "82", "_typeBits": b"\x82\xff"}], ids=str)
def test_a_token_is_kept_as_it_is(token: dict[str, Any], tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "token")
    assert tokens.load() is None
    tokens.save(token)
    assert tokens.load() == token
    tokens.save(None)
    assert tokens.load() is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"_data": {"$binary": 1}}', "\0"], ids=repr)
def test_what_is_no_token_is_not_loaded(text: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(text)
    assert TokenFile(tmp_path / "token").load() is None


class Stream:
    def __init__(self) -> None:
        self.resume_token = {"_data": "82"}
        self.alive = True

    def try_next(self) -> None: ...
    def close(self) -> None: ...


class LabelledLedger:
    def __init__(self, token: Any) -> None:
        self.token = token

    def load(self) -> Any:
        return self.token

    def save(self, token: Any) -> None:
        self.token = token


def _follower(clock: Callable[[], float] = lambda: NOW) -> FollowedPasses:
    with mongomock_collection("orders") as collection:
        return _passes(DocumentOutboxes(collection, (), Outbox("shop")), clock)


def _following(flows: FollowedPasses, tokens: LabelledLedger, sweep_every: float = 1e9) -> Any:
    return flows._follow(tokens, sweep_every, lambda _: None)


def _begun(following: Any, stream: Stream) -> Any:
    """The stream is open, and a sweep has found nothing: what is done next."""
    assert following.send(stream) == Do(stream.try_next)
    return _sweeps(following, following.send(None))


def _sweeps(following: Any, step: Any) -> Any:
    """A sweep has found nothing: it opens a cursor, and reads it to its end."""
    assert isinstance(step, Do)
    assert isinstance(following.send([]), Do)
    return following.send([])


def test_a_token_that_leads_nowhere_is_forgotten_and_any_other_failure_is_raised() -> None:
    tokens, stream = LabelledLedger({"_data": "82"}), Stream()
    for when in ("at once", "later"):
        tokens.token = {"_data": "82"}
        following = _following(_follower(), tokens)
        assert next(following).kwargs == {"resume_after": {"_data": "82"}}
        lost = OperationFailure("lost", 286)
        if when == "later":
            assert _begun(following, stream) == Do(stream.try_next)
            assert following.throw(lost) == Do(stream.close)
            with pytest.raises(StopIteration):
                following.send(None)
        else:
            with pytest.raises(StopIteration):
                following.throw(lost)
        assert tokens.token is None
    following = _following(_follower(), tokens)
    next(following)
    with pytest.raises(ConnectionError):
        _sweeps(following, following.throw(ConnectionError()))  # as no stream tells of anything


def test_a_stream_that_cannot_be_asked_for_as_the_relay_is_made_is_the_caller_s_to_mend() -> None:
    following = _following(_follower(), LabelledLedger(None))
    next(following)
    with pytest.raises(ConfigurationError):
        following.throw(ConfigurationError("an asynchronous collection"))


def test_a_misuse_ends_the_sweep_in_place_of_a_stream_too() -> None:
    following = _following(_follower(), LabelledLedger(None))
    next(following)
    following.throw(ConnectionError())
    with pytest.raises(ConfigurationError):
        following.throw(ConfigurationError("publish returned"))


def test_only_a_collection_has_a_stream_to_follow() -> None:
    with pytest.raises(ConfigurationError, match="follow is for a collection"):
        _passes(ItemOutboxes(object(), "orders", Outbox("shop")))._check_following(LabelledLedger(None), 60.0)


def test_a_follower_sweeps_now_and_then_and_keeps_its_place_when_the_stream_is_quiet() -> None:
    tokens, stream, now = LabelledLedger({"_data": "81"}), Stream(), [NOW]
    flows = _follower(lambda: now[0])
    following = _following(flows, tokens, sweep_every=1.0)
    next(following)
    assert _begun(following, stream) == Do(stream.try_next)
    assert following.send(None) == Do(stream.try_next)
    assert tokens.token == {"_data": "82"}
    now[0] += 1.0
    sweep = following.send(None)
    flows._is_stopped = True
    assert _sweeps(following, sweep) == Do(stream.try_next)
    assert following.send(None) == Do(stream.close)


def test_a_sweep_that_the_database_has_failed_is_made_again_with_the_next_stream() -> None:
    tokens, flows, stream = LabelledLedger(None), _follower(), Stream()
    following = _following(flows, tokens)
    next(following)
    assert following.send(stream) == Do(stream.try_next)
    following.send(None)
    assert following.throw(AutoReconnect("a failover")) == Do(stream.close)  # the sweep fails
    with pytest.raises(AutoReconnect):
        following.send(None)
    following = _following(flows, tokens)  # what was pending before the stream is told of by nothing else
    next(following)
    assert _begun(following, stream) == Do(stream.try_next)


def test_a_token_that_the_server_refuses_once_the_stream_is_asked_is_forgotten_too() -> None:
    """Motor sends nothing before that."""
    tokens, stream = LabelledLedger({"_data": "none"}), Stream()
    following = _following(_follower(), tokens)
    next(following)
    following.send(stream)
    assert following.throw(OperationFailure("not a valid hex string", 9)) == Do(stream.close)
    with pytest.raises(StopIteration):
        following.send(None)
    assert tokens.token is None
