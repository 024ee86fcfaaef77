"""What the explorer asks of a boto3 or aiobotocore client beside its requests, and how it makes another that is connected alike."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_PLAIN = "dynamodb-attr-value-input"  # the handler by which boto3's resources make a client take plain values


def service_of(client: Any) -> str:
    return client.meta.service_model.service_name  # type: ignore[no-any-return]  # a client is of any type here


def is_dynamodb(client: Any) -> bool:
    return service_of(client) == "dynamodb"


def takes_plain_values(client: Any) -> bool:
    """Is it the client of a resource or a Table? A client of its own takes typed values, such as {"S": "text"}."""
    return _PLAIN in client.meta.events._emitter._unique_id_handlers  # noqa: SLF001  # botocore has no public name for these either


def twin_of(client: Any, *, plain: bool = False) -> Any:
    """A blocking client of the same service, with the same endpoint, region and credentials."""
    credentials = client._request_signer._credentials  # noqa: SLF001  # botocore has no public name for them
    known = (credentials.access_key, credentials.secret_key, credentials.token)
    return _made(service_of(client), client.meta.region_name, client.meta.endpoint_url, known, plain)


@lru_cache(maxsize=32)
def _made(service: str, region: str, endpoint: str, credentials: tuple[str, str, str | None], plain: bool) -> Any:  # noqa: FBT001  # private
    session: Any = _session(*credentials)
    made = (session.resource if plain else session.client)(service, region_name=region, endpoint_url=endpoint)
    return made.meta.client if plain else made


@lru_cache(maxsize=8)
def _session(access_key: str, secret_key: str, token: str | None) -> Any:
    """A session is slow to make, because it reads the definitions of the services."""
    import boto3  # noqa: PLC0415  # a test on MongoDB may run without boto3

    return boto3.Session(aws_access_key_id=access_key, aws_secret_access_key=secret_key, aws_session_token=token)
