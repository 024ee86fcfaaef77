"""The suite on endpoints that the environment names: they are reached, and whatever was made there is removed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.contract.endpoints import DYNAMODB, MONGODB
from tests.support.engines import dynoxide_binary, mongod_binary, require

ROOT = Path(__file__).parents[2]
FRESH = "test_contract.py::test_a_fresh_message_takes_effect"


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
def test_suite_runs_on_both_endpoints_and_cleans_up() -> None:
    require(dynoxide_binary)
    require(mongod_binary)
    with Dynoxide() as dynoxide, Mongod() as mongod:
        with suite({DYNAMODB: dynoxide.endpoint, MONGODB: mongod.uri}, FRESH) as run:
            said, _ = run.communicate(timeout=300)
        assert run.returncode == 0, said
        # Seven ledgers, four kinds of clients of DynamoDB and two of MongoDB; aioboto3 where it is installed.
        assert f"{49 if find_spec('aioboto3') else 42} passed" in said
        assert (tables(dynoxide), databases(mongod)) == ([], set())
