"""The servers that are attacked, the attacks on each of them, and the proxies that lose and delay requests on the way to them."""

from __future__ import annotations

import random
import signal
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, ClassVar, Self

from pymongo import MongoClient
from pymongo.read_concern import ReadConcern

from onewrite import SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Dynoxide, Mongod
from onewrite.testing.servers.process import ServerProcess
from tests.chaos.traffic import KINDS
from tests.chaos.worker import OUTBOX, PLACE, Target
from tests.engines.stores import State, create_table_with_outbox, dynamo_state, mongo_state
from tests.support.engines import dynoxide_binary, mongod_binary
from tests.support.mongo_proxy import MongoProxy
from tests.support.proxy import Fault, FaultProxy, Proxy
from tests.support.replica_set import Member, ReplicaSet, send_signal

# Short, so a minute has many failovers. On a busy machine a healthy primary may lose its place by it: one failover more.
_ELECTION_MILLISECONDS = 1500
_CONNECTION_FAULTS = {
    Fault.DROP_REQUEST: 0.02,
    Fault.DROP_ANSWER: 0.03,
    Fault.RESET: 0.02,
    Fault.DELAY: 0.01,
    Fault.LATE: 0.02,
}
_HTTP_FAULTS = {**_CONNECTION_FAULTS, Fault.ERROR_500_AFTER: 0.02, Fault.THROTTLE: 0.01, Fault.CONFLICT: 0.01}
_LATENESS = 2.0  # longer than a worker waits for an answer

Attack = Callable[[random.Random], None]


class Setup(ABC):
    """Servers, and a place on them. `halt` ends an attack early."""

    name: ClassVar[str]
    kinds: ClassVar[Sequence[str]] = tuple(KINDS)
    faults: ClassVar[Mapping[Fault, float]] = _CONNECTION_FAULTS
    relays: ClassVar[int] = 3
    entities: ClassVar[int] = 3  # of each kind

    folder: Path  # in which a provider keeps its charges

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.halt = threading.Event()
        self._stack = ExitStack()
        self._proxies: list[Proxy] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(TemporaryDirectory(prefix="onewrite-chaos-")))
            self._open(stack)
            for proxy in self._proxies:
                proxy.lateness = _LATENESS
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @abstractmethod
    def _open(self, stack: ExitStack) -> None:
        """Start everything."""

    @property
    @abstractmethod
    def target(self) -> Target:
        """Where the workers write: the proxies."""

    @property
    @abstractmethod
    def attacks(self) -> Mapping[Attack, float]:
        """What may happen to the servers, and how often compared with the others."""

    @abstractmethod
    def heal_servers(self) -> None:
        """Start and wake what is dead or frozen."""

    @abstractmethod
    def state(self, entity: str) -> State:
        """What the entity says, read from the servers themselves."""

    @property
    @abstractmethod
    def store(self) -> GuardedTable | GuardedCollection:
        """The entities with their outboxes, on the servers themselves."""

    @abstractmethod
    def create(self, entities: Sequence[str]) -> None:
        """Make them, without an effect."""

    @property
    def charges(self) -> Path:
        """A line for each time that a provider was asked: the effect, and the key."""
        return self.folder / "charges"

    @abstractmethod
    def clear(self, entities: Sequence[str]) -> None:
        """Remove them."""

    def harm_the_network(self, choice: random.Random) -> None:
        for proxy in self._proxies:
            proxy.chance(random.Random(choice.random()), self.faults)

    def heal(self) -> None:
        """Everything works, and nothing is under way any more that was sent before."""
        self.heal_servers()
        for proxy in self._proxies:
            proxy.calm()
            proxy.wait_until_none_is_held_back()
            self.counts["faults on the way"] += len(proxy.past_faults)
            proxy.past_faults.clear()
            proxy.operations.clear()

    def _freeze(self, server: ServerProcess, choice: random.Random) -> None:
        self.counts["servers frozen"] += 1
        send_signal(server, signal.SIGSTOP)
        self.halt.wait(min(choice.expovariate(2), 3.0))  # now and then longer than a worker waits
        send_signal(server, signal.SIGCONT)

    def _crash(self, server: ServerProcess, choice: random.Random) -> None:
        self.counts["servers killed"] += 1
        server.kill()
        self.halt.wait(choice.uniform(0, 0.5))
        server.restart()


