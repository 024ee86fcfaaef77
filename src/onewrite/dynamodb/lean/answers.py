"""Requests as JSON, and answers as boto3 gives them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, cast
from zlib import crc32

from botocore.parsers import create_parser

from onewrite.dynamodb.lean.wire import Answer, Unanswered

REFUSED = "ConditionalCheckFailedException"
_YES, _NO = 200, 400
_NOTHING = b"{}"


def _base64(value: object) -> str:
    if not isinstance(value, bytes | bytearray):
        raise TypeError(f"{type(value).__name__} cannot be sent as JSON")
    return b64encode(value).decode()


_encode = json.JSONEncoder(separators=(",", ":"), default=_base64).encode


def body_of(arguments: Mapping[str, Any]) -> bytes:
    """The arguments as DynamoDB's JSON: as they are, but for binary values."""
    for name in ("Key", "Item", "ExpressionAttributeValues"):
        _check_map(arguments.get(name) or {})
    _check_names(arguments.get("ExpressionAttributeNames") or {})
    return _encode(arguments).encode()


def _check_names(names: Iterable[object]) -> None:
    """JSON makes a text of any name. botocore refuses one that is none, and says so when the client is asked."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is a name, and no text")


def _check_map(values: Mapping[Any, Mapping[str, Any]]) -> None:
    _check_names(values)
    _check_members(values.values())


def _check_members(values: Iterable[Mapping[str, Any]]) -> None:
    for value in values:
        if "M" in value:
            _check_map(value["M"])
        elif "L" in value:
            _check_members(value["L"])


class Parser:
    """Reads answers with botocore's own parser, and is stricter: what botocore forgives may be half an answer."""

    def __init__(self, service_model: Any) -> None:
        self._model = service_model
        self._parser = create_parser("json")
        self._refused = service_model.shape_for_error_code(REFUSED)

    def parsed(self, operation: str, answer: Answer) -> dict[str, Any]:
        """What boto3's method returns, or what the response of its error holds."""
        _check(answer)
        if answer.status == _YES and answer.body == _NOTHING:
            return {
                "ResponseMetadata": _metadata(answer)
            }  # the commonest answer to a write, for which the parser would take longest
        response = {"body": answer.body, "headers": answer.headers, "status_code": answer.status, "context": {}}
        found = self._parser.parse(response, self._model.operation_model(operation).output_shape)
        if answer.status == _NO:
            if found.get("Error", {}).get("Code") != REFUSED:
                raise Unanswered(f"it is answered by {answer.status} {found.get('Error', {}).get('Code')}")
            found.update(self._parser.parse(response, self._refused))
        found["ResponseMetadata"]["RetryAttempts"] = 0
        return cast("dict[str, Any]", found)


def _metadata(answer: Answer) -> dict[str, Any]:
    """As botocore's parser makes it."""
    named = {"RequestId": answer.headers["x-amzn-requestid"]} if "x-amzn-requestid" in answer.headers else {}
    return {**named, "HTTPStatusCode": answer.status, "HTTPHeaders": answer.headers, "RetryAttempts": 0}


def _check(answer: Answer) -> None:
    """Only a plain yes, and a no of the kind that a failed condition is, go on from here."""
    if answer.status not in (_YES, _NO):
        raise Unanswered(f"it is answered by {answer.status}")
    told = answer.headers.get("x-amz-crc32")
    if told is not None and told != str(crc32(answer.body)):
        raise Unanswered("the checksum of the answer is wrong")
    if answer.body != _NOTHING and not isinstance(json.loads(answer.body), dict):
        raise Unanswered("the answer is no object")
