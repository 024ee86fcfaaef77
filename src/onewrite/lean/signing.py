"""AWS Signature Version 4 of a request to `/` without a query. Pure.

The rules: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from time import gmtime, strftime
from typing import NamedTuple

_ALGORITHM = "AWS4-HMAC-SHA256"


class SigningKeys(NamedTuple):
    """The keys that sign a request. `session_token`: of temporary credentials."""

    access_key: str
    secret_key: str
    session_token: str | None


class Signer:
    """Signs with the keys of one identity, for one region and service. Each day's key is derived once."""

    def __init__(self, keys: SigningKeys, region: str, service: str) -> None:
        self._keys = keys
        self._region, self._service = region, service
        # Threads need no lock, because both are replaced as a whole.
        self._today = _Day("", "", b"")
        self._moment = (-1, "")

    def sign(self, method: str, headers: Mapping[str, str], body: bytes, now: float) -> dict[str, str]:
        """Return these headers and those of the signature, which signs all of them. Their names must be in lower case."""
        moment = self._format_time(int(now))
        signed_headers = {**headers, "x-amz-date": moment}
        if self._keys.session_token:
            signed_headers["x-amz-security-token"] = self._keys.session_token
        day = self._find_day(moment[:8])
        names, canonical_request = build_canonical_request(method, signed_headers, body)
        string_to_sign = f"{_ALGORITHM}\n{moment}\n{day.scope}\n{sha256(canonical_request.encode()).hexdigest()}"
        signature = hmac.digest(day.key, string_to_sign.encode(), "sha256").hex()
        authorization = (
            f"{_ALGORITHM} Credential={self._keys.access_key}/{day.scope}, SignedHeaders={names}, Signature={signature}"
        )
        return {**signed_headers, "authorization": authorization}

    def _format_time(self, second: int) -> str:
        """Return the time in AWS's format, which is formatted once a second."""
        second_before, moment = self._moment
        if second_before != second:
            moment = strftime("%Y%m%dT%H%M%SZ", gmtime(second))
            self._moment = (second, moment)
        return moment

    def _find_day(self, name: str) -> _Day:
        """Return the day of this name, such as 20261128. Derive its key if it isn't the day of the last request."""
        day = self._today
        if day.name != name:
            key = f"AWS4{self._keys.secret_key}".encode()
            for part in (name, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            day = self._today = _Day(name, f"{name}/{self._region}/{self._service}/aws4_request", key)
        return day


class _Day(NamedTuple):
    """The common parts of the signatures of one day."""

    name: str
    scope: str
    key: bytes


def build_canonical_request(method: str, headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    """Return the names of the signed headers, and the canonical request. The headers' names must be in lower case."""
    sorted_headers = sorted(headers.items())
    lines = "".join([f"{name}:{' '.join(value.split())}\n" for name, value in sorted_headers])
    names = ";".join([name for name, _ in sorted_headers])
    return names, f"{method}\n/\n\n{lines}\n{names}\n{sha256(body).hexdigest()}"
