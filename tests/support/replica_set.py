"""Three mongods as one replica set, of which some can be frozen or killed: what is left then writes what no majority has."""

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
from onewrite.testing.servers.process import ServerProcess

_START_SECONDS = 60.0
# The first would step down when it has not heard of the others for this long, and it shall not.
_NO_ELECTION_MILLISECONDS = 3_600_000


def send_signal(server: ServerProcess, number: int) -> None:
    """Signal the server's process, if it has one."""
    process = server._process
    if process is not None and server.running:
        os.kill(process.pid, number)


class Member(Mongod):
    """It is ready when it answers; a set is made of it later."""

    def _is_ready(self) -> bool:
        with self._connect(serverSelectionTimeoutMS=2000, connectTimeoutMS=2000) as client:
            try:
                return self._process is not None and client.admin.command("serverStatus")["pid"] == self._process.pid
            except PyMongoError:
                return False

    def ask(self, command: str, **options: Any) -> dict[str, Any] | None:
        """What this member answers, or None if it does not, or refuses."""
        with self._connect(serverSelectionTimeoutMS=1000, connectTimeoutMS=1000, socketTimeoutMS=1000) as client:
            try:
                return client.admin.command(command, **options)
            except PyMongoError:
                return None

    def follow(self, whether: bool) -> None:
        """As a secondary fetch what the primary writes, or do not. It votes and answers all the same."""
        mode = "off" if whether else "alwaysOn"
        answer = self.answer("configureFailPoint", value="stopReplProducer", mode=mode)
        if not whether:  # what it is fetching at this moment it would still take
            self.ask("waitForFailPoint", value="stopReplProducer", timesEntered=answer["count"] + 1, maxTimeMS=900)

    def answer(self, command: str, **options: Any) -> dict[str, Any]:
        """As `ask`, of a member that will answer sooner or later: one that rolls back refuses for a moment."""
        until = time.monotonic() + _START_SECONDS
        while (answer := self.ask(command, **options)) is None:
            if time.monotonic() > until:
                raise RuntimeError(f"no answer to {command} in {_START_SECONDS:.0f} s:\n{self.log_tail()}")
            time.sleep(0.05)  # between two looks, not in the hope that it is enough
        return answer


class ReplicaSet:
    """`uri` is that of the first member, which is the primary throughout.

    With `election_milliseconds` any member can become the primary: one that has not heard of a primary for that long stands for
    election. `whole_uri` then finds the primary.
    """

    def __init__(self, *, election_milliseconds: int | None = None, member: type[Member] = Member) -> None:
        self.members = tuple(member() for _ in range(3))
        self._election_milliseconds = election_milliseconds
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for member in self.members:
                stack.enter_context(member)
            self._initiate()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @property
    def uri(self) -> str:
        return self.members[0].uri

    @property
    def whole_uri(self) -> str:
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"mongodb://{hosts}/?replicaSet=rs0"

    def primary(self) -> Member | None:
        """Who says so. For a moment it may be the one before, which does not know yet."""
        for member in self.members:
            if (member.ask("hello") or {}).get("isWritablePrimary"):
                return member
        return None

    def rollbacks(self) -> int:
        """How often the members, which must all be there, have taken back what they had written."""
        return sum(member.answer("replSetGetRBID")["rbid"] - 1 for member in self.members)

    def term(self) -> int:
        """How many elections there were."""
        return max(member.answer("replSetGetStatus")["term"] for member in self.members)

    def heal(self, seconds: float = 2 * _START_SECONDS) -> None:
        """Wake and start the members, and wait until all of them have everything."""
        for member in self.members:
            send_signal(member, signal.SIGCONT)
            if not member.running:
                member.restart()
            member.follow(True)
        until = time.monotonic() + seconds
        with MongoClient[dict[str, Any]](self.whole_uri, timeoutMS=10_000) as client:
            while True:
                try:
                    return self._catch_up(client)
                except PyMongoError:  # there was an election meanwhile, or none yet
                    if time.monotonic() > until:
                        raise

    @contextmanager
    def freeze_secondaries(self) -> Iterator[None]:
        """The two secondaries neither answer nor follow, until the end of the block; then they have caught up."""
        try:
            for member in self.members[1:]:
                send_signal(member, signal.SIGSTOP)
            yield
        finally:
            for member in self.members[1:]:
                send_signal(member, signal.SIGCONT)
        with MongoClient[dict[str, Any]](self.uri) as client:
            self._catch_up(client)

    def _initiate(self) -> None:
        with MongoClient[dict[str, Any]](self.uri) as client:
            client.admin.command("replSetInitiate", self._configuration())
            until = time.monotonic() + _START_SECONDS
            while not client.admin.command("hello")["isWritablePrimary"]:
                if time.monotonic() > until:
                    raise RuntimeError(f"no primary after {_START_SECONDS:.0f} s:\n{self.members[0].log_tail()}")
                try:
                    client.admin.command("replSetStepUp")  # else it would wait for the timeout of elections
                except OperationFailure:  # the others have not voted yet
                    time.sleep(0.05)  # between two looks, not in the hope that it is enough
            self._catch_up(client)

    def _configuration(self) -> dict[str, Any]:
        elections = self._election_milliseconds is not None
        members: list[dict[str, Any]] = [
            {"_id": n, "host": f"127.0.0.1:{member.port}", "priority": 1 if n == 0 or elections else 0}
            for n, member in enumerate(self.members)
        ]
        settings: dict[str, Any] = {
            "electionTimeoutMillis": self._election_milliseconds or _NO_ELECTION_MILLISECONDS,
            "heartbeatIntervalMillis": 200,
        }
        if elections:  # a member that is frozen is given up soon, and its writes are not waited for
            settings |= {"heartbeatTimeoutSecs": 1, "catchUpTimeoutMillis": 0}
        return {"_id": "rs0", "members": members, "settings": settings}

    def _catch_up(self, client: MongoClient[dict[str, Any]]) -> None:
        """Write something that each member must confirm."""
        concern = WriteConcern(w=3, wtimeout=int(_START_SECONDS * 1000))
        client.test.get_collection("all", write_concern=concern).insert_one({})
