"""What is known of a set-up. A fact is None if nobody asked for it, and `Unread` if it was asked for and could not be read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from onewrite.core.event import Outbox
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.kept import LabelledLedger
from onewrite.core.tombstone import Tombstones
from onewrite.operate.report import count_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unread:
    """A fact that could not be read. `permission` is the one that is missing; None if there is another reason, as `failure` says."""

    what: str
    error: str
    permission: str | None = None
    failure: str = "the request failed"

    @property
    def reason(self) -> str:
        return f"the permission {self.permission} is missing" if self.permission else self.failure


Fact: TypeAlias = T | Unread | None


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of SQS. Durations are seconds. `dead_letters` is the ARN of its dead-letter queue."""

    name: str
    arn: str
    fifo: bool
    retention: int
    visibility: int
    dead_letters: str | None = None
    receives: int | None = None  # deliveries before a message goes to the dead letters


@dataclass(frozen=True, slots=True)
class Function:
    """A function of Lambda. `timeout` is seconds."""

    name: str
    timeout: int


@dataclass(frozen=True, slots=True)
class EventSourceMapping:
    """An event source mapping: from where Lambda feeds the function. `window` is the batching window in seconds."""

    source: str  # the ARN of a queue, a stream or a cluster of Kafka, or the address of another one
    window: int
    reports_failures: bool
    kafka: bool = False
    provisioned: bool = False  # whether pollers are provisioned for it
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class TableIndex:
    """A secondary index. `included`: the attributes that it copies beside its keys; None if it copies all of them. `types` are those of the keys."""

    name: str
    keys: tuple[str, ...]
    included: frozenset[str] | None
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table of DynamoDB. `replicas` are the other regions of a global table, and `strong` says how they agree."""

    name: str
    keys: tuple[str, ...]
    indexes: tuple[TableIndex, ...] = ()
    replicas: tuple[str, ...] = ()
    strong: bool = False


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far the database's clock is ahead of ours, in seconds, give or take `margin`."""

    ahead: float
    margin: float


@dataclass(frozen=True, slots=True)
class MongoDBServer:
    """What a server of MongoDB says of itself. `kind` is "standalone", "replica set" or "mongos"."""

    kind: str
    arbiters: tuple[str, ...]
    clock: ClockOffset


