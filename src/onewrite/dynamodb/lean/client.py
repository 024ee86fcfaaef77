"""A target for flows that sends the first try of a request itself, and leaves the rest to a boto3 client.

The second try that may follow is safe only where the first one is known again. So only two kinds of requests go this way: reads, and writes
that put the token of their attempt into the entity, by which the flow tells its own write from another's:

- `update_item` with `:ow_a`, which is every guarded write: an update, a fold, a record, the finish of a step, the first request of a delete;
- `update_item` with `:ow_x`, the begin of a step, whose fence is the name of the attempt;
- `put_item`, which a guarded table sends only to create an item, with the token in it.

A takeover and a release of a step, the second request of a delete, a relay's requests and transactions have no token, and go by the client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from operator import is_
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from onewrite.clock import wall_clock
from onewrite.dynamodb.lean.answers import Parser, body_of
from onewrite.dynamodb.lean.insides import (
    METHODS,
    fingerprint_of,
    registrations_of,
    session_of,
    socket_options_of,
    verify_of,
)
from onewrite.dynamodb.lean.pool import Pool
from onewrite.dynamodb.lean.refusals import is_explored, refusal, stand_ins, unknown
from onewrite.dynamodb.lean.routes import Route, Routes, trace
from onewrite.dynamodb.lean.wire import Answer, Wiring
from onewrite.errors import ConfigurationError

_log = logging.getLogger("onewrite")
_TOKENS = (":ow_a", ":ow_x")
_pools: WeakKeyDictionary[Any, Pool] = WeakKeyDictionary()  # one for each client, however many tables are guarded with it


def lean_target(client: Any, table_name: str | None) -> LeanClient:
    """What a guarded table sends its requests to, where it was made with `lean=True`."""
    if table_name is None:
        raise ConfigurationError(
            "lean=True takes the low-level client: give boto3.client('dynamodb') and table_name=, in the place of a Table."
        )
    try:
        return LeanClient(client)
    except AttributeError as error:
        raise ConfigurationError(f"lean=True does not know this version of botocore ({error}): leave out lean.") from error


class LeanClient:
    """Takes the place of a low-level client. What it has no method for is the client's own."""

    def __init__(self, client: Any, clock: Callable[[], float] = wall_clock) -> None:
        found = refusal(client)
        if found is not None:
            raise ConfigurationError(f"lean=True would pass by {found}: leave out lean, or give a client without it.")
        self._client, self._clock = client, clock
        self._look = _Look(client)
        self._routes = Routes(client)
        self._pool = _pool_of(client)
        model = client.meta.service_model
        self._parser = Parser(model)
        self._arguments = {name: frozenset(model.operation_model(name).input_shape.members) for name in METHODS}
        self._head = {name: _head(client, name) for name in METHODS}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def update_item(self, **request: Any) -> Any:
        values: Mapping[str, Any] = request.get("ExpressionAttributeValues", {})
        if any(token in values for token in _TOKENS):
            return self._sent("UpdateItem", request)
        return self._client.update_item(**request)

    def put_item(self, **request: Any) -> Any:
        return self._sent("PutItem", request)

    def get_item(self, **request: Any) -> Any:
        return self._sent("GetItem", request)

    def _sent(self, operation: str, request: dict[str, Any]) -> Any:
        answer = self._tried(operation, request)
        if answer is None:
            return getattr(self._client, METHODS[operation])(**request)
        if "Error" in answer:
            raise self._client.exceptions.from_code(answer["Error"]["Code"])(answer, operation)
        return answer

    def _tried(self, operation: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """What boto3 would return or raise, or None, where nobody knows what became of the request."""
        if self._look.by_client() or not request.keys() <= self._arguments[operation]:
            return None  # an argument that is none is for botocore to refuse: DynamoDB would not look at it
        try:
            return self._parser.parsed(operation, self._exchanged(operation, request))
        except Exception as error:  # the client will meet it too, and retries it or raises it in its own words
            _log.debug("The lean try of %s is left to boto3: %r", operation, error)
            return None

    def _exchanged(self, operation: str, request: dict[str, Any]) -> Answer:
        route, body = self._routes.present(operation, request), body_of(request)
        return self._pool.exchange(route.address, self._bytes(route, operation, body))

    def _bytes(self, route: Route, operation: str, body: bytes) -> bytes:
        unsigned, fixed = self._head[operation]
        headers = {**route.signer.signed("POST", {**fixed, "host": route.host}, body, self._clock()), **trace()}
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return f"POST / HTTP/1.1\r\n{unsigned}{lines}content-length: {len(body)}\r\n\r\n".encode() + body


class _Seen(NamedTuple):
    """How things stood at the last look."""

    registrations: object
    fingerprint: tuple[object, ...]
    stand_ins: list[Any]
    by_client: bool


class _Look:
    """Does every request go by the client for now? It looks again where an event handler or a wrapped function has come or gone."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._said: set[str] = set()
        self._seen = self._looked()

    def by_client(self) -> bool:
        seen = self._seen
        if seen.registrations is not registrations_of(self._client) or not all(
            map(is_, seen.fingerprint, fingerprint_of(self._client))
        ):
            seen = self._seen = self._looked()
        return seen.by_client or any(stub.enabled for stub in seen.stand_ins)

    def _looked(self) -> _Seen:
        registrations, fingerprint = registrations_of(self._client), fingerprint_of(self._client)
        reasons = [found for found in (refusal(self._client), *unknown(self._client)) if found is not None]
        for reason in reasons:
            self._say(reason)
        by_client = bool(reasons) or is_explored(self._client)
        return _Seen(registrations, fingerprint, stand_ins(self._client), by_client)

    def _say(self, reason: str) -> None:
        if reason not in self._said:
            self._said.add(reason)
            _log.warning(
                "While there is %s, a lean table sends its requests by the boto3 client. Said once for this store.", reason
            )


def _head(client: Any, operation: str) -> tuple[str, dict[str, str]]:
    """The lines that are not signed, and the headers that are signed and the same in every request."""
    model = client.meta.service_model
    agent = " ".join(client.meta.config.user_agent.split())
    signed = {
        "content-type": f"application/x-amz-json-{model.metadata['jsonVersion']}",
        "x-amz-target": f"{model.metadata['targetPrefix']}.{operation}",
    }
    return f"user-agent: {agent}\r\naccept-encoding: identity\r\n", signed


def _pool_of(client: Any) -> Pool:
    pool = _pools.get(client)
    if pool is None:
        config, session = client.meta.config, session_of(client)
        wiring = Wiring(
            connect_timeout=config.connect_timeout,
            read_timeout=config.read_timeout,
            socket_options=socket_options_of(session),
            verify=verify_of(session),
            client_certificate=config.client_cert,
        )
        pool = _pools[client] = Pool(wiring, config.max_pool_connections)
    return pool
