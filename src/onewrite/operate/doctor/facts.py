"""The facts of a setup, how they are read from a service or a user's module, and the form of a check.

A fact is None if it wasn't requested, and `Unread` if it couldn't be read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from onewrite.batch.handler import find_handler
from onewrite.core.features.event import Outbox
from onewrite.core.features.tombstone import Tombstones
from onewrite.core.ledgers import Ledger
from onewrite.errors import ConfigurationError
from onewrite.identity import sqs_message_id
from onewrite.operate.image import EntityImage
from onewrite.operate.report import advise, find_kind, format_count, format_error

T = TypeVar("T")

_MAX_ERROR = 300  # characters of an error


@dataclass(frozen=True, slots=True)
class Unread:
    """A fact that could not be read. `permission` is the missing permission, or None for another reason.

    `advice` is the next step.
    """

    what: str
    error: str
    permission: str | None = None
    advice: str = ""

    @property
    def reason(self) -> str:
        return f"the permission {self.permission} is missing" if self.permission else "the request failed"


Fact: TypeAlias = T | Unread | None


class Service(NamedTuple):
    """A service that the doctor reads from."""

    errors: tuple[type[Exception], ...]  # its driver's errors, which include those of the network
    is_refusal: Callable[[Exception], bool]  # whether an error means a missing permission

    def ask(self, what: str, permission: str, request: Callable[..., T], **arguments: Any) -> T | Unread:
        """Return the response to a request that needs the `permission`, or `Unread`. `what` describes the requested fact."""
        try:
            return request(**arguments)
        except self.errors as error:
            missing = permission if self.is_refusal(error) else None
            return Unread(what, format_error(error)[:_MAX_ERROR], missing, advise(find_kind(error)))


@dataclass(frozen=True, slots=True)
class Queue:
    """An SQS queue. Durations are in seconds. `dead_letters` is the ARN of its dead-letter queue."""

    name: str
    arn: str
    fifo: bool
    retention: int
    dead_letters: str | None = None
    receives: int | None = None  # deliveries before a message becomes a dead letter


@dataclass(frozen=True, slots=True)
class EventSourceMapping:
    """An event source mapping of the function."""

    source: str  # the ARN of a queue, stream, or Kafka cluster, or another source's address
    reports_failures: bool
    kafka: bool = False
    provisioned: bool = False  # whether it has provisioned pollers
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class TableIndex:
    """A secondary index."""

    name: str
    keys: tuple[str, ...]
    included: frozenset[str] | None  # the attributes that it copies in addition to its keys, or None for all
    types: tuple[str, ...] = ()  # of its keys


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A DynamoDB table."""

    name: str
    keys: tuple[str, ...]
    indexes: tuple[TableIndex, ...] = ()


@dataclass(frozen=True, slots=True)
class EntitySample:
    """Some entities of a table or collection, read at `now`, in epoch seconds."""

    entities: tuple[EntityImage, ...]
    now: float


@dataclass(frozen=True, slots=True)
class ModuleStore:
    """A guarded store of the module. `place` names it, for example "the table orders"."""

    place: str
    ledger: Ledger
    tombstones: Tombstones | None = None
    outbox: Outbox | None = None


@dataclass(frozen=True, slots=True)
class Module:
    """The guarded stores and handlers of a module, or the named one."""

    name: str
    stores: tuple[ModuleStore, ...]
    kafka_answers: bool | None = None  # whether a Kafka handler returns a response, or None without a Kafka handler
    bare_handlers: tuple[str, ...] = ()  # the names of the handlers whose identity is `sqs_message_id()`


_ENGINES = ("onewrite.dynamodb.", "onewrite.mongodb.")
_STORES = ("Guarded", "AsyncGuarded")  # the beginnings of their names


def read_module(name: str, content: object) -> Module:
    """Return the stores and handlers among a module's own names, or the named one."""
    values = list(vars(content).values()) if isinstance(content, ModuleType) else [content]
    stores = list({id(value): value for value in values if _is_store(value)}.values())
    handlers = [handler for value in values if (handler := find_handler(value)) is not None]
    if not stores and not handlers:
        raise ConfigurationError(
            f"{name} has no guarded store or handler. Name the store, or a function without arguments that creates it, "
            "for example shop.stores:orders."
        )
    kafka_answers = [not handler.source.raises for handler in handlers if handler.source.name == "Kafka"]
    bare_handlers = [handler.name for handler in handlers if _is_bare(attrgetter("_identity")(handler))]
    return Module(name, tuple(map(_read_store, stores)), any(kafka_answers) if kafka_answers else None, tuple(bare_handlers))


