"""What the worker decides about messages, requests and errors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, NoRegionError

from onewrite.sqs import backoff
from onewrite.sqs.decisions import extension, is_passing, unsettled
from tests.support.fake_sqs import URL, client_error, lost_connection


@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999])
def test_the_backoff_grows_with_each_receive_up_to_its_longest(jitter: float) -> None:
    pauses = [backoff(count, jitter=lambda: jitter) for count in range(1, 12)]
    assert pauses[0] == 1
    assert all(later > sooner for sooner, later in pairwise(pauses[:9]))
    assert max(pauses) <= 300
    assert 225 <= backoff(10**9, jitter=lambda: jitter) <= 300


def test_a_receive_count_that_makes_no_sense_waits_the_shortest() -> None:
    assert backoff(0) == backoff(-1) == 1


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
