"""A hook around every guarded call. A room above this one can follow the calls of the code that it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

from onewrite.core.forgotten import check_arguments

F = TypeVar("F", bound=Callable[..., Any])


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
    """Wrap a method of a blocking store so that its calls can be followed."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not hook.followers:
            try:
                return function(*args, **kwargs)
            except TypeError:
                check_arguments(function, args, kwargs)
                raise
        followed_call = hook.begin(args, kwargs, is_hint=is_hint)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            followed_call.fail(error)
            if isinstance(error, TypeError):
                check_arguments(function, args, kwargs)
            raise
        return followed_call.end(result)

    return cast("F", call)


def followed_hint(function: F) -> F:
    """Wrap a method that only reads, like `followed`."""
    return followed(function, is_hint=True)


def followed_async(function: F, *, is_hint: bool = False) -> F:
    """Wrap a method of an asynchronous store, like `followed`."""

    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        if not hook.followers:
            try:
                return await function(*args, **kwargs)
            except TypeError:
                check_arguments(function, args, kwargs)
                raise
        followed_call = hook.begin(args, kwargs, is_hint=is_hint)
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            followed_call.fail(error)
            if isinstance(error, TypeError):
                check_arguments(function, args, kwargs)
            raise
        return followed_call.end(result)

    return cast("F", call)


def followed_async_hint(function: F) -> F:
    """Wrap an asynchronous method that only reads, like `followed`."""
    return followed_async(function, is_hint=True)