def _is_bare(identity: object) -> bool:
    """Whether an identity is `sqs_message_id()`, which names no source and no sequence."""
    made_by = f"{getattr(identity, '__module__', '')}.{getattr(identity, '__qualname__', '')}"
    return made_by.startswith(f"{sqs_message_id.__module__}.{sqs_message_id.__qualname__}.")


def _is_store(value: object) -> bool:
    """Whether this is a guarded store of either engine, whose driver need not be installed."""
    classes = type(value).__mro__
    return any(str(kind.__module__).startswith(_ENGINES) and kind.__name__.startswith(_STORES) for kind in classes)


def _read_store(store: Any) -> ModuleStore:
    # These are private, because only the doctor needs them.
    flows = attrgetter("_flows")(store)
    outbox = getattr(getattr(store, "_outboxes", None), "outbox", None)
    if type(flows).__module__.startswith("onewrite.dynamodb"):
        place = f"the table {str(flows.full_name).rpartition('/')[2]}"  # can be an ARN
    else:
        place = f"the collection {flows.target.name}"
    return ModuleStore(place, flows.ledger, flows.tombstones, outbox)


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts of a setup."""

    queue: Fact[Queue] = None
    dead_letters: Fact[Queue] = None
    feeds: Fact[tuple[EventSourceMapping, ...]] = None
    table: Fact[TableDescription] = None
    collection: str | None = None  # for example "the collection orders"
    expiry: Fact[tuple[str, ...]] = None  # the attributes by which the database removes entities
    index_keys: Fact[tuple[tuple[str, ...], ...]] = None  # of a collection's indexes
    sample: Fact[EntitySample] = None
    module: Module | None = None

    @property
    def stores(self) -> tuple[ModuleStore, ...]:
        """The module's stores."""
        return () if self.module is None else self.module.stores

    @property
    def entities(self) -> tuple[EntityImage, ...]:
        """The sample's entities."""
        sample = get_known(self.sample)
        return () if sample is None else sample.entities

    def list_unread(self) -> list[Unread]:
        """Return the facts that could not be read, without repetition."""
        facts = [getattr(self, name) for name in self.__slots__]
        return list(dict.fromkeys([fact for fact in facts if isinstance(fact, Unread)]))


Severity: TypeAlias = Literal["error", "warning", "notice"]
State: TypeAlias = Literal["passed", "found", "not checked"]


class DoctorFinding(NamedTuple):
    """A finding of the doctor.

    An error can lose a message or apply it twice. A warning costs, delays, or endangers. A notice can be intended.
    """

    severity: Severity
    what: str
    why: str
    do: str
    rests_on: str  # the facts that it follows from


# A check yields its findings, and returns a sentence for the report in case it has found nothing.
Findings: TypeAlias = Generator[DoctorFinding, None, str]


class Check(NamedTuple):
    """A check. Programs can rely on `code`, which never changes."""

    code: str
    title: str
    run: Callable[[Facts], Findings]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check, made or not. `text` describes the compared facts, the findings, or the obstacle.

    If a missing fact is the obstacle, `missing` is the fact that couldn't be read, or `option` is the option that requests it.
    """

    check: Check
    state: State
    text: str
    findings: tuple[DoctorFinding, ...] = ()
    missing: Unread | None = None
    option: str | None = None


class NotCheckedError(Exception):
    """The check needs a fact that is missing."""

    def __init__(self, why: str, missing: Unread | None = None, option: str | None = None) -> None:
        super().__init__(why)
        self.missing, self.option = missing, option


def require(fact: Fact[T], option: str) -> T:
    """Return a fact, or raise NotCheckedError. `option` is the option that requests it."""
    if fact is None:
        raise NotCheckedError(f"It needs {option}.", option=option)
    if isinstance(fact, Unread):
        raise NotCheckedError(f"It needs {fact.what}, but {fact.reason}.", fact)
    return fact


def get_known(fact: Fact[T]) -> T | None:
    """Return a fact, or None for a check that works without it."""
    return None if isinstance(fact, Unread) else fact


def format_span(seconds: float) -> str:
    """Return a duration in words: 14 days, 90 seconds."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            return format_count(int(seconds // length), unit)
    return str(timedelta(seconds=int(seconds))) if seconds >= 3_600 else format_count(round(seconds), "second")  # noqa: PLR2004  # an hour
