"""What those who operate a handler see: one line for each batch, and a hook that is called for each record."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from onewrite import (
    Applied,
    BeginOutcome,
    Begun,
    Busy,
    Deferred,
    Duplicate,
    HighWaterMark,
    InvalidMessage,
    Message,
    Missing,
    Outcome,
    Rejected,
    Stale,
    TakenOver,
    Uncertain,
)
from onewrite.aws_lambda import dynamodb_stream_handler, kafka_handler, kinesis_handler, sqs_handler
from onewrite.identity import Skip, json_body
from onewrite.mongodb import GuardedCollection
from onewrite.testing.standins.stores import mongomock_collection
from tests.support.batches import SENT_AT, Clock, by_name, dynamodb, fifo, identifiers, kafka, kinesis, sqs, sqs_record
from tests.support.seams import measure_by

SECRET = "4111-1111-1111-1111"


def outcomes(message: Message) -> Outcome | list[Outcome] | None:
    """The first letter of the message's id decides what is returned."""
    match message.id[0]:
        case "a":
            return Applied(message)
        case "d":
            return Duplicate(message)
        case "s":
            return [Stale(message, 9), Rejected(message, settled=True)]
        case "g":
            return Deferred(message, 2)
        case "n":
            return None
        case _:
            raise ValueError(message.body)


