"""The surroundings of a handler that an exploration varies in undisturbed processing: the process, and its clock."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import BuiltinMethodType, FunctionType
from typing import Any, cast

from onewrite.testing.explorer.calls import is_own_code

# --- a process in which no message was handled --------------------------------------------------------------------------

_SECONDS_IN_CHILD = 10.0  # a forked child can hang if another thread held a lock: then this process forks no other
_hung_children: list[int] = []


def run_in_child(work: Callable[[], Any]) -> Any:
    """Return the result of `work` in a forked child, which leaves no trace in this process. Return None if that is impossible."""
    if not hasattr(os, "fork") or _hung_children:
        return None
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about other threads, which the child doesn't need
        child = os.fork()
    if child == 0:
        try:
            os.write(writer, pickle.dumps(work()))
        finally:
            os._exit(0)
    os.close(writer)
    try:
        result = _read_all(reader)
        if result is None:
            _hung_children.append(child)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    try:
        return None if result is None else pickle.loads(result)  # noqa: S301  # from the own child
    except Exception:  # the child has failed, or its result can't be pickled
        return None


def _read_all(reader: int) -> bytes | None:
    """Read to the end of the pipe. Return None if the time is up before."""
    parts: list[bytes] = []
    end = time.monotonic() + _SECONDS_IN_CHILD
    while select.select([reader], [], [], max(end - time.monotonic(), 0))[0]:
        parts.append(os.read(reader, 65536))
        if not parts[-1]:
            return b"".join(parts)
    return None


# --- a clock that is ahead ------------------------------------------------------------------------------------------------

_LEAD = 400 * 86_400 + 3_661  # seconds: another year, month, day, weekday, hour, minute, and second, whenever it is
_APART = 60.0  # seconds between the process's clock and its counter: more if the handler travels in time
_SEVERAL = 100  # readings: a clock that shows the same time in all of them is frozen
_time, _counter, _Date, _Datetime = time.time, time.perf_counter, dt.date, dt.datetime
_localtime, _gmtime, _strftime = time.localtime, time.gmtime, time.strftime


def is_frozen() -> bool:
    """Whether the test has stopped the process's clock, for example by freezegun."""
    return len({time.time() for _ in range(_SEVERAL)}) == 1


@contextmanager
def clock_ahead() -> Generator[None]:
    """Set the clock that the user's code reads more than a year ahead, in `time`, `datetime`, and modules that have imported from them.

    A handler that sets its own time, as by time-machine, reads that.
    """
    ahead = _time() - _counter()

    def read() -> float:
        now = _time()
        return now if abs(now - _counter() - ahead) > _APART else now + _LEAD

    places = [*_list_places(_make_replacements(read))]
    for owner, name, _, replacement in places:
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for owner, name, value, _ in places:
            setattr(owner, name, value)


class _SameInstances(type):
    """Makes a class accept the instances of the real class, from which it is derived."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])


def _make_replacements(read: Callable[[], float]) -> dict[int, Any]:
    """Return what takes the place of each function and class that reads the clock, by its ID. `read` returns the time."""

    class Datetime(dt.datetime, metaclass=_SameInstances):
        # Its other constructors call this too. An instance of another class would look like another value.
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return _Datetime(*args, **kwargs)

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return _Datetime.fromtimestamp(read(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(dt.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.now()

    class Date(dt.date, metaclass=_SameInstances):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            return _Date(*args, **kwargs)

        @classmethod
        def today(cls) -> Any:
            return _Date.fromtimestamp(read())

    def gmtime(seconds: float | None = None) -> time.struct_time:
        return _gmtime(read() if seconds is None else seconds)

    def localtime(seconds: float | None = None) -> time.struct_time:
        return _localtime(read() if seconds is None else seconds)

    def strftime(form: str, moment: Any = None) -> str:
        return _strftime(form, localtime() if moment is None else moment)

    return {
        id(_time): read,
        id(time.time_ns): lambda: int(read() * 10**9),
        id(_gmtime): gmtime,
        id(_localtime): localtime,
        id(_strftime): strftime,
        id(_Datetime): Datetime,
        id(_Date): Date,
    }


def _list_places(replacements: Mapping[int, Any]) -> Iterator[tuple[Any, str, Any, Any]]:
    """Yield each attribute that holds the clock: its owner, its name, its value, and the value that replaces it."""
    for owner in _list_owners():
        attributes = cast("dict[str, Any]", vars(owner)).copy()
        for name, value in attributes.items():
            if (replacement := _replace(value, replacements)) is not value:
                yield owner, name, value, replacement
        for function in _list_functions(owner.__name__, attributes.values()):
            defaults, keywords = function.__defaults__ or (), function.__kwdefaults__ or {}
            replaced = tuple([_replace(value, replacements) for value in defaults])
            if any(one is not other for one, other in zip(defaults, replaced, strict=True)):
                yield function, "__defaults__", defaults, replaced
            new_keywords = {name: _replace(value, replacements) for name, value in keywords.items()}
            if any(new_keywords[name] is not value for name, value in keywords.items()):
                yield function, "__kwdefaults__", keywords, new_keywords


def _replace(value: Any, replacements: Mapping[int, Any]) -> Any:
    """Return what replaces the value: the clock, a method of a clock's class such as `datetime.now`, or a partial of one."""
    if id(value) in replacements:
        return replacements[id(value)]
    if isinstance(value, BuiltinMethodType) and id(value.__self__) in replacements:
        return getattr(replacements[id(value.__self__)], value.__name__)
    if isinstance(value, partial):
        wrapped = cast("partial[Any]", value)
        function = _replace(wrapped.func, replacements)
        return wrapped if function is wrapped.func else partial(function, *wrapped.args, **wrapped.keywords)
    return cast("Any", value)


def _list_owners() -> Iterator[Any]:
    yield from (time, dt)
    for module in [*sys.modules.values()]:
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and is_own_code(file) and module.__name__ != __name__:
            yield module


def _list_functions(module: str, values: Iterable[object]) -> Iterator[FunctionType]:
    """Yield the functions and methods that the module defines, such as a class's `__init__` with `clock=time.time`."""
    for value in values:
        if isinstance(value, FunctionType):
            yield value
        elif isinstance(value, type) and value.__module__ == module:
            yield from [method for method in vars(value).values() if isinstance(method, FunctionType)]
