"""The handlers of the MongoDB stack and of the stream stack: what is delivered twice counts once, and a new password is found."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest
from moto import mock_aws
from pymongo import MongoClient

from onewrite.testing import kinesis_event, sqs_event
from onewrite.testing.servers.engines import REGION, Mongod
from tests.support.packages import ROOT

EXAMPLES = ROOT / "infra" / "examples"
sdk: Any = boto3  # its types know two services


def loaded(path: Path) -> ModuleType:
    """As Lambda has it: a module by itself, at the top of the package."""
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        yield


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    arn = str(sdk.client("secretsmanager").create_secret(Name="stock-mongodb")["ARN"])
    monkeypatch.setenv("MONGODB_SECRET_ARN", arn)
    return arn


def test_goods_are_counted_once_and_a_new_password_is_found(
    mongod: Mongod, mongo: MongoClient[dict[str, Any]], secret: str
) -> None:
    stock = loaded(EXAMPLES / "mongodb" / "stock.py")
    secrets = sdk.client("secretsmanager")
    event = sqs_event({"eventId": "e-1", "sku": "sku-1", "count": 2}, {"eventId": "e-1", "sku": "sku-1", "count": 2})
    mongo.shop.stock.drop()

    secrets.put_secret_value(SecretId=secret, SecretString=mongod.uri.replace("mongodb://", "mongodb://stock:old@"))
    assert len(stock.handler(event, None)["batchItemFailures"]) == 2

    secrets.put_secret_value(SecretId=secret, SecretString=mongod.uri)
    assert stock.handler(event, None) == {"batchItemFailures": []}
    assert stock.stock().find_one({"_id": "sku-1"}) == {"_id": "sku-1", "left": 2}
    stock.disconnect()


def test_readings_are_added_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METERS_TABLE", "meters")
    sdk.client("dynamodb").create_table(
        TableName="meters",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "meterId", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "meterId", "AttributeType": "S"}],
    )
    meters = loaded(EXAMPLES / "stream" / "meters.py")
    readings = [json.dumps({"readingId": reading, "meterId": "m-1", "units": 3}) for reading in ("r-1", "r-2", "r-1")]

    assert meters.handler(kinesis_event(*readings), None) == {"batchItemFailures": []}
    assert meters.meters().get_item(Key={"meterId": "m-1"}) == {"meterId": "m-1", "units": 6}
