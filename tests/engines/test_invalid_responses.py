"""A response that something between this process and DynamoDB made is never taken for a write that happened, or for an empty table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

import boto3
import pytest
from aiobotocore.session import get_session
from botocore.stub import Stubber

from onewrite import Applied, InvalidResponse, Message, Outbox, SeenIds
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.outbox import Relay

sdk: Any = boto3  # its types know two services
KEY: dict[str, Any] = {"Key": {"orderId": "o"}}
ADD: dict[str, Any] = {**KEY, "UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}
PUT: dict[str, Any] = {"Item": {"orderId": "o"}}
DUMMIES: dict[str, Any] = {"region_name": "eu-west-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
M1 = Message("m1")


class Page(NamedTuple):
    """What a proxy answers to every request."""

    status: int
    body: bytes
    content_type: str = "text/html"


PAGES = [
    pytest.param(Page(200, b"<html>Log in</html>"), id="login page"),
    pytest.param(Page(200, b""), id="empty"),
    pytest.param(Page(204, b""), id="no content"),
    pytest.param(Page(200, b"{}", "application/json"), id="JSON"),
]


@contextmanager
def serving(page: Page) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # http.server calls it by this name
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(page.status)
            self.send_header("Content-Type", page.content_type)
            if page.status == 200:
                self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            self.wfile.write(page.body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def open_table(url: str, **options: Any) -> GuardedTable:
    client: Any = sdk.client("dynamodb", endpoint_url=url, **DUMMIES)
    return GuardedTable(client, SeenIds(), table_name="orders", **options)


OPENERS: dict[str, Callable[[str], GuardedTable]] = {
    "client": open_table,
    "lean": lambda url: open_table(url, lean=True),
    "table": lambda url: GuardedTable(sdk.resource("dynamodb", endpoint_url=url, **DUMMIES).Table("orders"), SeenIds()),
}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS)
def test_response_of_something_else_is_not_an_outcome(page: Page, opener: Callable[[str], GuardedTable]) -> None:
    with serving(page) as url:
        orders = opener(url)
        calls: list[tuple[Callable[..., Any], dict[str, Any]]] = [
            (orders.update_item, ADD),
            (orders.put_item, PUT),
            (orders.remember, KEY),
            (orders.preview, KEY),
        ]
        for call, arguments in calls:
            with pytest.raises(InvalidResponse, match=f"HTTP status {page.status} and no x-amzn-RequestId"):
                call(M1, **arguments)
        with pytest.raises(InvalidResponse):
            orders.get_item(**KEY)


@pytest.mark.parametrize("page", PAGES)
def test_asynchronous_store_refuses_the_response_too(page: Page) -> None:
    async def update(url: str) -> None:
        async with get_session().create_client("dynamodb", endpoint_url=url, **DUMMIES) as client:
            await AsyncGuardedTable(client, SeenIds(), table_name="orders").update_item(M1, **ADD)

    with serving(page) as url, pytest.raises(InvalidResponse):
        asyncio.run(update(url))


def test_relay_finds_no_entity_without_events_in_such_a_response() -> None:
    with serving(Page(200, b"<html>Log in</html>")) as url:
        relay = Relay(open_table(url, outbox=Outbox("shop")), lambda events: events)
        with pytest.raises(InvalidResponse):
            relay.flush(**KEY)
        with pytest.raises(InvalidResponse):
            relay.sweep()


@pytest.mark.parametrize("response", [{}, {"ResponseMetadata": {"HTTPStatusCode": 200}}])
def test_stubbed_client_needs_no_request_id(response: dict[str, Any]) -> None:
    client: Any = sdk.client("dynamodb", **DUMMIES)
    with Stubber(client) as stubber:
        stubber.add_response("update_item", response)
        assert isinstance(GuardedTable(client, SeenIds(), table_name="orders").update_item(M1, **ADD), Applied)
