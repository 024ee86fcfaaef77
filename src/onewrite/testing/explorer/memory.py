"""What a handler keeps in memory, in a form that stays equal as long as nothing in it has changed.

It is found by going from the handler to whatever it refers to: what its functions close over, the attributes of its objects, and the
globals that its code names. Stores, drivers and libraries are left out. Where something can be reached whose contents nobody
can read, there is no form, and whoever asks must take the memory for changed.

The form shows what a handler could go by, and not what it does go by. So it alone never lets a handler be recalled.
"""

from __future__ import annotations

import copyreg
import datetime as dt
import enum
import functools
import gc
import io
import itertools
import json
import os
import random
import re
import sys
import sysconfig
import threading
import types
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path, PurePath
from typing import Any, TypeAlias, cast

Form: TypeAlias = Hashable

_MOST = (
    20_000  # objects: who refers to more keeps more than memory, and it would take too long to go through that at each step
)
_PLAIN = frozenset({str, bytes, type(None)})
_NUMBERS = frozenset({int, float, bool, complex})  # some of which are equal though their types differ
_VALUES = (
    *(dt.date, dt.time, dt.timedelta, dt.tzinfo, Decimal, Fraction, uuid.UUID, range),
    *(enum.Enum, PurePath, re.Pattern, types.CodeType),
)
# What is in these is either a store, or the same for every delivery, or free again when no delivery is under way.
_OPAQUE = (
    *("aioboto3", "aiobotocore", "aiohttp", "boto3", "botocore", "mongomock", "moto", "pymongo", "urllib3"),
    *("hypothesis", "_hypothesis", "pytest", "_pytest", "unittest"),
    *("onewrite.core.ledgers.ring", "onewrite.core.watch", "onewrite.testing"),
    *("asyncio", "_asyncio", "_contextvars", "concurrent", "logging", "socket", "_socket", "ssl", "_ssl", "_thread"),
    *("_abc", "_io", "typing"),
)
_OPEN_MODULES = frozenset({"asyncio.locks", "asyncio.queues", "asyncio.mixins"})
_SEEN_THROUGH: set[type[Any]] = set()  # classes whose objects are nothing but their attributes
_Lock = type(threading.Lock())
_LruCache = type(functools.lru_cache(len))
_Scanner = cast("type[Any]", type(cast("Any", json.JSONDecoder()).scan_once))  # a function where it is not written in C
_LIBRARIES = tuple(
    {os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")}  # noqa: PTH118  # texts
    | {f"{Path(__file__).parents[3]}{os.sep}", "<frozen"}  # onewrite itself
)


class _UnreadableError(Exception):
    """It may have changed, and nobody can tell. The text says what it is."""


class UnreadableMemory:
    """The form of a memory that cannot be read, which equals no other. `culprit` is what nobody can look into."""

    def __init__(self, culprit: str) -> None:
        self.culprit = culprit


def memory_of(handler: object) -> Form:
    """Equal as long as nothing has changed in what the handler keeps; equal to nothing if that cannot be read."""
    walk = _Walk()
    try:
        walk.go_through(handler)
        form = tuple(walk.form)
        hash(form)
    except _UnreadableError as error:
        return UnreadableMemory(str(error))
    except Exception as error:  # of any kind: reading calls code of the user's, such as a `__repr__`
        return UnreadableMemory(f"something that raises {type(error).__name__}")
    return form


def is_readable(form: Form) -> bool:
    return not isinstance(form, UnreadableMemory)


def _name(value: object) -> str:
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}"


