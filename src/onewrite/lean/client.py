"""A client that sends the first attempt of a request itself, and leaves the rest to a boto3 client.

Only requests that can be sent twice go this way, because the effect of a failed first attempt is unknown. `dynamodb/lean.py` names these
requests, and explains why a second one is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from logging import DEBUG, WARNING
from operator import is_
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from onewrite.core.clock import wall_clock
from onewrite.core.log import log
from onewrite.errors import ConfigurationError
from onewrite.lean.bodies import Parser, build_body
from onewrite.lean.insides import read_fingerprint, read_registrations, read_session, read_socket_options, read_verify
from onewrite.lean.pool import Pool
from onewrite.lean.refusals import METHODS, find_obstacle, find_stand_ins, find_unknown_event_handlers
from onewrite.lean.routes import Route, Routes, make_trace_headers
from onewrite.lean.wire import UnreadableResponse, Wiring

# The number of consecutive unreadable responses after which lean requests stop. One can be a proxy's error page; three suggest that
# every response is unreadable.
_MAX_UNREADABLE = 3
_pools: WeakKeyDictionary[Any, Pool] = WeakKeyDictionary()  # one for each client, which its lean clients share


class LeanClient:
    """Replaces a low-level client. All other attributes are that client's own.

    A subclass has a method for each lean request.
    """

    def __init__(self, client: Any, clock: Callable[[], float] = wall_clock) -> None:
        try:
            obstacle = find_obstacle(client)
            if obstacle is not None:
                raise ConfigurationError(f"lean=True would bypass {obstacle}. Omit lean, or pass a client without it.")
            self._client, self._clock = client, clock
            self.client_check = ClientCheck(client)
            self._routes = Routes(client)
            self._pool = _find_pool(client)
            model = client.meta.service_model
            self._parser = Parser(model)
            inputs = {name: model.operation_model(name).input_shape.members for name in METHODS}
            self._types = {
                name: {argument: _TYPES.get(shape.type_name, ()) for argument, shape in members.items()}
                for name, members in inputs.items()
            }
            self._heads = {name: _make_head(client, name) for name in METHODS}
            self._unreadable_count = 0  # consecutive unreadable responses
        except AttributeError as error:
            raise ConfigurationError(f"lean=True doesn't support this version of botocore ({error}). Omit lean.") from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def _send(self, operation: str, request: dict[str, Any]) -> Any:
        """Return the response of boto3's method, or raise its error. If the lean attempt can't be made or fails, the client sends the request."""
        response = None
        if self._can_be_lean(operation, request):
            try:
                route = self._routes.find_route(operation, request)
                reply = self._pool.exchange(route.address, self._build_request(route, operation, request))
                self._unreadable_count = 0
                response = self._parser.parse(operation, reply)
            except Exception as error:  # the client encounters the cause too, and retries or raises it
                self._log_failure(operation, error)
        if response is None:
            return getattr(self._client, METHODS[operation])(**request)
        if "Error" in response:
            raise self._client.exceptions.from_code(response["Error"]["Code"])(response, operation)
        return response

    def _can_be_lean(self, operation: str, request: dict[str, Any]) -> bool:
        """Whether a lean attempt of this request has the same effect as the client's."""
        if self._unreadable_count >= _MAX_UNREADABLE or self.client_check.must_use_client():
            return False
        # botocore refuses an argument that is None or has a wrong type. The service would ignore it, like any null.
        types = self._types[operation]
        for name, value in request.items():  # noqa: SIM110  # a generator takes twice the time
            if not isinstance(value, types.get(name, ())):
                return False
        return True

    def _log_failure(self, operation: str, error: Exception) -> None:
        """Log the failure of a lean attempt. After several unreadable responses in a row, make no more lean attempts.

        If no response is readable, each request would be sent twice, and writes would cost twice as much.
        """
        self._unreadable_count += isinstance(error, UnreadableResponse)
        if self._unreadable_count < _MAX_UNREADABLE:
            log(DEBUG, "The lean attempt of %s failed (%r). The boto3 client sends the request.", operation, error)
        else:
            text = "A lean table can't read the responses (%s). From now on, the boto3 client sends its requests."
            log(WARNING, text, error)

    def _build_request(self, route: Route, operation: str, request: dict[str, Any]) -> bytes:
        """Return the signed HTTP request."""
        unsigned_lines, fixed_headers = self._heads[operation]
        body = build_body(request)
        headers = {
            **route.signer.sign("POST", {**fixed_headers, "host": route.host}, body, self._clock()),
            **make_trace_headers(),  # not signed, as in botocore
        }
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return f"POST / HTTP/1.1\r\n{unsigned_lines}{lines}content-length: {len(body)}\r\n\r\n".encode() + body


def _find_pool(client: Any) -> Pool:
    """Return the client's pool. All lean clients of one boto3 client share it."""
    if client not in _pools:
        config, session = client.meta.config, read_session(client)
        wiring = Wiring(
            connect_timeout=config.connect_timeout,
            read_timeout=config.read_timeout,
            socket_options=read_socket_options(session),
            verify=read_verify(session),
            client_certificate=config.client_cert,
        )
        _pools[client] = Pool(wiring, client)
    return _pools[client]


class _View(NamedTuple):
    """The state of the client at the last check."""

    registrations: object
    fingerprint: tuple[object, ...]
    stand_ins: list[Any]
    must_use_client: bool


class ClientCheck:
    """The check of whether the client must send every request for now. It's repeated if event handlers or wrapped functions change."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._reasons: set[str] = set()
        self._view = self._inspect_client()

    def must_use_client(self) -> bool:
        """Whether the client must send the next request. Check it again if something has changed."""
        view = self._view
        is_current = view.registrations is read_registrations(self.client) and all(
            map(is_, view.fingerprint, read_fingerprint(self.client))
        )
        if not is_current:
            view = self._view = self._inspect_client()
        return view.must_use_client or any(stub.enabled for stub in view.stand_ins)

    def _inspect_client(self) -> _View:
        """Return the present state of the client. Log each new reason why the client must send the requests."""
        client = self.client
        registrations, fingerprint = read_registrations(client), read_fingerprint(client)
        obstacles = find_obstacle(client), *find_unknown_event_handlers(client)
        reasons = [reason for reason in obstacles if reason is not None]
        for reason in reasons:
            self._log_reason(reason)
        return _View(registrations, fingerprint, find_stand_ins(client), bool(reasons))

    def _log_reason(self, reason: str) -> None:
        """Log the reason, unless it was logged before."""
        if reason not in self._reasons:
            self._reasons.add(reason)
            text = "While there is %s, a lean table sends its requests through the boto3 client. This is logged once for each cause."
            log(WARNING, text, reason)


# The types that botocore accepts for an argument.
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "map": dict,
    "list": (list, tuple),
}


def _make_head(client: Any, operation: str) -> tuple[str, dict[str, str]]:
    """Return the unsigned lines, and the signed headers that are the same in every request."""
    model = client.meta.service_model
    agent = " ".join(client.meta.config.user_agent.split())
    signed_headers = {
        "content-type": f"application/x-amz-json-{model.metadata['jsonVersion']}",
        "x-amz-target": f"{model.metadata['targetPrefix']}.{operation}",
    }
    return f"user-agent: {agent}\r\naccept-encoding: identity\r\n", signed_headers
