"""The definition of a DynamoDB table for a test, and the boto3 session of tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, cast

from onewrite.errors import ConfigurationError


@cache
def boto3_session(region: str) -> Any:
    """Return one session for all calls, because each session reads the service definitions. Its dummy credentials work with all test engines."""
    import boto3

    return boto3.Session(aws_access_key_id="dummy", aws_secret_access_key="dummy", region_name=region)  # noqa: S106  # no secret


def table_request(
    name: str, key: str, *, sort_key: str | None = None, types: Mapping[str, str] | None = None, **native: Any
) -> dict[str, Any]:
    """Return the arguments of `create_table`. The arguments in `native` have precedence. A key attribute is a string unless `types` contains it."""
    check_name("name", name, '"orders", the name of the table')
    check_name("key", key, '"orderId", the name of one attribute; that of a second one is sort_key=')
    if sort_key is not None:
        check_name("sort_key", sort_key, '"line", the name of one attribute')
    schema: list[dict[str, str]] = [{"AttributeName": key, "KeyType": "HASH"}]
    if sort_key is not None:
        schema.append({"AttributeName": sort_key, "KeyType": "RANGE"})
    request: dict[str, Any] = {"TableName": name, "KeySchema": schema, **native}
    request.setdefault("AttributeDefinitions", _define_attributes(request, types or {}))
    if "ProvisionedThroughput" not in request:
        request.setdefault("BillingMode", "PAY_PER_REQUEST")
    return request


def check_name(argument: str, value: object, example: str) -> None:
    """Raise unless the value can be a name. `example` is an example for the error."""
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{argument}={value!r}: expected a string, such as {example}.")


def _define_attributes(request: Mapping[str, Any], types: Mapping[str, str]) -> list[dict[str, str]]:
    key_names = list(dict.fromkeys(_list_key_attributes(request)))
    if unused := [name for name in types if name not in key_names]:
        raise ConfigurationError(f"types= names {', '.join(unused)}, in no key of the table: only keys have a type.")
    return [{"AttributeName": name, "AttributeType": types.get(name, "S")} for name in key_names]


def _list_key_attributes(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the key attributes of the table and its indexes."""
    kinds = ("GlobalSecondaryIndexes", "LocalSecondaryIndexes")
    indexes = (index for kind in kinds for index in cast("list[Mapping[str, Any]]", request.get(kind) or []))
    for definition in (request, *indexes):
        try:
            yield from [part["AttributeName"] for part in definition["KeySchema"]]
        except (KeyError, TypeError) as error:
            raise ConfigurationError(
                f'A table or index needs a KeySchema such as [{{"AttributeName": "day", "KeyType": "HASH"}}], got {definition!r}.'
            ) from error
