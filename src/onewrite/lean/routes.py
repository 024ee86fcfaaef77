"""The address and the signer of a request, read from the client whenever its credentials change."""

from __future__ import annotations

from collections.abc import Mapping
from os import environ
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from botocore.handlers import add_recursion_detection_header

from onewrite.lean.insides import find_endpoint, read_credentials
from onewrite.lean.refusals import is_plain_url
from onewrite.lean.signing import Signer, SigningKeys
from onewrite.lean.wire import Address

Endpoint: TypeAlias = tuple[str, Any, Any]
"""A URL, headers to add, and properties."""
_PORTS = {"http": 80, "https": 443}


class UnknownRoute(Exception):
    """Raised if the client's requests use a route that lean requests don't support."""


class Route(NamedTuple):
    """The address and signer of all requests with these credentials to one table."""

    keys: SigningKeys
    table: str
    address: Address
    host: str  # the value of the header
    signer: Signer


class Routes:
    """The current route of a client's requests."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._last_route: Route | None = None

    def find_route(self, operation: str, arguments: Mapping[str, Any]) -> Route:
        """Return the current route. It reads the frozen credentials each time, which refreshes them before they expire."""
        credentials = read_credentials(self._client)
        if credentials is None:
            raise UnknownRoute("the client has no credentials")
        snapshot, route = credentials.get_frozen_credentials(), self._last_route
        keys = SigningKeys(snapshot.access_key, snapshot.secret_key, snapshot.token)
        if route is None or route.keys != keys or route.table != arguments.get("TableName", ""):
            context: dict[str, Any] = {}
            endpoint = find_endpoint(self._client, operation, arguments, context)
            route = self._last_route = self._make_route(keys, arguments, endpoint, context)
        return route

    def _make_route(
        self, keys: SigningKeys, arguments: Mapping[str, Any], endpoint: Endpoint, context: Mapping[str, Any]
    ) -> Route:
        """Return the route to an endpoint. `context`: the parameters of the signature. Raise `UnknownRoute` if it isn't supported."""
        url, headers, _ = endpoint
        if headers or not is_plain_url(url) or context.get("auth_type", "v4") != "v4":
            raise UnknownRoute(f"requests to {url} need their own authentication")
        if not f"{keys.access_key}{keys.session_token or ''}".isprintable():
            raise UnknownRoute("the credentials contain characters that a header can't have")
        signing, meta = context.get("signing", {}), self._client.meta
        region = signing.get("region", meta.region_name)
        signer = Signer(keys, region, signing.get("signing_name", meta.service_model.signing_name))
        return Route(keys, arguments.get("TableName", ""), read_address(url), read_host(url), signer)


def read_address(url: str) -> Address:
    """Return the address of a URL."""
    parts = urlsplit(url)
    return Address(parts.hostname or "", parts.port or _PORTS[parts.scheme], is_encrypted=parts.scheme == "https")


def read_host(url: str) -> str:
    """Return the value of the Host header, without a default port."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:  # an IPv6 address
        host = f"[{host}]"
    return host if parts.port in (None, _PORTS[parts.scheme]) else f"{host}:{parts.port}"


def make_trace_headers() -> dict[str, str]:
    """Return the headers that name the Lambda invocation of a request, as botocore adds them."""
    headers: dict[str, str] = {}
    if "_X_AMZN_TRACE_ID" in environ:  # checked first, because it only exists on Lambda
        add_recursion_detection_header({"headers": headers})
    return headers
