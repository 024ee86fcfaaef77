"""Taps on the drivers' own classes, which intercept the requests of every client and collection in the process.

Code is intercepted while a listener is set in its context, as it is while a handler runs. The explorer's own requests, those of
`world`, and unrelated threads pass untouched. Threads don't inherit contexts, so the taps set the listener in a thread that
intercepted code starts, and around a function that it submits to a thread pool.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context, ContextVar, copy_context
from copy import copy
from functools import cache, partial, wraps
from importlib import import_module
from types import FrameType
from typing import Any, Protocol, TypeAlias, cast

from onewrite.testing.taps.mongodb_methods import DATABASE_SILENT, SILENT

Function: TypeAlias = Callable[..., Any]
Patch: TypeAlias = tuple[Any, str, Callable[[Function], Function]]  # a class or module, a function's name, and its wrapper

# The classes of each module, with the methods that are tapped, or with a set of the methods that send nothing. All requests of a
# botocore client go through one method. Of MongoDB's clients, only the sessions are tapped.
_CLASSES: dict[str, dict[str, tuple[str] | frozenset[str]]] = {
    "botocore.client": {"BaseClient": ("_make_api_call",)},
    "aiobotocore.client": {"AioBaseClient": ("_make_api_call",)},
    "pymongo.synchronous.mongo_client": {"MongoClient": ("start_session",)},
    "pymongo.asynchronous.mongo_client": {"AsyncMongoClient": ("start_session",)},
    "mongomock.mongo_client": {"MongoClient": ("start_session",)},
    "pymongo.synchronous.collection": {"Collection": SILENT},
    "pymongo.asynchronous.collection": {"AsyncCollection": SILENT},
    "pymongo.synchronous.database": {"Database": DATABASE_SILENT},
    "pymongo.asynchronous.database": {"AsyncDatabase": DATABASE_SILENT},
    "mongomock.collection": {"Collection": SILENT},
    "mongomock.database": {"Database": DATABASE_SILENT},
    "onewrite.testing.standins.collection": {
        "StandInClient": ("start_session",),
        "StandInCollection": SILENT,
        "StandInDatabase": DATABASE_SILENT,
    },
}


_WITH_OWN_SLEEP = sys.stdlib_module_names | {"onewrite"}


class Listener(Protocol):
    """Responds to the calls on a client, collection, or database. The response is awaited if the method is asynchronous."""

    closed: bool

    def call(self, owner: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def running(self, loop: Any, /) -> AbstractContextManager[None]:
        """Return the context for an event loop."""
        ...

    def note(self, result: object, /) -> None:
        """Record an outcome that a guarded store returned."""
        ...

    def pass_time(self, seconds: float, /) -> bool:
        """Advance the delivery's clock by this time, and return whether the code is part of a delivery."""
        ...

    def note_hash(self, place: tuple[str, int], /) -> None:
        """Record the line of code that computes the hash of a string."""
        ...

    def note_effect(self, name: str, /) -> None:
        """Record the name of an effect that a guarded store is about to begin."""
        ...

    def note_failure(self, error: BaseException, /) -> None:
        """Record an exception of a decorated handler."""
        ...


current_listener: ContextVar[Listener | None] = ContextVar("onewrite.testing.listener", default=None)


@contextmanager
def heard_by(listener: Listener | None) -> Generator[None, None, None]:
    """Send the calls in the block to this listener. With None, all calls pass."""
    token = current_listener.set(listener)
    try:
        yield
    finally:
        current_listener.reset(token)


def _find_listener() -> Listener | None:
    listener = current_listener.get()
    return None if listener is None or listener.closed else listener


