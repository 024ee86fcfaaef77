"""The user's function: whether it is async, the meaning of its return value, and the guarded calls that it made.

A record is settled only if the returned outcomes are settled, and every guarded call of its message ended settled, wherever and whenever
the function made it. While a function runs, each guarded call is listed from its beginning, and removed once it settles its messages. The
remaining calls fail the record: an unsettled outcome, an exception or cancellation that the function caught, or a call that hasn't ended.
Only a begun effect is removed later, by the write that finishes it. A function that knows better returns an outcome that it made itself,
instead of one that a store returned to it.

Tasks, and threads of `asyncio.to_thread`, inherit the call of their function. Other threads don't: their guarded calls are listed for
all function calls that work on their messages. Two concurrent ones can then both fail, which is safe.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar, Token
from operator import attrgetter
from types import CodeType, TracebackType
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar, cast, get_args
from weakref import ref

from onewrite.core.hook import hook
from onewrite.errors import OnewriteError
from onewrite.message import Message
from onewrite.outcome import Applied, BeginOutcome, Begun, Busy, Uncertain
from onewrite.process.failures import find_caller_line

ReturnValue: TypeAlias = BeginOutcome | Sequence[BeginOutcome] | None
R = TypeVar("R", bound=ReturnValue | Awaitable[ReturnValue])
GroupReturnValue: TypeAlias = Sequence[BeginOutcome] | None
G = TypeVar("G", bound=GroupReturnValue | Awaitable[GroupReturnValue])

_OUTCOMES: tuple[type[Any], ...] = get_args(BeginOutcome)
_GROUP_REMEDY = "With group_by, return a sequence of one Outcome for each message, in the same order, or None"


def is_async(function: Any) -> bool:
    """Whether a call returns an awaitable. A decorated async function counts as its wrapper does."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


# --- the returned value -----------------------------------------------------------------------------------------------


class WrongReturn(OnewriteError, TypeError):
    """The function or the identity returned a value of the wrong type."""


def read_return(value: object, _messages: object = None) -> tuple[tuple[BeginOutcome, ...]]:
    """Return the outcomes that the function returned for one message. Raise WrongReturn for any other value.

    None and an empty sequence add nothing to the outcomes of the guarded calls. The messages are unused here, but `read_group_return`
    needs them.
    """
    if value is None:
        return ((),)
    if isinstance(value, _OUTCOMES):
        return ((_require_valid_outcome(value),),)
    kind = f"a {type(value).__name__}"
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        raise _make_wrong_return(kind, value)
    members = tuple(cast("Sequence[object]", value))
    wrong_members = [member for member in members if not isinstance(member, _OUTCOMES)]
    if wrong_members:
        raise _make_wrong_return(f"{kind} with a {type(wrong_members[0]).__name__}", *wrong_members)
    return (tuple(map(_require_valid_outcome, members)),)


def _require_valid_outcome(outcome: Any) -> BeginOutcome:
    """Return the outcome, or raise WrongReturn unless its fields have usable types.

    A function can construct an outcome by hand, and a bad field would later fail the whole batch.
    """
    if not isinstance(outcome.message, Message):
        name = "message"
    elif not isinstance(outcome.settled, bool):
        name = "settled"
    elif isinstance(outcome, Busy) and not isinstance(cast("object", outcome.until), int | float):
        name = "until"
    else:
        return cast("BeginOutcome", outcome)
    kind = type(getattr(outcome, name)).__name__
    raise WrongReturn(
        f"The function returned a {type(outcome).__name__} whose {name} is a {kind}. Return the outcome that the "
        "store returned."
    )


def read_group_return(value: object, messages: Sequence[Message]) -> tuple[tuple[BeginOutcome, ...], ...]:
    """Return the outcomes that the function returned for each message of a group. Raise WrongReturn for any other value."""
    if value is None:
        return ((),) * len(messages)
    if isinstance(value, _OUTCOMES):
        raise WrongReturn(f"The function returned a {type(value).__name__}. {_GROUP_REMEDY}.")
    [outcomes] = read_return(value)
    if len(outcomes) != len(messages):
        raise WrongReturn(f"The function returned {len(outcomes)} outcomes for {len(messages)} messages. {_GROUP_REMEDY}.")
    names = [*map(_read_name, messages)]
    for name, outcome in zip(names, outcomes, strict=True):
        # An outcome of a message outside the group says nothing about the order.
        if name != _read_name(outcome.message) in names:
            raise WrongReturn(f"The function returned its outcomes in a different order from the messages. {_GROUP_REMEDY}.")
    return tuple((outcome,) for outcome in outcomes)


