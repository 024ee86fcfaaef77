"""What the worker decides about messages, requests and errors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, NoRegionError

from onewrite import Applied, Deferred, Duplicate, Message
from onewrite.aws_lambda import Report
from onewrite.batch.report import Result
from onewrite.sqs import backoff
from onewrite.sqs.decisions import Settlement, extension, is_passing, settlement, unsettled
from onewrite.sqs_message import lambda_record
from tests.support.fake_sqs import ARN, URL, client_error, lost_connection


@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999])
def test_the_backoff_grows_with_each_receive_up_to_its_longest(jitter: float) -> None:
    pauses = [backoff(count, jitter=lambda: jitter) for count in range(1, 12)]
    assert pauses[0] == 1
    assert all(later > sooner for sooner, later in pairwise(pauses[:9]))
    assert max(pauses) <= 300
    assert 225 <= backoff(10**9, jitter=lambda: jitter) <= 300


def test_a_receive_count_that_makes_no_sense_waits_the_shortest() -> None:
    assert backoff(0) == backoff(-1) == 1


def message(name: str, count: int = 1, group: str | None = None) -> dict[str, Any]:
    attributes = {"ApproximateReceiveCount": str(count)} | ({} if group is None else {"MessageGroupId": group})
    return {"MessageId": name, "ReceiptHandle": f"handle of {name}", "Attributes": attributes}


def report(received: list[dict[str, Any]], **ends: Any) -> Report:
    """How each message ended: with an outcome of this class, with several, or with an exception. Others were not begun."""
    results = []
    for each in received:
        if (end := ends.get(each["MessageId"])) is None:
            continue
        error = end if isinstance(end, BaseException) else None
        kinds = () if error else end if isinstance(end, tuple) else (end,)
        about = Message(each["MessageId"])
        outcomes = tuple(Deferred(about, 1) if kind is Deferred else kind(about) for kind in kinds)
        results.append(Result(lambda_record(each, ARN), each["MessageId"], about, outcomes, error, 0.1))
    settled = {result.record_id for result in results if result.settled}
    back = [{"itemIdentifier": each["MessageId"]} for each in received if each["MessageId"] not in settled]
    return Report({"batchItemFailures": back}, tuple(results), (), None, 0, 0.1)


def twice(count: int) -> int:
    return 2 * count


def test_what_succeeded_is_done_what_failed_is_left_and_what_was_deferred_or_not_begun_comes_again() -> None:
    received = [message("good"), message("bad"), message("early", count=4), message("unbegun")]
    found = settlement(received, report(received, good=Applied, bad=ValueError(), early=Deferred), fifo=False, backoff=twice)
    assert found == Settlement(done=(received[0],), again=((received[2], 8), (received[3], 0)))


def test_a_message_with_several_outcomes_is_deferred_when_one_of_them_is() -> None:
    received = [message("m", count=3)]
    ended = report(received, m=(Applied, Deferred, Duplicate))
    assert settlement(received, ended, fifo=False, backoff=twice).again == ((received[0], 6),)


def test_a_message_that_arrived_twice_in_one_batch_is_done_only_when_both_copies_are() -> None:
    received = [message("m"), message("m") | {"ReceiptHandle": "another"}]
    results = report(received, m=Applied).results[:1]
    back = Report({"batchItemFailures": [{"itemIdentifier": "m"}]}, results, (), None, 0, 0.1)
    found = settlement(received, back, fifo=False, backoff=twice)
    assert found == Settlement(done=(), again=((received[1], 0),))


def test_a_fifo_group_comes_again_together_when_its_slowest_message_does() -> None:
    received = [
        message("a1", group="a"),
        message("b1", count=3, group="b"),
        message("a2", group="a"),
        message("b2", group="b"),
    ]
    ended = report(received, a1=ValueError(), b1=Deferred)
    found = settlement(received, ended, fifo=True, backoff=twice)
    assert found == Settlement(done=(), again=((received[1], 6), (received[3], 6)))


def test_groups_of_a_standard_queue_hold_nothing_together() -> None:
    received = [message("a1", group="a"), message("a2", group="a")]
    assert settlement(received, report(received, a1=ValueError()), fifo=False).again == ((received[1], 0),)


@pytest.mark.parametrize(("asked", "told"), [(-1, 0), (0.2, 1), (43_201, 43_200), (1e9, 43_200)])
def test_a_backoff_of_the_users_own_is_kept_to_what_sqs_takes(asked: float, told: int) -> None:
    received = [message("m")]
    found = settlement(received, report(received, m=Deferred), fifo=False, backoff=lambda _: asked)
    assert found.again == ((received[0], told),)


def test_a_deferred_message_without_a_receive_count_is_taken_for_a_first_receive() -> None:
    received = [{"MessageId": "m", "ReceiptHandle": "h"}]
    assert settlement(received, report(received, m=Deferred), fifo=False, backoff=twice).again == ((received[0], 2),)


@pytest.mark.parametrize(("held", "seconds"), [(0, 30), (43_160, 30), (43_180.5, 19), (43_200, 0), (50_000, 0)])
def test_no_message_is_hidden_longer_than_sqs_allows(held: float, seconds: int) -> None:
    assert extension(30, held) == seconds


def test_of_a_batch_request_only_what_is_not_our_fault_is_tried_again() -> None:
    entries = [{"Id": "0"}, {"Id": "1"}, {"Id": "2"}]
    answer = {"Failed": [{"Id": "2", "SenderFault": True}, {"Id": "1", "SenderFault": False}]}
    assert unsettled(entries, answer) == ([{"Id": "1"}], [{"Id": "2"}])
    assert unsettled(entries, {"Successful": []}) == ([], [])


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (client_error("RequestThrottled"), True),
        (client_error("ThrottlingException"), True),
        (client_error("KmsThrottled"), True),
        (client_error("OverLimit", 403), True),
        (client_error("InternalError", 500), True),
        (client_error("ServiceUnavailable", 503), True),
        (client_error("Any", 429), True),
        (lost_connection(), True),
        (EndpointConnectionError(endpoint_url=URL), True),
        (client_error("AWS.SimpleQueueService.NonExistentQueue"), False),
        (client_error("AccessDenied", 403), False),
        (NoRegionError(), False),
    ],
    ids=str,
)
def test_what_passes_by_itself_is_told_from_what_does_not(error: Any, passing: bool) -> None:
    assert is_passing(error) is passing
