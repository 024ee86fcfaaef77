"""The user's function: whether it is async, and the meaning of its return value."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Sequence
from typing import Any, TypeAlias, TypeVar, cast, get_args

from onewrite.batch.unreturned import FunctionCall, Note
from onewrite.errors import OnewriteError
from onewrite.message import Message
from onewrite.outcome import BeginOutcome, Busy

ReturnValue: TypeAlias = BeginOutcome | Sequence[BeginOutcome] | None
R = TypeVar("R", bound=ReturnValue | Awaitable[ReturnValue])
GroupReturnValue: TypeAlias = Sequence[BeginOutcome] | None
G = TypeVar("G", bound=GroupReturnValue | Awaitable[GroupReturnValue])

_OUTCOMES: tuple[type, ...] = get_args(BeginOutcome)
_GROUP_REMEDY = "With group_by, return a sequence of one Outcome for each message, in the same order, or None"


class WrongReturn(OnewriteError, TypeError):
    """The function or the identity returned a value of the wrong type."""


def is_async(function: Any) -> bool:
    """Whether a call returns an awaitable. A decorated async function counts as its wrapper does."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


End: TypeAlias = tuple[BeginOutcome, ...] | BaseException
"""The outcomes or the error of one message."""


class Unreturned(tuple[BeginOutcome, ...]):  # noqa: SLOT001  # a kind of tuple has no slots
    """The outcomes of a message whose guarded calls didn't all settle it. `notes`: the ends that the function didn't return."""

    notes: tuple[Note, ...]

    @property
    def error(self) -> BaseException | None:
        """The first exception that the function caught, or that it didn't wait for."""
        return next((note.outcome for note in self.notes if isinstance(note.outcome, BaseException)), None)


def with_unreturned(
    answers: tuple[tuple[BeginOutcome, ...], ...], messages: Sequence[Message], call: FunctionCall
) -> tuple[End, ...]:
    """Return how the call ended for each message. The outcomes include those that left the message unsettled and weren't returned."""
    ends: list[End] = []
    for message, message_answers in zip(messages, answers, strict=True):
        notes = call.list_unreturned(message, message_answers)
        if not notes:
            ends.append(message_answers)
            continue
        outcomes = [note.outcome for note in notes if not isinstance(note.outcome, BaseException)]
        end = Unreturned((*message_answers, *outcomes))
        end.notes = notes
        ends.append(end)
    return tuple(ends)


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
    answers = tuple(cast("Sequence[object]", value))
    wrong_values = [answer for answer in answers if not isinstance(answer, _OUTCOMES)]
    if wrong_values:
        raise _make_wrong_return(f"{kind} with a {type(wrong_values[0]).__name__}", *wrong_values)
    return (tuple(map(_require_valid_outcome, answers)),)


def _require_valid_outcome(answer: Any) -> BeginOutcome:
    """Return the outcome, or raise WrongReturn unless its fields have usable types.

    A function can construct an outcome by hand, and a bad field would later fail the whole batch.
    """
    if not isinstance(answer.message, Message):
        name = "message"
    elif not isinstance(answer.settled, bool):
        name = "settled"
    elif isinstance(answer, Busy) and not isinstance(cast("object", answer.until), int | float):
        name = "until"
    else:
        return cast("BeginOutcome", answer)
    kind = type(getattr(answer, name)).__name__
    raise WrongReturn(
        f"The function returned a {type(answer).__name__} whose {name} is a {kind}. Return the outcome that the "
        "store returned."
    )


def read_group_return(value: object, messages: Sequence[Message]) -> tuple[tuple[BeginOutcome, ...], ...]:
    """Return the outcomes that the function returned for each message of a group. Raise WrongReturn for any other value."""
    if value is None:
        return ((),) * len(messages)
    if isinstance(value, _OUTCOMES):
        raise WrongReturn(f"The function returned a {type(value).__name__}. {_GROUP_REMEDY}.")
    [answers] = read_return(value)
    if len(answers) != len(messages):
        raise WrongReturn(f"The function returned {len(answers)} outcomes for {len(messages)} messages. {_GROUP_REMEDY}.")
    all_names = {(message.source, message.id) for message in messages}
    for message, answer in zip(messages, answers, strict=True):
        name = answer.message.source, answer.message.id
        # An outcome of a message outside the group says nothing about the order.
        if name != (message.source, message.id) and name in all_names:
            raise WrongReturn(f"The function returned its outcomes in a different order from the messages. {_GROUP_REMEDY}.")
    return tuple((answer,) for answer in answers)


def _make_wrong_return(kind: str, *values: object) -> WrongReturn:
    """Return the error for these returned values. Close those that are coroutines, so that Python doesn't warn about them."""
    for value in values:
        close_coroutine(value)
    remedy = ""
    if inspect.isawaitable(values[0]):
        remedy = " If it is asynchronous, declare it with `async def`, and likewise the wrapper of each decorator around it."
    return WrongReturn(f"The function returned {kind}. Return an Outcome, a sequence of them, or None.{remedy}")


def close_coroutine(value: object) -> None:
    if inspect.iscoroutine(value):
        value.close()  # otherwise Python warns that it was never awaited