class _Walk:
    def __init__(self) -> None:
        self.form: list[Hashable] = []
        self._numbers: dict[int, int] = {}  # of the objects that were come across, by their ids
        self._references: list[object] = []  # so no other object gets one of these ids

    def go_through(self, value: Any) -> None:
        kind = cast("Any", type(value))
        if kind in _PLAIN:
            self.form.append(value)
            return
        if kind in _NUMBERS:
            self.form.append((kind.__name__, value))
            return
        number = self._numbers.get(id(value))
        if number is not None:
            self.form.append(("again", number))
            return
        if len(self._numbers) == _MOST:
            raise _UnreadableError(f"more than {_MOST} objects")
        self._numbers[id(value)] = len(self._numbers)
        self._references.append(value)
        _way_through(kind)(self, value)

    def _all(self, name: str, values: Any) -> None:
        self.form.append(name)
        for value in values:
            self.go_through(value)
        self.form.append("end")

    # ------------------------------------------------------------ ways through objects of one kind each

    def whole(self, value: Any) -> None:
        self.form.append(value)

    def nothing(self, value: Any) -> None:
        self.form.append(type(value).__name__)

    def unreadable(self, value: Any) -> None:
        raise _UnreadableError(_name(value))

    def members(self, value: Any) -> None:
        """Of a set, whose order may differ from one of the same members."""
        if all(type(member) in _PLAIN or type(member) in _NUMBERS for member in value):
            self.form.append(("set", frozenset((type(member).__name__, member) for member in value)))
        else:
            self._all("set", sorted(value, key=repr))
        self._attributes(value)

    def items(self, value: Any) -> None:
        self._all(type(value).__name__, itertools.chain.from_iterable(_items_of(value)))
        self._attributes(value)

    def sequence(self, value: Any) -> None:
        self._all(type(value).__name__, _members_of(value))
        self._attributes(value)

    def text(self, value: Any) -> None:
        self.form.append((type(value).__name__, repr(value)))
        self._attributes(value)

    def buffer(self, value: io.StringIO | io.BytesIO) -> None:
        self.form.append("closed" if value.closed else (value.getvalue(), value.tell()))
        self._attributes(value)

    def lock(self, value: Any) -> None:
        """One that a delivery has not released keeps out the next."""
        self.form.append(("lock", value.locked()))

    def draws(self, value: random.Random) -> None:
        self.form.append(("draws", hash(value.getstate())))

    def function(self, value: types.FunctionType) -> None:
        code = value.__code__
        self.form.append(("function", id(code)))
        self._all("defaults", (value.__defaults__, value.__kwdefaults__, vars(value)))
        for cell in value.__closure__ or ():
            try:
                self.go_through(cell.cell_contents)
            except ValueError:  # nothing has been put into it yet
                self.form.append("empty")
        for name, inner in _named_globals(value):
            self.form.append(name)
            self.go_through(inner)

    def method(self, value: types.MethodType) -> None:
        self._all("method", (value.__self__, value.__func__))

    def builtin(self, value: types.BuiltinFunctionType) -> None:
        owner: Any = value.__self__
        self._all("builtin", (value.__name__, *([] if isinstance(owner, types.ModuleType) else [owner])))

    def cache_wrapper(self, value: Any) -> None:
        """What a cache holds cannot be seen."""
        if value.cache_info().currsize:
            raise _UnreadableError("a cache")
        self._all("cached", (value.__wrapped__,))

    def generator(self, value: types.GeneratorType[Any, Any, Any]) -> None:
        frame = value.gi_frame
        # The iterator of a `for`, and what it yields from, are no locals.
        referents = [inner for inner in gc.get_referents(value) if not isinstance(inner, types.FrameType)]
        self._all("generator", () if frame is None else (frame.f_lasti, *referents))

    def referent(self, value: weakref.ref[Any]) -> None:
        self._all("reference", (value(),))

    def of_class(self, value: type) -> None:
        """What is kept in a class of the user's own, and by its methods."""
        self.form.append(("class", value.__qualname__))
        if not _is_users_class(value):
            return
        for base in value.__bases__:
            self.go_through(base)
        for name, member in list(vars(value).items()):
            if isinstance(member, types.FunctionType | staticmethod | classmethod | property) or not name.startswith("__"):
                self.form.append(name)
                self.go_through(member)

    def descriptor(self, value: Any) -> None:
        self._all("descriptor", [getattr(value, name, None) for name in ("fget", "fset", "__func__")])

    def error(self, value: BaseException) -> None:
        self._all(type(value).__name__, (value.args, vars(value)))

    def scanner(self, value: Any) -> None:
        """The part of a JSON decoder that is written in C: all that it keeps from one text to the next are the decoder's options."""
        options = [name for name, member in vars(_Scanner).items() if isinstance(member, types.MemberDescriptorType)]
        self._all("scanner", [getattr(value, name) for name in options])

    def view(self, value: Mapping[Any, Any]) -> None:
        self._all("view", itertools.chain.from_iterable(value.items()))

    def instance(self, value: Any) -> None:
        kind = cast("Any", type(value))
        if kind not in _SEEN_THROUGH:
            try:
                object.__reduce_ex__(value, 4)
            except Exception as error:  # it has parts that no attribute shows
                raise _UnreadableError(_name(value)) from error
            _SEEN_THROUGH.add(kind)
        self.form.append(kind.__qualname__)
        if _is_users_class(kind):
            self.go_through(kind)
        self._attributes(value)

    def parts(self, value: Any) -> None:
        """The parts into which pickle takes an object."""
        try:
            reduce = copyreg.dispatch_table.get(cast("Any", type(value)))
            reduction = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        except Exception as error:
            raise _UnreadableError(_name(value)) from error
        if isinstance(reduction, str):
            self.form.append(reduction)
            return
        _, *parts = cast("tuple[Any, ...]", reduction)
        self._all(type(value).__name__, [list(part) if hasattr(part, "__next__") else part for part in parts])

    def _attributes(self, value: Any) -> None:
        own = getattr(value, "__dict__", None)
        if own:
            self._all("attributes", itertools.chain.from_iterable(list(own.items())))
        for name in _slots(cast("Any", type(value))):
            try:
                attribute = object.__getattribute__(value, name)
            except AttributeError:
                self.form.append("unset")
            else:
                self.go_through(attribute)


