"""A lean worker before a stand-in over HTTP: what boto3 would say, what becomes of a try that fails, and that no message is lost."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import boto3
import pytest
from botocore.config import Config

from onewrite import Duplicate, Message, Outcome, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import json_body
from onewrite.sqs import Worker
from onewrite.sqs.queue import LeanQueueClient
from onewrite.testing.servers.engines import REGION, Dynoxide, dynamo_client
from tests.engines.stores import addition, places
from tests.support.garbling import GARBLES, Garbling, Listening, bodies, heads
from tests.support.http_sqs import HttpSqs
from tests.support.proxy import Fault

pytestmark = pytest.mark.measured

RECEIVE, DELETE, HIDE = "ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"
OPERATIONS = LeanQueueClient.service.methods
ASKING = {"MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
ATTRIBUTES = {
    "text": {"DataType": "String", "StringValue": "é\n\U0001f600"},
    "bytes": {"DataType": "Binary.png", "BinaryValue": "AP/+"},
    "number": {"DataType": "Number", "StringValue": "1e3"},
}
ONE_TRY = {"total_max_attempts": 1}

Clients = Callable[..., Any]


@pytest.fixture(scope="module")
def sqs() -> Iterator[HttpSqs]:
    with HttpSqs() as server:
        yield server


@pytest.fixture
def clients() -> Iterator[Clients]:
    with ExitStack() as stack:

        def made(endpoint: str, **config: Any) -> Any:
            keys: dict[str, Any] = {"aws_access_key_id": "dummy", "aws_secret_access_key": "dummy", "region_name": REGION}
            client: Any = boto3.client("sqs", endpoint_url=endpoint, config=Config(**config), **keys)
            stack.callback(client.close)
            return client

        yield made


@pytest.fixture
def garbling(sqs: HttpSqs) -> Iterator[Garbling]:
    with Garbling("127.0.0.1", sqs.port, writes=OPERATIONS) as proxy:
        yield proxy


@pytest.fixture
def listening(sqs: HttpSqs) -> Iterator[Listening]:
    with Listening("127.0.0.1", sqs.port) as proxy:
        yield proxy


@pytest.fixture
def name() -> str:
    return next(places)


def entries(messages: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"Id": str(n), "ReceiptHandle": each["ReceiptHandle"], **more} for n, each in enumerate(messages)]


# --- what boto3 says -----------------------------------------------------------------------------------------------------


def _plain(answer: Any) -> Any:
    """Without what is another at each call."""
    answer["ResponseMetadata"]["HTTPHeaders"].pop("date", None)
    return answer


@pytest.mark.parametrize("attributes", [None, ATTRIBUTES], ids=["bare", "with attributes"])
def test_response_equals_the_boto3_response(
    sqs: HttpSqs, clients: Clients, alone: Callable[..., Any], name: str, attributes: Any
) -> None:
    said: list[list[Any]] = []
    for kind, client in (("plain", clients(sqs.endpoint)), ("lean", alone(LeanQueueClient, clients(sqs.endpoint)))):
        url, answers = sqs.url(f"{name}-{kind}"), list[Any]()
        sqs.fill(f"{name}-{kind}", ["a", "", "{}", "\u20ac\U0001f600"], attributes=attributes)
        answers.append(client.receive_message(QueueUrl=url, **ASKING))
        messages = [*answers[0]["Messages"], {"ReceiptHandle": "of nobody"}]
        answers.append(client.change_message_visibility_batch(QueueUrl=url, Entries=entries(messages, VisibilityTimeout=9)))
        answers.append(client.delete_message_batch(QueueUrl=url, Entries=entries(messages)))
        answers.append(client.receive_message(QueueUrl=url, MaxNumberOfMessages=1))
        said.append([_plain(answer) for answer in answers])
    assert said[0] == said[1]
    received, hidden, deleted, nothing = said[1]
    assert [message["Body"] for message in received["Messages"]] == ["a", "", "{}", "\u20ac\U0001f600"]
    if attributes:
        assert received["Messages"][0]["MessageAttributes"]["bytes"]["BinaryValue"] == b"\x00\xff\xfe"
    assert [failure["Id"] for failure in hidden["Failed"]] == ["4"]
    assert len(deleted["Successful"]) == 5
    assert "Messages" not in nothing


def test_request_equals_the_botocore_request(listening: Listening, clients: Clients, name: str) -> None:
    client = clients(listening.endpoint)
    lean, url = LeanQueueClient(client), f"{listening.endpoint}/1/{name}"
    requests: dict[str, dict[str, Any]] = {
        "receive_message": {"QueueUrl": url, **ASKING, "WaitTimeSeconds": 0},
        "delete_message_batch": {"QueueUrl": url, "Entries": entries([{"ReceiptHandle": "é"}])},
        "change_message_visibility_batch": {
            "QueueUrl": url,
            "Entries": entries([{"ReceiptHandle": "h"}], VisibilityTimeout=3),
        },
    }
    for method, request in requests.items():
        for one in (lean, client):
            getattr(one, method)(**request)
        ours, theirs = heads(listening.chunks)
        assert [json.loads(body) for body in bodies(listening.chunks)] == [request] * 2
        listening.chunks.clear()
        assert "amz-sdk-invocation-id" not in ours
        for header in ("host", "content-type", "x-amz-target", "x-amzn-query-mode", "accept-encoding"):
            assert (header, ours.get(header)) == (header, theirs.get(header))
        for part in ("SignedHeaders", "Credential"):
            assert _part(ours["authorization"], part) == _part(theirs["authorization"], part)
        assert ours["user-agent"] == client.meta.config.user_agent


def _part(authorization: str, name: str) -> str:
    (found,) = (part for part in authorization.replace(",", "").split() if part.startswith(name))
    return found


# --- answers that are none -------------------------------------------------------------------------------------------------

FAULTS: dict[str, Any] = {
    **{name: garble for name, garble in GARBLES.items() if name != "a wrong checksum"},  # SQS sends none
    "a reset": Fault.RESET,
    "an internal error": Fault.ERROR_500_AFTER,
    "a lost request": Fault.DROP_REQUEST,
    "overload": Fault.THROTTLE,
}


def hurt(proxy: Garbling, fault: Any) -> None:
    """What becomes of the next request."""
    if isinstance(fault, Fault):
        proxy.plan(fault)
    else:
        proxy.garble = fault


@pytest.mark.parametrize("fault", FAULTS)
def test_failed_attempt_is_repeated_once_by_the_client(
    sqs: HttpSqs, garbling: Garbling, clients: Clients, name: str, fault: str
) -> None:
    lean, url = LeanQueueClient(clients(garbling.endpoint, retries=ONE_TRY)), sqs.url(f"{name}.fifo")
    sqs.fill(f"{name}.fifo", ["a", "b", "c"], groups=1)
    hurt(garbling, FAULTS[fault])
    messages = lean.receive_message(QueueUrl=url, **ASKING, ReceiveRequestAttemptId="first")["Messages"]
    assert [message["Body"] for message in messages] == ["a", "b", "c"]
    hurt(garbling, FAULTS[fault])
    hidden = lean.change_message_visibility_batch(QueueUrl=url, Entries=entries(messages, VisibilityTimeout=60))
    assert len(hidden["Successful"]) == 3
    hurt(garbling, FAULTS[fault])
    assert len(lean.delete_message_batch(QueueUrl=url, Entries=entries(messages))["Successful"]) == 3
    assert garbling.operations == [operation for operation in (RECEIVE, HIDE, DELETE) for _ in range(2)]
    assert sqs.counts(f"{name}.fifo") == {"Gone": [1, 1, 1], "Left": 0, "Hidden": 0}


@pytest.mark.parametrize("form", ["an old version", "compressed", "no HTTP"])
@pytest.mark.few(1)
def test_client_takes_over_after_three_unreadable_responses(
    garbling: Garbling, clients: Clients, name: str, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    lean, url = LeanQueueClient(clients(garbling.endpoint)), f"{garbling.endpoint}/1/{name}"
    with caplog.at_level(logging.WARNING, "onewrite"):
        for _ in range(5):
            garbling.garble = GARBLES[form]
            lean.receive_message(QueueUrl=url)
            garbling.garble = None
    said = [record.getMessage() for record in caplog.records if record.name == "onewrite"]
    assert len(said) == 1
    assert "From now on, the boto3 client sends its requests" in said[0]
    before = len(garbling.operations)
    lean.receive_message(QueueUrl=url)
    assert len(garbling.operations) == before + 1


# --- a worker --------------------------------------------------------------------------------------------------------------


def lean_requests(proxy: Listening) -> Counter[str]:
    """How often each kind of request came without botocore."""
    return Counter(
        head["x-amz-target"].partition(".")[2] for head in heads(proxy.chunks) if "amz-sdk-invocation-id" not in head
    )


def test_lean_worker_drains_a_queue_with_duplicates(
    sqs: HttpSqs, listening: Listening, clients: Clients, dynoxide: Dynoxide, table: str, name: str
) -> None:
    sqs.fill(name, [json.dumps({"id": f"m-{n % 100}"}) for n in range(300)])
    dynamo = dynamo_client(dynoxide.endpoint)
    orders = GuardedTable(dynamo, SeenIds(), table_name=table, lean=True)
    outcomes: list[Outcome] = []

    @sqs_handler(json_body(id="id"))
    def handler(message: Message) -> Outcome:
        outcome = orders.update_item(message, **addition(message, f"e{int(message.id[2:]) % 7}"))
        outcomes.append(outcome)
        return outcome

    client = clients(listening.endpoint)
    url = f"{listening.endpoint}/1/{name}"
    assert Worker(url, handler, client=client, lean=True, wait=0, stop_when_empty=True).run() is True
    assert sqs.counts(name) == {"Gone": [1] * 300, "Left": 0, "Hidden": 0}
    assert sum(isinstance(outcome, Duplicate) for outcome in outcomes) == 200
    items = dynamo.scan(TableName=table, ConsistentRead=True)["Items"]
    assert sum(int(item["n"].get("N", 0)) for item in items) == 100
    found = lean_requests(listening)
    assert found.keys() >= {RECEIVE, DELETE}
    assert found[RECEIVE] >= 30
    dynamo.close()


def test_a_lean_worker_keeps_group_order_if_responses_are_lost(
    sqs: HttpSqs, garbling: Garbling, clients: Clients, name: str
) -> None:
    sqs.fill(f"{name}.fifo", [json.dumps({"id": f"m-{n}", "n": n}) for n in range(200)], groups=7)
    done: dict[int, list[int]] = {}

    @sqs_handler(json_body(id="id"))
    def handler(message: Message) -> None:
        number = message.body["n"]
        done.setdefault(number % 7, []).append(number)
        if number % 20 == 0:
            garbling.garble = GARBLES["half the body"]

    url = f"{garbling.endpoint}/1/{name}.fifo"
    # A request whose responses are all lost hides its messages for longer than a worker waits, so it takes another worker.
    while sqs.counts(f"{name}.fifo")["Left"] or sqs.counts(f"{name}.fifo")["Hidden"]:
        worker = Worker(url, handler, client=clients(garbling.endpoint), lean=True, wait=5, stop_when_empty=True)
        assert worker.run() is True
    assert done == {group: [*range(group, 200, 7)] for group in range(7)}
    assert len(sqs.counts(f"{name}.fifo")["Gone"]) == 200


def test_lean_worker_creates_a_client_by_default(
    sqs: HttpSqs, listening: Listening, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"ENDPOINT_URL_SQS": listening.endpoint, "DEFAULT_REGION": REGION}
    for key, value in {**settings, "ACCESS_KEY_ID": "dummy", "SECRET_ACCESS_KEY": "dummy"}.items():
        monkeypatch.setenv(f"AWS_{key}", value)
    sqs.fill(name, ["x"] * 20)
    assert Worker(f"{listening.endpoint}/1/{name}", _nothing, lean=True, wait=0, stop_when_empty=True).run() is True
    assert sqs.counts(name)["Gone"] == [1] * 20
    assert lean_requests(listening).keys() >= {RECEIVE, DELETE}


@sqs_handler(lambda record: Message(record["messageId"]))
def _nothing(_: Message) -> None:
    """Nothing."""
