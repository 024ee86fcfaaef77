"""How facts are asked for. What is refused or fails is answered by `Unread` instead of being raised.

A reader is a generator that yields questions and is sent the answers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, partial
from inspect import unwrap
from operator import attrgetter
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from onewrite.batch.handler import Handler, handler_of
from onewrite.core.flow import Flow, FlowStep, drive, performer
from onewrite.core.label import OUTBOX, PREFIX, STEPS, TOMBSTONE, is_ours, prefix_of
from onewrite.core.ledgers import NO_LEDGER
from onewrite.core.ledgers.kept import LabelledLedger, kept_ledgers
from onewrite.core.ledgers.seen_ids import RING_LAYOUT, SLOTS
from onewrite.core.tombstone import read_tombstone
from onewrite.errors import LedgerMismatch
from onewrite.message import printable
from onewrite.operate.doctor.facts import Entity, Module, ModuleStore, Unread
from onewrite.operate.image import EntityImage, later_labels
from onewrite.operate.modules import call, is_maker
from onewrite.operate.report import brief

T = TypeVar("T")

# What AWS answers where a permission is missing: each service has a spelling of its own.
_REFUSED_BY_AWS = ("AccessDenied", "UnauthorizedOperation")
_UNAUTHORIZED = 13  # MongoDB's code for a missing privilege
_REFUSED_BY_ATLAS = 8000  # that of MongoDB Atlas
_LONGEST = 300  # characters of an error


class Question(NamedTuple):
    """A request that reads. `what` is said of it where it cannot be answered, and `permission` is the one that it needs."""

    what: str
    permission: str
    step: FlowStep


Reader: TypeAlias = Generator[Question, Any, T]


@dataclass(frozen=True, slots=True)
class Asking:
    """Tells the errors of a service, its driver or the network, and among them those for lack of a permission."""

    is_failure: Callable[[Exception], bool]
    is_refusal: Callable[[Exception], bool]

    def run(self, reader: Reader[T], target: object) -> T:
        """What the reader has found, by this client."""
        perform = performer(target)

        def answer(question: Question) -> Any:
            try:
                return perform(question.step)
            except Exception as error:
                if not self.is_failure(error):
                    raise
                text = brief(error)[:_LONGEST]
                return Unread(question.what, text, question.permission if self.is_refusal(error) else None)

        return drive(reader, answer)


def refused_by_aws(error: Exception) -> bool:
    response: Any = getattr(error, "response", {})
    code = str(response.get("Error", {}).get("Code", ""))
    return any(spelling in code for spelling in _REFUSED_BY_AWS)


def refused_by_mongodb(error: Exception) -> bool:
    return getattr(error, "code", None) in (_UNAUTHORIZED, _REFUSED_BY_ATLAS)


def questions_of(what: str, permission: str, flow: Flow[T]) -> Reader[T | Unread]:
    """The flow's requests as questions. The first that cannot be answered ends it."""
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


# --- what an item or a document says of itself, whatever the engine ----------------------------------------------------------

# What a ledger keeps beside its label and its tokens, as docs/format.md names it.
_MARK_NAME = re.compile(rf"(?P<prefix>{PREFIX})(?:{RING_LAYOUT}r[0-{SLOTS - 1}]?|allt?|@.*)", re.DOTALL)


def entity_in(image: EntityImage, expires: float | None) -> Entity:
    """`expires`: when the database removes it, in epoch seconds."""
    fields = image.fields
    labelled_ledgers = kept_ledgers(fields.items())
    later = [f"{label}: {fields[label]}" for label in later_labels(fields)]
    ledgers = {ledger: image.fields_of(ledger.attribute) for ledger in labelled_ledgers}
    labels = {f"{match['prefix']}l" for name in fields if (match := _MARK_NAME.fullmatch(name)) is not None}

    def is_marked(ledger: LabelledLedger, names: tuple[str, ...]) -> bool:
        """Has it a mark beside its label and its tokens? One that has moved needs none."""
        tokens = f"{prefix_of(ledger.attribute)}t"
        mark_names = [name for name in names if name != ledger.attribute and not name.startswith(tokens)]
        return ledger.moved_to is not None or any(_holds(fields[name]) for name in mark_names)

    tombstone: int | None = None
    if TOMBSTONE in fields:
        with suppress(LedgerMismatch):
            tombstone = read_tombstone(fields[TOMBSTONE]).seconds
    return Entity(
        printable(image.name),
        image.size,
        frozenset([name for name in fields if not is_ours(name)]),
        {name: image.sizes[name] for name in sorted({name for names in ledgers.values() for name in names})},
        tuple(labelled_ledgers),
        unlabelled=tuple(sorted([label for label in labels if label not in fields])),
        unmarked=tuple([ledger.attribute for ledger, names in ledgers.items() if not is_marked(ledger, names)]),
        tombstone=tombstone,
        in_use=STEPS in fields or OUTBOX.label in fields or bool(later),
        outbox=OUTBOX.label in fields,
        later=tuple(later),
        expires=expires,
    )


def _holds(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds, cast("Mapping[str, object]", value).values()))
    return len(cast("list[object]", value)) > 0 if isinstance(value, list | AbstractSet) else True


# --- the guarded stores and the handlers in a module of the user's. Only functions that make a store once are called ----------

_ENGINES = ("onewrite.dynamodb.", "onewrite.mongodb.")
_STORES = ("Guarded", "AsyncGuarded")
_SQS, _KAFKA = "SQS", "Kafka"
_CachedFunction: type[object] = type(cache(lambda: None))
_LEADING = (MethodType, partial, dict, list, tuple)
_FOREIGN = sys.stdlib_module_names | {"aiobotocore", "boto3", "botocore", "onewrite", "pymongo"}


