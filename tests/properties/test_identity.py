"""Any record at all: envelopes change nothing, keys stay apart, and no error shows content."""

from __future__ import annotations

import contextlib
import json
from base64 import b64encode
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onewrite import InvalidMessage, Message
from onewrite.identity import (
    Identity,
    Skip,
    cloudevent,
    cloudevent_batch,
    documentdb_position,
    dynamodb_stream_position,
    eventbridge,
    fifo_sequence,
    json_body,
    kafka_position,
    kinesis_position,
    number,
    s3_object,
    skip_deletions,
    sns,
    sqs_message_id,
)
from tests.support.examples import examples

CANARY = "4111-1111-1111-1111"
texts = st.text(st.characters(exclude_categories=["Cs"]))
names = st.one_of(texts, st.sampled_from(["id", "source", "detail", "Type", "Message", "specversion", "ce-id"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)


def answer(identity: Identity, record: Any) -> tuple[Any, ...] | str:
    try:
        message = identity(record)
    except InvalidMessage as error:
        return str(error)
    assert isinstance(message, Message)
    return (message.id, message.source, message.sequence, message.body)


def in_eventbridge(detail: Any) -> dict[str, Any]:
    return {"version": "0", "id": "e1", "detail-type": "t", "source": "s", "detail": detail}


def in_sns(message: str) -> dict[str, Any]:
    return {"Type": "Notification", "MessageId": "n1", "TopicArn": "arn:topic", "Message": message}


@given(st.dictionaries(names, values, max_size=4), st.sampled_from(["id", "source", "detail.id"]))
def test_json_body_is_the_same_inside_any_envelope(body: dict[str, Any], path: str) -> None:
    identity = json_body(id=path, source="id", sequence="id")
    plain = answer(identity, {"messageId": "b1", "body": json.dumps(body)})
    event = json.dumps(in_eventbridge(body))
    assert answer(eventbridge(identity), {"messageId": "b1", "body": event}) == plain
    assert answer(sns(identity), {"messageId": "b1", "body": json.dumps(in_sns(json.dumps(body)))}) == plain
    assert answer(sns(eventbridge(identity)), {"messageId": "b1", "body": json.dumps(in_sns(event))}) == plain


@given(texts.filter(bool), texts.filter(bool), texts.filter(bool), texts.filter(bool))
def test_two_cloudevents_never_share_an_id(source: str, own: str, other_source: str, other: str) -> None:
    assume((source, own) != (other_source, other))
    assert cloud(source, own).id != cloud(other_source, other).id


# --- nothing becomes a key by accident -----------------------------------------------------------------------------------

wholes = st.one_of(st.integers(-20, 20), st.sampled_from([10**17, 10**17 + 1, 2**53, 2**53 + 1, 10**400, 10**400 + 1]))
written = st.one_of(
    wholes.map(str),
    wholes.map(lambda n: json.dumps(str(n))),
    st.text("01:.,-a", max_size=4).map(json.dumps),
    st.sampled_from(
        ["1.0", "1e0", "1E400", "12345678901234567890.1", "true", "false", "null", "[]", "{}", "[1]", '{"a": 1}', '""']
    ),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda n: f"{n:f}"),
)
BY_WHICH: list[tuple[Any, Any]] = [
    ("a", lambda a, b: a),
    (lambda record: record["body"]["a"], lambda a, b: a),
    (["a", "b"], lambda a, b: (a, b)),
    (["b", "a"], lambda a, b: (a, b)),
]


def as_text(json_text: str) -> str | None:
    """What the JSON says, if it may be a key or a part of one."""
    value = json.loads(json_text, parse_float=lambda _: None)
    return str(value) if type(value) is int else value if isinstance(value, str) and value else None


@settings(max_examples=examples(200))
@given(written, written, written, written, st.sampled_from(BY_WHICH))
def test_two_records_share_an_id_exactly_if_fields_agree(
    a: str, b: str, other_a: str, other_b: str, by_which: tuple[Any, Any]
) -> None:
    fields, of_fields = by_which
    identity = json_body(id=fields, source=fields)
    found: list[tuple[str, str] | None] = []
    for one, other in ((a, b), (other_a, other_b)):
        try:
            message = identity({"messageId": "b1", "body": f'{{"a": {one}, "b": {other}}}'})
        except InvalidMessage:
            found.append(None)
        else:
            found.append((message.id, message.source))
    expected = [of_fields(as_text(one), as_text(other)) for one, other in ((a, b), (other_a, other_b))]
    missing = [None in each if isinstance(each, tuple) else each is None for each in expected]
    assert [each is None for each in found] == missing
    if not any(missing):
        assert (found[0] == found[1]) is (expected[0] == expected[1])


def cloud(source: str, own_id: str) -> Message:
    event = {"specversion": "1.0", "id": own_id, "source": source, "type": "t"}
    return cloudevent()({"messageId": "b1", "body": json.dumps(event)})


IDENTITIES: list[Identity] = [
    json_body(id="id"),
    json_body(id=["id", "source"], source="source", sequence=number("sequence")),
    sqs_message_id(),
    fifo_sequence(),
    cloudevent(),
    kinesis_position(),
    dynamodb_stream_position(),
    kafka_position(),
    documentdb_position(),
    s3_object(),
    cloudevent_batch(),
]
IDENTITIES += [envelope(identity) for identity in IDENTITIES for envelope in (sns, eventbridge, skip_deletions)]

canaries = st.just(CANARY)
anything = st.recursive(
    canaries
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=4)
    | st.just(f'{{"id": "{CANARY}'),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.one_of(canaries, names), inner, max_size=2),
    max_leaves=6,
)
bodies = st.one_of(
    anything,
    anything.map(lambda value: json.dumps(value, default=str)),
    anything.map(lambda value: json.dumps(in_eventbridge({"id": value}), default=str)),
    anything.map(
        lambda value: json.dumps({"specversion": "1.0", "id": value, "source": value, "data_base64": value}, default=str)
    ),
    anything.map(
        lambda value: json.dumps(in_sns(json.dumps(value, default=str)) | {"MessageAttributes": value}, default=str)
    ),
    anything.map(lambda value: b64encode(json.dumps(value, default=str).encode()).decode()),
)
# What names a record in errors is no content: its ids, topic, partition and offset.
records = st.fixed_dictionaries(
    {"messageId": st.just("b1")},
    optional={
        "body": bodies,
        "attributes": st.one_of(anything, st.fixed_dictionaries({"SequenceNumber": anything, "MessageGroupId": anything})),
        "messageAttributes": st.one_of(anything, st.dictionaries(st.sampled_from(["ce-id", "a"]), anything)),
        "headers": st.one_of(anything, st.lists(st.dictionaries(st.sampled_from(["ce_id", "a"]), st.lists(st.integers())))),
        "kinesis": st.one_of(anything, st.fixed_dictionaries({"data": bodies, "sequenceNumber": anything})),
        "dynamodb": st.one_of(anything, st.fixed_dictionaries({"Keys": anything, "SequenceNumber": anything})),
        "eventID": st.sampled_from(["c4ca", "shardId-0:1"]),
        "eventSourceARN": anything,
        "eventName": anything,
        "event": st.one_of(
            anything,
            st.fixed_dictionaries({"_id": anything, "clusterTime": anything, "documentKey": anything, "ns": anything}),
        ),
        "eventSource": st.just("aws:docdb"),
        "userIdentity": anything,
        "value": bodies,
        "key": anything,
        "topic": st.just("t"),
        "partition": st.one_of(st.integers(), st.booleans()),
        "offset": st.one_of(st.integers(), st.floats()),
    },
)


@given(records, st.sampled_from(IDENTITIES))
def test_record_becomes_a_message_or_an_error_without_content(record: dict[str, Any], identity: Identity) -> None:
    before, error = repr(record), None
    try:
        found = identity(record)
        for message in [found] if isinstance(found, Message) else () if isinstance(found, Skip) else found:
            dict(message.attributes), dict(message.system)
    except InvalidMessage as refusal:
        error = refusal
    if error is not None:
        assert CANARY not in str(error)
        assert "(no id)" not in str(error)
        assert (error.__cause__, error.__context__) == (None, None)
    assert repr(record) == before


@given(anything, st.sampled_from(IDENTITIES))
def test_garbage_is_refused(garbage: Any, identity: Identity) -> None:
    with contextlib.suppress(InvalidMessage):
        identity(garbage)
