"""The requests that read facts, and the lookup of stores in the user's module.

A reader is a generator that yields questions and receives the answers. The answer to a refused or failed request is `Unread`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from onewrite.batch.handler import find_handler
from onewrite.core.flow import Flow, FlowStep, drive, make_executor
from onewrite.errors import ConfigurationError
from onewrite.identity import sqs_message_id
from onewrite.operate.doctor.facts import Module, ModuleStore, Unread
from onewrite.operate.report import advise, find_kind, format_error, read_aws_error

T = TypeVar("T")

# AWS's errors for a missing permission. Each service has its own.
_REFUSED_BY_AWS = ("AccessDenied", "UnauthorizedOperation")
_UNAUTHORIZED = 13  # MongoDB's code for a missing privilege
_REFUSED_BY_ATLAS = 8000  # MongoDB Atlas's code
_MAX_ERROR = 300  # characters of an error


class Question(NamedTuple):
    """A request that only reads. `what` describes it in an error, and `permission` is the permission that it needs."""

    what: str
    permission: str
    step: FlowStep


Reader: TypeAlias = Generator[Question, Any, T]


@dataclass(frozen=True, slots=True)
class Asking:
    """A service's errors: its driver's, the network's, and those for a missing permission."""

    is_failure: Callable[[Exception], bool]
    is_refusal: Callable[[Exception], bool]

    def run(self, reader: Reader[T], target: object) -> T:
        """Return the reader's result with this client."""
        execute = make_executor(target)

        def answer(question: Question) -> Any:
            try:
                return execute(question.step)
            except Exception as error:
                if not self.is_failure(error):
                    raise
                text = format_error(error)[:_MAX_ERROR]
                permission = question.permission if self.is_refusal(error) else None
                return Unread(question.what, text, permission, advise(find_kind(error)))

        return drive(reader, answer)


def is_refused_by_aws(error: Exception) -> bool:
    return any(spelling in read_aws_error(error).get("Code", "") for spelling in _REFUSED_BY_AWS)


def is_refused_by_mongodb(error: Exception) -> bool:
    return getattr(error, "code", None) in (_UNAUTHORIZED, _REFUSED_BY_ATLAS)


def list_questions(what: str, permission: str, flow: Flow[T]) -> Reader[T | Unread]:
    """Ask a flow's requests as questions, and return its result. If one isn't answered, end the flow and return `Unread`."""
    with closing(flow):
        try:
            step = next(flow)
            while True:
                reply = yield Question(what, permission, step)
                if isinstance(reply, Unread):
                    return reply
                step = flow.send(reply)
        except StopIteration as end:
            return cast("T", end.value)


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
    # A store keeps these to itself, because only the doctor needs them.
    flows = attrgetter("_flows")(store)
    outbox = getattr(getattr(store, "_outboxes", None), "outbox", None)
    if type(flows).__module__.startswith("onewrite.dynamodb"):
        place = f"the table {str(flows.full_name).rpartition('/')[2]}"  # can be an ARN
    else:
        place = f"the collection {flows.target.name}"
    return ModuleStore(place, flows.ledger, flows.tombstones, outbox)
