"""Facts about the user's function: whether it is async, whether its return value is valid, and which traceback lines are the
user's.

The user's code is the package of the function, and any other module that is not the standard library, not installed, and not
onewrite. In a Lambda function, installed packages are next to the user's code, so a path alone doesn't distinguish them.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Iterable, Sequence
from functools import cache
from pathlib import PurePath
from types import CodeType, FrameType
from typing import Any, TypeAlias, TypeVar, cast, get_args

from onewrite.batch.unreturned import FunctionCall, Note
from onewrite.message import Message, printable
from onewrite.outcome import Answer, Busy

ReturnValue: TypeAlias = Answer | Sequence[Answer] | None
R = TypeVar("R", bound=ReturnValue | Awaitable[ReturnValue])
GroupReturnValue: TypeAlias = Sequence[Answer] | None
G = TypeVar("G", bound=GroupReturnValue | Awaitable[GroupReturnValue])

_INSTALL_FOLDERS = frozenset({"site-packages", "dist-packages"})
_ANSWERS: tuple[type, ...] = get_args(Answer)
_GROUP_REMEDY = "With group_by, return a sequence of one Outcome for each message, in the same order, or None"


class WrongReturn(TypeError):
    """The function or the identity returned a value of the wrong type. The text names only types, so it can be logged."""


def is_async(function: Any) -> bool:
    """Whether a call returns an awaitable. A decorated async function counts as its wrapper does."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def shorten_name(qualified_name: str) -> str:
    """Return a function's name without the functions that define it, for logs."""
    return qualified_name.rpartition("<locals>.")[2]


def find_home(function: Any) -> tuple[str, str | None]:
    """Return the root package or module of the function, and the line of its definition, or None for a function without code."""
    while (inner := _find_wrapped(function)) is not None:
        function = inner
    module = str(getattr(function, "__module__", ""))
    callee: Any = function if hasattr(function, "__code__") else type(function).__call__
    code = getattr(callee, "__code__", None)
    return module.partition(".")[0], None if code is None else format_line(code, code.co_firstlineno)


def _find_wrapped(function: Any) -> Any:
    """Return the function that a partial or a wrapper calls, or None for any other function."""
    return function.func if isinstance(function, functools.partial) else getattr(function, "__wrapped__", None)


End: TypeAlias = tuple[Answer, ...] | BaseException
"""The outcomes or the error of one message."""


class Unreturned(tuple[Answer, ...]):  # noqa: SLOT001  # a kind of tuple has no slots
    """The outcomes of a message whose guarded calls didn't all settle it. `notes`: the ends that the function didn't return."""

    notes: tuple[Note, ...]

    @property
    def error(self) -> BaseException | None:
        """The first exception that the function caught, or that it didn't wait for."""
        return next((note.outcome for note in self.notes if isinstance(note.outcome, BaseException)), None)


def with_unreturned(
    answers: tuple[tuple[Answer, ...], ...], messages: Sequence[Message], call: FunctionCall
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


def read_return(value: object, _messages: object = None) -> tuple[tuple[Answer, ...]]:
    """Return the outcomes that the function returned for one message. Raise WrongReturn for any other value.

    None and an empty sequence add nothing to the outcomes of the guarded calls. The messages are unused here, but `read_group_return`
    needs them.
    """
    if value is None:
        return ((),)
    if isinstance(value, _ANSWERS):
        return ((_require_valid_answer(value),),)
    kind = f"a {type(value).__name__}"
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        raise _make_wrong_return(kind, value)
    answers = tuple(cast("Sequence[object]", value))
    wrong_values = [answer for answer in answers if not isinstance(answer, _ANSWERS)]
    if wrong_values:
        raise _make_wrong_return(f"{kind} with a {type(wrong_values[0]).__name__}", *wrong_values)
    return (tuple(map(_require_valid_answer, answers)),)


def _require_valid_answer(answer: Any) -> Answer:
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
        return cast("Answer", answer)
    kind = type(getattr(answer, name)).__name__
    raise WrongReturn(
        f"The function returned a {type(answer).__name__} whose {name} is a {kind}. Return the outcome that the "
        "store returned."
    )


def read_group_return(value: object, messages: Sequence[Message]) -> tuple[tuple[Answer, ...], ...]:
    """Return the outcomes that the function returned for each message of a group. Raise WrongReturn for any other value."""
    if value is None:
        return ((),) * len(messages)
    if isinstance(value, _ANSWERS):
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


# --- the user's own lines, for those who look for what failed or hangs ------------------------------------------------


def find_innermost_line(places: Iterable[tuple[FrameType, int]], function: object) -> str | None:
    """Return the file, line, and function of the innermost frame in the user's code, or None without one.

    `places` are frames with their lines, outermost first.
    """
    root, _ = find_home(function)
    user_places = [place for place in places if _is_user_code(place[0], root)]
    return _format_line(*user_places[-1]) if user_places else None


def _format_line(frame: FrameType, line: int) -> str:
    return format_line(frame.f_code, line)


def format_line(code: CodeType, line: int) -> str:
    return printable(f"{PurePath(code.co_filename).name}:{line} {shorten_name(code.co_qualname)}")


def find_thread_line(ident: int | None, function: object) -> str | None:
    """Return the line of the user's code that a thread is executing, or None if it executes none."""
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # documented, in spite of its name
    frame = None if ident is None else frames.get(ident)
    places: list[tuple[FrameType, int]] = []
    while frame is not None:
        places.append((frame, frame.f_lineno))
        frame = frame.f_back
    return _choose_line([*reversed(places)], function)


def find_coroutine_line(coroutine: object, function: object) -> str | None:
    """Return the line of the user's code where a coroutine, or one that it awaits, is waiting, or None."""
    places: list[tuple[FrameType, int]] = []
    while coroutine is not None:
        # Coroutines, asynchronous generators, and generators name these attributes differently.
        prefix = next((prefix for prefix in ("cr", "ag", "gi") if hasattr(coroutine, f"{prefix}_frame")), None)
        if prefix is None:  # a future, or an awaitable of a C library
            break
        frame = getattr(coroutine, f"{prefix}_frame")
        if frame is not None:
            places.append((frame, frame.f_lineno))
        coroutine = getattr(coroutine, "gi_yieldfrom" if prefix == "gi" else f"{prefix}_await")
    return _choose_line(places, function)


def _choose_line(places: list[tuple[FrameType, int]], function: object) -> str | None:
    """Return the innermost line of the user's code, or else the innermost line of all, or None without places."""
    line = find_innermost_line(places, function)
    return _format_line(*places[-1]) if line is None and places else line


def _is_user_code(frame: FrameType, root: str) -> bool:
    """Whether the code belongs to the package `root`, or neither to an installed package nor to Python itself."""
    module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if module == root:
        return True
    file = frame.f_code.co_filename
    return (
        module != "onewrite"
        and module not in sys.stdlib_module_names
        and not file.startswith("<")  # code without a file was generated at run time, for example by dataclasses
        and _INSTALL_FOLDERS.isdisjoint(PurePath(file).parts)
        and module not in _list_installed_modules()
    )


@cache
def _list_installed_modules() -> frozenset[str]:
    """Return the modules and packages that belong to an installed distribution."""
    from importlib.metadata import packages_distributions  # a cold start takes a quarter longer with it

    try:
        return frozenset(packages_distributions())
    except Exception:  # a distribution's metadata can be unreadable, and logging a failure must not fail
        return frozenset()
