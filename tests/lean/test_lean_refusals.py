"""A lean table refuses what it would pass by, and sends by the client what comes later."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import product
from typing import Any

import boto3
import botocore.client
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.endpoint import Endpoint
from botocore.exceptions import ParamValidationError
from botocore.handlers import disable_signing
from botocore.httpsession import URLLib3Session
from botocore.validate import ParamValidator

from onewrite import ConfigurationError, HighWaterMark, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.lean import LeanTableClient
from onewrite.lean import insides
from onewrite.lean.refusals import find_obstacle, find_unknown_event_handlers
from onewrite.lean.routes import Routes, UnknownRoute
from onewrite.testing.servers.engines import REGION
from tests.support.seams import goes_by_client

wrapt: Any = import_module("wrapt")  # it has no types

ENDPOINT = "http://127.0.0.1:9"  # nobody listens there


@contextmanager
def made(*, url: str | None = ENDPOINT, service: str = "dynamodb", **config: Any) -> Iterator[Any]:
    sdk: Any = boto3  # the type of a client depends on the service's name
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    client = sdk.client(service, region_name=REGION, endpoint_url=url, config=Config(**config), **keys)
    yield client
    client.close()


def lean(client: Any) -> GuardedTable:
    return GuardedTable(client, HighWaterMark(), table_name="orders", lean=True)


@pytest.mark.parametrize("mode", ["legacy", "standard"])
def test_default_boto3_client_has_no_bypassed_settings(mode: str) -> None:
    with made(url=None, retries={"mode": mode}) as client:
        assert find_obstacle(client) is None
        assert find_unknown_event_handlers(client) == []


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"signature_version": UNSIGNED}, "lean requests use version 4"),
        ({"signature_version": "bearer"}, "lean requests use version 4"),
        ({"retries": {"mode": "adaptive"}}, "'adaptive'"),
        ({"proxies": {"http": "http://proxy:3128"}}, "a proxy for http://127.0.0.1:9"),
        ({"url": "http://127.0.0.1:9/path"}, "only a host and a port"),
        ({"service": "dynamodbstreams"}, "a client for dynamodbstreams"),
    ],
)
def test_bypassed_settings_are_refused(config: dict[str, Any], why: str) -> None:
    with made(**config) as client, pytest.raises(ConfigurationError, match=why):
        lean(client)


def test_a_proxy_from_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with made(url="https://dynamodb.example.com") as client, pytest.raises(ConfigurationError, match="a proxy"):
        lean(client)
    monkeypatch.setenv("NO_PROXY", "example.com")
    with made(url="https://dynamodb.example.com") as client:
        lean(client)


def _foreign(**_: Any) -> None:
    """What a user registers."""


class _Foreign:
    def method(self, **_: Any) -> None:
        """The same, bound."""

    def __call__(self, **_: Any) -> None:
        """The same, as an object."""


EVENTS = {
    "provide-client-params": _foreign,
    "before-parameter-build.dynamodb": _Foreign().method,
    "before-endpoint-resolution": _Foreign(),
    "before-call.*.PutItem": _foreign,
    "request-created.dynamodb.GetItem": functools.partial(_foreign, more=1),
    "before-send": functools.wraps(disable_signing)(lambda **_: None),
    "needs-retry.dynamodb": _foreign,
    "after-call-error": _foreign,
}


@pytest.mark.parametrize("event", EVENTS)
def test_a_foreign_event_handler_is_refused_by_name(event: str) -> None:
    with made() as client:
        client.meta.events.register(event, EVENTS[event])
        with pytest.raises(ConfigurationError, match=r"the event handler \S+, registered for \S+\.dynamodb\.(Up|Pu|Ge)"):
            lean(client)


def test_misplaced_botocore_handler_sends_all_requests_through_the_client(caplog: pytest.LogCaptureFixture) -> None:
    with made() as client, caplog.at_level(logging.WARNING, "onewrite"):
        client.meta.events.register("choose-signer.dynamodb", disable_signing)
        assert not goes_lean(client)
    assert "disable_signing" in caplog.text


def _instrumented(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    return wrapped(*args, **kwargs)


@pytest.mark.parametrize(
    ("owner", "name"), [(botocore.client.BaseClient, "_make_api_call"), (Endpoint, "make_request"), (URLLib3Session, "send")]
)
def test_instrumentation_of_a_class_is_refused_by_name(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with made() as client:
        monkeypatch.setattr(owner, name, wrapt.FunctionWrapper(getattr(owner, name), _instrumented))
        with pytest.raises(ConfigurationError, match=rf"test_lean_refusals\._instrumented instead of {name}"):
            lean(client)


def test_a_wrapped_method_of_one_client_is_refused() -> None:
    with made() as client:
        client.update_item = functools.partial(client.update_item, ReturnConsumedCapacity="TOTAL")
        lean(client)  # a partial of botocore's own function bypasses nothing that is not in the request
        client.update_item = lambda **_: {}
        with pytest.raises(ConfigurationError, match="update_item of the client"):
            lean(client)


def test_custom_http_session_is_refused() -> None:
    class Session(URLLib3Session):
        """One of a user's own."""

    with made() as client:
        client._endpoint.http_session = Session()
        with pytest.raises(ConfigurationError, match="Session instead of botocore"):
            lean(client)


def test_unsupported_protocol_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with made() as client:
        monkeypatch.setitem(client.meta.service_model.metadata, "protocol", "smithy-rpc-v2-cbor")
        monkeypatch.setitem(client.meta.service_model.metadata, "protocols", ["smithy-rpc-v2-cbor"])
        with pytest.raises(ConfigurationError, match="JSON"):
            lean(client)


