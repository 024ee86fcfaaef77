"""Finds settings and handlers of a client that a lean request would bypass. Such a client is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, MethodType
from typing import Any, cast
from urllib.parse import urlsplit

from botocore.client import BaseClient
from botocore.handlers import BUILTIN_HANDLERS
from botocore.httpsession import URLLib3Session

from onewrite.lean.insides import find_proxy, read_event_handlers, read_functions, read_session

# The lean operations of DynamoDB, each with the method of the boto3 client. All of them can be sent twice.
METHODS = {"UpdateItem": "update_item", "PutItem": "put_item", "GetItem": "get_item"}
_SERVICE = "dynamodb"  # in botocore's models and events
_EVENTS = (
    *("provide-client-params", "before-parameter-build", "before-endpoint-resolution", "before-call", "request-created"),
    *("choose-signer", "before-sign", "before-send", "response-received", "before-parse", "needs-retry", "after-call"),
    "after-call-error",
)
# In addition to BUILTIN_HANDLERS, botocore registers these handlers for a client of DynamoDB, in all versions since 1.35. They don't
# change a request, except for signing, retries, and the user agent, which a lean client replaces.
_KNOWN_HANDLERS = frozenset(
    {
        ("request-created", "botocore.signers.RequestSigner.handler"),
        ("request-created", "botocore.useragent.UserAgentString.rebuild_and_replace_user_agent_handler"),
        ("request-created", "botocore.retries.standard.MaxAttemptsSeeder.seed_max_attempts"),
        ("before-parameter-build", "botocore.discovery.block_endpoint_discovery_required_operations"),
        ("needs-retry", "botocore.retryhandler.RetryHandler"),
        ("needs-retry", "botocore.retries.standard.RetryHandler.needs_retry"),
        ("after-call", "botocore.retries.standard.RetryQuotaChecker.release_retry_quota"),
        # Powertools only adds its name to the user agent of every client in the process.
        (
            "request-created",
            "aws_lambda_powertools.shared.user_agent._create_feature_function.<locals>.add_powertools_feature",
        ),
    }
)
_BOTOCORE = "botocore"
_MOTO = "moto"


def find_obstacle(client: Any) -> str | None:
    """Return a setting or handler of this client that a lean request would bypass, or None."""
    if not isinstance(client, BaseClient) or client.meta.service_model.service_name != _SERVICE:
        return f"{type(client).__name__}, which isn't boto3's low-level client of DynamoDB"
    return next(_find_obstacles(client), None)


def _find_obstacles(client: Any) -> Iterator[str]:
    """Yield the settings, replaced functions, and event handlers that a lean request would bypass."""
    yield from _find_setting_obstacles(client)
    for name, function in read_functions(client, METHODS.values()).items():
        if not _is_from_botocore(function):
            # The type of a function that wrapt has wrapped names only wrapt.
            yield f"{describe_function(getattr(function, '_self_wrapper', function))} instead of {name}"
    for event, handler in find_event_handlers(client):
        if not _is_from_botocore(handler) and not _is_from_moto(handler):
            yield f"the event handler {describe_function(handler)}, registered for {event}"


def _find_setting_obstacles(client: Any) -> Iterator[str]:
    """Yield the client's settings that a lean request wouldn't follow."""
    model, config = client.meta.service_model, client.meta.config
    session, url = read_session(client), client.meta.endpoint_url
    retries: dict[str, Any] = config.retries or {}
    if "json" not in (model.metadata["protocol"], *model.metadata.get("protocols", ())):
        yield f"the protocol {model.metadata['protocol']}, but lean requests use JSON"
    if config.signature_version != "v4":
        yield f"the signature version {config.signature_version!r}, but lean requests use version 4"
    if retries.get("mode") == "adaptive":
        yield "the retry mode 'adaptive', which limits the rate of requests"
    if type(session) is not URLLib3Session:
        yield f"{type(session).__module__}.{type(session).__name__} instead of {URLLib3Session.__module__}'s HTTP session"
    elif find_proxy(session, url) is not None:
        yield f"a proxy for {url}, from the client's configuration or from the environment"
    if not is_plain_url(url):
        yield f"the endpoint {url!r}, which isn't only a host and a port"
    for operation in METHODS:
        if model.operation_model(operation).request_compression:
            yield f"the compression of requests that the model requires for {operation}"


def is_plain_url(url: str) -> bool:
    """Whether the URL has only a scheme, a host, and possibly a port, which is all that a lean request uses."""
    parts = urlsplit(url)
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.path in {"", "/"} and not parts.query


def find_event_handlers(client: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the event handlers of a lean request, except those of every botocore client."""
    for operation in METHODS:
        for event in _EVENTS:
            name = f"{event}.{_SERVICE}.{operation}"
            for handler in read_event_handlers(client, name):
                is_known = (event, describe_function(handler)) in _KNOWN_HANDLERS
                if not is_known and not _is_built_in(name, handler):
                    yield name, handler


def _is_built_in(name: str, handler: Callable[..., Any]) -> bool:
    """Whether botocore itself registers the handler for this event. Moto puts its own handler into the same list."""
    events = [entry[0] for entry in BUILTIN_HANDLERS if entry[1] is handler and _is_from_botocore(handler)]
    return any(_is_covered(event.split("."), name.split(".")) for event in events)


def _is_covered(pattern: Sequence[str], event: Sequence[str]) -> bool:
    """Whether a handler of this event is called for that one. A part can be `*`, and matches any further parts."""
    return len(pattern) <= len(event) and all(part in ("*", word) for part, word in zip(pattern, event, strict=False))


def find_stand_ins(client: Any) -> list[Any]:
    """Return Moto's handlers. While its mock is active, it answers every request of every client."""
    return [handler for _, handler in find_event_handlers(client) if _is_from_moto(handler)]


def find_unknown_event_handlers(client: Any) -> list[str]:
    """Return botocore's own handlers that this module doesn't know, such as those of a later version."""
    return [describe_function(handler) for _, handler in find_event_handlers(client) if _is_from_botocore(handler)]


def find_module(function: Any) -> str:
    """Return the module in which a function was written, even if functools.wraps gave it a different one.

    It compares types directly, because a wrapper object, such as wrapt's, claims to be a function.
    """
    while type(function) in (functools.partial, MethodType):
        function = function.func if type(function) is functools.partial else function.__func__
    return str(function.__globals__["__name__"]) if type(function) is FunctionType else type(function).__module__


def describe_function(function: Any) -> str:
    """Return the full name of a function or a bound method. For any other object, return its class's name."""
    kind = cast("type[Any]", type(function))
    if kind is MethodType:
        owner = cast("type[Any]", type(function.__self__))
        return f"{owner.__module__}.{owner.__qualname__}.{function.__name__}"
    definition: Any = function if kind is FunctionType else kind
    return f"{definition.__module__}.{definition.__qualname__}"


def _is_from_botocore(function: Any) -> bool:
    return find_module(function).partition(".")[0] == _BOTOCORE


def _is_from_moto(function: Any) -> bool:
    return find_module(function).partition(".")[0] == _MOTO