class _OneServer(Setup):
    """A server that is frozen, and killed and started again on its data."""

    _server: ServerProcess

    @property
    def attacks(self) -> Mapping[Attack, float]:
        return {lambda choice: self._freeze(self._server, choice): 1, lambda choice: self._crash(self._server, choice): 1}

    def heal_servers(self) -> None:
        send_signal(self._server, signal.SIGCONT)
        if not self._server.running:
            self._server.restart()


class DynoxideSetup(_OneServer):
    name = "dynoxide"
    faults: ClassVar[Mapping[Fault, float]] = _HTTP_FAULTS

    def _open(self, stack: ExitStack) -> None:
        dynoxide_binary()
        self._server = server = stack.enter_context(Dynoxide())
        self._proxy = stack.enter_context(FaultProxy("127.0.0.1", server.port))
        self._proxies = [self._proxy]
        self._client = server.client()
        stack.callback(self._client.close)
        create_table_with_outbox(self._client, PLACE, "KEYS_ONLY")

    @property
    def target(self) -> Target:
        return Target("dynamodb", self._proxy.endpoint, str(self.charges))

    def state(self, entity: str) -> State:
        return dynamo_state(self._client, PLACE, entity)

    @property
    def store(self) -> GuardedTable:
        return GuardedTable(self._client, SeenIds(), table_name=PLACE, outbox=OUTBOX)

    def create(self, entities: Sequence[str]) -> None:
        for entity in entities:
            self._client.put_item(TableName=PLACE, Item={"id": {"S": entity}})

    def clear(self, entities: Sequence[str]) -> None:
        for entity in entities:
            self._client.delete_item(TableName=PLACE, Key={"id": {"S": entity}})


class _MongoSetup(Setup):
    """`_client` goes to the servers themselves, and sees what a majority has."""

    kinds = tuple(kind for kind in KINDS if kind != "lean")
    _client: MongoClient[dict[str, Any]]

    def state(self, entity: str) -> State:
        return mongo_state(self._client.test.get_collection(PLACE, read_concern=ReadConcern("majority")), entity)

    @property
    def store(self) -> GuardedCollection:
        return GuardedCollection(self._client.test[PLACE], SeenIds(), outbox=OUTBOX)

    def create(self, entities: Sequence[str]) -> None:
        for entity in entities:
            self._client.test[PLACE].insert_one({"_id": entity})

    def clear(self, entities: Sequence[str]) -> None:
        self._client.test[PLACE].delete_many({"_id": {"$in": [*entities]}})


class MongodSetup(_OneServer, _MongoSetup):
    name = "mongod"

    def _open(self, stack: ExitStack) -> None:
        mongod_binary()
        self._server = server = stack.enter_context(Mongod())
        self._proxy = stack.enter_context(MongoProxy("127.0.0.1", server.port))
        self._proxies = [self._proxy]
        self._client = stack.enter_context(MongoClient[dict[str, Any]](server.uri))

    @property
    def target(self) -> Target:
        return Target("mongodb", self._proxy.uri, str(self.charges))


