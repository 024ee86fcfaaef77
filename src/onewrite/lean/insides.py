"""The private attributes of botocore that a lean client uses. No other module of this package uses them.

The tests in tests/lean and tests/engines run lean clients on the installed botocore, and notice if it changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from botocore.client import BaseClient
from botocore.endpoint import Endpoint
from botocore.httpsession import URLLib3Session
from botocore.signers import RequestSigner

_CALL = "_make_api_call"
# The functions that instrumentation wraps.
_WRAPPED: tuple[tuple[type[Any], str], ...] = (
    (BaseClient, _CALL),
    (Endpoint, "make_request"),
    (URLLib3Session, "send"),
    (RequestSigner, "sign"),
)


def read_credentials(client: Any) -> Any:
    """Return the provider's credentials, which refresh themselves in `get_frozen_credentials()`, or None."""
    return client._request_signer._credentials


def read_session(client: Any) -> Any:
    """Return the HTTP session."""
    return client._endpoint.http_session


def read_verify(session: Any) -> bool | str:
    """Return whether TLS is verified, or the path of the CA bundle, from arguments, configuration, and environment."""
    return session._verify  # type: ignore[no-any-return]


def read_socket_options(session: Any) -> list[tuple[int, int, int]]:
    return session._socket_options  # type: ignore[no-any-return]


def find_proxy(session: Any, url: str) -> str | None:
    """Return the proxy for this address, from configuration or environment."""
    return session._proxy_config.proxy_url_for(url)  # type: ignore[no-any-return]


def find_endpoint(
    client: Any, operation: str, arguments: Mapping[str, Any], context: dict[str, Any]
) -> tuple[str, Any, Any]:
    """Return the URL of this request, the headers to add, and properties. `context` gets the signature's parameters.

    The URL depends on the region, the FIPS and dual-stack settings, and the account of the credentials.
    """
    model = client.meta.service_model.operation_model(operation)
    return client._resolve_endpoint_ruleset(model, arguments, context)  # type: ignore[no-any-return]


def read_event_handlers(client: Any, event: str) -> list[Callable[..., Any]]:
    """Return the handlers of this event."""
    return list(client.meta.events._emitter._handlers.prefix_search(event))


def read_registrations(client: Any) -> object:
    """Return an object that is replaced with each change of the event handlers."""
    return client.meta.events._emitter._lookup_cache


def read_functions(client: Any, methods: Iterable[str]) -> dict[str, Callable[..., Any]]:
    """Return the functions of a request by these botocore methods, by name. Instrumentation replaces them."""
    session, signer = read_session(client), client._request_signer
    owners: list[tuple[str, Any, tuple[str, ...]]] = [
        ("the client", client, (*methods, _CALL, "_make_request")),
        ("its Endpoint", client._endpoint, ("make_request", "_send_request", "_get_response", "_send")),
        ("its HTTP session", session, ("send",)),
        ("its RequestSigner", signer, ("handler", "sign")),
    ]
    return {f"{name} of {owner_name}": getattr(owner, name) for owner_name, owner, names in owners for name in names}


def read_fingerprint(client: Any) -> tuple[object, ...]:
    """Return the functions that instrumentation can wrap. The objects are the same until one is replaced.

    They're read from the classes' dictionaries, because a function that wrapt has wrapped is a new, equal object at each access.
    """
    kind = cast("type[Any]", type(client))
    return (
        client.__dict__.get(_CALL),
        kind.__dict__.get(_CALL),
        *[owner.__dict__[name] for owner, name in _WRAPPED],
    )
