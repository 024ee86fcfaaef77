from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from order_history import OrderHistory, create_table


@pytest.fixture
def history() -> Iterator[OrderHistory]:
    with mock_aws():
        yield OrderHistory(create_table(boto3.resource("dynamodb", region_name="eu-west-1")))
