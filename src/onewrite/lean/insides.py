"""What botocore has no public name for: each of its private attributes that a lean client asks for is named here, and nowhere else.

tests/lean/test_lean_insides.py holds that they are there, in the botocore that is installed.
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
    """Return the credentials as a provider has made them, which refresh themselves in `get_frozen_credentials()`. None: there are none."""
    return client._request_signer._credentials


def read_account(client: object) -> str | None:
    """Return the account of the credentials, if their provider has told it, as one that assumes a role does."""
    credentials = getattr(getattr(client, "_request_signer", None), "_credentials", None)
    return getattr(credentials, "account_id", None)


def read_session(client: Any) -> Any:
    """Return the HTTP session."""
    return client._endpoint.http_session


def read_verify(session: Any) -> bool | str:
    """Whether and with what TLS is verified, as arguments, configuration and environment have it together."""
    return session._verify  # type: ignore[no-any-return]


def read_socket_options(session: Any) -> list[tuple[int, int, int]]:
    return session._socket_options  # type: ignore[no-any-return]


def find_proxy(session: Any, url: str) -> str | None:
    """Return the proxy that leads to this address, from configuration or environment."""
    return session._proxy_config.proxy_url_for(url)  # type: ignore[no-any-return]


def find_endpoint(
    client: Any, operation: str, arguments: Mapping[str, Any], context: dict[str, Any]
) -> tuple[str, Any, Any]:
    """Return the URL that this request goes to, headers to add, and properties. What the signature depends on is put into `context`.

    It depends on the region, on FIPS and dualstack settings, and on the account of the credentials.
    """
    model = client.meta.service_model.operation_model(operation)
    return client._resolve_endpoint_ruleset(model, arguments, context)  # type: ignore[no-any-return]


def read_handlers(client: Any, event: str) -> list[Callable[..., Any]]:
    """Return what is called when this event is emitted."""
    return list(client.meta.events._emitter._handlers.prefix_search(event))


def read_registrations(client: Any) -> object:
    """Return an object that is another one after each change of the event handlers."""
    return client.meta.events._emitter._lookup_cache


def read_functions(client: Any, methods: Iterable[str]) -> dict[str, Callable[..., Any]]:
    """Return the functions that a request by these methods of botocore's own goes through, by name. Instrumentation puts others in their place."""
    session, signer = read_session(client), client._request_signer
    owners: list[tuple[str, Any, tuple[str, ...]]] = [
        ("the client", client, (*methods, _CALL, "_make_request")),
        ("its Endpoint", client._endpoint, ("make_request", "_send_request", "_get_response", "_send")),
        ("its HTTP session", session, ("send",)),
        ("its RequestSigner", signer, ("handler", "sign")),
    ]
    return {f"{name} of {owner_name}": getattr(owner, name) for owner_name, owner, names in owners for name in names}


def read_fingerprint(client: Any) -> tuple[object, ...]:
    """Return the same objects as long as nobody has put another function in the place of one that instrumentation wraps.

    They are taken from the classes' own dictionaries: what wrapt makes of a function is another object at each access, and equal to it.
    """
    kind = cast("type[Any]", type(client))
    return (
        client.__dict__.get(_CALL),
        kind.__dict__.get(_CALL),
        *[owner.__dict__[name] for owner, name in _WRAPPED],
    )
