"""What a call of a store would send first: the first request that the flow of its verb yields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import iscoroutine
from typing import Any, cast

from onewrite.core.flow import Call, Do, Flow
from onewrite.errors import ConfigurationError


def flow_maker(verbs: Mapping[str, Callable[..., Flow[Any]]], verb: str) -> Callable[..., Flow[Any]]:
    """Return the function that makes the flow of this verb."""
    if not isinstance(cast("object", verb), str) or verb not in verbs:
        raise ConfigurationError(
            f"explain({verb!r}): expected the name of a method first, one of {', '.join(verbs)}. Write "
            f"explain({next(iter(verbs))!r}, message, ...), with what the method takes."
        )
    return verbs[verb]


def first_request(flow: Flow[Any], assumed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the arguments of the first request that the flow yields, by their names. Nothing is sent.

    `assumed`: the replies to what a store asks before the request of its verb, by the methods that ask it.
    """
    replies = assumed or {}
    try:
        step = next(flow)
        while True:
            if isinstance(step, Call) and step.method in replies:
                step = flow.send(replies[step.method])
            elif isinstance(step, Do) and not step.sends:  # the function of a fold
                step = flow.send(_call_function(step))
            else:
                break
    except StopIteration:
        raise ConfigurationError("explain: this call sends no request, so there is none to show.") from None
    finally:
        flow.close()
    request = cast("Call | Do", step)
    # pymongo's methods take these by position.
    names = ("document",) if isinstance(request, Call) and request.method == "insert_one" else ("filter", "update")
    return {**dict(zip(names, request.args, strict=False)), **request.kwargs}


def _call_function(step: Do) -> Any:
    result = step.function(*step.args, **step.kwargs)
    if iscoroutine(result):
        result.close()
        raise ConfigurationError(
            "explain calls the function of a fold and can't await it: pass it a function that isn't asynchronous."
        )
    return result
