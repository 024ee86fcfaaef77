"""Each source's batch in, and the partial batch response out that Lambda accepts for this source."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import md5
from typing import Any

import pytest

from onewrite import ConfigurationError, Deferred, Message
from onewrite.aws_lambda import (
    NotSettled,
    documentdb_handler,
    dynamodb_stream_handler,
    eventbridge_handler,
    kafka_handler,
    kinesis_handler,
    s3_handler,
    sns_handler,
    sqs_handler,
)
from onewrite.aws_lambda.sources import make_lambda_record
from onewrite.identity import documentdb_position, eventbridge, json_body, s3_object, sns, sqs_message_id
from tests.support.batches import (
    FIFO,
    SENT_AT,
    STANDARD,
    Context,
    Shop,
    apply,
    by_name,
    dynamodb,
    identifiers,
    kafka,
    kinesis,
    refuse,
    sqs,
    sqs_record,
)
from tests.support.fake_sqs import ARN

DECORATORS: list[Any] = [sqs_handler, kinesis_handler, dynamodb_stream_handler, kafka_handler]
EVENTS: list[Any] = [sqs, kinesis, dynamodb, lambda names: kafka(p0=names)]
SOURCES = pytest.mark.parametrize(
    ("decorator", "event"), list(zip(DECORATORS, EVENTS, strict=True)), ids=["sqs", "kinesis", "dynamodb", "kafka"]
)


@pytest.fixture
def shop() -> Shop:
    return Shop()


# ---------------------------------------------------------------- the answer


def test_group_of_a_standard_queue_implies_no_order(shop: Shop) -> None:
    event = {"Records": [sqs_record(name, arn=STANDARD, group="g") for name in ("a!", "b")]}
    assert identifiers(sqs_handler(by_name)(shop)(event)) == ["id-a!"]
    assert shop.names == ["a!", "b"]


@pytest.mark.parametrize("attributes", [{}, {"MessageGroupId": 7}, None])
def test_fifo_records_without_readable_group_keep_order(shop: Shop, attributes: Any) -> None:
    event = {"Records": [sqs_record(name, arn=FIFO, attributes=attributes) for name in ("a!", "b")]}
    event["Records"].append(sqs_record("c", arn=FIFO, group="c"))
    assert identifiers(sqs_handler(by_name)(shop)(event)) == ["id-a!", "id-b"]
    assert shop.names == ["a!", "c"]


def test_kafka_failure_raises_after_other_partitions_are_processed(shop: Shop) -> None:
    """Lambda reads no answer of Kafka, except in provisioned mode: whatever was answered, the offset would move on."""
    with pytest.raises(NotSettled, match=r"2 of 5 records must be redelivered.*a handler of Kafka requests redelivery"):
        kafka_handler(by_name)(shop)(kafka(p0=["a", "b!", "c"], p1=["x", "y"]))
    assert shop.names == ["a", "b!", "x", "y"]


@pytest.mark.parametrize("group_by", [None, lambda message: message.id])
@pytest.mark.parametrize("origin", ["aws:kafka", "SelfManagedKafka", "aws:SelfManagedKafka"])
def test_kafka_raises_without_provisioned_mode(origin: str, group_by: Any) -> None:
    event = {**kafka(p0=["a"]), "eventSource": origin}
    options: dict[str, Any] = {} if group_by is None else {"group_by": group_by}
    others: list[dict[str, Any]] = [{}, {"raise_when_all_fail": False}, {"max_workers": 3}, {"provisioned_mode": False}]
    for more in others:
        with pytest.raises(NotSettled):
            kafka_handler(refuse, **options, **more)(apply)(event)
    answer = kafka_handler(refuse, **options, provisioned_mode=True)(apply)(event)
    assert identifiers(answer) == [{"partition": "orders-0", "offset": 0}]


@pytest.mark.parametrize("value", ["false", 0, None])
def test_provisioned_mode_must_be_a_bool(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"provisioned_mode=.*: expected True or False"):
        kafka_handler(by_name, provisioned_mode=value)


def test_provisioned_kafka_returns_partition_and_offset(shop: Shop) -> None:
    response = kafka_handler(by_name, provisioned_mode=True)(shop)(kafka(p0=["a", "b!", "c"], p1=["x", "y"]))
    named = [{"itemIdentifier": {"partition": "orders-0", "offset": offset}} for offset in (1, 2)]
    assert response == {"batchItemFailures": named}
    assert shop.names == ["a", "b!", "x", "y"]


@pytest.mark.parametrize("broken", [{}, {"messageId": ""}, {"messageId": 7}, "text", None])
def test_failed_record_without_id_returns_the_batch(broken: Any) -> None:
    """Leaving it out would mean that it is done."""
    event = {"Records": [sqs_record("a"), broken, sqs_record("b")]}
    assert identifiers(sqs_handler(by_name)(apply)(event)) == [""]


def test_repeated_message_is_named_once(shop: Shop) -> None:
    assert identifiers(sqs_handler(by_name)(shop)(sqs(["a!", "b", "a!"]))) == ["id-a!"]
    assert shop.names == ["a!", "b", "a!"]


def test_unnamed_stream_record_returns_with_an_earlier_failure(shop: Shop) -> None:
    event = kinesis(["a", "b!", "c", "d"])
    event["Records"][2] = "broken"
    assert identifiers(kinesis_handler(by_name)(shop)(event)) == ["2", "4"]


def test_stream_restarts_if_its_first_failure_is_unnamed(shop: Shop) -> None:
    event = kinesis(["a", "b", "c"])
    del event["Records"][1]["kinesis"]
    assert identifiers(kinesis_handler(by_name)(shop)(event)) == ["", "3"]


@pytest.mark.parametrize("field", ["topic", "partition", "offset"])
@pytest.mark.parametrize("value", [None, "", True, 1.5])
def test_unnamed_kafka_record_returns_the_batch(field: str, value: Any) -> None:
    event = kafka(p0=["a"])
    event["records"]["orders-0"][0][field] = value
    assert identifiers(kafka_handler(refuse, provisioned_mode=True)(apply)(event)) == [""]


# ---------------------------------------------------------------- what is no batch


OTHERS: list[Any] = [
    None,
    {},
    {"Records": {"a": 1}},
    {"records": {"orders-0": "text"}},
    {"httpMethod": "GET", "body": None},
    {"Records": [{"EventSource": "aws:sns", "Sns": {}}]},
    {"records": {"orders-0": [{"topic": "orders"}]}, "eventSource": "aws:other"},
]


@SOURCES
@pytest.mark.parametrize("other", OTHERS, ids=repr)
def test_event_of_another_source_is_refused(decorator: Any, event: Any, other: Any) -> None:
    """An empty answer would mean that all is done."""
    with pytest.raises(ConfigurationError, match="This event isn't a batch of"):
        decorator(by_name)(apply)(other)


def test_mixed_sources_are_refused_before_processing(shop: Shop) -> None:
    event = {"Records": [*sqs(["a"])["Records"], *kinesis(["b"])["Records"]]}
    with pytest.raises(
        ConfigurationError, match=r"isn't a batch of SQS: it has a record of 'aws:kinesis'\. Nothing was processed"
    ):
        sqs_handler(by_name)(shop)(event)
    assert shop.names == []


# ---------------------------------------------------------------- EventBridge Pipes


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """A record of Kinesis as Pipes gives it."""
    return {**{name: value for name, value in record.items() if name != "kinesis"}, **record["kinesis"]}


def in_a_list(decorator: Any, names: list[str]) -> list[Any]:
    """What Pipes gives a function: a list of records, each of which says what it is from."""
    if decorator is kafka_handler:
        return [{"eventSource": "aws:kafka", **record} for record in kafka(p0=names)["records"]["orders-0"]]
    if decorator is kinesis_handler:
        return [flat(record) for record in kinesis(names)["Records"]]
    return list((sqs if decorator is sqs_handler else dynamodb)(names)["Records"])


@SOURCES
def test_list_of_records_is_accepted_as_a_batch(decorator: Any, event: Any, shop: Shop) -> None:
    listed = in_a_list(decorator, ["a", "b!", "c"])
    report = decorator(by_name)(shop).run(listed)
    assert identifiers(report.response) == identifiers(decorator(by_name)(Shop()).run(event(["a", "b!", "c"])).response)
    assert shop.names[:2] == ["a", "b!"]
    assert decorator(by_name)(apply)(listed) == {"batchItemFailures": []}


@pytest.mark.parametrize(
    ("decorator", "options"),
    [(kinesis_handler, {}), (dynamodb_stream_handler, {}), (kafka_handler, {}), (kafka_handler, {"provisioned_mode": True})],
)
def test_pipes_with_a_stream_or_kafka_gets_an_error(decorator: Any, options: Any, shop: Shop) -> None:
    """It knows the records of a stream by their eventID, not by the sequence numbers that Lambda wants."""
    with pytest.raises(NotSettled):
        decorator(by_name, **options)(shop)(in_a_list(decorator, ["a", "b!", "c"]))


# ---------------------------------------------------------------- straight to Lambda

PLACED = {
    "version": "0",
    "id": "e1",
    "detail-type": "Placed",
    "source": "shop",
    "time": "2023-11-14T22:13:20Z",
    "detail": {"no": "o-7", "price": 0.1},
}
PUBLISHED = {
    "Type": "Notification",
    "MessageId": "n1",
    "TopicArn": "arn:aws:sns:eu-west-1:1:t",
    "Timestamp": "2023-11-14T22:13:20.000Z",
    "Message": '{"no": "o-7", "price": 0.1}',
    "MessageAttributes": {"tenant": {"Type": "String", "Value": "t1"}},
}
STORED = {
    "eventSource": "aws:s3",
    "eventName": "ObjectCreated:Put",
    "responseElements": {"x-amz-request-id": "r1"},
    "s3": {"bucket": {"name": "b"}, "object": {"key": "o-7", "sequencer": "0A"}},
}
CHANGED = {
    "_id": {"_data": "01"},
    "clusterTime": {"$timestamp": {"t": int(SENT_AT), "i": 1}},
    "documentKey": {"_id": 1},
    "fullDocument": {"_id": 1, "no": "o-7"},
    "ns": {"db": "shop", "coll": "orders"},
    "operationType": "insert",
}


def of_sns(*messages: Any) -> dict[str, Any]:
    return {"Records": [{"EventSource": "aws:sns", "EventVersion": "1.0", "Sns": message} for message in messages]}


def of_documentdb(*changes: Any) -> dict[str, Any]:
    arn = "arn:aws:rds:eu-west-1:1:cluster:shop"
    return {"eventSource": "aws:docdb", "eventSourceArn": arn, "events": [{"event": change} for change in changes]}


DIRECT: dict[str, tuple[Any, Any, Any]] = {
    "SNS": (sns_handler, sns(json_body(id="no")), of_sns(PUBLISHED)),
    "EventBridge": (eventbridge_handler, eventbridge(json_body(id="no")), PLACED),
    "S3": (s3_handler, s3_object(), {"Records": [STORED]}),
    "DocumentDB": (documentdb_handler, json_body(id="fullDocument.no"), of_documentdb(CHANGED)),
}


@pytest.mark.parametrize("name", DIRECT)
def test_direct_event_becomes_a_message(name: str) -> None:
    decorator, identity, event = DIRECT[name]
    seen: list[Message] = []
    report = decorator(identity, clock=lambda: SENT_AT + 2)(seen.append).run(event, None)
    assert ("o-7" in seen[0].id, len(seen)) == (True, 1)
    assert report.oldest_seconds == (None if name == "S3" else 2.0)
    assert report.results[0].record_id == {"SNS": "n1", "EventBridge": "e1", "S3": "r1", "DocumentDB": "01"}[name]


@pytest.mark.parametrize("name", DIRECT)
@pytest.mark.parametrize("outcome", [Deferred(Message("m", "s", 2), 1), ValueError("4111-1111-1111-1111")])
def test_unsettled_direct_event_raises(name: str, outcome: Any) -> None:
    decorator, identity, event = DIRECT[name]

    def each(message: Message) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with pytest.raises(
        NotSettled, match=f"1 of 1 records must be redelivered.*a handler of {name} requests redelivery"
    ) as caught:
        decorator(identity)(each)(event, None)
    assert type(outcome).__name__ in str(caught.value)
    assert "4111" not in str(caught.value)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_error_of_a_direct_event_has_its_traceback_as_cause() -> None:
    decorator, identity, event = DIRECT["SNS"]
    failure = ValueError("no stock")

    def each(_: Message) -> None:
        raise failure

    with pytest.raises(NotSettled) as caught:
        decorator(identity, log_exceptions=True)(each)(event, None)
    assert "Traceback" not in str(caught.value)
    assert caught.value.__cause__ is failure


@pytest.mark.parametrize("name", DIRECT)
def test_direct_event_without_time_left_raises(name: str) -> None:
    decorator, identity, event = DIRECT[name]
    with pytest.raises(NotSettled):
        decorator(identity)(apply)(event, Context(lambda: 0.1))


@pytest.mark.parametrize("name", DIRECT)
@pytest.mark.parametrize("other", [*OTHERS[:5], [PLACED], sqs(["a"]), {"events": 5}, {"Records": [{}]}], ids=repr)
def test_foreign_direct_event_is_refused(name: str, other: Any) -> None:
    decorator, identity, _ = DIRECT[name]
    with pytest.raises(ConfigurationError, match="This event isn't a batch of"):
        decorator(identity)(apply)(other)


def test_documentdb_changes_stop_at_the_first_failure() -> None:
    seen: list[str] = []

    def each(message: Message) -> None:
        seen.append(message.body["no"])
        if message.body["no"] == "b":
            raise ValueError

    changes = [{**CHANGED, "_id": {"_data": f"0{n}"}, "no": name} for n, name in enumerate("abc")]
    with pytest.raises(NotSettled, match="2 of 3 records"):
        documentdb_handler(documentdb_position())(each)(of_documentdb(*changes))
    assert seen == ["a", "b"]


# ---------------------------------------------------------------- what is never for the function

TEST_EVENT = json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"})


@pytest.mark.parametrize("body", [TEST_EVENT, json.dumps({**PUBLISHED, "Message": TEST_EVENT})])
@pytest.mark.parametrize("identity", [by_name, sqs_message_id(), json_body(id="key"), s3_object()])
def test_s3_test_event_is_settled_with_any_identity(body: str, identity: Any, shop: Shop) -> None:
    report = sqs_handler(identity)(shop).run({"Records": [sqs_record("x", body=body)]})
    assert (report.results[0].skipped, identifiers(report.response), shop.names) == (True, [], [])


def test_s3_test_event_through_sns_is_settled() -> None:
    assert sns_handler(s3_object())(apply).run(of_sns({**PUBLISHED, "Message": TEST_EVENT})).results[0].skipped


@pytest.mark.parametrize(
    "body",
    ['{"no": "s3:TestEvent"}', "[" * 100_000 + "s3:TestEvent", '{"Type": "Notification", "Message": "s3:TestEvent"}', None],
)
def test_body_that_mentions_the_test_event_is_a_message(body: Any) -> None:
    report = sqs_handler(sqs_message_id())(lambda _: None).run({"Records": [sqs_record("x", body=body)]})
    assert report.results[0].message == sqs_message_id()(sqs_record("x", body=body))


def test_aggregated_record_is_refused_with_any_identity(shop: Shop) -> None:
    content = b"\x0a\x01p"
    [record] = kinesis(["x"])["Records"]
    aggregated = b"\xf3\x89\x9a\xc2" + content + md5(content, usedforsecurity=False).digest()
    record["kinesis"]["data"] = b64encode(aggregated).decode()
    report = kinesis_handler(lambda _: Message("m"))(shop).run({"Records": [record]})
    assert "deaggregate_records" in str(report.results[0].error)
    assert (identifiers(report.response), shop.names) == (["1"], [])


def test_deaggregated_records_fail_by_their_record_number(shop: Shop) -> None:
    records = kinesis(["a", "b!", "c"])["Records"]
    for among, record in enumerate(records):
        record["kinesis"] |= {"sequenceNumber": "7", "subSequenceNumber": among}
    assert identifiers(kinesis_handler(by_name)(shop)({"Records": records})) == ["7"]
    assert shop.names == ["a", "b!"]


@pytest.mark.parametrize(("decorator", "event"), [(kinesis_handler, kinesis), (dynamodb_stream_handler, dynamodb)])
def test_tumbling_window_is_refused(decorator: Any, event: Any, shop: Shop) -> None:
    windowed = {**event(["a"]), "window": {"start": "s", "end": "e"}, "state": {}, "isFinalInvokeForWindow": False}
    with pytest.raises(ConfigurationError, match=r"tumbling window.* Set TumblingWindowInSeconds to 0"):
        decorator(by_name)(shop)(windowed)
    assert shop.names == []


# ---------------------------------------------------------------- the record of a message that a worker has received


def test_received_message_becomes_lambdas_record() -> None:
    attributes = {"ApproximateReceiveCount": "1", "SentTimestamp": "1767225600000"}
    order = {"StringValue": "order", "DataType": "String"}
    picture = {"BinaryValue": b"\x00\xff", "DataType": "Binary.png"}
    received = {
        "MessageId": "m1",
        "ReceiptHandle": "h1",
        "Body": "text",
        "MD5OfBody": "1cb2",
        "MD5OfMessageAttributes": "00ff",
        "Attributes": attributes,
        "MessageAttributes": {"kind": order, "picture": picture},
    }
    lists: dict[str, Any] = {"stringListValues": [], "binaryListValues": []}
    assert make_lambda_record(received, ARN) == {
        "messageId": "m1",
        "receiptHandle": "h1",
        "body": "text",
        "attributes": attributes,
        "messageAttributes": {
            "kind": {"stringValue": "order", "dataType": "String", **lists},
            "picture": {"binaryValue": "AP8=", "dataType": "Binary.png", **lists},
        },
        "md5OfBody": "1cb2",
        "md5OfMessageAttributes": "00ff",
        "eventSource": "aws:sqs",
        "eventSourceARN": ARN,
        "awsRegion": "eu-west-1",
    }