class ReplicaSetSetup(_MongoSetup):
    """Three members, of which any may fail. A rollback is what takes back writes that no majority had."""

    name = "replica set"

    def _open(self, stack: ExitStack) -> None:
        mongod_binary()
        self._set = stack.enter_context(ReplicaSet(election_milliseconds=_ELECTION_MILLISECONDS, member=Member))
        ports = {member.port: stack.enter_context(MongoProxy("127.0.0.1", member.port)) for member in self._set.members}
        for proxy in ports.values():
            proxy.show({real: shown_proxy.port for real, shown_proxy in ports.items()})
        self._proxies = [*ports.values()]
        self._client = stack.enter_context(MongoClient[dict[str, Any]](self._set.whole_uri))
        self._term, self._rollbacks = self._set.term(), self._set.rollbacks()

    @property
    def target(self) -> Target:
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self._proxies)
        return Target("mongodb", f"mongodb://{hosts}/?replicaSet=rs0", str(self.charges))

    @property
    def attacks(self) -> Mapping[Attack, float]:
        return {
            self._isolate: 3,
            self._freeze_others: 1,
            self._step_down: 1,
            lambda choice: self._freeze(choice.choice(self._set.members), choice): 1,
            lambda choice: self._crash(choice.choice(self._set.members), choice): 2,
        }

    def heal_servers(self) -> None:
        self._set.heal()
        term, rollbacks = self._set.term(), self._set.rollbacks()
        self.counts["failovers"] += term - self._term
        self.counts["rollbacks"] += rollbacks - self._rollbacks
        self._term, self._rollbacks = term, rollbacks

    def _isolate(self, choice: random.Random) -> None:
        """The primary takes writes that nobody else gets, until the others have elected another; then it comes back."""
        self._separate(choice, 1.5, lambda member: member.follow(False), lambda member: member.follow(True))

    def _freeze_others(self, choice: random.Random) -> None:
        """As `_isolate`, but the others hear nothing: the primary may notice that, and step down by itself."""
        freeze, thaw = (partial(send_signal, number=number) for number in (signal.SIGSTOP, signal.SIGCONT))
        self._separate(choice, 2.5, freeze, thaw)

    def _separate(
        self, choice: random.Random, seconds: float, part: Callable[[Member], None], rejoin: Callable[[Member], None]
    ) -> None:
        """Part the other members from the primary for so many seconds at most. It comes back when another has taken its place."""
        if (primary := self._set.primary()) is None:
            return
        other_members = [member for member in self._set.members if member is not primary]
        for member in other_members:
            part(member)
        self.halt.wait(choice.uniform(0.2, seconds))
        send_signal(primary, signal.SIGSTOP)
        for member in other_members:
            rejoin(member)
        self._wait(lambda: any(_is_primary(member) for member in other_members))
        self.halt.wait(choice.uniform(0, 0.5))
        send_signal(primary, signal.SIGCONT)
        self._wait(lambda: bool((primary.ask("hello") or {}).get("secondary")))

    def _step_down(self, choice: random.Random) -> None:
        if (primary := self._set.primary()) is not None:
            primary.ask("replSetStepDown", value=1, secondaryCatchUpPeriodSecs=0, force=True)

    def _wait(self, until: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait for what may take long on a busy machine, or never happen: the next attack comes all the same."""
        for _ in range(int(seconds / 0.05)):
            if until() or self.halt.wait(0.05):
                return


class ControlSetup(ReplicaSetSetup):
    """Writes that the primary alone acknowledges: they must be seen to be lost, or nothing here could see a loss."""

    name = "control, w=1"
    # A source that counts would wait forever for what was lost.
    kinds = ("SeenIds",)
    relays = 0  # it is about the writes alone
    faults: ClassVar[Mapping[Fault, float]] = {}

    @property
    def target(self) -> Target:
        return Target("mongodb", super().target.address, durability="acknowledged")

    @property
    def attacks(self) -> Mapping[Attack, float]:
        return {self._isolate: 1}


def _is_primary(member: Member) -> bool:
    return bool((member.ask("hello") or {}).get("isWritablePrimary"))


class _Unharmed(_OneServer):
    """The server and the network work. Only workers and relays die, so there are many more messages and events."""

    faults: ClassVar[Mapping[Fault, float]] = {}
    entities = 14

    @property
    def attacks(self) -> Mapping[Attack, float]:
        return {}


class UnharmedDynoxideSetup(_Unharmed, DynoxideSetup):
    name = "dynoxide, unharmed"


class UnharmedMongodSetup(_Unharmed, MongodSetup):
    name = "mongod, unharmed"


SETUPS: dict[str, type[Setup]] = {
    "dynoxide": DynoxideSetup,
    "mongod": MongodSetup,
    "dynoxide-unharmed": UnharmedDynoxideSetup,
    "mongod-unharmed": UnharmedMongodSetup,
    "replica-set": ReplicaSetSetup,
    "control": ControlSetup,
}


class Attacker:
    """Attacks the servers of a setup in a thread of its own until the end of the block; then all is healed."""

    def __init__(self, setup: Setup, choice: random.Random, *, pause: float) -> None:
        self._setup, self._random, self._pause = setup, choice, pause
        self._thread = threading.Thread(target=self._run, name="attacker", daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._setup.halt.clear()
        self._setup.harm_the_network(self._random)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._setup.halt.set()
        self._thread.join()
        if error is None:
            self.check()
            self._setup.heal()

    def check(self) -> None:
        """Raise what went wrong with an attack."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        attacks = self._setup.attacks
        try:
            while attacks and not self._setup.halt.wait(self._random.expovariate(1 / self._pause)):
                (attack,) = self._random.choices([*attacks], [*attacks.values()])
                attack(self._random)
        except BaseException as error:  # it has no other way out of this thread
            self._error = error
