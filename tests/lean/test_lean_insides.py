"""A boto3 client as it is made by default has nothing that a lean client would bypass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from onewrite.dynamodb.lean import DYNAMODB
from onewrite.lean.refusals import find_obstacle, find_unknown_event_handlers
from onewrite.lean.service import Service
from onewrite.sqs.queue import SQS


@pytest.fixture(params=[DYNAMODB, SQS], ids=lambda service: service.name)
def service(request: pytest.FixtureRequest) -> Service:
    asked: Service = request.param
    return asked


@pytest.fixture(params=["legacy", "standard"])
def client(request: pytest.FixtureRequest, service: Service) -> Iterator[Any]:
    made = _client(service, retries={"mode": request.param})
    yield made
    made.close()


def _client(service: Service, **config: Any) -> Any:
    sdk: Any = boto3  # the type of a client depends on the service's name
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    return sdk.client(service.name, region_name="eu-west-1", **keys, config=Config(**config))


def test_default_boto3_client_has_no_bypassed_settings(client: Any, service: Service) -> None:
    assert find_obstacle(service, client) is None
    assert find_unknown_event_handlers(service, client) == []
