"""Finds the guarded stores and the handlers in a module of the user's. It looks at what is there, and calls nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from types import FunctionType, MethodType, ModuleType
from typing import Any, cast

from onewrite.batch.handler import Handler, handler_of
from onewrite.doctor.facts import Module, Store
from onewrite.ledgers import NO_LEDGER

_ENGINES = ("onewrite.dynamodb.", "onewrite.mongodb.")
_SQS, _KAFKA = "SQS", "Kafka"
_LEADING = (MethodType, partial, dict, list, tuple)
_FOREIGN = sys.stdlib_module_names | {"aiobotocore", "boto3", "botocore", "onewrite", "pymongo"}


def read_module(name: str, found: object) -> Module:
    """What a module, or a handler of one, says. Where handlers of SQS are in it, only the stores that they use count."""
    values = list(vars(found).values()) if isinstance(found, ModuleType) else [found]
    handlers = list({id(each): each for value in values if (each := handler_of(value)) is not None}.values())
    stores = [value for value in values if _is_store(value)]
    judged = [each for each in handlers if each.source.name == _SQS] or handlers
    # A handler of which no store can be told may use any of them.
    used = [store for each in judged for store in (list(_stores_used(each)) or stores)]
    unique = {id(store): store for store in (used if judged else stores)}
    kafka = [not each.source.raises for each in handlers if each.source.name == _KAFKA]
    return Module(name, tuple([_store(store) for store in unique.values()]), any(kafka) if kafka else None)


def _is_store(value: object) -> bool:
    kind = type(value)
    return kind.__module__.startswith(_ENGINES) and kind.__name__.startswith(("Guarded", "AsyncGuarded"))


def _stores_used(handler: Handler[Any]) -> Iterator[object]:
    """The stores that the handler's function names, and those that the functions name which it names."""
    waiting, seen = [cast("object", handler.each)], set[int]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen or _is_foreign(value):
            continue
        seen.add(id(value))
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
            yield from [vars(value)[each] for each in names.intersection(vars(value))]
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
            yield from [each for each in vars(type(value)).values() if isinstance(each, FunctionType)]


def _store(store: Any) -> Store:
    # A store keeps these to itself: nobody but the doctor needs them.
    flows = attrgetter("_flows")(store)
    ledger, tombstones = flows.ledger, flows.tombstones
    kept = None if ledger is NO_LEDGER else ledger
    if type(store).__module__.startswith("onewrite.mongodb."):
        w = flows.target.write_concern.document.get("w")
        return Store(f"the collection {flows.target.name}", kept, "mongodb", tombstones, w)
    return Store(f"the table {flows.table_name}", kept, "dynamodb", tombstones)