@dataclass(frozen=True, slots=True)
class ReplicaSetMembers:
    """The members of a replica set: its arbiters, how many members write and vote, and how many of these a majority needs."""

    arbiters: tuple[str, ...]
    writing: int
    majority: int


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection of MongoDB as its URL names it. `w` is its own write concern; None if it leaves that to the server."""

    name: str
    w: int | str | None


@dataclass(frozen=True, slots=True)
class Entity:
    """What was read of one item or document. Sizes are bytes.

    `own` are the names of what is not ours, and `ledger` those of the ledgers with their sizes. `unlabelled` are attributes
    that have marks without a label, `unmarked` those that have a label without marks, `overwritten` those that hold something else.
    """

    name: str
    size: int
    own: frozenset[str]
    ledger: Mapping[str, int]
    labels: tuple[LabelledLedger, ...] = ()
    unlabelled: tuple[str, ...] = ()
    unmarked: tuple[str, ...] = ()
    overwritten: tuple[str, ...] = ()
    tombstone: int | None = None  # for how many seconds it stays, if it is one
    in_use: bool = False  # does it hold a step or an outbox, and so was written by a guarded store?
    outbox: bool = False  # has it an outbox?
    later: tuple[str, ...] = ()  # labels of a later version of onewrite's format, of which nothing else is known
    expires: float | None = None  # epoch seconds


@dataclass(frozen=True, slots=True)
class EntitySample:
    """Some entities of a table or collection. `now` is when they were read, `limit` how many bytes an entity may have."""

    entities: tuple[Entity, ...]
    keys: tuple[str, ...]
    limit: int
    now: float


@dataclass(frozen=True, slots=True)
class ModuleStore:
    """A guarded store of the module. `place` names it, as in "the table orders".

    `w` is the write concern of a collection's store; None if it leaves that to the server.
    """

    place: str
    ledger: Ledger | None
    engine: str  # "dynamodb" or "mongodb"
    tombstones: Tombstones | None = None
    outbox: Outbox | None = None
    w: int | str | None = None


@dataclass(frozen=True, slots=True)
class Module:
    """What was found in a module: the stores that its handlers of SQS use, if these could be told apart, otherwise all of them.

    `kafka_answers`: whether a handler of Kafka answers instead of raising; None if there is no handler of Kafka. `unfound`: why there are
    no stores, or not all of them.
    """

    name: str
    stores: tuple[ModuleStore, ...]
    kafka_answers: bool | None = None
    unfound: Unread | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known."""

    queue: Fact[Queue] = None
    dead_letters: Fact[Queue] = None
    function: Fact[Function] = None
    feeds: Fact[tuple[EventSourceMapping, ...]] = None
    table: Fact[TableDescription] = None
    collection: Collection | None = None
    server: Fact[MongoDBServer] = None
    members: Fact[ReplicaSetMembers] = None
    default_w: Fact[int | str] = None  # the server's own write concern
    version: Fact[str] = None
    clock: Fact[ClockOffset] = None
    expiry: Fact[tuple[str, ...]] = None  # the attributes by which the database removes entities
    index_keys: Fact[tuple[tuple[str, ...], ...]] = None  # of a collection's indexes
    sample: Fact[EntitySample] = None
    module: Module | None = None

    @property
    def stores(self) -> tuple[ModuleStore, ...]:
        """Those of the module."""
        return () if self.module is None else self.module.stores

    @property
    def entities(self) -> tuple[Entity, ...]:
        """Those of the sample."""
        sample = if_known(self.sample)
        return () if sample is None else sample.entities

    def unread(self) -> list[Unread]:
        """What could not be read, each once."""
        facts = [*[getattr(self, name) for name in self.__slots__], self.module and self.module.unfound]
        return list(dict.fromkeys([fact for fact in facts if isinstance(fact, Unread)]))


Severity: TypeAlias = Literal["error", "warning"]
State: TypeAlias = Literal["passed", "found", "not checked"]


class DoctorFinding(NamedTuple):
    """An error is what may lose a message or let it take effect twice; a warning is what costs, delays or endangers."""

    severity: Severity
    what: str
    why: str
    do: str
    rests_on: str  # which facts it was concluded from


# A check yields what it finds, and returns a sentence about what it has compared.
Findings: TypeAlias = Generator[DoctorFinding, None, str]


class Check(NamedTuple):
    """`code` never changes, so programs may rely on it."""

    code: str
    title: str
    run: Callable[[Facts], Findings]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check that was made, or could not be. `text` is what it compared, or why it could not."""

    check: Check
    state: State
    text: str
    findings: tuple[DoctorFinding, ...] = ()
    missing: Unread | None = None  # what could not be read, if that is why


class NotCheckedError(Exception):
    """A fact is missing without which the check says nothing."""

    def __init__(self, why: str, missing: Unread | None = None) -> None:
        super().__init__(why)
        self.missing = missing


def require(fact: Fact[T], giver: str) -> T:
    """The fact. `giver` is the option that asks for it."""
    if fact is None:
        raise NotCheckedError(f"It needs {giver}.")
    if isinstance(fact, Unread):
        raise NotCheckedError(f"It needs {fact.what}, and {fact.reason}.", fact)
    return fact


def if_known(fact: Fact[T]) -> T | None:
    """The fact, where a check can do without it."""
    return None if isinstance(fact, Unread) else fact


def span(seconds: float) -> str:
    """A duration as a person says it: 14 days, 90 seconds."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            return count_of(int(seconds // length), unit)
    return str(timedelta(seconds=int(seconds))) if seconds >= 3_600 else count_of(round(seconds), "second")  # noqa: PLR2004  # an hour
