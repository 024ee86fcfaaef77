from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator

import pytest

from demo import MongoShop
from demo.web import PageServer

TURN = json.dumps({"restart": False, "kill": [], "turn": False})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with PageServer(MongoShop) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def ask(port: int, method: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, "/", TURN, headers)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:{port}", "Origin": "http://localhost:{port}"}, 200),
        ({"Host": "shop.example:{port}"}, 403),
        ({"Host": "127.0.0.1"}, 403),
        ({"Origin": "http://shop.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_demo_serves_its_own_page_only(method: str, headers: dict[str, str], status: int, port: int) -> None:
    assert ask(port, method, {name: value.format(port=port) for name, value in headers.items()}) == status