_WAYS: tuple[tuple[Any, Callable[[_Walk, Any], None]], ...] = (
    ((threading.local, types.CoroutineType, types.AsyncGeneratorType), _Walk.unreadable),
    (_VALUES, _Walk.whole),
    (types.FunctionType, _Walk.function),
    (types.MethodType, _Walk.method),
    ((types.BuiltinFunctionType, types.MethodWrapperType), _Walk.builtin),
    (_LruCache, _Walk.cache_wrapper),
    (types.GeneratorType, _Walk.generator),
    (weakref.ref, _Walk.referent),
    ((staticmethod, classmethod, property), _Walk.descriptor),
    (_Scanner, _Walk.scanner),
    (random.Random, _Walk.draws),
    (itertools.count, _Walk.text),
    (BaseException, _Walk.error),
    (types.MappingProxyType, _Walk.view),
    ((set, frozenset), _Walk.members),
    (dict, _Walk.items),
    ((list, tuple), _Walk.sequence),
    ((str, bytes, int, float, complex), _Walk.text),
    ((types.ModuleType, types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType), _Walk.nothing),
    ((types.MethodDescriptorType, types.ClassMethodDescriptorType), _Walk.nothing),
)


# The methods of the classes themselves are called: a class of the user's may have its own, and these have no effect.


def _items_of(value: Any) -> Iterator[tuple[Any, Any]]:
    # Of an ordered one, `dict` has not seen which names were moved.
    kind: Any = OrderedDict if isinstance(value, OrderedDict) else dict
    return iter(kind.items(value))


def _members_of(value: Any) -> Iterator[Any]:
    kind: Any = list if isinstance(value, list) else tuple
    return cast("Iterator[Any]", kind.__iter__(value))


@cache
def _way_through(kind: type[Any]) -> Callable[[_Walk, Any], None]:
    if issubclass(kind, type):
        return _Walk.of_class
    module = kind.__module__
    if issubclass(kind, io.StringIO | io.BytesIO):
        return _Walk.buffer
    if issubclass(kind, _Lock):
        return _Walk.lock
    if module not in _OPEN_MODULES and any(module == name or module.startswith(f"{name}.") for name in _OPAQUE):
        return _Walk.unreadable if issubclass(kind, threading.local) else _Walk.nothing
    for kinds, way in _WAYS:
        if issubclass(kind, kinds):
            return way
    reduces_as_all = all(getattr(kind, name) is getattr(object, name) for name in ("__reduce__", "__reduce_ex__"))
    return _Walk.instance if reduces_as_all and kind not in copyreg.dispatch_table else _Walk.parts


@cache
def _slots(kind: type[Any]) -> tuple[str, ...]:
    names: list[str] = []
    for owner in kind.__mro__:
        slots: Any = vars(owner).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else list(slots):
            is_private = name.startswith("__") and not name.endswith("__")
            names.append(f"_{owner.__name__.lstrip('_')}{name}" if is_private else name)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


@cache
def _is_users(file: str) -> bool:
    return not file.startswith(_LIBRARIES)


@cache
def _is_users_class(kind: type[Any]) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and _is_users(file)


@cache
def _names_in(code: types.CodeType) -> tuple[str, ...]:
    """The names that the code looks up outside of itself, also those in the functions inside it."""
    inner = [name for const in code.co_consts if isinstance(const, types.CodeType) for name in _names_in(const)]
    return tuple(dict.fromkeys([*code.co_names, *inner]))


def _file_of(module: types.ModuleType) -> str:
    """A package without an `__init__.py` has a folder only, and a module written in C may have nothing."""
    file: str | None = getattr(module, "__file__", None)
    return file or str([*getattr(module, "__path__", ()), "<frozen"][0])


def _named_globals(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What the user's own code finds in its modules: as a global, or as an attribute of a module of the user's."""
    if not _is_users(function.__code__.co_filename):
        return
    names, around = _names_in(function.__code__), function.__globals__
    todo = [(name, around[name]) for name in names if name in around]
    # What a function imports itself, it has in no global.
    imported = (path for name in names for path in (name, f"{around.get('__package__')}.{name}") if path in sys.modules)
    todo += [(path, sys.modules[path]) for path in imported if path not in around]
    modules = set[int]()
    for name, value in todo:  # which grows by what is in these modules
        if not isinstance(value, types.ModuleType):
            yield name, value
        elif id(value) not in modules and _is_users(_file_of(value)):
            modules.add(id(value))
            todo += [(f"{name}.{inner}", vars(value)[inner]) for inner in names if inner in vars(value)]
