"""The tokens by which DynamoDB knows a transaction that it has already done. They are part of a state, as the items are.

The store itself is sent no token of the handler's, since it would remember tokens where a state is left and come back to. When a token
is forgotten is for the explorer to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from onewrite.testing.model.transition import State
from onewrite.testing.taps.failures import client_error
from onewrite.testing.taps.tap import Store
from onewrite.testing.taps.traffic import Request

TOKEN = "ClientRequestToken"  # noqa: S105  # the name of an argument
# botocore gives these a token of its own if they have none, and sends the same token when it sends the request again.
TAKES_TOKEN = frozenset({"TransactWriteItems", "ExecuteTransaction"})

_CONTENT = ("TransactItems", "TransactStatements")


def without_token(request: Request) -> Request:
    return replace(request, arguments={name: value for name, value in request.arguments.items() if name != TOKEN})


def answer_if_known(store: Store, request: Request, state: State, key: Callable[[Request], int | None]) -> Any:
    """What DynamoDB answers to a request whose token it remembers, or None if it does not."""
    token, content = token_of(request, key)
    remembered = dict(state.tokens)
    if token not in remembered:
        return None
    if content is None or remembered[token] != content:
        text = "The request uses the same client token as a previous, but non-identical request."
        raise client_error(store, request, "IdempotentParameterMismatchException", text)
    return {"ResponseMetadata": {"RequestId": "", "HTTPStatusCode": 200, "HTTPHeaders": {}, "RetryAttempts": 0}}


def token_of(request: Request, key: Callable[[Request], int | None]) -> tuple[str, int | None]:
    """The token, and the key of what must be the same whenever it is used."""
    content = {name: value for name, value in request.arguments.items() if name in _CONTENT}
    return str(request.arguments[TOKEN]), key(replace(request, arguments=content))
