"""A client that sends the first try of a request itself, and leaves the rest to a client of boto3.

Only requests that may be sent twice go this way: nobody knows what became of a first try that failed. Which ones these are, and why a second one
is safe, stands with each service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from logging import DEBUG, WARNING
from operator import is_
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from onewrite.core.clock import wall_clock
from onewrite.core.log import log
from onewrite.errors import ConfigurationError
from onewrite.lean.insides import read_fingerprint, read_registrations, read_session, read_socket_options, read_verify
from onewrite.lean.pool import Pool
from onewrite.lean.refusals import find_obstacle, find_stand_ins, find_unknown_handlers
from onewrite.lean.responses import Parser
from onewrite.lean.routes import Route, Routes, make_trace_headers
from onewrite.lean.service import Service
from onewrite.lean.wire import Unreadable, Wiring

# Answers in a row that cannot be read. One may be an error page of a proxy, and three show what all answers are like here.
_UNREADABLE = 3
_pools: WeakKeyDictionary[Any, Pool] = WeakKeyDictionary()  # one for each client, however many lean ones it has


class LeanClient:
    """Takes the place of a low-level client. What it has no method for is that client's own.

    A subclass names its service, and has the methods of those requests that go lean.
    """

    service: ClassVar[Service]

    def __init__(self, client: Any, clock: Callable[[], float] = wall_clock) -> None:
        try:
            obstacle = find_obstacle(self.service, client)
            if obstacle is not None:
                raise ConfigurationError(f"lean=True would pass by {obstacle}: leave out lean, or give a client without it.")
            self._client, self._clock = client, clock
            self._look = _Look(self.service, client)
            self._routes = Routes(self.service, client)
            self._pool = _find_pool(client)
            model, methods = client.meta.service_model, self.service.methods
            self._parser = Parser(self.service, model)
            inputs = {name: model.operation_model(name).input_shape.members for name in methods}
            self._types = {
                name: {argument: _TYPES.get(shape.type_name, ()) for argument, shape in members.items()}
                for name, members in inputs.items()
            }
            self._head = {name: _head(client, name) for name in methods}
            self._unreadable = 0  # answers in a row
        except AttributeError as error:
            raise ConfigurationError(
                f"lean=True does not know this version of botocore ({error}): leave out lean."
            ) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def _send(self, operation: str, request: dict[str, Any]) -> Any:
        answer = None
        if self._goes_lean(operation, request):
            try:
                route = self._routes.present(operation, request)
                reply = self._pool.exchange(route.address, self._bytes(route, operation, request))
                self._unreadable = 0
                answer = self._parser.parse(operation, reply)
            except Exception as error:
                self._leave(operation, error)
        if answer is None:
            return getattr(self._client, self.service.methods[operation])(**request)
        if "Error" in answer:
            raise self._client.exceptions.from_code(answer["Error"]["Code"])(answer, operation)
        return answer

    def _goes_lean(self, operation: str, request: dict[str, Any]) -> bool:
        if self._unreadable >= _UNREADABLE or self._look.by_client():
            return False
        # An argument that is none, or of another type, is for botocore to refuse. The service would not look at it, as at any null.
        types = self._types[operation]
        for name, value in request.items():  # noqa: SIM110  # a generator takes twice the time
            if not isinstance(value, types.get(name, ())):
                return False
        return True

    def _leave(self, operation: str, error: Exception) -> None:
        """Leave the request to the client, because its result is unknown. The client meets the error too, and retries it or raises it in its own words.

        If no answer can be read, each request would be sent twice: writes would be paid for twice, and the messages of each first answer hidden.
        """
        self._unreadable += isinstance(error, Unreadable)
        if self._unreadable < _UNREADABLE:
            log(DEBUG, "The lean try of %s is left to the client: %r", operation, error)
        else:
            text = "No answer can be read by %s (%s): from now on its requests go by the boto3 client."
            log(WARNING, text, self.service.sender, error)

    def _bytes(self, route: Route, operation: str, request: dict[str, Any]) -> bytes:
        unsigned_lines, fixed_headers = self._head[operation]
        body = self.service.body(request)
        headers = {
            **route.signer.sign("POST", {**fixed_headers, "host": route.host}, body, self._clock()),
            **make_trace_headers(),
        }
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return f"POST / HTTP/1.1\r\n{unsigned_lines}{lines}content-length: {len(body)}\r\n\r\n".encode() + body


def _find_pool(client: Any) -> Pool:
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
    """How things stood at the last look."""

    registrations: object
    fingerprint: tuple[object, ...]
    stand_ins: list[Any]
    by_client: bool


class _Look:
    """Whether every request goes by the client for now. It is decided again after an event handler or a wrapped function has come or gone."""

    def __init__(self, service: Service, client: Any) -> None:
        self._service, self._client = service, client
        self._reasons: set[str] = set()
        self._view = self._look_again()

    def by_client(self) -> bool:
        view = self._view
        if view.registrations is not read_registrations(self._client) or not all(
            map(is_, view.fingerprint, read_fingerprint(self._client))
        ):
            view = self._view = self._look_again()
        return view.by_client or any(stub.enabled for stub in view.stand_ins)

    def _look_again(self) -> _View:
        service, client = self._service, self._client
        registrations, fingerprint = read_registrations(client), read_fingerprint(client)
        obstacles = find_obstacle(service, client), *find_unknown_handlers(service, client)
        reasons = [reason for reason in obstacles if reason is not None]
        for reason in reasons:
            self._say(reason)
        return _View(registrations, fingerprint, find_stand_ins(service, client), bool(reasons))

    def _say(self, reason: str) -> None:
        if reason not in self._reasons:
            self._reasons.add(reason)
            text = "While there is %s, %s sends its requests by the boto3 client. Each says so once."
            log(WARNING, text, reason, self._service.sender)


# What botocore takes for an argument.
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "map": dict,
    "list": (list, tuple),
}


def _head(client: Any, operation: str) -> tuple[str, dict[str, str]]:
    """Return the lines that are not signed, and the headers that are signed and the same in every request."""
    model = client.meta.service_model
    agent = " ".join(client.meta.config.user_agent.split())
    signed_headers = {
        "content-type": f"application/x-amz-json-{model.metadata['jsonVersion']}",
        "x-amz-target": f"{model.metadata['targetPrefix']}.{operation}",
    }
    # SQS spoke another protocol before. A botocore that does not know this attribute does not say so either.
    if getattr(model, "is_query_compatible", False):
        signed_headers["x-amzn-query-mode"] = "true"
    return f"user-agent: {agent}\r\naccept-encoding: identity\r\n", signed_headers