class _Taps:
    """The taps on the imported drivers. They exist while an exploration uses them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._originals: dict[str, list[tuple[Any, str, Any]]] = {}  # the original functions of a module's classes
        self._module_count = 0  # when the names were tapped that modules have for `time.sleep`

    @contextmanager
    def on(self) -> Generator[None, None, None]:
        with self._lock:
            self._users += 1
        try:
            self.extend()
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._take_off()

    def extend(self) -> bool:
        """Tap the drivers that were imported since the last call, and return whether there were any."""
        if not self._users:
            return False  # nothing would remove the taps
        modules = dict.fromkeys([*(module for module, *_ in _PATCHES), *_CLASSES])
        with self._lock:
            untapped = [module for module in modules if module in sys.modules and module not in self._originals]
            for module in untapped:
                self._originals[module] = _tap_module(module)
            if len(sys.modules) != self._module_count:
                self._module_count = len(sys.modules)
                self._originals.setdefault("", []).extend(_tap_names_of_sleep(self._originals["time"]))
        return bool(untapped)

    def _take_off(self) -> None:
        for patches in self._originals.values():
            for owner, name, original in patches:
                setattr(owner, name, original)
        self._originals.clear()
        self._module_count = 0


taps = _Taps()


@cache
def send_lean_requests_by_tapped_clients() -> None:
    """Make lean clients send through tapped clients, and accept them. This lasts, and changes nothing for other clients."""
    lean, refusals = cast("list[Any]", [import_module(f"onewrite.lean.{name}") for name in ("client", "refusals")])
    client_check = lean.ClientCheck
    must_use_client, read_functions = cast("Function", client_check.must_use_client), refusals.read_functions

    def is_tap(function: Any) -> bool:
        return str(refusals.find_module(function)).startswith("onewrite.testing.")

    def is_tapped_or_must_use_client(check: Any) -> bool:
        return is_tap(check.client._make_api_call) or bool(must_use_client(check))

    def remove_taps(function: Any) -> Any:
        return remove_taps(function.__wrapped__) if is_tap(function) else function

    def read_untapped_functions(client: Any, methods: Iterable[str]) -> dict[str, Function]:
        return {name: remove_taps(function) for name, function in read_functions(client, methods).items()}

    client_check.must_use_client, refusals.read_functions = is_tapped_or_must_use_client, read_untapped_functions


def _tap_module(module: str) -> list[tuple[Any, str, Any]]:
    """Tap a module, and return its original functions."""
    if module == "botocore.client":
        send_lean_requests_by_tapped_clients()
    originals: list[tuple[Any, str, Any]] = []
    for owner, name, wrapper in [*_list_patches(module)]:
        original: Any = cast("dict[str, Any]", vars(owner))[name]
        setattr(owner, name, wrapper(original))
        originals.append((owner, name, original))
    return originals


def _tap_names_of_sleep(originals: Iterable[tuple[Any, str, Any]]) -> list[tuple[Any, str, Any]]:
    """Tap `time.sleep` in modules that have imported it by name, and return their original functions."""
    sleeps = {id(original): getattr(owner, name) for owner, name, original in originals}
    tapped: list[tuple[Any, str, Any]] = []
    for module in [*sys.modules.values()]:
        if getattr(module, "__name__", "").partition(".")[0] in _WITH_OWN_SLEEP:
            continue
        for name, value in [*getattr(module, "__dict__", {}).items()]:
            if id(value) in sleeps:
                setattr(module, name, sleeps[id(value)])
                tapped.append((module, name, value))
    return tapped


def _list_patches(module: str) -> Iterator[Patch]:
    for home, owner_name, function, wrapper in _PATCHES:
        if home == module:
            yield (getattr(sys.modules[module], owner_name) if owner_name else sys.modules[module]), function, wrapper
    for name, methods in _CLASSES.get(module, {}).items():
        owner: type = getattr(sys.modules[module], name)
        functions = [method for method, value in vars(owner).items() if inspect.isfunction(value) and method[0] != "_"]
        for method in methods if isinstance(methods, tuple) else [method for method in functions if method not in methods]:
            yield owner, method, partial(_hear_method, method)


def _hear_method(name: str, original: Function) -> Function:
    """Return a method that calls the listener, if there is one."""

    @wraps(original)
    def method(owner: Any, *args: Any, **kwargs: Any) -> Any:
        listener = _find_listener()
        return original(owner, *args, **kwargs) if listener is None else listener.call(owner, name, args, kwargs)

    @wraps(original)
    async def amethod(owner: Any, *args: Any, **kwargs: Any) -> Any:
        return await method(owner, *args, **kwargs)

    return amethod if inspect.iscoroutinefunction(original) else method


def _hear_thread(original: Function) -> Function:
    """Make a thread use the listener of the code that starts it."""

    @wraps(original)
    def start(thread: Any) -> None:
        listener = _find_listener()
        if listener is not None:
            thread.run = partial(_run_heard, listener, thread.run)
        original(thread)

    return start


def _hear_pool(original: Function) -> Function:
    @wraps(original)
    def submit(pool: Any, function: Function, /, *args: Any, **kwargs: Any) -> Any:
        # A pool thread can outlive the code that started it, so use the listener of the code that submitted the function.
        return original(pool, partial(_run_heard, _find_listener(), function), *args, **kwargs)

    return submit


def _hear_loop(original: Function) -> Function:
    """Let the listener wrap the run of an event loop."""

    @wraps(original)
    def run_forever(loop: Any) -> None:
        listener = _find_listener()
        if listener is None:
            original(loop)
        else:
            with listener.running(loop):
                original(loop)

    return run_forever


def _renew_context(original: Function) -> Function:
    """Run in a new context. A runner that is reused would run in the context of its first use, a delivery that has ended."""

    @wraps(original)
    def run(runner: Any, coro: Any, *, context: Context | None = None) -> Any:
        return original(
            runner, coro, context=copy_context() if context is None and _find_listener() is not None else context
        )

    return run


def _skip_sleep(original: Function) -> Function:
    """Advance the stores' clock instead of sleeping in a delivery. Other threads sleep."""

    @wraps(original)
    def sleep(seconds: float) -> None:
        listener = _find_listener()
        if listener is None or not listener.pass_time(seconds):
            original(seconds)

    return sleep


