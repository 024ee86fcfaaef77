"""Three mongods as one replica set, two of which can be frozen: the first then writes what no majority has."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

from pymongo import MongoClient, WriteConcern
from pymongo.errors import OperationFailure, PyMongoError

from onewrite.testing.servers.engines import Mongod

_START_SECONDS = 60.0
# The first would step down when it has not heard of the others for this long, and it shall not.
_ELECTION_MILLISECONDS = 3_600_000


class _Member(Mongod):
    """It is ready when it answers; a set is made of it later."""

    def _ready(self) -> bool:
        with self._connect(serverSelectionTimeoutMS=2000, connectTimeoutMS=2000) as client:
            try:
                return self._process is not None and client.admin.command("serverStatus")["pid"] == self._process.pid
            except PyMongoError:
                return False

    def signal(self, number: int) -> None:
        if self._process is not None and self.running:
            os.kill(self._process.pid, number)


class ReplicaSet:
    """`uri` is that of the first member, which is the primary throughout."""

    def __init__(self) -> None:
        self._members = [_Member() for _ in range(3)]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for member in self._members:
                stack.enter_context(member)
            self._initiate()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @property
    def uri(self) -> str:
        return self._members[0].uri

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The two secondaries neither answer nor follow, until the end of the block; then they have caught up."""
        try:
            for member in self._members[1:]:
                member.signal(signal.SIGSTOP)
            yield
        finally:
            for member in self._members[1:]:
                member.signal(signal.SIGCONT)
        self._catch_up()

    def _initiate(self) -> None:
        members: list[dict[str, Any]] = [
            {"_id": n, "host": f"127.0.0.1:{member.port}", "priority": 1 if n == 0 else 0}
            for n, member in enumerate(self._members)
        ]
        settings = {"electionTimeoutMillis": _ELECTION_MILLISECONDS, "heartbeatIntervalMillis": 200}
        with MongoClient[dict[str, Any]](self.uri) as client:
            client.admin.command("replSetInitiate", {"_id": "rs0", "members": members, "settings": settings})
            until = time.monotonic() + _START_SECONDS
            while not client.admin.command("hello")["isWritablePrimary"]:
                if time.monotonic() > until:
                    raise RuntimeError(f"no primary after {_START_SECONDS:.0f} s:\n{self._members[0].log_tail()}")
                try:
                    client.admin.command("replSetStepUp")  # else it would wait for the timeout of elections
                except OperationFailure:  # the others have not voted yet
                    time.sleep(0.05)  # between two looks, not in the hope that it is enough
        self._catch_up()

    def _catch_up(self) -> None:
        concern = WriteConcern(w=3, wtimeout=int(_START_SECONDS * 1000))
        with MongoClient[dict[str, Any]](self.uri) as client:
            client.test.get_collection("all", write_concern=concern).insert_one({})
