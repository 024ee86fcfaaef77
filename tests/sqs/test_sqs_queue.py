"""What the worker makes of the answers and errors of its requests."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, NoRegionError

from onewrite.sqs.queue import is_passing, retries_and_refusals
from tests.support.fake_sqs import URL, client_error, lost_connection


def test_of_a_batch_request_only_what_is_not_our_fault_is_tried_again() -> None:
    entries = [{"Id": "0"}, {"Id": "1"}, {"Id": "2"}]
    answer = {"Failed": [{"Id": "2", "SenderFault": True}, {"Id": "1", "SenderFault": False}]}
    assert retries_and_refusals(entries, answer) == ([{"Id": "1"}], [{"Id": "2"}])
    assert retries_and_refusals(entries, {"Successful": []}) == ([], [])


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
