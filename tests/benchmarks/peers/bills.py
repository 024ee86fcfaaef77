"""What messages cost on the wire: their requests, counted by a proxy, and the units that DynamoDB charges for them.

Dynoxide tells the units of what succeeds as DynamoDB does. It tells none of what is refused, as DynamoDB does not either; there
AWS's rule is computed: the size of the item that is there, in whole units, and at least one; twice for each item of a transaction.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Any

from onewrite.dynamodb.values import measure_item, plain_values
from tests.support.mongo_proxy import MongoProxy
from tests.support.proxy import FaultProxy, _Wire

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_READS = frozenset({"GetItem", "BatchGetItem", "Query", "Scan", "TransactGetItems"})
_LENGTH = re.compile(rb"(?i)(\r\ncontent-length: *)\d+")

Size = Callable[[str, Mapping[str, Any]], int]
"""The bytes of the item of this table that has the key of this item, or 0."""


@dataclass(frozen=True, slots=True)
class Bill:
    requests: float = 0
    write_units: float = 0
    read_units: float = 0

    def __add__(self, other: Bill) -> Bill:
        return Bill(self.requests + other.requests, self.write_units + other.write_units, self.read_units + other.read_units)

    def __truediv__(self, messages: int) -> Bill:
        return Bill(self.requests / messages, self.write_units / messages, self.read_units / messages)


def bill(operation: str, request: Mapping[str, Any], answer: Mapping[str, Any], size: Size) -> Bill:
    """Of one request to DynamoDB, which asked for its units, and its answer."""
    error = str(answer.get("__type", "")).rpartition("#")[2]
    if error == "ConditionalCheckFailedException":
        return Bill(1, _units_of_refusal(request, size))
    if error == "TransactionCanceledException":
        writes = [write for action in request["TransactItems"] for write in action.values()]
        return Bill(1, 2 * sum(_units_of_refusal(write, size) for write in writes))
    capacity = answer.get("ConsumedCapacity", [])
    units = sum(entry["CapacityUnits"] for entry in (capacity if isinstance(capacity, list) else [capacity]))
    return Bill(1, 0, units) if operation in _READS else Bill(1, units)


def asking_for_units(request: bytes) -> bytes:
    """The same HTTP request with one more argument. Dynoxide does not check its signature."""
    head, end, body = request.partition(b"\r\n\r\n")
    body = json.dumps({**json.loads(body), "ReturnConsumedCapacity": "TOTAL"}).encode()
    return _LENGTH.sub(rb"\g<1>%d" % len(body), head) + end + body


def _units_of_refusal(write: Mapping[str, Any], size: Size) -> int:
    return max(ceil(size(write["TableName"], write.get("Key") or write["Item"]) / 1024), 1)


class DynamoDBProxy(FaultProxy):
    """Sums up what the requests cost that go through it."""

    def __init__(self, port: int, client: DynamoDBClient) -> None:
        super().__init__("127.0.0.1", port)
        self._bill, self._size = Bill(), _sizes(client)

    def take(self) -> Bill:
        """The sum, which begins at nothing again."""
        with self._lock:
            total, self._bill = self._bill, Bill()
        return total

    def _serve(self, client: socket.socket) -> None:
        near, far = _Wire(client), _Wire(self._connect())
        try:
            while True:
                request, headers = near.message(answer=False)
                far = self._fresh(far)
                far.sock.sendall(asking_for_units(request))
                answer, _ = far.message(answer=True)
                self._charge(headers["x-amz-target"].rpartition(".")[2], request, answer)
                client.sendall(answer)
        finally:
            self._end(far.sock)

    def _charge(self, operation: str, request: bytes, answer: bytes) -> None:
        request_body, answer_body = (json.loads(message.partition(b"\r\n\r\n")[2]) for message in (request, answer))
        cost = bill(operation, request_body, answer_body, self._size)
        with self._lock:
            self._bill += cost


class MongoDBProxy(MongoProxy):
    """Counts the commands that go through it."""

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port)
        self._taken_count = 0

    def take(self) -> Bill:
        new = len(self.operations) - self._taken_count
        self._taken_count += new
        return Bill(new)


def _sizes(client: DynamoDBClient) -> Size:
    """Looks at the items through a client that nobody bills."""

    @cache
    def key_of(table: str) -> list[str]:
        return [attribute["AttributeName"] for attribute in client.describe_table(TableName=table)["Table"]["KeySchema"]]

    def size(table: str, item: Mapping[str, Any]) -> int:
        key = {name: item[name] for name in key_of(table)}
        return measure_item(plain_values(client.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item", {})))

    return size
