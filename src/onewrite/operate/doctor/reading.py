"""How facts are asked for. What is refused or fails is answered by `Unread` instead of being raised.

A reader is a generator that yields questions and is sent the answers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial, partialmethod
from inspect import unwrap
from operator import attrgetter
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from onewrite.batch.handler import handler_of
from onewrite.core.flow import Flow, FlowStep, drive, performer
from onewrite.core.label import (
    OUTBOX,
    PREFIX,
    STEPS,
    TOMBSTONE,
    check_outbox,
    is_label,
    is_label_name,
    is_other_version,
    is_ours,
)
from onewrite.core.ledgers import NO_LEDGER
from onewrite.core.ledgers.kept import LabelledLedger, kept_ledgers
from onewrite.core.ledgers.ring import SLOTS
from onewrite.core.ledgers.seen_ids import RING_LAYOUT
from onewrite.core.step import found_step
from onewrite.core.tombstone import read_tombstone
from onewrite.errors import LedgerMismatch
from onewrite.message import printable
from onewrite.operate.doctor.facts import Entity, Module, ModuleStore, Unread
from onewrite.operate.image import EntityImage, held_ledgers, later_labels
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

# What a ledger keeps beside its label, as docs/format.md names it.
_MARK_NAME = re.compile(rf"(?P<prefix>{PREFIX})(?:{RING_LAYOUT}r[0-{len(SLOTS) - 1}]?|allt?|@.*)", re.DOTALL)


def entity_in(image: EntityImage, expires: float | None) -> Entity:
    """`expires`: when the database removes it, in epoch seconds."""
    fields = image.fields
    labelled_ledgers = kept_ledgers(fields.items())
    unknown = [ledger.attribute for ledger in labelled_ledgers if not ledger.is_known]
    later = [f"{label}: {fields[label]}" for label in (*later_labels(fields), *unknown)]
    ledgers = {ledger: image.fields_of(ledger.attribute) for ledger in labelled_ledgers if ledger.is_known}
    labels = {f"{match['prefix']}l" for name in fields if (match := _MARK_NAME.fullmatch(name)) is not None}

    def is_marked(ledger: LabelledLedger, names: tuple[str, ...]) -> bool:
        """Has it a mark beside its label? One that has moved needs none."""
        mark_names = [name for name in names if name != ledger.attribute]
        return ledger.moved_to is not None or any(_holds(fields[name]) for name in mark_names)

    tombstone: int | None = None
    overwritten = [
        name for name, text in fields.items() if is_label_name(name) and not (is_label(text) or is_other_version(text))
    ]
    foreign = [foreign for ledger in held_ledgers(image, 0) if ledger.attribute not in unknown for foreign in ledger.foreign]
    overwritten += [each.place for each in foreign]
    overwritten += [STEPS for step in image.steps.values() if isinstance(found_step("", step).step, LedgerMismatch)][:1]
    try:
        tombstone = read_tombstone(fields[TOMBSTONE]).seconds if TOMBSTONE in fields else None
    except LedgerMismatch:
        overwritten.append(TOMBSTONE)
    try:
        check_outbox(None, {} if is_other_version(fields.get(OUTBOX.label)) else fields)
    except LedgerMismatch:
        overwritten.append(OUTBOX.label if OUTBOX.label in fields else OUTBOX.events)
    return Entity(
        printable(image.name),
        image.size,
        frozenset([name for name in fields if not is_ours(name)]),
        {name: image.sizes[name] for name in sorted({name for names in ledgers.values() for name in names})},
        tuple(ledgers),
        unlabelled=tuple(sorted([label for label in labels if label not in fields])),
        overwritten=tuple(overwritten),
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
_COLLECTIONS = (list, tuple, set, frozenset)
_WRAPPERS = (MethodType, partial, partialmethod, staticmethod, classmethod, property, cached_property)
_WRAPPED = ("__self__", "__func__", "func", "args", "keywords", "fget")
_LEADING = (*_COLLECTIONS, *_WRAPPERS, _CachedFunction, dict, SimpleNamespace)
_FOREIGN = sys.stdlib_module_names | {"aiobotocore", "boto3", "botocore", "onewrite", "pymongo"}
_CONSTRUCTORS = ("__init__", "__new__", "__post_init__")
_ANNOTATIONS = ("__annotations__", "__annotate__", "__annotate_func__")


def read_module(name: str, content: object) -> Module:
    """What a module, or a handler of one, says. If it has handlers of SQS, only the stores that they use count."""
    values = list(vars(content).values()) if isinstance(content, ModuleType) else [content]
    handlers = list({id(handler): handler for value in values if (handler := handler_of(value)) is not None}.values())
    judged_handlers = [handler for handler in handlers if handler.source.name == _SQS] or handlers
    uses = [_reached([handler.each]) for handler in judged_handlers]
    used_stores = [list(filter(_is_store, use)) for use in uses]
    if not all(used_stores) or not uses:  # a handler of which no store can be told may use any of them
        used_stores.append(list(filter(_is_store, _reached(values, code=False))))
    unique = {id(store): store for stores in used_stores for store in stores}
    kafka = [not handler.source.raises for handler in handlers if handler.source.name == _KAFKA]
    unfound = None
    if not unique:
        unfound = Unread(f"a guarded store of {name}", _advice(name, content), failure="none was found")
    elif any(_is_class_of_stores(value) for use in uses for value in use):
        failure = "a handler makes one only when it is called"
        unfound = Unread(f"each guarded store of {name}", _advice(name, content), failure=failure)
    return Module(name, tuple([_store(store) for store in unique.values()]), any(kafka) if kafka else None, unfound)


def _advice(name: str, content: object) -> str:
    """What to write instead, if a store was not found."""
    home = name.partition(":")[0]
    module = content if isinstance(content, ModuleType) else sys.modules.get(home)
    for attribute, value in ({} if module is None else vars(module)).items():
        if isinstance(value, FunctionType) and is_maker(value) and any(map(_is_class_of_stores, _named_in(value))):
            return f"The module makes its stores only when called: name the function, as in {home}:{attribute}."
    return "Name the store, or a function without arguments that makes it, as in shop.stores:orders."


def _is_class_of_stores(value: object) -> bool:
    bases = value.__mro__ if isinstance(value, type) else ()
    return any(str(base.__module__).startswith(_ENGINES) and base.__name__.startswith(_STORES) for base in bases)


def _is_store(value: object) -> bool:
    return _is_class_of_stores(type(value))


def _reached(values: Iterable[object], *, code: bool = True, calls: bool = True) -> list[object]:
    """These values and what leads from them to stores: what they are made of and, with `code`, what functions name.

    `calls`: functions that make a store once are called.
    """
    waiting, reached = [*values], dict[int, object]()
    for value in waiting:  # which grows
        if id(value) in reached or _is_foreign(value):
            continue
        reached[id(value)] = value
        if _is_store(value) or _is_class_of_stores(value):
            continue
        if isinstance(value, _CachedFunction):
            waiting.append(_made_once(value) if calls else unwrap(cast("Callable[..., object]", value)))
        elif not isinstance(value, FunctionType):
            waiting.extend(_inside(value))
        elif code:
            waiting.extend(_named_in(value))
    return [*reached.values()]


def _made_once(value: object) -> object:
    """What a cached function makes, which is the same at each call; or the function itself, if it makes no store or needs an argument."""
    function = unwrap(cast("Callable[..., object]", value))
    if not is_maker(value) or not any(map(_is_class_of_stores, _reached([function], calls=False))):
        return function
    return call(cast("Callable[[], object]", value), f"{function.__module__}:{function.__qualname__}")


def _is_foreign(value: object) -> bool:
    """Is it, or its class, of Python itself or of what talks to the databases? These lead to no store of the user's."""
    if _is_store(value) or _is_class_of_stores(value) or isinstance(value, _LEADING):
        return False
    home = value if isinstance(value, FunctionType | type) else type(value)
    return str(home.__module__).partition(".")[0] in _FOREIGN  # a function that was made by hand may have None


