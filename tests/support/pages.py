"""The pages of the documentation, and the servers and SDKs that some of them take for granted."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from onewrite.testing.standins import stores
from onewrite.testing.standins.collection import AsyncStandInDatabase, StandInClient

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = [
    page
    for pattern in ("README.md", "docs/*.md", "examples/*/README.md", "infra/README.md")
    for page in sorted(ROOT.glob(pattern))
]


@contextmanager
def a_server() -> Iterator[None]:
    """One stand-in of MongoDB for `MongoClient()` and `AsyncMongoClient()`, and the page as a module, which Taskiq looks for."""
    client: Any = StandInClient()
    awaited = SimpleNamespace(shop=AsyncStandInDatabase(client["shop"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymongo.MongoClient", lambda: client)
        patch.setattr("pymongo.AsyncMongoClient", lambda: awaited)
        patch.setitem(sys.modules, "brokers", ModuleType("brokers"))
        yield


@contextmanager
def a_workflow() -> Iterator[None]:
    """As much of Temporal and of AWS durable functions as the page uses, and a DBOS that leaves nothing registered.

    Temporal is 50 MB large, and the SDK of AWS needs a newer boto3 than the lowest that users may have.
    """
    info = SimpleNamespace(workflow_id="test", activity_type="credit", attempt=1)  # as ActivityEnvironment has it
    activity = SimpleNamespace(defn=lambda function: function, info=lambda: info)
    durable = SimpleNamespace(DurableContext=object, durable_execution=lambda function: function)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "temporalio", cast("ModuleType", SimpleNamespace(activity=activity)))
        patch.setitem(sys.modules, "aws_durable_execution_sdk_python", cast("ModuleType", durable))
        yield
    sys.modules["dbos"].DBOS.destroy(destroy_registry=True)


WORLDS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "docs/brokers.md": a_server,
    "docs/workflows.md": a_workflow,
}


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@contextmanager
def world(page: Path) -> Iterator[None]:
    """What the page expects to be there. What it leaves open until its process ends, such as its tables, is closed behind it."""
    with (
        WORLDS.get(name(page), nullcontext)(),
        ExitStack() as left_open,
        mock.patch("atexit.register", left_open.callback),
        mock.patch.object(stores, "weakref", SimpleNamespace(finalize=lambda _client, close: left_open.callback(close))),
    ):
        yield


def namespace_of(page: Path) -> dict[str, Any]:
    """The names that the Python blocks of a page define, once they have run."""
    text = page.read_text()
    namespace: dict[str, Any] = {"__name__": page.stem}
    with world(page):
        for block in BLOCK.finditer(text):
            lines_before = text.count("\n", 0, block.start(1))  # so a traceback shows the line of the page
            exec(compile("\n" * lines_before + block[1], str(page), "exec"), namespace)  # noqa: S102  # our own pages
    return namespace
