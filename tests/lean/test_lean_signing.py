"""Signatures: AWS's published examples, and botocore's own signature of any request, byte for byte."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from onewrite.lean.routes import read_address, read_host
from onewrite.lean.signing import Signer, SigningKeys
from onewrite.lean.wire import Address

# The names, the key and the moment of AWS's test suite for Signature Version 4.
SUITE = SigningKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None)
MOMENT = datetime(2015, 8, 30, 12, 36, tzinfo=UTC).timestamp()
HOST = {"host": "example.amazonaws.com"}

VANILLA = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
URLENCODED = "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
FORM = {"content-type": "application/x-www-form-urlencoded", **HOST}
VECTORS = {
    "get-vanilla": ("GET", HOST, b"", "host;x-amz-date", VANILLA),
    "post-x-www-form-urlencoded": ("POST", FORM, b"Param1=value1", "content-type;host;x-amz-date", URLENCODED),
}


@pytest.mark.parametrize("name", VECTORS)
def test_signatures_match_the_published_examples(name: str) -> None:
    method, headers, body, names, signature = VECTORS[name]
    signed = Signer(SUITE, "us-east-1", "service").sign(method, headers, body, MOMENT)
    credential = "Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request"
    assert signed["authorization"] == f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signature}"


words = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
values = st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.just("\t"), max_size=30)
hosts = st.from_regex(
    r"(https?)://([a-z][a-z0-9-]{0,10}(\.[a-z]{2,5}){0,2}|127\.0\.0\.1|\[::1\])(:[1-9][0-9]{0,3})?/?", fullmatch=True
)
moments = st.integers(0, 4_000_000_000)


@given(
    url=hosts,
    identity=st.builds(SigningKeys, words, words, st.none() | words),
    region=words,
    more=st.dictionaries(st.from_regex(r"x-[a-z0-9]{1,8}", fullmatch=True), values, max_size=3),
    body=st.text(max_size=50).map(lambda text: text.encode("utf-8", "surrogatepass")),
    moment=moments,
)
def test_signature_is_the_same_as_botocores(
    url: str, identity: SigningKeys, region: str, more: dict[str, str], body: bytes, moment: int
) -> None:
    headers = {"content-type": "application/x-amz-json-1.0", "x-amz-target": "DynamoDB_20120810.UpdateItem", **more}
    theirs = _signed_by_botocore(url, identity, region, headers, body, moment)
    ours = Signer(identity, region, "dynamodb").sign("POST", {**headers, "host": read_host(url)}, body, moment)
    del ours["host"]  # botocore leaves this header to the HTTP client, and signs it
    assert {name: value.encode() for name, value in ours.items()} == theirs


def _signed_by_botocore(
    url: str, identity: SigningKeys, region: str, headers: dict[str, str], body: bytes, moment: int
) -> dict[str, bytes]:
    request = AWSRequest(method="POST", url=url, headers=headers, data=body)
    now = datetime.fromtimestamp(moment, UTC)
    clock: dict[str, Any] = {"get_current_datetime": lambda: now} if hasattr(auth, "get_current_datetime") else {}
    with patch.multiple(auth, **(clock or {"datetime": _Datetime(now)})):
        auth.SigV4Auth(Credentials(*identity), "dynamodb", region).add_auth(request)
    return {name.lower(): value.encode() for name, value in request.headers.items()}


class _Datetime:
    """The `datetime` module of a botocore that asks it for the time by itself."""

    def __init__(self, now: datetime) -> None:
        self.datetime = self
        self._now = now

    def utcnow(self) -> datetime:
        return self._now


def test_each_day_has_its_own_signing_key() -> None:
    signer = Signer(SUITE, "us-east-1", "service")
    signer.sign("GET", HOST, b"", MOMENT)
    tomorrow = signer.sign("GET", HOST, b"", MOMENT + 86400)["authorization"]
    assert tomorrow == Signer(SUITE, "us-east-1", "service").sign("GET", HOST, b"", MOMENT + 86400)["authorization"]


@pytest.mark.parametrize(
    ("url", "address", "host"),
    [
        ("http://127.0.0.1:8000", Address("127.0.0.1", 8000, is_encrypted=False), "127.0.0.1:8000"),
        ("https://DynamoDB.example.com/", Address("dynamodb.example.com", 443, is_encrypted=True), None),
        ("https://[::1]:443", Address("::1", 443, is_encrypted=True), "[::1]"),
        ("http://localhost", Address("localhost", 80, is_encrypted=False), "localhost"),
    ],
)
def test_url_is_split_into_address_and_host(url: str, address: Address, host: str | None) -> None:
    assert read_address(url) == address
    assert read_host(url) == (host or address.host)
