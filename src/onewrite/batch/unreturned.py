"""Finds guarded calls that didn't settle the message of a handler's function, wherever and whenever the function made them.

A record is settled only if every guarded call of its message ended settled. While a function runs, each guarded call is listed from its
beginning, and removed once it settles its messages. The remaining calls fail the record: an unsettled outcome, an exception or
cancellation that the function caught, or a call that hasn't ended. Only a begun effect is removed later, by the write that finishes it.
A function that knows better returns an outcome that it made itself, instead of one that a store returned to it.

Tasks, and threads of `asyncio.to_thread`, inherit the call of their function. Other threads don't: their guarded calls are listed for
all function calls that work on their messages, so two concurrent ones can both fail, which is safe.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar, Token
from operator import attrgetter
from types import CodeType, TracebackType
from typing import Any, NamedTuple, Self, cast, get_args
from weakref import ref

from onewrite.core.hook import hook
from onewrite.errors import OnewriteError
from onewrite.message import Message
from onewrite.outcome import BeginOutcome, Begun, Uncertain
from onewrite.running.failures import find_caller_line


class UnfinishedWrite(OnewriteError):
    """Recorded if a handler's function returned before a guarded call of its message ended, so the outcome was unknown."""


class Note(NamedTuple):
    """The end of a guarded call that didn't settle a message, and the line of the call, if it's known."""

    outcome: BeginOutcome | BaseException
    code: CodeType | None = None
    line: int = 0


class FunctionCall:
    """A call of a handler's function. Enter it as a context manager while the function runs.

    - `names`: the names of the messages that the function received
    - `guarded_calls`: the guarded calls that haven't settled their messages
    - `chain`: this call, then the one in whose function the handler was called, and so on
    """

    __slots__ = ("_results", "_token", "chain", "guarded_calls", "is_running", "names")

    def __init__(self, messages: Sequence[Message]) -> None:
        self.names = {*map(_read_name, messages)}
        self.guarded_calls: dict[GuardedCall, None] = {}
        self._results: dict[int, ref[BeginOutcome]] = {}  # the outcomes that stores returned, by their identity

    def __enter__(self) -> Self:
        outer = _current.get()
        self.chain: tuple[FunctionCall, ...] = (self,) if outer is None else (self, *outer.chain)
        self.is_running = True
        hook.followers.add(self)
        self._token: Token[FunctionCall | None] = _current.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _current.reset(self._token)
        self.is_running = False  # a thread or a task can outlive the function
        hook.followers.discard(self)

    def add_result(self, answer: BeginOutcome) -> None:
        """Note that a store returned this outcome, so that it isn't one of the function's own making."""
        self._results[id(answer)] = ref(answer)

    def list_unreturned(self, message: Message, answers: Sequence[BeginOutcome]) -> tuple[Note, ...]:
        """Return the ends of the guarded calls that left the message, or a part of it, unsettled, without those among the returned `answers`.

        Return nothing if the function made one of the answers itself.
        """
        if not self.guarded_calls:
            return ()
        for answer in answers:
            result = self._results.get(id(answer))
            if result is None or result() is not answer:
                return ()
        notes = [note for call in self.guarded_calls.copy() for note in call.list_notes(_read_name(message))]
        return tuple([note for note in notes if not any(note.outcome is answer for answer in answers)])


