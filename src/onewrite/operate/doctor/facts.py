"""What is known of a set-up. A fact is None if nobody asked for it, and `Unread` if it was asked for and could not be read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from onewrite.core.event import Outbox
from onewrite.core.ledgers import Ledger
from onewrite.core.tombstone import Tombstones
from onewrite.operate.image import EntityImage
from onewrite.operate.report import count_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unread:
    """A fact that could not be read. `permission` is the one that is missing; None if there is another reason."""

    what: str
    error: str
    permission: str | None = None

    @property
    def reason(self) -> str:
        return f"the permission {self.permission} is missing" if self.permission else "the request failed"


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
class EntitySample:
    """Some entities of a table or collection. `now` is when they were read, `expires` when the database removes them, by their names.

    Both are epoch seconds.
    """

    entities: tuple[EntityImage, ...]
    now: float
    expires: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ModuleStore:
    """A guarded store of the module. `place` names it, as in "the table orders"."""

    place: str
    ledger: Ledger | None
    tombstones: Tombstones | None = None
    outbox: Outbox | None = None


@dataclass(frozen=True, slots=True)
class Module:
    """The guarded stores of a module, or the one that is named.

    `kafka_answers`: whether a handler of Kafka answers instead of raising; None if there is no handler of Kafka.
    """

    name: str
    stores: tuple[ModuleStore, ...]
    kafka_answers: bool | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known."""

    queue: Fact[Queue] = None
    dead_letters: Fact[Queue] = None
    function: Fact[Function] = None
    feeds: Fact[tuple[EventSourceMapping, ...]] = None
    table: Fact[TableDescription] = None
    collection: str | None = None  # as in "the collection orders"
    expiry: Fact[tuple[str, ...]] = None  # the attributes by which the database removes entities
    index_keys: Fact[tuple[tuple[str, ...], ...]] = None  # of a collection's indexes
    refuses_ours: Fact[bool] = None  # whether a collection's validator refuses what a guarded write adds
    sample: Fact[EntitySample] = None
    module: Module | None = None

    @property
    def stores(self) -> tuple[ModuleStore, ...]:
        """Those of the module."""
        return () if self.module is None else self.module.stores

    @property
    def entities(self) -> tuple[EntityImage, ...]:
        """Those of the sample."""
        sample = if_known(self.sample)
        return () if sample is None else sample.entities

    def unread(self) -> list[Unread]:
        """What could not be read, each once."""
        facts = [getattr(self, name) for name in self.__slots__]
        return list(dict.fromkeys([fact for fact in facts if isinstance(fact, Unread)]))


Severity: TypeAlias = Literal["error", "warning", "notice"]
State: TypeAlias = Literal["passed", "found", "not checked"]


class DoctorFinding(NamedTuple):
    """An error may lose a message or let it take effect twice; a warning costs, delays or endangers; a notice may be right as it is."""

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
