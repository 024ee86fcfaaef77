"""Which record becomes which message, and what a record without a key is refused with."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from decimal import Decimal
from fractions import Fraction
from functools import partial
from hashlib import md5, sha256
from typing import Any, cast

import pytest

from onewrite import ConfigurationError, InvalidMessage, Message, sortable
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
    record_id,
    s3_object,
    skip_deletions,
    sns,
    sqs_message_id,
)
from onewrite.testing import dynamodb_stream_event, kafka_event, kinesis_event
from tests.support.batches import FIFO, sqs_record

CANARY = "4111-1111-1111-1111"
STREAM = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
TABLE = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000"


def encoded(data: bytes | str) -> str:
    return b64encode(data.encode() if isinstance(data, str) else data).decode()


def sqs(body: Any, **more: Any) -> dict[str, Any]:
    text = body if isinstance(body, str) else json.dumps(body)
    given = {"messageId": "b1", "body": text, "attributes": {"ApproximateReceiveCount": "2"}, **more}
    return sqs_record("", arn=FIFO, **given)


def fifo(group: str = "g1", number: str = "18849496460467696128", **more: Any) -> dict[str, Any]:
    return sqs("text", attributes={"SequenceNumber": number, "MessageGroupId": group}, **more)


def kinesis(data: bytes | str, number: str = "49590338271490256608559692538361571095921575989136588898") -> dict[str, Any]:
    [record] = kinesis_event(data, shard=6)["Records"]
    record["kinesis"]["sequenceNumber"] = number
    return {**record, "eventID": f"shardId-000000000006:{number}"}


def change(keys: Any, number: str = "111", **more: Any) -> dict[str, Any]:
    [record] = dynamodb_stream_event((None, {"no": "o-7"}), key="no")["Records"]
    record["dynamodb"] |= {"Keys": keys, "SequenceNumber": number}
    return {**record, "eventID": "c4ca4238", "eventSourceARN": TABLE, **more}


def kafka(value: bytes | str | None, **more: Any) -> dict[str, Any]:
    [record] = kafka_event(value, partition=3, offset=15, key="k")["records"]["orders-3"]
    return {**record, **more}


def notification(message: str, **more: Any) -> dict[str, Any]:
    name = {"Type": "Notification", "MessageId": "n1", "TopicArn": "arn:topic", "Subject": "s"}
    return {**name, "Message": message, "UnsubscribeURL": "https://secret", **more}


def event(detail: Any, **more: Any) -> dict[str, Any]:
    return {"version": "0", "id": "e1", "detail-type": "Placed", "source": "shop", "detail": detail, **more}


def refused(identity: Identity, record: Any) -> str:
    """What an identity says against a record; no part of it has shown the content."""
    with pytest.raises(InvalidMessage) as caught:
        identity(record)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert CANARY not in str(caught.value)
    return str(caught.value)


# json_body ------------------------------------------------------------------------------------------------------------


def test_paths_find_id_source_and_sequence() -> None:
    identity = json_body(id="order.no", source="tenant", sequence="version")
    body = {"order": {"no": "o-7"}, "tenant": "t1", "version": 3}
    assert identity(sqs(body)) == Message("o-7", "t1", 3, body=body, system={"ApproximateReceiveCount": "2"})


def test_fractions_keep_all_digits() -> None:
    body = json_body(id="id")(sqs('{"id": "m", "cents": 1999, "price": 0.1, "huge": 1e400}')).body
    assert (body["cents"], body["price"], body["huge"]) == (1999, Decimal("0.1"), Decimal("1e400"))
    assert [type(body[name]) for name in ("cents", "price", "huge")] == [int, Decimal, Decimal]


def test_fractions_are_floats_if_requested() -> None:
    record = sqs('{"id": "m", "price": 0.5}')
    assert type(json_body(id="id", parse_float=float)(record).body["price"]) is float
    wrapped = sqs(event({"id": "m", "price": 0.5}))
    assert type(eventbridge(json_body(id="id"), parse_float=float)(wrapped).body["price"]) is float
    assert type(cloudevent(parse_float=float)(sqs(structured(data=0.5))).body) is float


def test_infinite_number_is_refused() -> None:
    body = '{"id": "m", "n": 1e400, "specversion": "1.0", "source": "s"}'
    for identity in (json_body(id="id", parse_float=float), cloudevent(parse_float=float)):
        assert refused(identity, sqs(body)) == "Record b1: its body isn't valid JSON (ValueError)."


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({}, "missing or null"),
        ({"no": None}, "missing or null"),
        ({"no": ""}, "an empty string"),
        ({"no": [CANARY]}, "an array"),
        ({"no": True}, "a boolean"),
        ({"no": {"no": CANARY}}, "an object"),
    ],
)
@pytest.mark.parametrize("name", ["id", "source", "sequence"])
def test_error_names_the_path_and_record_of_an_invalid_key(name: str, body: Any, kind: str) -> None:
    paths: dict[str, Any] = {"id": "m", "source": "m", name: "no"}
    said = refused(json_body(**paths), sqs({"m": "m", **body}))
    expected = "a non-empty string" + " or an integer" * (name != "sequence")
    assert said == f"Record b1: the {name}, path 'no': expected {expected}, got {kind}."


def test_path_through_an_array_is_refused_with_a_remedy() -> None:
    said = refused(json_body(id="lines.0.no"), sqs({"lines": [{"no": CANARY}]}))
    assert said == (
        "Record b1: the id, path 'lines.0.no': the path leads through an array. Read the field with a function of the record instead."
    )


@pytest.mark.parametrize("path", ["order-no", "@type", "$oid", "xsi:type", "été", "0"])
def test_path_can_contain_any_json_name(path: str) -> None:
    assert json_body(id=f"a.{path}")(sqs({"a": {path: "o-7"}})).id == "o-7"


@pytest.mark.parametrize(("json", "found"), [("7", "7"), ("0", "0"), ("-0", "0"), (str(10**60), str(10**60))])
def test_integer_key_is_its_decimal_digits(json: str, found: str) -> None:
    message = json_body(id="no", source="no")(sqs(f'{{"no": {json}}}'))
    assert (message.id, message.source) == (found, found)
    assert json_body(id="no")(sqs(f'{{"no": "{found}"}}')).id == found  # and the same as that text


@pytest.mark.parametrize("number_in_json", ["1.0", "1e2", "12345678901234567890.1"])
@pytest.mark.parametrize(
    ("name", "field"),
    [("id", "no"), ("id", ["no"]), ("source", "no"), ("source", ["no"]), ("sequence", "no"), ("sequence", number("no"))],
)
@pytest.mark.parametrize("parse_float", [Decimal, float, Fraction])
def test_number_with_fraction_or_exponent_is_refused_as_key(
    name: str, field: Any, number_in_json: str, parse_float: Any
) -> None:
    fields: dict[str, Any] = {"id": "m", "source": "m", name: field}
    refused(json_body(**fields, parse_float=parse_float), sqs(f'{{"m": "m", "no": {number_in_json}}}'))


@pytest.mark.parametrize(("n", "found"), [(7, 7), ("0007", 7), ("-7", -7), (10**60, 10**60)])
def test_sequence_can_be_a_number_as_text(n: object, found: int) -> None:
    assert json_body(id="id", source="id", sequence=number("n"))(sqs({"id": "m", "n": n})).sequence == found


@pytest.mark.parametrize("n", [None, "", " 7", "7.0", "1_000", "\u0663", True, [7]])
def test_number_accepts_only_decimal_digits(n: object) -> None:
    said = refused(json_body(id="id", source="id", sequence=number("n")), sqs({"id": "m", "n": n}))
    assert said.startswith("Record b1: the sequence, path 'n': expected ")
    assert "expected an integer in decimal digits, got " in said


@pytest.mark.parametrize(
    ("fields", "body", "found"),
    [
        (["customer", "no"], {"customer": "a", "no": 7}, "1:a1:7"),
        (("order.no", "line"), {"order": {"no": "o-7"}, "line": "2"}, "3:o-71:2"),
        (["no", lambda record: record["eventSource"]], {"no": "a"}, "1:a7:aws:sqs"),
    ],
)
def test_list_of_paths_makes_a_composite_key(fields: Any, body: Any, found: str) -> None:
    message = json_body(id=fields, source=fields)(sqs(body))
    assert (message.id, message.source) == (found, found)


@pytest.mark.parametrize(
    "record",
    [sqs({"a.b": ["o-7"]}), kinesis('{"a.b": ["o-7"]}'), kafka('{"a.b": ["o-7"]}')],
    ids=["sqs", "kinesis", "kafka"],
)
def test_function_of_the_record_receives_the_parsed_body(record: dict[str, Any]) -> None:
    def find(record: Any) -> Any:
        return record["body"]["a.b"][0]

    identity = json_body(id=find, source=find, sequence=find)
    message = identity(record)
    assert (message.id, message.source, message.sequence) == ("o-7", "o-7", "o-7")


@pytest.mark.parametrize("result", [None, "", 1.5, True, [CANARY], ("a", "b")])
def test_function_that_returns_no_key_is_named(result: Any) -> None:
    def find(record: Any) -> Any:
        del record
        return result

    assert refused(json_body(id=find), sqs({})).startswith("Record b1: the id, function find: expected ")


def test_error_of_a_raising_function_does_not_show_content() -> None:
    def find(record: Any) -> Any:
        return record["body"][CANARY]

    assert refused(json_body(id=find), sqs({})) == "Record b1: the id, function find raised KeyError."


@pytest.mark.parametrize(
    "path",
    [
        *["a || b", "[a, b]", "a[0].b", "lines[*].no", "length(no)", "{x: no}.x", "'everyone'", "`0`"],
        *['"order-no"', "no == 'x'", "$.order.no", "@", "@.no", "*", "a,b", "a b", " a", "", ".", "a.", ".a", "a..b"],
    ],
)
def test_path_in_another_syntax_is_refused_at_once(path: str) -> None:
    for fields, name in (
        ({"id": path}, "id"),
        ({"id": ["a", path]}, "id[1]"),
        ({"id": "a", "source": path}, "source"),
        ({"id": "a", "sequence": path}, "sequence"),
        ({"id": "a", "sequence": number(path)}, "sequence"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            json_body(**cast("Any", fields))
        assert str(caught.value).startswith(f"{name}={path!r} isn't a dotted path. Write a dotted path")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"id": None}, "id=None: expected a path as a str, or a function of the record."),
        ({"id": ["a", 5]}, "id[1]=5: expected a path as a str, or a function of the record."),
        ({"id": {"a"}}, "id={'a'}: expected a path as a str, or a function of the record."),
        ({"id": []}, "id=[]: the list is empty."),
        ({"id": number("n")}, "id=number('n'): number() is for a sequence"),
        ({"id": "a", "sequence": ["a", "b"]}, "sequence=['a', 'b']: expected one field, got a list."),
        ({"id": "a", "sequence": 7}, "sequence=7: expected a path as a str, or a function of the record."),
    ],
)
def test_wrong_field_is_refused_at_once(fields: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        json_body(**fields)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (f'{{"id": "{CANARY}"', "at character 28"),
        ('{"id": "m", "n": NaN}', "ValueError"),
        ('{"id": "m", "n": 1e9999999999999999999}', "InvalidOperation"),
        ('{"id": "m", "n": ' + "1" * 5000 + "}", "ValueError"),
        ("[" * 100_000, "RecursionError"),
    ],
)
def test_invalid_json_body_is_refused_without_showing_it(body: str, problem: str) -> None:
    assert refused(json_body(id="id"), sqs(body)) == f"Record b1: its body isn't valid JSON ({problem})."


@pytest.mark.parametrize("data", ["YWJj=YWJj", CANARY, None])
def test_invalid_base64_data_is_refused(data: Any) -> None:
    record = kinesis("")
    record["kinesis"]["data"] = data
    for identity in (json_body(id="id"), kinesis_position()):
        assert refused(identity, record).endswith(": its data: expected valid base64.")


@pytest.mark.parametrize("record", [{"messageId": "b1"}, {"messageId": "b1", "body": None}, kafka(None)])
def test_record_without_a_body_is_refused(record: dict[str, Any]) -> None:
    assert refused(json_body(id="id"), record).startswith(f"Record {record_id(record)}: it has no body.")


def test_lone_surrogate_is_refused_with_the_records_id() -> None:
    for body in ('{"id": "\\ud800"}', '{"id": "\\ud800' + CANARY + '"}'):
        assert refused(json_body(id="id"), sqs(body)).startswith("Record b1: Message.id contains a lone surrogate")


@pytest.mark.parametrize("parse_float", [None, "float"])
def test_wrong_parse_float_is_refused_at_once(parse_float: Any) -> None:
    """Otherwise each record with a fraction would be called invalid."""
    for make in (partial(json_body, id="id"), partial(eventbridge, json_body(id="id")), cloudevent, cloudevent_batch):
        with pytest.raises(ConfigurationError, match=r"parse_float=.*: expected a function of the digits"):
            make(parse_float=parse_float)


# attributes -----------------------------------------------------------------------------------------------------------


def test_senders_attributes_are_separate_from_system_attributes() -> None:
    users = {
        "tenant": {"stringValue": "t1", "stringListValues": [], "binaryListValues": [], "dataType": "String"},
        "count": {"stringValue": "7", "dataType": "Number.int"},
        "key": {"binaryValue": encoded(b"\xff"), "dataType": "Binary"},
        "SenderId": {"stringValue": "forged", "dataType": "String"},
    }
    record = sqs("x", attributes={"ApproximateReceiveCount": "2", "SenderId": "AIDA"}, messageAttributes=users)
    message = sqs_message_id()(record)
    assert message.attributes == {"tenant": "t1", "count": "7", "key": b"\xff", "SenderId": "forged"}
    assert message.system == {"ApproximateReceiveCount": "2", "SenderId": "AIDA"}
    assert len(message.attributes) == 4


def test_kafka_headers_become_attributes() -> None:
    record = kafka("v", headers=[{"tenant": [116, 49]}, {"name": [-61, -87]}, {"tenant": [116, 50]}, {"none": None}])
    message = kafka_position()(record)
    assert message.attributes == {"tenant": b"t2", "name": "é".encode(), "none": None}
    assert (message.system["topic"], message.system["offset"], message.system["key"]) == ("orders", 15, b"k")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"messageAttributes": {"a": CANARY}}, "one of its attributes: expected an object, got a string."),
        ({"messageAttributes": {"a": {"binaryValue": CANARY}}}, "has no text: expected valid base64."),
        ({"headers": CANARY}, "its headers: expected a list of mappings."),
        ({"headers": [{"a": [256]}]}, "one of its headers: expected a list of bytes, got an array."),
    ],
)
def test_unreadable_attribute_fails_only_on_access(part: dict[str, Any], said: str) -> None:
    for identity in (sqs_message_id(), json_body(id="no")):
        message = identity(sqs({"no": "o-7"}, **part))
        with pytest.raises(InvalidMessage) as caught:
            message.attributes["a"]
        assert str(caught.value).startswith("Record b1: ")
        assert str(caught.value).endswith(said)
        assert CANARY not in str(caught.value) + repr(message.attributes)


# sqs_message_id and fifo_sequence -------------------------------------------------------------------------------------


def test_sqs_message_id_is_the_id() -> None:
    message = sqs_message_id()(sqs('{"a": 1}'))
    assert (message.id, message.source, message.sequence, message.body) == ("b1", "", None, '{"a": 1}')


def test_fifo_position_is_group_and_sequence_number() -> None:
    message = fifo_sequence()(fifo("customer/7"))
    assert (message.id, message.source, message.body) == ("b1", f"{FIFO}/customer/7", "text")
    assert message.sequence == sortable(18849496460467696128)


@pytest.mark.parametrize("number", ["", "-1", "\uff11", 7])
def test_sequence_number_without_digits_is_refused(number: Any) -> None:
    assert "its sequence number: expected" in refused(fifo_sequence(), fifo(number=number))


def test_record_of_a_standard_queue_has_no_position() -> None:
    record = sqs("x", attributes={"MessageGroupId": "fair"})
    assert refused(fifo_sequence(), record) == (
        "Record b1: it has no SequenceNumber, because a standard queue keeps no order. Use json_body or sqs_message_id."
    )


# sns and eventbridge --------------------------------------------------------------------------------------------------


def test_sns_envelope_is_removed() -> None:
    message = sns(json_body(id="no"))(sqs(notification('{"no": "o-7"}')))
    assert (message.id, message.body) == ("o-7", {"no": "o-7"})
    assert message.attributes == {"MessageId": "n1", "TopicArn": "arn:topic", "Subject": "s"}
    assert message.system == {"ApproximateReceiveCount": "2"}


def test_sns_attributes_are_decoded_like_sqs_attributes() -> None:
    published = {"tenant": {"Type": "String", "Value": "t1"}, "key": {"Type": "Binary", "Value": encoded(b"\xff")}}
    message = sns(sqs_message_id())(sqs(notification("text", MessageAttributes=published)))
    assert (message.attributes["tenant"], message.attributes["key"]) == ("t1", b"\xff")
    assert message.body == "text"


def test_envelope_fields_replace_the_senders_attributes() -> None:
    published = {"TopicArn": {"Type": "String", "Value": "forged"}}
    body = json.dumps(event({}, TopicArn="forged"))
    message = sns(eventbridge(sqs_message_id()))(sqs(notification(body, MessageAttributes=published)))
    assert message.attributes["TopicArn"] == "arn:topic"


def test_eventbridge_envelope_is_removed() -> None:
    message = eventbridge(json_body(id="no"))(sqs(event({"no": "o-7"})))
    assert (message.id, message.body) == ("o-7", {"no": "o-7"})
    assert message.attributes == {"version": "0", "id": "e1", "detail-type": "Placed", "source": "shop"}


@pytest.mark.parametrize("body", [notification("m", Type="SubscriptionConfirmation"), {"detail": {}, "source": "s"}])
@pytest.mark.parametrize("envelope", [sns, eventbridge])
def test_body_without_an_envelope_is_passed_to_the_inner_identity(envelope: Any, body: dict[str, Any]) -> None:
    assert envelope(sqs_message_id())(sqs(body)) == sqs_message_id()(sqs(body))


@pytest.mark.parametrize("detail", [CANARY, None])
def test_event_is_refused_if_its_detail_is_not_an_object(detail: Any) -> None:
    said = refused(eventbridge(json_body(id="id")), sqs(event(detail)))
    assert said.startswith("Record b1: the detail of its EventBridge event: expected ")
    without = {name: value for name, value in event({}).items() if name != "detail"}
    assert "missing or null" in refused(eventbridge(json_body(id="id")), sqs(without))


@pytest.mark.parametrize("text", [None, {"no": 1}])
def test_notification_without_a_text_is_refused(text: Any) -> None:
    said = refused(sns(json_body(id="MessageId")), sqs(notification("m") | {"Message": text}))
    assert said.startswith("Record b1: the Message of its SNS envelope: expected ")


# cloudevent -----------------------------------------------------------------------------------------------------------


def structured(**more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": "A-1", "source": "/orders", "type": "placed", **more}


def binary(**said: str) -> dict[str, Any]:
    return {name.replace("_", "-", 1): {"stringValue": value, "dataType": "String"} for name, value in said.items()}


def test_structured_event_has_its_source_id_and_data() -> None:
    message = cloudevent()(sqs(structured(data={"no": "o-7"}, subject="o-7")))
    assert (message.id, message.source, message.body) == ("7:/orders:A-1", "/orders", {"no": "o-7"})
    assert message.attributes == structured(subject="o-7")


def test_binary_event_is_read_from_sqs_attributes() -> None:
    said = binary(ce_id="A-1", ce_source="/orders", ce_type="placed", ce_specversion="1.0")
    message = cloudevent()(sqs({"no": "o-7"}, messageAttributes=said))
    assert (message.id, message.source, message.body) == ("7:/orders:A-1", "/orders", {"no": "o-7"})
    assert message.attributes["type"] == "placed"


@pytest.mark.parametrize("prefix", ["ce_", "CE-", "cloudEvents:"])
def test_binary_event_is_read_from_kafka_headers(prefix: str) -> None:
    headers = [{f"{prefix}id": list(b"A-1")}, {f"{prefix}source": list(b"/orders")}, {"content-type": list(b"text/plain")}]
    message = cloudevent()(kafka("data", headers=headers))
    assert (message.id, message.source, message.body) == ("7:/orders:A-1", "/orders", b"data")
    assert message.attributes["datacontenttype"] == "text/plain"


@pytest.mark.parametrize("name", ["content-type", "contentType"])
def test_structured_event_can_repeat_its_attributes(name: str) -> None:
    said = binary(ce_id="A-1", ce_source="/orders")
    said[name] = {"stringValue": "application/cloudevents+json; charset=UTF-8", "dataType": "String"}
    assert cloudevent()(sqs(structured(data=5), messageAttributes=said)).body == 5


@pytest.mark.parametrize(
    ("content_type", "data"),
    [(None, {"a": 1}), ("Application/vnd.shop+JSON; charset=utf-8", {"a": 1}), ("text/plain", '{"a": 1}')],
)
def test_binary_data_is_parsed_unless_declared_otherwise(content_type: str | None, data: Any) -> None:
    said = binary(ce_id="A-1", ce_source="/orders")
    if content_type is not None:
        said["content-type"] = {"stringValue": content_type, "dataType": "String"}
    assert cloudevent()(sqs('{"a": 1}', messageAttributes=said)).body == data


@pytest.mark.parametrize(("source", "own_id"), [("日" * 800, "1"), ("/orders", "x" * 2040), ("s" * 2049, "y" * 5_000_000)])
def test_too_long_source_or_id_becomes_a_digest(source: str, own_id: str) -> None:
    event = {"specversion": "1.0", "source": source, "id": own_id, "type": "t"}
    found = cloudevent()({"messageId": "m", "body": json.dumps(event)})
    key = f"{len(source)}:{source}:{own_id}"
    assert found.id == f"sha256:{sha256(key.encode()).hexdigest()}"
    fits = len(source.encode()) <= 2048
    assert found.source == (source if fits else f"sha256:{sha256(source.encode()).hexdigest()}")
    assert found.attributes["source"] == source


def test_source_cannot_equal_another_sources_digest() -> None:
    long = cloudevent()(sqs(structured(source="s" * 3000, id="1"))).source
    assert cloudevent()(sqs(structured(source=long, id="1"))).source != long


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({}, None),
        ({"sequence": "0007"}, "0007"),
        ({"sequence": "7", "sequencetype": "Integer"}, 7),
        ({"sequence": "7", "sequencetype": "Other"}, "7"),
        ({"sequence": 7}, 7),
    ],
)
def test_sequence_extension_becomes_the_sequence(said: dict[str, Any], found: Any) -> None:
    message = cloudevent()(sqs(structured(**said)))
    assert (message.sequence, type(message.sequence)) == (found, type(found))


@pytest.mark.parametrize("sequence", ["1_0", True, "", [CANARY]])
def test_invalid_sequence_extension_is_refused(sequence: Any) -> None:
    said = refused(cloudevent(), sqs(structured(sequence=sequence, sequencetype="Integer")))
    assert said.startswith("Record b1: the CloudEvent's sequence: expected")


@pytest.mark.parametrize("value", [None, "", [CANARY]])
@pytest.mark.parametrize("name", ["id", "source"])
def test_event_without_id_or_source_is_refused(name: str, value: Any) -> None:
    said = refused(cloudevent(), sqs(structured() | {name: value}))
    assert said.startswith(f"Record b1: the CloudEvent's {name}: expected")


@pytest.mark.parametrize("body", [{"id": "A-1", "source": "/orders"}, [structured()], 5])
def test_body_that_is_not_a_cloudevent_is_refused(body: Any) -> None:
    assert refused(cloudevent(), sqs(body)).startswith("Record b1: it isn't a CloudEvent: its body has no specversion")


def test_unreadable_data_is_refused() -> None:
    assert refused(cloudevent(), sqs(structured(data_base64=CANARY))) == "Record b1: its data_base64: expected valid base64."
    said = binary(ce_id="A-1", ce_source="/orders")
    assert refused(cloudevent(), sqs(CANARY, messageAttributes=said)).startswith("Record b1: its body isn't valid JSON")
    headers = [{"ce_id": [255]}]
    assert "isn't valid UTF-8" in refused(cloudevent(), kafka("1", headers=headers))


# positions in streams -------------------------------------------------------------------------------------------------


def test_kinesis_position_is_stream_shard_and_number() -> None:
    number = "49590338271490256608559692538361571095921575989136588898"
    message = kinesis_position()(kinesis(b"\x00data", number))
    assert message.source == f"{STREAM}/shardId-000000000006"
    assert message.id == f"{STREAM}/shardId-000000000006:{number}"
    assert (message.sequence, message.body) == (sortable(int(number)), b"\x00data")
    assert message.system["sequenceNumber"] == number
    assert "data" not in message.system


def test_dynamodb_stream_position_is_item_and_number() -> None:
    record = change({"pk": {"S": "a"}, "sk": {"N": "1"}}, "222")
    message = dynamodb_stream_position()(record)
    assert (message.id, message.sequence) == ("c4ca4238", sortable(222))
    assert message.source.startswith(f"{TABLE}/")
    assert message.body == {"eventName": "INSERT", **record["dynamodb"]}


def test_item_has_one_source_for_any_key_order() -> None:
    def source(keys: Any, **more: Any) -> str:
        return dynamodb_stream_position()(change(keys, **more)).source

    item = source({"pk": {"S": "a"}, "sk": {"N": "1"}})
    assert source({"sk": {"N": "1"}, "pk": {"S": "a"}}) == item
    assert source({"pk": {"S": "a"}, "sk": {"S": "1"}}) != item
    assert source({"pk": {"S": "a"}, "sk": {"N": "1"}}, eventSourceARN=TABLE + "2") != item


def test_kafka_position_is_topic_partition_and_offset() -> None:
    message = kafka_position()(kafka(b"\x00data"))
    assert (message.id, message.source, message.sequence, message.body) == ("orders-3@15", "orders-3", 15, b"\x00data")


def test_kafka_clusters_have_separate_sources() -> None:
    message = kafka_position(cluster="eu/1")(kafka("x"))
    assert (message.id, message.source) == ("eu/1/orders-3@15", "eu/1/orders-3")
    with pytest.raises(ConfigurationError, match="cluster=5"):
        kafka_position(cluster=cast("Any", 5))


# records that Kinesis's producers have aggregated ------------------------------------------------------------------------


def aggregated(content: bytes) -> bytes:
    """As the Kinesis Producer Library writes them: four bytes, a message of protobuf, and its MD5."""
    return b"\xf3\x89\x9a\xc2" + content + md5(content, usedforsecurity=False).digest()


def taken_apart(*contents: str, number: str = "7") -> list[dict[str, Any]]:
    """The records that aws-kinesis-agg makes of an aggregated one. Their data is base64 as bytes."""
    records = []
    for among, content in enumerate(contents):
        record = kinesis(content, number)
        record["kinesis"] |= {"subSequenceNumber": among, "aggregated": True, "data": b64encode(content.encode())}
        records.append(record)
    return records


@pytest.mark.parametrize(
    "identity", [kinesis_position(), json_body(id="id"), cloudevent(), sns(eventbridge(json_body(id="id")))]
)
@pytest.mark.parametrize("shape", [str, str.encode])
def test_aggregated_record_is_refused_with_the_remedy(identity: Identity, shape: Any) -> None:
    record = kinesis(aggregated(CANARY.encode()))
    record["kinesis"]["data"] = shape(record["kinesis"]["data"])
    assert "deaggregate_records of the package aws-kinesis-agg" in refused(identity, record)


@pytest.mark.parametrize("data", [aggregated(b"x")[:-1], aggregated(b"x") + b"x", b"\xf3\x89\x9a\xc2", b"\xf3\x89\x9a\xc3"])
def test_data_with_the_prefix_of_aggregated_records_is_accepted(data: bytes) -> None:
    assert kinesis_position()(kinesis(data)).body == data


def test_positions_of_deaggregated_records_sort() -> None:
    messages = [kinesis_position()(record) for record in taken_apart(*"abcdefghijkl")]
    assert [message.body for message in messages] == [letter.encode() for letter in "abcdefghijkl"]
    assert len({message.id for message in messages}) == 12
    assert len({message.source for message in messages}) == 1
    sequences: list[Any] = [message.sequence for message in messages]
    assert sequences == sorted(set(sequences))


# documentdb_position --------------------------------------------------------------------------------------------------

CLUSTER = "arn:aws:rds:eu-west-1:123456789012:cluster:shop"


def document(token: str = "0163ee", at: Any = (1676588775, 9), **more: Any) -> dict[str, Any]:  # noqa: S107  # a resume token opens nothing
    seconds, count = at
    inserted = {
        "_id": {"_data": token},
        "clusterTime": {"$timestamp": {"t": seconds, "i": count}},
        "documentKey": {"_id": {"$oid": "63eeb6e7d418cd98afb1c1d7"}},
        "fullDocument": {"_id": {"$oid": "63eeb6e7d418cd98afb1c1d7"}, "no": "o-7"},
        "ns": {"db": "shop", "coll": "orders"},
        "operationType": "insert",
        **more,
    }
    return {"event": inserted, "eventID": token, "eventSource": "aws:docdb", "eventSourceARN": CLUSTER}


def test_documentdb_position_is_document_and_cluster_time() -> None:
    message = documentdb_position()(document())
    assert message.id == f"{CLUSTER}:0163ee"
    assert message.source.startswith(f"{CLUSTER}/shop.orders/")
    assert message.body["fullDocument"]["no"] == "o-7"
    assert json_body(id="fullDocument.no")(document()).id == "o-7"


def test_documentdb_positions_sort_by_time_and_token() -> None:
    times = [("ff", (5, 9)), ("a", (10, 0)), ("b", (10, 0)), ("0", (10, 1)), ("0", (11, 0)), ("0", (1676588775, 2**32 - 1))]
    found: list[Any] = [documentdb_position()(document(token, at)).sequence for token, at in times]
    assert found == sorted(set(found))


def test_documentdb_source_is_the_document() -> None:
    def source(**more: Any) -> str:
        return documentdb_position()(document(**more)).source

    assert source(token="0164", operationType="update") == source()
    assert source(documentKey={"_id": 5}) != source()
    assert source(ns={"db": "shop", "coll": "other"}) != source()


# s3_object ------------------------------------------------------------------------------------------------------------


def stored(key: str = "a+b%2Fc.txt", sequencer: str | None = "0055AED6DCD90281E5", **more: Any) -> dict[str, Any]:
    about = {"key": key, "size": 1024} | ({} if sequencer is None else {"sequencer": sequencer})
    name = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put"}
    return {"Records": [{**name, "s3": {"bucket": {"name": "b"}, "object": about}, **more}]}


def test_s3_notification_is_object_sequencer_and_event() -> None:
    message = s3_object()(sqs(stored()))
    assert isinstance(message, Message)
    assert (message.source, message.sequence) == ("b/a b/c.txt", "0055AED6DCD90281E5")
    assert message.id == "b/a b/c.txt@0055AED6DCD90281E5/ObjectCreated:Put"
    assert message.body == stored()["Records"][0]


def test_s3_notification_is_read_from_sns_and_eventbridge() -> None:
    identify: Any = s3_object()
    direct = identify(sqs(stored()))
    assert sns(identify)(sqs(notification(json.dumps(stored())))).id == direct.id
    detail = {"bucket": {"name": "b"}, "object": {"key": "a b%2F+", "sequencer": "00A0"}}
    message = eventbridge(s3_object())(sqs(event(detail, **{"detail-type": "Object Created"})))
    assert isinstance(message, Message)
    assert (message.id, message.source) == ("b/a b%2F+@00A/Object Created", "b/a b%2F+")


def test_shorter_sequencer_sorts_as_padded_with_zeros() -> None:
    identify: Any = s3_object()
    ordered = ["00", "0055", "0055A", "0055AE00", "0055AE01", "0055b", "01"]
    found = [identify(sqs(stored(sequencer=one))).sequence for one in ordered]
    assert found == sorted(found)
    assert found[1] == identify(sqs(stored(sequencer="00550000"))).sequence


@pytest.mark.parametrize(
    "body",
    [
        {"Records": stored()["Records"] * 2},
        stored(sequencer=CANARY),
        stored(s3={"object": {"key": "k", "sequencer": "00"}}),
        {"Service": CANARY, "Event": "s3:TestEvent"},
    ],
)
def test_body_without_an_s3_object_is_refused(body: Any) -> None:
    assert refused(s3_object(), sqs(body)).startswith("Record b1: ")


# skip_deletions and batches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [kafka(None), change({"pk": {"S": "a"}}, eventName="REMOVE"), document(operationType="delete")],
    ids=["tombstone", "remove", "delete"],
)
def test_deletion_is_skipped(record: dict[str, Any]) -> None:
    assert skip_deletions(json_body(id="no"))(record) == Skip("a deletion")


def test_each_event_of_a_batch_becomes_a_message() -> None:
    first, second = cloudevent_batch()(sqs([structured(data=1), structured(id="A-2", data=2)]))
    assert first == cloudevent()(sqs(structured(data=1)))
    assert (second.id, second.body) == ("7:/orders:A-2", 2)
    assert cloudevent_batch()(sqs([])) == ()


@pytest.mark.parametrize("body", [structured(), CANARY.join('""'), [structured(), CANARY]])
def test_body_without_an_array_of_events_is_refused(body: Any) -> None:
    assert refused(cloudevent_batch(), sqs(body)).startswith("Record b1: it")


# names in errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["\n", "\x1b", "\u2028", "\ud800"])
def test_record_id_cannot_forge_a_log_line(sign: str) -> None:
    said = refused(sqs_message_id(), sqs("x", messageId=None, eventID=f"a{sign}b"))
    assert said.startswith("Record a\\")
    assert said.isprintable()


# all of them ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", [json_body(id="no"), fifo_sequence(), cloudevent_batch(), kinesis_position()])
@pytest.mark.parametrize("garbage", [None, CANARY, {}])
def test_invalid_record_is_refused(identity: Identity, garbage: Any) -> None:
    assert refused(identity, garbage).startswith("Record (no id): it")


@pytest.mark.parametrize(
    ("identity", "record", "part"),
    [
        *[(fifo_sequence(), fifo(), part) for part in ({"eventSourceARN": None}, {"messageId": 5})],
        (fifo_sequence(), fifo(), {"attributes": {"SequenceNumber": "1"}}),
        *[(kinesis_position(), kinesis("x"), part) for part in ({"eventID": "c4ca"}, {"eventSourceARN": None})],
        (kinesis_position(), kinesis("x"), {"kinesis": {"sequenceNumber": CANARY, "data": ""}}),
        *[(dynamodb_stream_position(), change(keys), {}) for keys in (None, {}, [CANARY], {"pk": {CANARY}})],
        *[(kafka_position(), kafka("x"), part) for part in ({"topic": ""}, {"partition": "3"}, {"offset": True})],
        (documentdb_position(), document(_id=None), {}),
        (documentdb_position(), document(documentKey=None), {}),
        (documentdb_position(), document(ns={"db": "shop"}), {}),
        (documentdb_position(), document(clusterTime={"$timestamp": {"t": 1, "i": 2**32}}), {}),
        # as Python's parser reads 1e400, and any other number beyond a float
        (documentdb_position(), document(documentKey={"_id": math.inf}), {}),
    ],
)
def test_record_with_an_incomplete_position_is_refused(identity: Identity, record: Any, part: Any) -> None:
    assert " its " in refused(identity, record | part)


def test_sequence_without_source_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"json_body\(sequence='n'\) needs a source=.*lambda record: \"orders\""):
        json_body(id="id", sequence="n")