def _share_loaded(original: Function) -> Function:
    """Make sessions share the descriptions of services that they have read. `build` can make a client for each schedule."""
    first_loader = cache(original)

    @wraps(original)
    def create_loader(search_path_string: str | None = None) -> Any:
        loader = copy(first_loader(search_path_string))  # with the same cache
        loader._search_paths = [*loader.search_paths]  # boto3 adds its own
        return loader

    return create_loader


def _remember_by_function(original: Function) -> Function:
    """Inspect a function once, although each client registers it, as one of its own methods or not."""
    known = cache(original)

    @wraps(original)
    def accepts_kwargs(function: Any) -> Any:
        return known(getattr(function, "__func__", function))

    return accepts_kwargs


def _remember_by_name(original: Function) -> Function:
    """Find the alias of an event once, although each client looks for it."""
    aliases: dict[str, Any] = {}

    @wraps(original)
    def alias_event_name(aliaser: Any, name: str) -> Any:
        if name not in aliases:
            aliases[name] = original(aliaser, name)
        return aliases[name]

    return alias_event_name


def _note_hash(original: Function) -> Function:
    """Record a string's hash, which differs between processes."""

    @wraps(original)
    def hash_of(value: object, /) -> Any:
        listener = _find_listener()
        members = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
        if listener is not None and any(isinstance(member, str | bytes) for member in members):
            here = cast("FrameType", inspect.currentframe())
            caller = cast("FrameType", here.f_back)
            listener.note_hash((caller.f_code.co_filename, caller.f_lineno))
        return original(value)

    return hash_of


def _order_tasks(original: Function) -> Function:
    """Create the tasks in the order of the arguments. asyncio creates them in a set's order, which depends on addresses."""

    @wraps(original)
    def as_completed(awaitables: Any, **options: Any) -> Any:
        if _find_listener() is not None and not inspect.isawaitable(awaitables):
            from asyncio import ensure_future

            awaitables = [ensure_future(awaitable) for awaitable in dict.fromkeys(awaitables)]
        return original(awaitables, **options)

    return as_completed


def _note_result(original: Function) -> Function:
    """Record the outcome of a guarded store, because the handler might not return it."""

    @wraps(original)
    def drive(steps: Any, perform: Any, *context: Any) -> Any:
        result = original(steps, perform, *context)
        if not context:  # the store's client
            return result
        return _note_awaited(result) if inspect.isawaitable(result) else _note(result)

    return drive


def _note(result: Any) -> Any:
    listener = _find_listener()
    if listener is not None:
        listener.note(result)
    return result


async def _note_awaited(result: Any) -> Any:
    return _note(await result)


def _note_effect(original: Function) -> Function:
    @wraps(original)
    def request_effect(name: str, *args: Any, **options: Any) -> Any:
        listener = _find_listener()
        if listener is not None:
            listener.note_effect(name)
        return original(name, *args, **options)

    return request_effect


def _note_failures(original: Function) -> Function:
    """Record the exceptions of a decorated handler, because its response doesn't show them."""

    @wraps(original)
    def log_batch(handler: str, source: Any, report: Any, as_failure: Function) -> None:
        listener = _find_listener()
        if listener is not None:
            for result in report.failed:
                if result.error is not None:
                    listener.note_failure(result.error)
        original(handler, source, report, as_failure)

    return log_batch


def _run_heard(listener: Listener | None, function: Function, /, *args: Any, **kwargs: Any) -> Any:
    with heard_by(listener):
        return function(*args, **kwargs)


# A module, its class if there is one, a function's name, and the function's wrapper.
_PATCHES: tuple[tuple[str, str, str, Callable[[Function], Function]], ...] = (
    ("threading", "Thread", "start", _hear_thread),
    ("time", "", "sleep", _skip_sleep),
    ("botocore.session", "", "create_loader", _share_loaded),
    ("botocore.hooks", "", "accepts_kwargs", _remember_by_function),
    ("botocore.hooks", "EventAliaser", "_alias_event_name", _remember_by_name),
    ("builtins", "", "hash", _note_hash),
    ("concurrent.futures.thread", "ThreadPoolExecutor", "submit", _hear_pool),
    ("asyncio.base_events", "BaseEventLoop", "run_forever", _hear_loop),  # all functions that run a loop call it
    ("asyncio.runners", "Runner", "run", _renew_context),
    ("asyncio", "", "as_completed", _order_tasks),
    ("asyncio.tasks", "", "as_completed", _order_tasks),
    ("onewrite.core.flow", "", "drive", _note_result),  # where `run` and `arun` find them
    ("onewrite.core.flow", "", "adrive", _note_result),
    ("onewrite.core.features.effects", "", "EffectRequest", _note_effect),
    ("onewrite.batch.handler", "", "log_batch", _note_failures),
)