class Lines(logging.Handler):
    """All that is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    caplog.set_level(logging.DEBUG)
    lines = Lines()
    logging.getLogger("onewrite").addHandler(lines)
    yield lines.records
    logging.getLogger("onewrite").removeHandler(lines)


def details(line: logging.LogRecord) -> dict[str, Any]:
    """What the line says about the batch, after a round trip through JSON."""
    found: dict[str, Any] = json.loads(json.dumps(vars(line)["onewrite"], allow_nan=False))
    return found


# ---------------------------------------------------------------- the line


def test_batch_logs_one_line_with_its_counts(lines: list[logging.LogRecord]) -> None:
    clock = Clock(10.0)
    handler = measure_by(sqs_handler(by_name, clock=lambda: SENT_AT + 90.5)(outcomes), clock)
    handler(sqs(["a1", "a2", "d1", "s1", "n1"]))
    (line,) = lines
    assert (line.name, line.levelname) == ("onewrite", "INFO")
    assert line.getMessage() == "outcomes: 5 records, 2 applied, 1 duplicate, 1 stale and rejected"
    found = details(line)
    assert (found["handler"], found["source"], found["records"]) == ("outcomes", "SQS", 5)
    settled = {"applied": 2, "duplicate": 1, "stale": 1, "deferred": 0, "rejected": 1, "missing": 0}
    effects = {"gone": 0, "busy": 0, "uncertain": 0, "taken_over": 0, "begun": 0}
    assert found["outcomes"] == settled | effects | {"skipped": 0, "no_outcome": 1}
    assert (found["failed"], found["returned"], found["failures"], found["oldest_seconds"]) == (0, 0, [], 90.5)


def test_incomplete_batch_is_a_warning_that_names_failures(lines: list[logging.LogRecord]) -> None:
    event = fifo("a1", "x1", "x2", "g1")
    event["Records"][1]["attributes"]["ApproximateReceiveCount"] = "3"
    sqs_handler(by_name)(outcomes)(event)
    (line,) = lines
    assert line.levelname == "WARNING"
    raised = outcomes.__code__.co_firstlineno + 14
    assert line.getMessage() == (
        "outcomes: 4 records, 1 applied, 2 failed, 1 returned; "
        f"record id-x1, message x1, attempt 3: ValueError at test_batch_report.py:{raised} outcomes; "
        "record id-g1, message g1, attempt 1: Deferred (message 2 of its source is still missing)"
    )
    found = details(line)
    assert (found["failed"], found["returned"]) == (2, 1)
    thrown, gap = found["failures"]
    assert (thrown["record"], thrown["message"], thrown["attempt"]) == ("id-x1", "x1", 3)
    assert (thrown["error"], thrown["where"]) == ("ValueError", f"test_batch_report.py:{raised} outcomes")
    assert (gap["message"], gap["reason"]) == ("g1", "message 2 of its source is still missing")


KEY = "charge-7f3a"
EFFECTS: list[tuple[BeginOutcome, str]] = [
    (
        Busy(Message("m"), SENT_AT),
        "Busy (another worker holds the effect until 2023-11-14T22:13:20.000Z; redelivered after that)",
    ),
    (
        Busy(Message("m"), math.inf),
        "Busy (another worker holds the effect until 9999-12-31T23:59:59.000Z; redelivered after that)",
    ),
    (
        Uncertain(Message("m"), SENT_AT, "fence", f"{KEY}\n"),
        f"Uncertain (the effect was begun at 2023-11-14T22:13:20.000Z and its result is unknown; look up the key {KEY}\\n at the provider)",
    ),
    (TakenOver(Message("m")), "TakenOver (another worker took over the effect before this one finished it)"),
    (Begun(Message("m"), KEY, "fence", SENT_AT, SENT_AT + 60), "Begun (the function began an effect and didn't finish it)"),
]


@pytest.mark.parametrize(("answer", "said"), EFFECTS, ids=lambda each: type(each).__name__)
def test_effect_failure_names_the_remedy(answer: BeginOutcome, said: str, lines: list[logging.LogRecord]) -> None:
    sqs_handler(by_name)(lambda message: answer)(sqs(["m"]))
    name = type(answer).__name__
    assert lines[0].getMessage().endswith(f": 1 record, 1 failed; record id-m, message m, attempt 1: {said}")
    assert details(lines[0])["outcomes"][re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()] == 1


def test_log_line_counts_each_record_once_for_any_return_value(lines: list[logging.LogRecord]) -> None:
    ends: dict[str, Any] = {
        "1": [Applied(Message("1")), Applied(Message("1"))],
        "2": [Applied(Message("2")), Rejected(Message("2"))],
        "3": Missing(Message("3")),
        "4": [Duplicate(Message("4")), Applied(Message("4"))],
        "5": Applied(Message("5")),
    }
    sqs_handler(by_name)(lambda message: ends[message.id])(sqs([*ends]))
    assert ": 5 records, 2 applied, 1 duplicate and applied, 2 failed; record id-2" in lines[0].getMessage()
    found = details(lines[0])["outcomes"]  # which counts outcomes
    assert (found["applied"], found["duplicate"], found["rejected"], found["missing"]) == (5, 1, 1, 1)


@pytest.mark.parametrize(
    ("decorator", "event", "name"),
    [
        (sqs_handler, sqs(["x"]), "id-x"),
        (kinesis_handler, kinesis(["x"]), "shardId-000000000000:1"),
        (dynamodb_stream_handler, dynamodb(["x"]), "e1"),
        (kafka_handler, kafka(p0=["x"]), "orders-0@0"),
    ],
)
def test_report_has_record_names_and_age_for_every_source(
    decorator: Any, event: Any, name: str, lines: list[logging.LogRecord]
) -> None:
    decorator(by_name, clock=lambda: SENT_AT + 2)(outcomes).run(event)
    found = details(lines[0])
    assert found["failures"][0]["record"] == name
    assert found["failures"][0]["attempt"] == (1 if name == "id-x" else None)
    assert found["oldest_seconds"] == 2.0


def test_age_is_that_of_the_oldest_record_at_the_start() -> None:
    event = sqs(["a1", "a2"])
    event["Records"][1]["attributes"]["SentTimestamp"] = str(int(SENT_AT * 1000) - 7500)
    clock = Clock(SENT_AT)

    def each(message: Message) -> None:
        clock.now += 100

    report = sqs_handler(by_name, clock=clock)(each).run(event)
    assert report.oldest_seconds == 7.5


@pytest.mark.parametrize("sent", [None, "soon", "nan", "1" * 400, [], 10**400])
def test_invalid_time_is_ignored(sent: Any) -> None:
    event = {"Records": [sqs_record("a1", attributes={"SentTimestamp": sent})]}
    assert sqs_handler(by_name)(outcomes).run(event).oldest_seconds is None


@pytest.mark.parametrize("attributes", [None, "text", {}, {"ApproximateReceiveCount": float("inf")}])
def test_missing_or_invalid_receive_count_is_logged_as_none(attributes: Any, lines: list[logging.LogRecord]) -> None:
    sqs_handler(by_name)(outcomes)({"Records": [sqs_record("x", attributes=attributes), 7]})
    assert [failure["attempt"] for failure in details(lines[0])["failures"]] == [None, None]


def test_log_line_lists_at_most_20_failures(lines: list[logging.LogRecord]) -> None:
    sqs_handler(by_name)(outcomes)(sqs([f"x{n}" for n in range(1000)]))
    found = details(lines[0])
    assert (found["failed"], len(found["failures"]), found["failures_left_out"]) == (1000, 20, 980)
    assert lines[0].getMessage().endswith("; and 980 more failures")
    assert len(lines[0].getMessage()) < 20 * 1200


@pytest.mark.parametrize("sign", ["\n", "\x1b[2K", "\u2028", "\u202e"])
def test_id_and_error_write_no_extra_line(sign: str, lines: list[logging.LogRecord]) -> None:
    forged = f"a{sign}ERROR onewrite: forged"

    def identity(record: Any) -> Message:
        if record["body"] == "x":
            raise InvalidMessage(forged)
        return Message(forged)

    def each(message: Message) -> None:
        raise ClientError({"Error": {"Code": forged}}, "UpdateItem")

    sqs_handler(identity)(each)({"Records": [sqs_record("x", messageId=forged), sqs_record("y", messageId=forged)]})
    (line,) = lines
    assert line.getMessage().isprintable()
    assert json.dumps(vars(line)["onewrite"], ensure_ascii=False).isprintable()


def test_skipped_records_are_counted(lines: list[logging.LogRecord]) -> None:
    counted: list[Any] = []
    handler = sqs_handler(lambda _: Skip("a test"), on_outcome=lambda *told: counted.append(told[:2]))(outcomes)
    handler(sqs(["a1", "a2"]))
    assert lines[0].getMessage() == "outcomes: 2 records, 2 skipped"
    assert details(lines[0])["outcomes"]["skipped"] == 2
    assert counted == [(None, Skip("a test"))] * 2


# ---------------------------------------------------------------- where it failed


def module(path: Path, name: str, text: str, **names: Any) -> dict[str, Any]:
    """The names of a module at this path. They are not imported, because a traceback tells names and paths only."""
    namespace: dict[str, Any] = {"__name__": name, **names}
    exec(compile(text, str(path), "exec"), namespace)  # noqa: S102  # the test's own text
    return namespace


@pytest.mark.parametrize(
    ("path", "name", "is_users"),
    [
        ("/var/task/shop/orders.py", "shop.orders", True),  # beside the handler
        ("/var/task/botocore/client.py", "botocore.client", False),  # installed beside the handler
        ("/var/lang/lib/python3.13/json/decoder.py", "json.decoder", False),
        ("/opt/python/lib/python3.13/site-packages/vendor/api.py", "vendor.api", False),
        ("<string>", "made", False),
        ("/usr/lib/python3/site-packages/tests/shared.py", "tests.shared", True),  # of the package of the function
    ],
)
def test_users_code_is_distinguished_from_installed_packages(
    path: str, name: str, is_users: bool, lines: list[logging.LogRecord]
) -> None:
    fail = module(Path(path), name, "def fail():\n    raise ValueError\n")["fail"]

    def each(message: Message) -> None:
        fail()

    sqs_handler(by_name)(each)(sqs(["x"]))
    where = details(lines[0])["failures"][0]["where"]
    own = f"test_batch_report.py:{each.__code__.co_firstlineno + 1} "
    assert where.startswith(f"{Path(path).name}:2 fail" if is_users else own)


def test_failure_names_function_and_result_without_a_users_line(lines: list[logging.LogRecord]) -> None:
    def each(message: Message) -> Any:
        return True

    sqs_handler(by_name)(each)(sqs(["x"]))
    line = each.__code__.co_firstlineno
    assert "WrongReturn (The function returned a bool. Return an Outcome" in lines[0].getMessage()
    assert f"at test_batch_report.py:{line} " in lines[0].getMessage()


def test_failure_of_a_users_identity_names_its_line(lines: list[logging.LogRecord]) -> None:
    sqs_handler(json_body(id="no"))(outcomes)(sqs(["x"]))
    assert lines[0].getMessage().endswith("InvalidMessage (Record id-x: its body isn't valid JSON (at character 0).)")
    sqs_handler(lambda record: record["none"])(outcomes)(sqs(["x"]))
    assert " KeyError at test_batch_report.py:" in lines[1].getMessage()


def test_tracebacks_are_logged_only_if_requested(lines: list[logging.LogRecord]) -> None:
    def each(message: Message) -> None:
        raise KeyError(SECRET) from ValueError("first")

    sqs_handler(by_name, log_exceptions=True)(each)(sqs(["x"]))
    text = lines[0].getMessage()
    assert "\nValueError: first" in text
    assert SECRET in text
    assert details(lines[0])["failures"][0]["traceback"].startswith("ValueError: first")
    sqs_handler(by_name)(each)(sqs(["x"]))
    assert SECRET not in lines[1].getMessage()
    assert "traceback" not in details(lines[1])["failures"][0]


@pytest.mark.parametrize("effect", ["identity", "function", "hook"])
def test_body_is_never_logged(effect: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.DEBUG)

    def fail(*_: Any) -> Any:
        raise KeyError(SECRET) from ValueError(SECRET)

    identity = fail if effect == "identity" else lambda _: Message("m", body=SECRET)
    each = fail if effect == "function" else lambda _: None
    hook = fail if effect == "hook" else None
    handler = sqs_handler(identity, on_outcome=hook)(each)
    handler({"Records": [sqs_record("x", body=SECRET)]})
    assert caplog.records
    assert SECRET not in caplog.text + "".join(map(str, map(vars, caplog.records))) + str(capsys.readouterr())


THROTTLED = {"Error": {"Code": "ThrottlingException", "Message": SECRET}}


@pytest.mark.parametrize(
    ("response", "reason"), [(THROTTLED, "ThrottlingException"), ({"Error": {"Code": 7}}, None), (None, None)]
)
def test_aws_error_is_logged_with_its_code(response: Any, reason: str | None, lines: list[logging.LogRecord]) -> None:
    def each(message: Message) -> None:
        error = ClientError({}, "UpdateItem")
        error.response = response
        raise error

    sqs_handler(by_name)(each)(sqs(["x"]))
    failure = details(lines[0])["failures"][0]
    assert (failure["error"], failure["reason"]) == ("ClientError", reason)


def test_error_with_an_unreadable_response_fails_its_record_alone(lines: list[logging.LogRecord]) -> None:
    class UnreadError(Exception):
        @property
        def response(self) -> Any:
            raise RuntimeError("the body was not read")

    def each(message: Message) -> None:
        if message.id == "x":
            raise UnreadError

    assert identifiers(sqs_handler(by_name)(each)(sqs(["a", "x", "b"]))) == ["id-x"]
    assert [failure["error"] for failure in details(lines[0])["failures"]] == ["UnreadError"]


def fails(*_: Any) -> Any:
    raise ValueError(SECRET)


def outcomes_of_all(messages: list[Message]) -> list[Any]:
    return [*map(outcomes, messages)]


@pytest.mark.parametrize(
    ("handler", "lines_lost"),
    [
        (sqs_handler(by_name)(outcomes), 1),
        (sqs_handler(by_name, on_outcome=fails)(outcomes), 3),
        (sqs_handler(by_name, group_by=lambda _: 0)(outcomes_of_all), 2),
    ],
    ids=["the batch", "a hook", "a group"],
)
def test_failing_log_filter_loses_only_the_line(handler: Any, lines_lost: int, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("onewrite")
    logger.addFilter(fails)
    try:
        assert identifiers(handler(sqs(["a", "x"]))) == ["id-x"]
    finally:
        logger.removeFilter(fails)
    assert capsys.readouterr().err == "onewrite: a log line was lost: ValueError\n" * lines_lost


# ---------------------------------------------------------------- the hook


def test_hook_is_called_for_each_processed_record() -> None:
    told, clock = list[Any](), Clock()

    def each(message: Message) -> Any:
        clock.now += 0.25
        return outcomes(message)

    measure_by(sqs_handler(by_name, on_outcome=lambda *each: told.append(each))(each), clock)(
        fifo("a1", "s1", "n1", "x1", "x2")
    )
    a1, s1, n1, x1 = [Message(name, body=name) for name in ("a1", "s1", "n1", "x1")]
    assert told[:3] == [(a1, Applied(a1), 0.25), (s1, (Stale(s1, 9), Rejected(s1, settled=True)), 0.25), (n1, None, 0.25)]
    ((failed, error, seconds),) = told[3:]
    assert (failed, type(error), seconds) == (x1, ValueError, 0.25)


def test_log_has_the_text_of_onewrites_own_error(lines: list[logging.LogRecord]) -> None:
    orders = mongomock_collection("orders")
    orders.insert_one({"_id": "o", "ow_l": "ow1 14d"})

    def pay(message: Message) -> Outcome:
        return GuardedCollection(orders, HighWaterMark()).update_one(message, {"_id": "o"}, {"$inc": {"n": 1}})

    async def pay_in_a_group_of_tasks(message: Message) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(pay, message))

    def identity(record: Any) -> Message:
        return Message(record["body"], "s", 1)

    for function in (pay, pay_in_a_group_of_tasks):
        sqs_handler(identity)(function)(sqs(["m"]))
    alone, grouped = [line.getMessage() for line in lines]
    assert "attempt 1: LedgerMismatch (Ledger mismatch in 'ow_l': this entity uses layout '14d'" in alone
    assert "If you changed the ledger, pass the old one as" in alone
    assert re.search(r"\) at test_batch_report\.py:\d+ pay$", alone)
    assert "attempt 1: ExceptionGroup (LedgerMismatch: Ledger mismatch in 'ow_l'" in grouped


def test_failing_hook_is_logged_and_does_not_fail_the_record(lines: list[logging.LogRecord]) -> None:
    assert identifiers(sqs_handler(by_name, on_outcome=fails)(outcomes)(sqs(["a1"]))) == []
    assert "outcomes: on_outcome raised ValueError at test_batch_report.py:" in lines[0].getMessage()
