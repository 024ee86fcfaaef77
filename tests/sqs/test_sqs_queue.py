"""What the worker makes of the errors of its requests, and of the URL of a queue."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, NoRegionError

from onewrite.sqs.queue import find_region, is_passing, make_default_client
from tests.support.fake_sqs import URL, client_error, lost_connection


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (client_error("RequestThrottled"), True),
        (client_error("OverLimit", 403), True),
        (client_error("ServiceUnavailable", 503), True),
        (lost_connection(), True),
        (EndpointConnectionError(endpoint_url=URL), True),
        (client_error("AWS.SimpleQueueService.NonExistentQueue"), False),
        (client_error("AccessDenied", 403), False),
        (NoRegionError(), False),
    ],
    ids=str,
)
def test_temporary_errors_are_distinguished_from_permanent_ones(error: Any, passing: bool) -> None:
    assert is_passing(error) is passing


@pytest.mark.parametrize(
    ("url", "region"),
    [
        (URL, "eu-west-1"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders.fifo", "cn-north-1"),
        ("https://sqs-fips.us-east-1.amazonaws.com/123456789012/orders", "us-east-1"),
        ("https://vpce-1a2b.sqs.eu-central-1.vpce.amazonaws.com/123456789012/orders", "eu-central-1"),
        ("https://eu-west-1.queue.amazonaws.com/123456789012/orders", "eu-west-1"),
        ("http://sqs.eu-west-1.localhost.localstack.cloud:4566/000000000000/orders", "eu-west-1"),
        ("http://localhost:4566/000000000000/sqs.eu-west-1.amazonaws.com", None),
    ],
)
def test_region_is_read_from_the_queues_url(url: str, region: str | None) -> None:
    assert find_region(url) == region


def test_client_uses_the_given_region_or_the_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-2")  # the queue is not there, whatever is configured
    assert make_default_client(URL).meta.region_name == "eu-west-1"
    assert make_default_client(URL, region="eu-north-1").meta.region_name == "eu-north-1"
    assert make_default_client("http://127.0.0.1:4566/000000000000/orders").meta.region_name == "us-east-2"
