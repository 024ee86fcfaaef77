"""Answers as they come from a socket: in any pieces, whole or broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from zlib import crc32

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onewrite.lean.bodies import Parser, build_body
from onewrite.lean.wire import Response, UnclearResponse, UnreadableResponse, read_response

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDate: now\r\nX-A: 1\r\nx-a: 2\r\n\r\nhello"


def receiver(data: bytes, *sizes: int) -> Callable[[int], bytes]:
    """A socket's `recv`, which gives pieces of these sizes and then all that is left; at the end, the connection's end."""
    held, steps = bytearray(data), [*sizes]

    def receive(most: int) -> bytes:
        size = min(steps.pop(0) if steps else most, most)
        piece = bytes(held[:size])
        del held[:size]
        return piece

    return receive


@given(st.lists(st.integers(1, 40), max_size=60))
def test_response_is_the_same_if_it_arrives_in_pieces(sizes: list[int]) -> None:
    headers = {"content-length": "5", "date": "now", "x-a": "1, 2"}
    assert read_response(receiver(PLAIN, *sizes)) == Response(200, headers, b"hello", is_last=False)


@given(st.integers(0, len(PLAIN) - 1))
def test_partial_response_is_refused(size: int) -> None:
    with pytest.raises(UnclearResponse, match="ended before") as caught:
        read_response(receiver(PLAIN[:size]))
    assert not isinstance(caught.value, UnreadableResponse)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", "begin an HTTP/1.1 response"),
        (b"HTTP/1.1 2x0 OK\r\ncontent-length: 0\r\n\r\n", "isn't a number"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello", "isn't a number"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!", "isn't a number"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n folded\r\n\r\n", "isn't a header"),
        (b"HTTP/1.1 200 OK\r\ncontent-length : 5\r\n\r\nhello", "isn't a header"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n", "content-encoding 'gzip'"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "transfer-encoding 'chunked'"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 200_000, "don't end"),
    ],
)
def test_malformed_response_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(UnreadableResponse, match=why):
        read_response(receiver(data))


CLOSES = b"HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length: 2\r\n\r\n{}"
SAYS_MORE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}x"


@pytest.mark.parametrize("data", [CLOSES, SAYS_MORE], ids=["close", "more behind it"])
def test_connection_is_dropped_if_it_ends_or_has_extra_bytes(data: bytes) -> None:
    assert read_response(receiver(data)).is_last


@pytest.fixture(scope="module")
def parser() -> Parser:
    client = boto3.client("dynamodb", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    client.close()
    return Parser(client.meta.service_model)


def make_response(body: bytes, status: int = 200, **headers: str) -> Response:
    headers = {"x_amzn_requestid": "r", **headers}
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, body, is_last=False)


def test_only_a_matching_checksum_is_accepted(parser: Parser) -> None:
    body = b'{"Attributes":{"n":{"N":"1"}}}'
    right = parser.parse("UpdateItem", make_response(body, x_amz_crc32=str(crc32(body)), date="now"))
    assert right["Attributes"] == {"n": {"N": "1"}}
    assert right["ResponseMetadata"]["HTTPHeaders"]["date"] == "now"
    for wrong in (str(crc32(body) + 1), "x"):
        with pytest.raises(UnclearResponse, match="checksum"):
            parser.parse("UpdateItem", make_response(body, x_amz_crc32=wrong))


@pytest.mark.parametrize("headers", [{}, {"date": "now"}])
def test_empty_response_is_parsed_as_in_botocore(parser: Parser, headers: dict[str, str]) -> None:
    short, parsed = (parser.parse("UpdateItem", make_response(body, 200, **headers)) for body in (b"{}", b"{ }"))
    assert short == parsed
    assert list(short["ResponseMetadata"]) == list(parsed["ResponseMetadata"])


def test_response_without_a_request_id_is_refused(parser: Parser) -> None:
    with pytest.raises(UnclearResponse, match="no request ID"):
        parser.parse("UpdateItem", Response(200, {}, b"{}", is_last=False))


@pytest.mark.parametrize("body", [b"", b'{"Attributes":', b"[]", b"null", b"\xff{}"])
def test_successful_response_that_is_not_an_object_is_refused(parser: Parser, body: bytes) -> None:
    with pytest.raises((UnclearResponse, ValueError)):
        parser.parse("UpdateItem", make_response(body))


@pytest.mark.parametrize("kind", ["ThrottlingException", "ExpiredTokenException", "TransactionConflictException"])
def test_error_response_of_unknown_form_is_refused(parser: Parser, kind: str) -> None:
    with pytest.raises(UnclearResponse, match=kind):
        parser.parse("UpdateItem", make_response(json.dumps({"__type": f"com.amazon#{kind}"}).encode(), 400))


@pytest.mark.parametrize("status", [100, 204, 301, 403, 503])
def test_unexpected_status_is_refused(parser: Parser, status: int) -> None:
    with pytest.raises(UnclearResponse, match=str(status)):
        parser.parse("UpdateItem", make_response(b"{}", status))


@pytest.mark.parametrize(
    "arguments",
    [
        {"Key": {1: {"S": "x"}}},
        {"Item": {"id": {"L": [{"M": {None: {"S": "x"}}}]}}},
        {"ExpressionAttributeNames": {True: "x"}},
        {"Key": {"id": {"S": object()}}},
    ],
)
def test_value_that_json_would_change_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        build_body(arguments)