def _make_wrong_return(kind: str, *values: object) -> WrongReturn:
    """Return the error for these returned values. Close the coroutines among them, because Python warns about unclosed ones."""
    for value in values:
        close_coroutine(value)
    remedy = ""
    if inspect.isawaitable(values[0]):
        remedy = " If it is asynchronous, declare it with `async def`, and likewise the wrapper of each decorator around it."
    return WrongReturn(f"The function returned {kind}. Return an Outcome, a sequence of them, or None.{remedy}")


def close_coroutine(value: object) -> None:
    if inspect.iscoroutine(value):
        value.close()  # otherwise Python warns that it was never awaited


# --- the guarded calls ------------------------------------------------------------------------------------------------


_UNFINISHED = (
    "A guarded write had not ended when the function returned. Its outcome is unknown. Await it, or wait for its thread or task, before you "
    "return."
)
_ONLY_PREVIEWED = "The function returned the Applied of preview, which writes nothing. Return the outcome of a write."
_read_name = attrgetter("id", "source")  # the same for a message and its parts


class UnfinishedWrite(OnewriteError):
    """Recorded if a handler's function returned before a guarded call of its message ended, so the outcome was unknown."""


class Note(NamedTuple):
    """The end of a guarded call that didn't settle a message, and the line of the call, if it's known."""

    outcome: BeginOutcome | BaseException
    code: CodeType | None = None
    line: int = 0


class End(NamedTuple):
    """The end of a function's call for one message. `notes`: the ends of guarded calls that the function didn't return."""

    outcomes: tuple[BeginOutcome, ...] = ()
    error: BaseException | None = None
    notes: tuple[Note, ...] = ()


class FunctionCall:
    """A call of a handler's function. Enter it as a context manager while the function runs.

    - `names`: the names of the messages that the function received
    - `guarded_calls`: the guarded calls that haven't settled their messages
    - `previews`: the `Applied` that `preview` returned, for writes that the function has yet to make
    - `chain`: this call, then the one in whose function the handler was called, and so on
    """

    __slots__ = ("_stored_outcomes", "_token", "chain", "guarded_calls", "is_running", "names", "previews")

    def __init__(self, messages: Sequence[Message]) -> None:
        self.names = {*map(_read_name, messages)}
        self.guarded_calls: dict[GuardedCall, None] = {}
        self.previews: list[Applied] = []
        self._stored_outcomes: dict[int, ref[BeginOutcome]] = {}  # the outcomes that stores returned, by their identity

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

    def add_outcome(self, outcome: BeginOutcome) -> None:
        """Note that a store returned this outcome, so that it doesn't count as one of the function's own making."""
        self._stored_outcomes[id(outcome)] = ref(outcome)

    def list_ends(self, messages: Sequence[Message], returned: Iterable[tuple[BeginOutcome, ...]]) -> list[End]:
        """Return the end of the call for each message, from the outcomes that the function returned for it.

        The error is the first exception that the function caught, or that it didn't wait for.
        """
        ends: list[End] = []
        for message, outcomes in zip(messages, returned, strict=True):
            notes = self.list_unreturned(message, outcomes) if self.guarded_calls or self.previews else ()
            errors = [note.outcome for note in notes if isinstance(note.outcome, BaseException)]
            unseen = [note.outcome for note in notes if not isinstance(note.outcome, BaseException)]
            ends.append(End((*outcomes, *unseen), errors[0] if errors else None, notes))
        return ends

    def list_unreturned(self, message: Message, outcomes: Sequence[BeginOutcome]) -> tuple[Note, ...]:
        """Return the ends of the guarded calls that leave the message unsettled, without those among the returned outcomes.

        A call of the message itself or of a part of it counts, and so does one of a message that the function made. Return nothing if the
        function made one of the returned outcomes itself.
        """
        if any(preview is outcome for preview in self.previews for outcome in outcomes):
            return (Note(WrongReturn(_ONLY_PREVIEWED)),)
        for outcome in outcomes:
            stored = self._stored_outcomes.get(id(outcome))
            if stored is None or stored() is not outcome:
                return ()
        other_names = self.names - {_read_name(message)}
        notes = [note for call in self.guarded_calls.copy() for note in call.list_notes(other_names)]
        return tuple([note for note in notes if not any(note.outcome is outcome for outcome in outcomes)])


