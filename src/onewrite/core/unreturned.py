"""Unsettled outcomes that the function of a handler has seen and might not return: without them its message would be lost.

While a handler calls its function, the messages of the call are in work. A guarded call that ends with an unsettled outcome for one of
them leaves a note, wherever it runs. The note goes when a later call settles the same message in the same entity. A handler whose
function returns None takes the notes that are left for what the function has returned.

A guarded call that raises in another thread or task than that of the function leaves a note too, because nobody may look at what such a
thread has raised. In its own thread and task, the function has seen the exception. A task that is cancelled leaves none: to cancel it is the
word of the function, as where the quicker of two writes wins.

A task, and a thread of `asyncio.to_thread`, inherit the call of their function. Any other thread does not: its notes go to all calls
of the message that are in work, so two of them at once may both fail. That is safe.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from threading import Lock, get_ident
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple, Self, cast, get_args

from onewrite.message import Message
from onewrite.outcome import Answer

_ANSWERS: tuple[type, ...] = get_args(Answer)


class WrittenEntity(NamedTuple):
    """What a request was about. `fields`: those of the key, and maybe more, as text: the caller may use its own values again."""

    store: object
    table: object
    fields: Mapping[str, str]

    def is_same(self, other: WrittenEntity) -> bool:
        """Whether both are certainly one entity. Each has all fields of the key, so it is enough that no field differs."""
        common = self.fields.keys() & other.fields.keys()
        return (
            bool(common)
            and (self.store, self.table) == (other.store, other.table)
            and all(self.fields[name] == other.fields[name] for name in common)
        )


class Note(NamedTuple):
    """An unsettled outcome or an exception, and the line of the call that got it. No entity: it is that of a transaction, or not known."""

    message: Message
    outcome: Answer | BaseException
    entity: WrittenEntity | None
    code: CodeType | None
    line: int

    def is_about(self, message: Message, entity: WrittenEntity | None) -> bool:
        if not is_same(self.message, message) or self.message.parts != message.parts:
            return False
        if isinstance(self.outcome, BaseException):
            return True
        return entity is self.entity if entity is None or self.entity is None else self.entity.is_same(entity)


class FunctionCall:
    """A call of a handler's function, in whose block the messages of the call are in work."""

    __slots__ = ("_messages", "_token", "notes", "place")

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages, self.place = messages, find_place()
        self.notes: tuple[Note, ...] = ()

    def __enter__(self) -> Self:
        _in_work.add(self)
        self._token: Token[FunctionCall | None] = _current.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _current.reset(self._token)
        with _lock:  # a thread may have gone on after the function
            _in_work.discard(self)
            _noted.discard(self)

    def is_for(self, message: Message) -> bool:
        return any(is_same(own, message) for own in self._messages)

    def notes_of(self, message: Message) -> tuple[Note, ...]:
        """Return what is left to be said about a message of the call."""
        return tuple([note for note in self.notes if is_same(note.message, message)])

    def hear(self, message: Message, entity: WrittenEntity | None, note: Note | None) -> None:
        """Put the note in the place of what is known of the same message and entity. None: they are settled."""
        self.notes = tuple([known for known in self.notes if not known.is_about(message, entity)])
        if note is not None:
            self.notes += (note,)
        (_noted.add if self.notes else _noted.discard)(self)


def is_same(message: Message, other: Message) -> bool:
    """Whether both are one message, or parts of it."""
    return message.id == other.id and message.source == other.source


_in_work: set[FunctionCall] = set()
_noted: set[FunctionCall] = set()  # those that have notes
_current: ContextVar[FunctionCall | None] = ContextVar("onewrite.function_call", default=None)
_lock = Lock()  # for the notes of all calls
_writing: ContextVar[Sequence[Message]] = ContextVar("onewrite.writing", default=())
"""The messages of the guarded write that this thread or task has begun and not ended."""


def find_place() -> tuple[int, object]:
    """Return the thread, and the task in it, that run now."""
    asyncio: Any = sys.modules.get("asyncio")  # which is slow to import
    try:
        task = None if asyncio is None else asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        task = None
    return get_ident(), task


def hear_begin(messages: Sequence[Message]) -> None:
    """Keep in mind of which messages the guarded write is that begins now."""
    if _in_work:
        _writing.set(messages)


def hear(result: object, step: object, target: object, *, is_hint: bool) -> None:
    """Note what a guarded call has ended with, if anything may have to be said about it. `step` is the last one of its flow.

    `is_hint`: the call has only asked how a write would end.
    """
    if is_hint or not _in_work:
        return
    _writing.set(())
    answers = cast("list[object]", result) if isinstance(result, list) else (result,)
    for answer in answers:
        if (_noted or getattr(answer, "settled", True) is not True) and isinstance(answer, _ANSWERS):
            _hear_answer(cast("Answer", answer), step, target)


def _hear_answer(answer: Answer, step: object, target: object) -> None:
    with _lock:
        calls = _find_calls(answer.message)
        if not calls:
            return
        entity = None if getattr(answer, "participant", None) is not None else _read_entity(step, target)
        note = None if answer.settled else Note(answer.message, answer, entity, *_find_caller_line())
        for call in calls:
            call.hear(answer.message, entity, note)


def hear_failure(error: BaseException, *, is_hint: bool) -> None:
    """Note that a guarded call has raised, unless the function of the handler has seen it. `is_hint`: as in `hear`."""
    if is_hint or not _in_work:
        return
    place, messages = find_place(), _writing.get()
    _writing.set(())
    with _lock:
        for message in messages:
            for call in _find_calls(message):
                if call.place != place:
                    call.hear(message, None, Note(message, error, None, None, 0))


def _find_calls(message: Message) -> list[FunctionCall]:
    """Return the calls in which the message is in work: that of this thread or task alone, if it is one of them."""
    calls, current = [call for call in _in_work.copy() if call.is_for(message)], _current.get()
    return [current] if current is not None and current in calls else calls


def _read_entity(step: object, target: object) -> WrittenEntity | None:
    """Return the entity of a request. None: it is of a transaction."""
    store = getattr(getattr(step, "function", None), "__self__", target)
    args, kwargs = cast("tuple[Sequence[Any], Mapping[str, Any]]", (getattr(step, "args", ()), getattr(step, "kwargs", {})))
    of_table = kwargs.get("Key", kwargs.get("Item"))
    fields = of_table if of_table is not None else next(iter(args), None)
    if not isinstance(fields, Mapping):
        return None
    plain_fields = {
        name: repr(value)
        for name, value in cast("Mapping[str, Any]", fields).items()
        if not name.startswith(("$", "ow_"))  # a filter has more than the fields of the caller's
    }
    return WrittenEntity(store, kwargs.get("TableName"), plain_fields)


def _find_caller_line() -> tuple[CodeType | None, int]:
    """Return the first line outside this package and Python's own: none, where a task or a thread was given the call itself."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # documented, in spite of its name
    while frame is not None:
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if root != "onewrite" and root not in sys.stdlib_module_names:
            return frame.f_code, frame.f_lineno
        frame = frame.f_back
    return None, 0
