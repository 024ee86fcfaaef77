"""The errors for a guarded call that lacks an argument.

If you forget the message, the key takes its place, and Python reports that the last argument is missing. These errors name the message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, signature, unwrap
from typing import Any

from onewrite.core.ledgers.ledger import check_message
from onewrite.errors import InvalidMessage, InvalidUpdate
from onewrite.message import Message


def check_arguments(method: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise if this call of a store's method, which raised a TypeError, lacks an argument. `args` begins with the store."""
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
