"""Finds guarded calls that didn't settle their messages, and whose outcomes a handler's function didn't return.

While a handler calls its function, every guarded call is listed from its beginning, wherever it runs. It's removed once it settles its
message, or once a different call settles the same message in the same entity. If the function returns None, the remaining calls are
reported: an unsettled outcome, an exception or cancellation that the function might not have seen, or a call that hasn't ended.
An exception in the function's own thread and task isn't listed, because the function has seen it. A cancellation is listed, because a
time limit can swallow it.

Tasks, and threads of `asyncio.to_thread`, inherit the call of their function. Other threads don't: their guarded calls are listed for
all function calls that work on their messages, so two concurrent ones can both fail, which is safe. If a handler is called in such a
thread, only that handler reports its calls, because it looks like another delivery of the message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from functools import wraps
from operator import attrgetter
from threading import get_ident
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar, cast

from onewrite.errors import OnewriteError
from onewrite.message import Message
from onewrite.outcome import Answer, Applied, Duplicate, Gone, Stale

F = TypeVar("F", bound=Callable[..., Any])


class UnfinishedWrite(OnewriteError):
    """Recorded if a handler's function returned before a guarded call of its message ended, so the outcome was unknown."""


class Store(Protocol):
    """The identity of an entity among those of all stores."""

    ledger: Any

    @property
    def store_id(self) -> object: ...
    def canonical(self, key: Any, /) -> Hashable: ...


class WrittenEntity(NamedTuple):
    """An entity with a ledger. `fields`: the canonical values of its key, and possibly of more fields."""

    store: object
    ledger: str
    fields: Mapping[str, Hashable]

    def is_same(self, other: WrittenEntity) -> bool:
        """Whether both are certainly the same entity. Each has all fields of the key, so it's enough that no field differs."""
        common = self.fields.keys() & other.fields.keys()
        return bool(common) and self[:2] == other[:2] and all(self.fields[name] == other.fields[name] for name in common)

    def is_in(self, entities: Iterable[WrittenEntity]) -> bool:
        """Whether one of these is certainly the same entity."""
        return any(self.is_same(entity) for entity in entities)


class Note(NamedTuple):
    """The end of a guarded call that didn't settle a message, and the line of the call if it returned an outcome."""

    outcome: Answer | BaseException
    code: CodeType | None = None
    line: int = 0


class FunctionCall:
    """A call of a handler's function. Enter it as a context manager while the function runs.

    - `names`: the names of the messages that the function received
    - `guarded_calls`: the guarded calls that haven't settled their messages
    - `task`: the thread and the task that run the function
    - `chain`: this call, then the one in whose function the handler was called, and so on
    """

    __slots__ = ("_token", "chain", "guarded_calls", "is_running", "names", "task")

    def __init__(self, messages: Sequence[Message]) -> None:
        self.names, self.task = {*map(_read_name, messages)}, _find_task()
        self.guarded_calls: dict[GuardedCall, None] = {}

    def __enter__(self) -> Self:
        outer = _current.get()
        self.chain: tuple[FunctionCall, ...] = (self,) if outer is None else (self, *outer.chain)
        self.is_running = True
        in_work.add(self)
        self._token: Token[FunctionCall | None] = _current.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _current.reset(self._token)
        self.is_running = False  # a thread or a task can outlive the function
        in_work.discard(self)

    def read_notes(self, message: Message) -> tuple[Note, ...]:
        """Return the ends of the guarded calls that left this message, or a part of it, unsettled."""
        return tuple([note for call in self.guarded_calls.copy() for note in call.read_notes(_read_name(message))])