class GuardedCall:
    """A guarded call of a handler's function.

    - `messages`: the messages that it hasn't settled, or None if they aren't known, so it can be any message of the function's call
    - `answers`: its unsettled outcomes
    - `error`: the exception with which it ended
    """

    __slots__ = ("_calls", "_claim", "_is_hint", "_line", "_replaced", "answers", "error", "messages")

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, is_hint: bool) -> None:
        self.messages = messages = _find_messages(args, kwargs)
        self.answers: Sequence[BeginOutcome] = ()
        self.error: BaseException | None = None
        self._line: tuple[CodeType | None, int] = None, 0
        self._claim: Begun | Uncertain | None = kwargs.get("finishes")
        self._replaced: Uncertain | None = kwargs.get("after")
        self._is_hint = is_hint
        # The function calls that work on these messages: the one of this thread or task, and its outer ones, if the messages are theirs.
        current, names = _current.get(), {*map(_read_name, messages or ())}
        if current is not None and current.is_running and current.names >= names:
            self._calls: Sequence[FunctionCall] = current.chain
        else:
            calls = cast("set[FunctionCall]", hook.followers.copy())
            self._calls = [call for call in calls if messages is None or not call.names.isdisjoint(names)]
        if not is_hint:
            for call in self._calls:
                call.guarded_calls[self] = None

    def fail(self, error: BaseException) -> None:
        """Record the exception with which the call ended."""
        self.error, self._line = error, find_caller_line()

    def end(self, result: Any) -> Any:
        """Record the call's result, and return it. A call that has settled its messages is no longer listed."""
        answers = cast("list[object]", result) if isinstance(cast("object", result), list) else [result]
        unsettled: list[BeginOutcome] = []
        for answer in answers:
            if isinstance(answer, _OUTCOMES):
                self._add_result(cast("BeginOutcome", answer))
                if not cast("BeginOutcome", answer).settled:
                    unsettled.append(cast("BeginOutcome", answer))
        if self._is_hint:
            return result
        if unsettled:
            self.answers, self.messages, self._line = unsettled, [each.message for each in unsettled], find_caller_line()
            if self._replaced is not None and all(isinstance(answer, Begun) for answer in unsettled):
                self._forget_effect(self._replaced)  # its successor must be finished instead
            return result
        for call in self._calls:
            call.guarded_calls.pop(self, None)
        if self._claim is not None:
            self._forget_effect(self._claim)
        return result

    def _forget_effect(self, claim: Begun | Uncertain) -> None:
        """Forget the effect in the other guarded calls of the function."""
        for call in self._calls:
            for other in call.guarded_calls.copy():  # other threads can change it
                other.forget_effect(claim)

    def _add_result(self, answer: BeginOutcome) -> None:
        current = _current.get()
        if current is not None and current.is_running:
            for call in current.chain:
                call.add_result(answer)
        for call in self._calls:
            call.add_result(answer)

    def forget_effect(self, claim: Begun | Uncertain) -> None:
        """Forget the outcome of `begin_effect` whose effect another call has finished."""
        if any(_is_effect(answer, claim) for answer in self.answers):
            self.answers = [answer for answer in self.answers if not _is_effect(answer, claim)]
            self.messages = [answer.message for answer in self.answers]

    def list_notes(self, name: tuple[str, str]) -> list[Note]:
        """Return how the call ended for the message of this name, and for its parts; nothing if it has settled them."""
        if self.answers:
            return [Note(answer, *self._line) for answer in self.answers if _read_name(answer.message) == name]
        if self.messages is None or name in map(_read_name, self.messages):
            return [Note(self.error or UnfinishedWrite(_UNFINISHED), *self._line)]
        return []


_UNFINISHED = (
    "A guarded write of this message had not ended when the function returned, so its outcome is unknown. Wait for every thread and task "
    "before you return."
)
_OUTCOMES: tuple[type[Any], ...] = get_args(BeginOutcome)
_current: ContextVar[FunctionCall | None] = ContextVar("onewrite.function_call", default=None)
_read_name = attrgetter("id", "source")  # the same for a message and its parts
hook.begin = GuardedCall


def _is_effect(answer: BeginOutcome, claim: Begun | Uncertain) -> bool:
    return isinstance(answer, Begun | Uncertain) and answer.fence == claim.fence


def _find_messages(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Message] | None:
    """Return the messages of a guarded call, or None if reading them would consume an iterator."""
    if len(args) > 1 and type(args[1]) is Message:  # the usual case
        return (args[1],)
    # The first argument of a method is its store.
    for argument in (*args[1:2], kwargs.get("message"), kwargs.get("messages")):
        if isinstance(argument, Message):
            return (argument,)
        if isinstance(argument, Collection):
            members = tuple(cast("Collection[object]", argument))
            if members and all(isinstance(member, Message) for member in members):
                return cast("Sequence[Message]", members)
    return None