_current: ContextVar[FunctionCall | None] = ContextVar("onewrite.function_call", default=None)


class GuardedCall:
    """A guarded call of a handler's function.

    - `messages`: the messages that it hasn't settled, or None if they aren't known: then it can be of any message of the function's call
    - `outcomes`: its unsettled outcomes
    - `error`: the exception with which it ended
    """

    __slots__ = ("_calls", "_claim", "_is_hint", "_line", "_replaced", "error", "messages", "outcomes")

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, is_hint: bool) -> None:
        self.messages = messages = _find_messages(args, kwargs)
        self.outcomes: Sequence[BeginOutcome] = ()
        self.error: BaseException | None = None
        self._line = find_caller_line()
        self._claim: Begun | Uncertain | None = kwargs.get("finishes")
        self._replaced: Uncertain | None = kwargs.get("after")
        self._is_hint = is_hint
        # The function calls that it belongs to: the one of this thread or task with its outer ones, and if the messages aren't its own,
        # those that work on them.
        current, names = _current.get(), {*map(_read_name, messages or ())}
        self._calls: Sequence[FunctionCall] = current.chain if current is not None and current.is_running else ()
        if not self._calls or not self._calls[0].names >= names:
            calls = cast("set[FunctionCall]", hook.followers.copy())
            others = [call for call in calls if messages is None or not call.names.isdisjoint(names)]
            self._calls = [*self._calls, *[call for call in others if call not in self._calls]]
        if not is_hint:
            for call in self._calls:
                call.guarded_calls[self] = None

    def fail(self, error: BaseException) -> None:
        """Record the exception with which the call ended."""
        self.error = error

    def end(self, result: Any) -> Any:
        """Record the call's result, and return it. A call that has settled its messages is no longer listed."""
        members = cast("list[object]", result) if isinstance(cast("object", result), list) else [result]
        outcomes = [cast("BeginOutcome", member) for member in members if isinstance(member, _OUTCOMES)]
        current = _current.get()
        for call in {*self._calls, *(current.chain if current is not None and current.is_running else ())}:
            for outcome in outcomes:
                call.add_outcome(outcome)
            if self._is_hint:
                call.previews += [outcome for outcome in outcomes if isinstance(outcome, Applied)]
        if self._is_hint:
            return result
        unsettled = [outcome for outcome in outcomes if not outcome.settled]
        if unsettled:
            self.outcomes, self.messages = unsettled, [outcome.message for outcome in unsettled]
            if self._replaced is not None and all(isinstance(outcome, Begun) for outcome in unsettled):
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
                other.forget_outcome(claim)

    def forget_outcome(self, claim: Begun | Uncertain) -> None:
        """Forget the outcome of `begin_effect` whose effect another call has finished."""
        if any(_is_effect(outcome, claim) for outcome in self.outcomes):
            self.outcomes = [outcome for outcome in self.outcomes if not _is_effect(outcome, claim)]
            self.messages = [outcome.message for outcome in self.outcomes]

    def list_notes(self, other_names: set[tuple[str, str]]) -> list[Note]:
        """Return how the call ended for the messages that aren't among the others, or nothing if it has settled them."""
        if self.outcomes:
            return [
                Note(outcome, *self._line) for outcome in self.outcomes if _read_name(outcome.message) not in other_names
            ]
        if self.messages is None or not other_names.issuperset(map(_read_name, self.messages)):
            return [Note(self.error or UnfinishedWrite(_UNFINISHED), *self._line)]
        return []


hook.begin = GuardedCall


def _is_effect(outcome: BeginOutcome, claim: Begun | Uncertain) -> bool:
    return isinstance(outcome, Begun | Uncertain) and outcome.fence == claim.fence


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