def _named_in(function: FunctionType) -> Iterator[object]:
    """The global names, the closure and the defaults of a function, and what it names of a module, as in stores.orders.

    Any attribute of that name counts, whatever it is an attribute of: too many stores are better than one too few.
    """
    names, homes = set(_names(function.__code__)), [function.__globals__]
    for home in homes:  # which grows
        for value in [home[name] for name in names.intersection(home)]:
            yield value
            if isinstance(value, ModuleType) and all(vars(value) is not known for known in homes):
                homes.append(vars(value))
    yield from [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    yield from (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())


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
    """What a collection, a class or a wrapper is made of; of another object, its attributes and what its class has."""
    if isinstance(value, dict):
        yield from cast("dict[object, object]", value).values()
    elif isinstance(value, _COLLECTIONS):
        yield from cast("Iterable[object]", value)
    elif isinstance(value, _WRAPPERS):
        yield from [_attribute(cast("object", value), name) for name in _WRAPPED]
    elif isinstance(value, type):
        yield from _members(value, _ANNOTATIONS).values()
    else:
        yield from cast("dict[str, object]", _attribute(value, "__dict__") or {}).values()
        for name, member in _members(type(value), (*_ANNOTATIONS, *_CONSTRUCTORS)).items():
            yield _attribute(value, name) if isinstance(member, MemberDescriptorType) else member  # one of __slots__


def _attribute(value: object, name: str) -> object:
    """None if it is not there. No code of the user's is run for it."""
    with suppress(AttributeError):
        return object.__getattribute__(value, name)
    return None


def _members(kind: type, without: Container[str]) -> dict[str, object]:
    """What a class has, by itself and from others of the user's."""
    bases = [base for base in reversed(kind.__mro__) if not _is_foreign(base)]
    return {name: member for base in bases for name, member in vars(base).items() if name not in without}


def _store(store: Any) -> ModuleStore:
    # A store keeps these to itself: nobody but the doctor needs them.
    flows = attrgetter("_flows")(store)
    ledger, tombstones = flows.ledger, flows.tombstones
    outbox = getattr(getattr(store, "_outboxes", None), "outbox", None)
    store_ledger = None if ledger is NO_LEDGER else ledger
    if not hasattr(flows, "table_name"):
        w = flows.target.write_concern.document.get("w")
        return ModuleStore(f"the collection {flows.target.name}", store_ledger, "mongodb", tombstones, outbox, w)
    table = str(flows.table_name).rpartition("/")[2]  # which may be an ARN
    return ModuleStore(f"the table {table}", store_ledger, "dynamodb", tombstones, outbox)
