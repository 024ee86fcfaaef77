"""The suite on endpoints that the environment names: they are reached, and whatever was made there is removed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.contract.endpoints import DUMMIES, DYNAMODB, MONGODB, client_settings
from tests.support.engines import dynoxide_binary, mongod_binary, require

ROOT = Path(__file__).parents[2]
URL = "http://localhost:8000"
FRESH = "test_contract.py::test_a_fresh_message_takes_effect"


@pytest.fixture(scope="module")
def dynoxide() -> Iterator[Dynoxide]:
    require(dynoxide_binary)
    with Dynoxide() as server:
        yield server


@pytest.fixture(scope="module")
def mongod() -> Iterator[Mongod]:
    require(mongod_binary)
    with Mongod() as server:
        yield server


def suite(named: Mapping[str, str], test: str) -> subprocess.Popen[str]:
    """One test of the suite on endpoints, in a process of its own, with these variables."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/contract/{test}", "-k", "endpoint"]
    return subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **named}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def tables(server: Dynoxide) -> list[str]:
    client = server.client()
    try:
        return client.list_tables()["TableNames"]
    finally:
        client.close()


def databases(server: Mongod) -> set[str]:
    with MongoClient[dict[str, Any]](server.uri) as client:
        return {*client.list_database_names()} - {"admin", "config", "local"}


@pytest.mark.slow
@pytest.mark.measured
def test_the_suite_runs_on_both_endpoints_and_leaves_nothing_there(dynoxide: Dynoxide, mongod: Mongod) -> None:
    named = {DYNAMODB: dynoxide.endpoint, MONGODB: mongod.uri}
    with suite(named, FRESH) as run:
        said, _ = run.communicate(timeout=300)
    assert run.returncode == 0, said
    # Seven ledgers, four kinds of clients of DynamoDB and two of MongoDB; aioboto3 where it is installed.
    assert f"{49 if find_spec('aioboto3') else 42} passed" in said
    assert (tables(dynoxide), databases(mongod)) == ([], set())


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({DYNAMODB: "aws"}, {}),
        ({DYNAMODB: URL}, {**DUMMIES, "endpoint_url": URL}),
        ({DYNAMODB: URL, "AWS_ACCESS_KEY_ID": "mine"}, {"endpoint_url": URL}),
        ({DYNAMODB: URL, "AWS_PROFILE": "mine"}, {"endpoint_url": URL}),
    ],
    ids=["aws", "any engine", "an engine that checks keys", "an engine that checks a profile"],
)
def test_a_client_uses_the_credentials_of_the_environment_where_there_are_any(
    environment: dict[str, str], settings: dict[str, Any]
) -> None:
    assert client_settings(environment) == settings


@pytest.mark.parametrize("named", ["", "localhost:8000", "AWS", "dynamodb"])
def test_what_names_no_endpoint_is_refused(named: str) -> None:
    with pytest.raises(ValueError, match="give a URL"):
        client_settings({DYNAMODB: named})
