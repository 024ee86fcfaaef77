"""What surrounds every guarded call: a hook, through which a room above this one can follow the calls of the code that it runs, and
an error that names a missing argument.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature, unwrap
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from onewrite.core.ledgers.entry import check_message
from onewrite.errors import InvalidMessage, InvalidUpdate
from onewrite.message import Message

if sys.version_info >= (3, 12):
    from inspect import markcoroutinefunction

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")


class FollowedCall(Protocol):
    """A guarded call that has begun."""

    def fail(self, error: BaseException, /) -> None:
        """The call raised this."""

    def end(self, result: Any, /) -> Any:
        """Return the result of the call."""
        ...


class BeginCall(Protocol):
    """Begins to follow a call with these arguments. `is_hint`: the call only reads."""

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any], /, *, is_hint: bool) -> FollowedCall: ...


class Hook:
    """`followers`: those that follow guarded calls now. Without them, `begin` isn't called."""

    __slots__ = ("begin", "followers")
    begin: BeginCall

    def __init__(self) -> None:
        self.followers: set[Any] = set()


hook = Hook()


def followed(function: F, *, is_hint: bool = False) -> F:
    """Wrap a method of a blocking store, whose calls can then be followed. `is_hint`: the method only reads."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        followed_call = hook.begin(args, kwargs, is_hint=is_hint) if hook.followers else None
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            _report_error(error, followed_call, function, args, kwargs)
            raise
        return result if followed_call is None else followed_call.end(result)

    return cast("F", call)


def followed_hint(function: F) -> F:
    """Wrap a method that only reads, like `followed`."""
    return followed(function, is_hint=True)


def as_async(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the method of a blocking store or relay for its asynchronous counterpart, whose `_run` must be awaited."""
    function: Any = unwrap(method)

    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    call.__qualname__ = f"Async{function.__qualname__.removeprefix('Async')}"
    return call


def followed_async(
    method: Callable[Concatenate[Any, P], T], *, is_hint: bool = False
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the method like `as_async`, with calls that can be followed. A call begins before it is awaited, which its caller might forget."""
    function: Any = as_async(method)

    async def finish(followed_call: FollowedCall | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            _report_error(error, followed_call, function, args, kwargs)
            raise
        return result if followed_call is None else followed_call.end(result)

    finish.__qualname__ = function.__qualname__  # for Python's warning about a coroutine that was never awaited

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return finish(hook.begin(args, kwargs, is_hint=is_hint) if hook.followers else None, args, kwargs)

    if sys.version_info >= (3, 12):
        markcoroutinefunction(call)  # mocks need this mark, which Python 3.11 doesn't have
    return cast("Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]", call)


def _report_error(
    error: BaseException, call: FollowedCall | None, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Report the error of a call. If the call lacks an argument, raise an error that names it."""
    if call is not None:
        call.fail(error)
    if isinstance(error, TypeError):
        check_arguments(function, args, kwargs)


def check_arguments(method: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise if this call of a store's method, which raised a TypeError, lacks an argument. `args` begins with the store.

    If you forget the message, the key takes its place, and Python reports that the last argument is missing. This error names the message.
    """
    method = unwrap(method)
    accepted = signature(method)
    try:
        accepted.bind(*args, **kwargs)
    except TypeError:
        pass
    else:
        return  # something else raised the TypeError
    try:
        given = accepted.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return  # a surplus argument, which Python names
    _, first, *_ = accepted.parameters
    lead = given.get(first)
    if first not in given:
        raise InvalidMessage(f"{method.__name__}: the message is missing. Pass it first: {method.__name__}({first}, ...).")
    if first == "message":
        check_message(lead)
    elif callable(lead) or isinstance(lead, Message):
        raise InvalidMessage(
            f"{method.__name__}: expected a list of messages first, got a {type(lead).__name__}. Write {method.__name__}([message, ...], function)."
        )
    kinds = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    required = [
        name for name, each in accepted.parameters.items() if each.default is Parameter.empty and each.kind not in kinds
    ]
    missing = [name for name in required if name not in given]
    is_plural = len(missing) > 1
    raise InvalidUpdate(
        f"{method.__name__}: the argument{'s' if is_plural else ''} {' and '.join(missing)} {'are' if is_plural else 'is'} missing. Nothing was "
        f"sent. Write {method.__name__}({', '.join(required[1:])})."
    )