def read_module(name: str, content: object) -> Module:
    """What a module, or a handler of one, says. If it has handlers of SQS, only the stores that they use count."""
    values = list(vars(content).values()) if isinstance(content, ModuleType) else [content]
    handlers = list({id(handler): handler for value in values if (handler := handler_of(value)) is not None}.values())
    judged_handlers = [handler for handler in handlers if handler.source.name == _SQS] or handlers
    used_stores = [list(_stores_used(handler)) for handler in judged_handlers]
    if not all(used_stores) or not judged_handlers:  # a handler of which no store can be told may use any of them
        used_stores.append([store for value in values for store in _stores_of(value)])
    unique = {id(store): store for stores in used_stores for store in stores}
    kafka = [not handler.source.raises for handler in handlers if handler.source.name == _KAFKA]
    unfound = None if unique else Unread(f"a guarded store of {name}", _advice(name, content), failure="none was found")
    return Module(name, tuple([_store(store) for store in unique.values()]), any(kafka) if kafka else None, unfound)


def _stores_of(value: object) -> Iterator[object]:
    """The store that a value is, or that it makes."""
    made = _made_once(value)
    if _is_store(made):
        yield made


def _made_once(value: object) -> object:
    """What a cached function makes, which is the same at each call; any other value as it is."""
    if not isinstance(value, _CachedFunction) or not is_maker(value):
        return value
    function = unwrap(cast("Callable[..., object]", value))
    if _is_foreign(function):
        return value
    return call(cast("Callable[[], object]", value), f"{function.__module__}:{function.__qualname__}")


def _advice(name: str, content: object) -> str:
    """What to write instead, if no store was found."""
    home = name.partition(":")[0]
    module = content if isinstance(content, ModuleType) else sys.modules.get(home)
    for attribute, value in ({} if module is None else vars(module)).items():
        if isinstance(value, FunctionType) and is_maker(value) and any(map(_is_class_of_stores, _named_in(value))):
            return f"The module makes its stores only when called: name the function, as in {home}:{attribute}."
    return "Name the store, or a function without arguments that makes it, as in shop.stores:orders."


def _is_class_of_stores(value: object) -> bool:
    return isinstance(value, type) and value.__module__.startswith(_ENGINES) and value.__name__.startswith(_STORES)


def _is_store(value: object) -> bool:
    return _is_class_of_stores(type(value))


def _stores_used(handler: Handler[Any]) -> Iterator[object]:
    """The stores that the handler's function names, and those that the functions name which it names."""
    waiting, seen_ids = [cast("object", handler.each)], set[int]()
    while waiting:
        value = _made_once(waiting.pop())
        if id(value) in seen_ids or _is_foreign(value):
            continue
        seen_ids.add(id(value))
        if _is_store(value):
            yield value
        else:
            waiting.extend(_named_in(value) if isinstance(value, FunctionType) else _inside(value))


def _is_foreign(value: object) -> bool:
    """Is it, or its class, of Python itself or of what talks to the databases? These lead to no store of the user's."""
    if _is_store(value) or isinstance(value, _LEADING):
        return False
    home = value if isinstance(value, FunctionType) else type(value)
    return str(home.__module__).partition(".")[0] in _FOREIGN  # a function that was made by hand may have None


def _named_in(function: FunctionType) -> Iterator[object]:
    """The global names and the closure of a function, and what it names of a module, as in stores.orders.

    Any attribute of that name counts, whatever it is an attribute of: too many stores are better than one too few.
    """
    names = set(_names(function.__code__))
    for name in names.intersection(function.__globals__):
        value = function.__globals__[name]
        yield value
        if isinstance(value, ModuleType):
            yield from [vars(value)[attribute] for attribute in names.intersection(vars(value))]
    yield from [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]


def _names(code: Any) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):  # a lambda, a comprehension or a function within the function
            yield from _names(constant)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # an empty cell raises
    except ValueError:
        return False
    return True


def _inside(value: object) -> Iterator[object]:
    """What a method, a partial or a collection is made of; of another object, its attributes and the functions of its class."""
    match value:
        case MethodType():
            yield from (value.__func__, value.__self__)
        case partial():
            yield from (value.func, *value.args, *value.keywords.values())
        case dict():
            yield from cast("dict[object, object]", value).values()
        case list() | tuple():
            yield from cast("list[object]", value)
        case _:
            yield from cast("dict[str, object]", getattr(value, "__dict__", {})).values()
            yield from [member for member in vars(type(value)).values() if isinstance(member, FunctionType)]


def _store(store: Any) -> ModuleStore:
    # A store keeps these to itself: nobody but the doctor needs them.
    flows = attrgetter("_flows")(store)
    ledger, tombstones = flows.ledger, flows.tombstones
    outbox = getattr(getattr(store, "_outboxes", None), "outbox", None)
    store_ledger = None if ledger is NO_LEDGER else ledger
    if type(store).__module__.startswith("onewrite.mongodb."):
        w = flows.target.write_concern.document.get("w")
        return ModuleStore(f"the collection {flows.target.name}", store_ledger, "mongodb", tombstones, outbox, w)
    table = str(flows.table_name).rpartition("/")[2]  # which may be an ARN
    return ModuleStore(f"the table {table}", store_ledger, "dynamodb", tombstones, outbox)
