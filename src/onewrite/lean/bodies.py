"""The bodies of requests and responses: boto3's arguments as JSON, and JSON in the form of boto3's results."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, cast
from zlib import crc32

from botocore.parsers import create_parser

from onewrite.lean.wire import Response, UnclearResponse

# --- requests ----------------------------------------------------------------------------------------------------------


def _encode_base64(value: object) -> str:
    if not isinstance(value, bytes | bytearray):
        raise TypeError(f"{type(value).__name__} can't be sent as JSON")
    return b64encode(value).decode()


_encode = json.JSONEncoder(separators=(",", ":"), default=_encode_base64).encode


def build_body(arguments: Mapping[str, Any]) -> bytes:
    """Return the arguments as JSON. Only binary values change. They become base64. Raise if botocore would refuse an argument."""
    for name in ("Key", "Item", "ExpressionAttributeValues"):
        _check_map(arguments.get(name) or {})
    names: Mapping[Any, Any] = arguments.get("ExpressionAttributeNames") or {}
    _check_names((*names, *names.values(), *arguments.get("AttributesToGet", ())))
    return _encode(arguments).encode()


def _check_names(names: Iterable[object]) -> None:
    """Raise if a name isn't a string. JSON would convert it, but botocore refuses it with an explanation."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is a name, but not a string")


def _check_map(values: Mapping[Any, Mapping[str, Any]]) -> None:
    _check_names(values)
    _check_members(values.values())


def _check_members(values: Iterable[Mapping[str, Any]]) -> None:
    """Check the names in the maps among these typed values, at any depth."""
    for value in values:
        if "M" in value:
            _check_map(value["M"])
        elif "L" in value:
            _check_members(value["L"])


# --- responses ---------------------------------------------------------------------------------------------------------

_OK, _BAD_REQUEST = 200, 400  # refusals such as a failed condition have the latter
_EMPTY_BODY = b"{}"
# The error that counts as a response, and is raised as boto3 does. The boto3 client encounters every other error itself.
_REFUSAL = "ConditionalCheckFailedException"
_REQUEST_ID = "x-amzn-requestid"
_CHECKSUM = "x-amz-crc32"  # the header with the CRC-32 of the body


class Parser:
    """Parses responses with botocore's parser, but more strictly, because botocore accepts truncated responses."""

    def __init__(self, service_model: Any) -> None:
        self._model = service_model
        self._parser = create_parser("json")
        self._refusal_shape = service_model.shape_for_error_code(_REFUSAL)

    def parse(self, operation: str, response: Response) -> dict[str, Any]:
        """Return the result of boto3's method, or the response of the error that it raises."""
        _check_response(response)
        if response.status == _OK and response.body == _EMPTY_BODY:
            # The most common response, in the parser's form. The parser itself would take longest for it.
            headers = response.headers
            metadata = {"HTTPStatusCode": response.status, "HTTPHeaders": headers, "RetryAttempts": 0}
            return {"ResponseMetadata": {"RequestId": headers[_REQUEST_ID], **metadata}}
        parser_input = {"body": response.body, "headers": response.headers, "status_code": response.status, "context": {}}
        members = self._parser.parse(parser_input, self._model.operation_model(operation).output_shape)
        if response.status == _BAD_REQUEST:
            code = members.get("Error", {}).get("Code")
            if code != _REFUSAL:
                raise UnclearResponse(f"the response has status {response.status} {code}")
            members.update(self._parser.parse(parser_input, self._refusal_shape))
        members["ResponseMetadata"]["RetryAttempts"] = 0
        return cast("dict[str, Any]", members)


def _check_response(response: Response) -> None:
    """Raise `UnclearResponse` unless the response is complete, and has the status of a success or a refusal."""
    if response.status not in (_OK, _BAD_REQUEST):
        raise UnclearResponse(f"the response has status {response.status}")
    if _REQUEST_ID not in response.headers:
        raise UnclearResponse("the response isn't the service's, because it has no request ID")
    header_sum = response.headers.get(_CHECKSUM)
    if header_sum is not None and header_sum != str(crc32(response.body)):
        raise UnclearResponse("the checksum of the response is wrong")
    if response.body != _EMPTY_BODY and not isinstance(json.loads(response.body), dict):
        raise UnclearResponse("the response is not a JSON object")