def test_botocore_with_changed_internals_is_refused() -> None:
    with made() as client:
        del client._endpoint.http_session._socket_options
        with pytest.raises(ConfigurationError, match="doesn't support this version"):
            lean(client)


def test_a_table_is_refused() -> None:
    resource = boto3.resource("dynamodb", region_name=REGION, aws_access_key_id="key", aws_secret_access_key="secret")
    with pytest.raises(ConfigurationError, match="requires a low-level client"):
        GuardedTable(resource.Table("orders"), SeenIds(), lean=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(ConfigurationError, match="belongs to a boto3 resource"):
        lean(resource.meta.client)
    resource.meta.client.close()


def goes_lean(client: Any) -> bool:
    return not goes_by_client(LeanTableClient(client))


def test_later_handler_sends_requests_through_the_client_until_removed(caplog: pytest.LogCaptureFixture) -> None:
    with made() as client:
        target = LeanTableClient(client)
        assert not goes_by_client(target)
        for _ in range(2):
            client.meta.events.register("before-send", _foreign)
            assert goes_by_client(target)
            client.meta.events.unregister("before-send", _foreign)
            assert not goes_by_client(target)
    (record,) = caplog.records
    assert "_foreign" in record.getMessage()


@pytest.mark.parametrize("where", ["BaseClient", "its class", "the client"])
def test_later_instrumentation_is_detected(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with made() as client:
        target = LeanTableClient(client)
        owner = {"BaseClient": botocore.client.BaseClient, "its class": type(client), "the client": client}[where]
        wrapped = wrapt.FunctionWrapper(getattr(owner, "_make_api_call"), _instrumented)  # noqa: B009  # the owner's, by its name
        with monkeypatch.context() as patch:
            patch.setattr(owner, "_make_api_call", wrapped)
            assert goes_by_client(target)
        assert not goes_by_client(target)


def test_requests_without_a_token_are_sent_through_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A takeover, a release, the second request of a delete, a transaction."""
    with made() as client:
        target = LeanTableClient(client)
        monkeypatch.setattr(target, "_send", _never)
        sent: list[dict[str, Any]] = []
        monkeypatch.setattr(client, "update_item", lambda **request: sent.append(request))
        target.update_item(ExpressionAttributeValues={":old": {"S": "fence"}})
        target.update_item(TableName="orders")
        assert len(sent) == 2
        assert target.transact_write_items == client.transact_write_items
        assert target.meta is client.meta


_VALUES: list[Any] = [None, 1, 1.5, True, "x", b"x", ["x"], [None], [b"x"], {"x": "y"}, {"x": None}, {"x": b"x"}, {1: "x"}]
_WHOLE_REQUESTS = {
    "UpdateItem": {"TableName": "t", "Key": {"id": {"S": "e"}}},
    "PutItem": {"TableName": "t", "Item": {"id": {"S": "e"}}},
    "GetItem": {"TableName": "t", "Key": {"id": {"S": "e"}}},
}


@pytest.mark.parametrize("operation", _WHOLE_REQUESTS)
def test_invalid_argument_is_refused_by_botocore(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with made() as client:
        target = LeanTableClient(client)
        shape = client.meta.service_model.operation_model(operation).input_shape
        sent: list[bytes] = []
        monkeypatch.setattr(target._pool, "exchange", lambda _, data: sent.append(data))
        refused = 0
        for name, value in product(shape.members.keys() - {"TableName"}, _VALUES):
            if isinstance(value, dict) and name != "ExpressionAttributeNames":
                continue  # what is in the values, the table has written itself
            request = {**_WHOLE_REQUESTS[operation], name: value}
            if ParamValidator().validate(request, shape).has_errors():
                refused += 1
                with pytest.raises(ParamValidationError, match=name):
                    target._send(operation, request)
        assert sent == []
        assert refused > len(_VALUES)


def _never(*_: Any) -> None:
    raise AssertionError("it went lean")


def test_object_that_is_not_a_botocore_client_is_refused() -> None:
    class Stub:
        """As a library puts in the place of a client."""

        update_item = put_item = get_item = None

    with pytest.raises(ConfigurationError, match="Stub, which isn't boto3's low-level client of DynamoDB"):
        lean(Stub())


@pytest.mark.parametrize(
    "endpoint", [("https://dynamodb.example.com", {"x-more": ["header"]}, {}), ("https://dynamodb.example.com/path", {}, {})]
)
def test_unknown_route_is_refused(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with made() as client:
        monkeypatch.setattr(client, "_resolve_endpoint_ruleset", lambda *_: endpoint)
        with pytest.raises(UnknownRoute, match="need their own authentication"):
            Routes(client).find_route("UpdateItem", {"TableName": "orders"})


def test_credentials_invalid_in_a_header_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with made() as client:
        monkeypatch.setattr(insides.read_credentials(client), "token", "a\r\nx-evil: 1")
        with pytest.raises(UnknownRoute, match="characters"):
            Routes(client).find_route("UpdateItem", {"TableName": "orders"})


def test_requests_are_signed_with_the_clients_current_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with made() as client:
        routes = Routes(client)
        routes.find_route("GetItem", {"TableName": "orders"})
        monkeypatch.setattr(insides.read_credentials(client), "access_key", "other")
        renewed = routes.find_route("GetItem", {"TableName": "orders"})
        assert "Credential=other/" in renewed.signer.sign("POST", {}, b"", 0)["authorization"]