class GuardedCall:
    """A guarded call of a handler's function.

    - `messages`: the messages that it hasn't settled, or None if they aren't known, so it can be any message of the function's call
    - `answers`: its unsettled outcomes
    - `error`: the exception with which it ended
    - `entities`: the entities that it has written to, once it has ended. Before, the `keys` name them, which the caller might reuse later.
    """

    answers: Sequence[Answer] = ()
    error: BaseException | None = None
    entities: Sequence[WrittenEntity] | None = None
    line: tuple[CodeType | None, int]

    def __init__(self, messages: Sequence[Message] | None) -> None:
        self.messages: Sequence[Message] | None = messages
        self.keys: list[tuple[Store, Mapping[str, Any]]] = []
        # The function calls that work on these messages: the one of this thread or task, and its outer ones, if the messages are theirs.
        current, names = _current.get(), {*map(_read_name, messages or ())}
        if current is not None and current.is_running and current.names >= names:
            self._calls: Sequence[FunctionCall] = current.chain
        else:
            self._calls = [call for call in in_work.copy() if messages is None or not call.names.isdisjoint(names)]

    def __enter__(self) -> Self:
        for call in self._calls:
            call.guarded_calls[self] = None
        self._token = _guarded_call.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.error = error
        current = _current.get()
        if isinstance(error, Exception) and current is not None and current in self._calls and current.task == _find_task():
            # The function of the innermost handler has seen the error. The outer functions might not see it.
            current.guarded_calls.pop(self, None)
        if self.answers or error is not None:
            self.entities = self.read_entities()
        with suppress(ValueError):  # a coroutine that isn't awaited to its end can be closed in any context
            _guarded_call.reset(self._token)

    def end(self, result: Any) -> Any:
        """Record the call's result, and return it. Remove the calls that it settles from the lists of the function calls."""
        is_settled = getattr(result, "settled", False) is True  # the usual case
        answers = cast("list[Answer]", result if isinstance(result, list) else [result])
        unsettled = () if is_settled else [answer for answer in answers if not getattr(answer, "settled", True)]
        if unsettled:
            self.answers, self.messages, self.line = unsettled, [answer.message for answer in unsettled], _find_caller_line()
        for call in self._calls:
            if not unsettled:
                call.guarded_calls.pop(self, None)
            if call.guarded_calls:
                settled = [answer for answer in answers if getattr(answer, "settled", False)]
                for other in call.guarded_calls.copy():  # other threads can change it
                    other.hear_settled(self, settled)
        return cast("Any", result)

    def hear_settled(self, other: GuardedCall, settled: Iterable[Answer]) -> None:
        """Forget the messages that a different call has settled, if it has written to every entity of this call."""
        if self is other or self.messages is None:
            return
        own_entities, other_entities = self.read_entities(), other.read_entities()
        if not own_entities or not all(entity.is_in(other_entities) for entity in own_entities):
            return
        # A refusal that the entity doesn't remember proves nothing about a write that might not have arrived.
        kinds: Any = Answer if self.answers else _REMEMBERED
        if not all(entity.is_in(own_entities) for entity in other_entities):
            kinds = Applied  # a refusal can come from an entity that this call hasn't written to
        settled_names = {_read_part_name(answer.message) for answer in settled if isinstance(answer, kinds)}
        self.messages = [message for message in self.messages if _read_part_name(message) not in settled_names]
        self.answers = [answer for answer in self.answers if _read_part_name(answer.message) not in settled_names]
        if not self.messages:
            for call in self._calls:
                call.guarded_calls.pop(self, None)

    def read_entities(self) -> Sequence[WrittenEntity]:
        """Return the entities that the call has written to, or is about to write to. They are read from `keys` until the call has ended."""
        if self.entities is not None:
            return self.entities
        entities: list[WrittenEntity] = []
        for store, key in self.keys:
            names = key if isinstance(cast("object", key), Mapping) else ()  # an invalid argument, which the call refuses
            fields = {name: store.canonical({name: key[name]}) for name in names}
            entities.append(WrittenEntity(store.store_id, store.ledger.attribute, fields))
        return entities

    def read_notes(self, name: tuple[str, str]) -> list[Note]:
        """Return how the call ended for the message of this name, and for its parts; nothing if it has settled them."""
        if self.answers:
            return [Note(answer, *self.line) for answer in self.answers if _read_name(answer.message) == name]
        if self.messages is None or name in map(_read_name, self.messages):
            return [Note(self.error or UnfinishedWrite(_UNFINISHED))]
        return []


_UNFINISHED = (
    "A guarded write of this message had not ended when the function returned, so its outcome is unknown. Wait for every thread and task "
    "before you return."
)
_REMEMBERED = (Applied, Duplicate, Stale, Gone)  # outcomes after which the entity refuses a second copy
in_work: set[FunctionCall] = set()
_current: ContextVar[FunctionCall | None] = ContextVar("onewrite.function_call", default=None)
_guarded_call: ContextVar[GuardedCall | None] = ContextVar("onewrite.guarded_call", default=None)


def noted(function: F) -> F:
    """Wrap a method so that its calls are listed while a handler's function runs."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not in_work:
            return function(*args, **kwargs)
        with GuardedCall(_find_messages(args, kwargs)) as guarded_call:
            return guarded_call.end(function(*args, **kwargs))

    return cast("F", call)


def noted_async(function: F) -> F:
    """Wrap an asynchronous method like `noted`."""

    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        if not in_work:
            return await function(*args, **kwargs)
        with GuardedCall(_find_messages(args, kwargs)) as guarded_call:
            return guarded_call.end(await function(*args, **kwargs))

    return cast("F", call)


def note_entity(store: Store, key: Mapping[str, Any]) -> None:
    """Record the entity to which the guarded call of this thread or task is about to write. `key`: all fields of its key, and possibly others."""
    if in_work and (call := _guarded_call.get()) is not None and key:
        call.keys.append((store, key))


def _find_task() -> tuple[int, object]:
    """Return the current thread and task."""
    asyncio: Any = sys.modules.get("asyncio")  # asyncio is slow to import
    try:
        task = None if asyncio is None else asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        task = None
    return get_ident(), task


# The first name is the same for a message and its parts. The second distinguishes them.
_read_name: Callable[[Message], tuple[str, str]] = attrgetter("id", "source")
_read_part_name: Callable[[Message], tuple[str, str, tuple[str, ...]]] = attrgetter("id", "source", "parts")


def _find_messages(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Message] | None:
    """Return the messages of a guarded call, or None if reading them would consume an iterator."""
    if len(args) > 1 and type(args[1]) is Message:  # the usual case
        return (args[1],)
    # The first argument of a method is its store, and that of a function can be the message.
    for argument in (*args[:2], kwargs.get("message"), kwargs.get("messages")):
        if isinstance(argument, Message):
            return (argument,)
        if isinstance(argument, Collection):
            members = tuple(cast("Collection[object]", argument))
            if members and all(isinstance(member, Message) for member in members):
                return cast("Sequence[Message]", members)
    return None


def _find_caller_line() -> tuple[CodeType | None, int]:
    """Return the code and line of the nearest caller outside onewrite and the standard library.

    Return `(None, 0)` if a task or thread runs the call directly.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # documented, in spite of its name
    while frame is not None:
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if root != "onewrite" and root not in sys.stdlib_module_names:
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None, 0
