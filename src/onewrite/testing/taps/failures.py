"""The errors that the drivers raise if a request fails, with their classes and contents.

botocore's retries aren't imitated: botocore itself sends the second request, after it has lost its first response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.taps.aws import find_client, make_copy
from onewrite.testing.taps.mongodb import is_pymongo_client
from onewrite.testing.taps.mongodb_methods import RETRYABLE_WRITES
from onewrite.testing.taps.tap import Store, find_kind
from onewrite.testing.taps.traffic import Request, is_single_write, is_transaction


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of a failed request: pymongo's class and its arguments, and botocore's class or the service's error code."""

    pymongo: tuple[Any, ...]
    botocore: str  # the code of the service if there is a `text`, otherwise the class
    text: str = ""  # the text of the service's response
    status: int = 400

    def make_error(self, store: Store, request: Request) -> Exception:
        """Return the error that the store's driver raises if this request fails so."""
        if find_kind(store) != "collection":
            if self.text:
                return make_client_error(store, request, self.botocore, self.text, status=self.status)
            kind = getattr(import_module("botocore.exceptions"), self.botocore)
            return cast("Exception", kind(endpoint_url=find_client(store).meta.endpoint_url))
        errors: Any = import_module("pymongo.errors")
        name, *arguments = self.pymongo
        error = getattr(errors, name)(*arguments)
        if request.is_uncommitted and isinstance(error, errors.ConnectionFailure):
            error._add_error_label("TransientTransactionError")
        return cast("Exception", error)


def _list_error_arguments(
    code: int, name: str, text: str, labels: Sequence[str] = (), kind: str = "OperationFailure"
) -> tuple[Any, ...]:
    """Return pymongo's class for an error of MongoDB, and its arguments."""
    return kind, text, code, {"ok": 0.0, "errmsg": text, "code": code, "codeName": name, "errorLabels": [*labels]}


_NOT_PRIMARY = {"ok": 0.0, "errmsg": "not primary", "code": 10107, "codeName": "NotWritablePrimary"}
_THROUGHPUT = (
    "The level of configured provisioned throughput for the table was exceeded. Consider increasing it with UpdateTable."
)

# The connection closes before the response arrives, or no response arrives in time.
LOST_RESPONSE = Failure(("AutoReconnect", "connection closed"), "ConnectionClosedError")
TIMEOUT = Failure(("NetworkTimeout", "timed out"), "ReadTimeoutError")
# No server accepts the connection, or none accepts it in time.
NO_SERVER = Failure(("ServerSelectionTimeoutError", "connection refused"), "EndpointConnectionError")
NO_CONNECTION = Failure(("NetworkTimeout", "timed out"), "ConnectTimeoutError")
# The server fails, and the driver has given up. On MongoDB, the server is no longer the primary.
SERVER_FAILURE = Failure(
    ("NotPrimaryError", "not primary", _NOT_PRIMARY), "InternalServerError", "Internal server error", 500
)
# MongoDB has made the write, but too few members confirmed it in time.
UNCONFIRMED = Failure(
    ("WTimeoutError", "waiting for replication timed out", 64, {"code": 64, "codeName": "WriteConcernTimeout"}),
    "InternalServerError",
    "Internal server error",
    500,
)
# The server refuses requests because it has too many, in one of three ways, and the driver has given up.
THROTTLED = Failure(
    _list_error_arguments(
        462,
        "IngressRequestRateLimitExceeded",
        "Request rejected: rate limit exceeded",
        ["SystemOverloadedError", "RetryableError"],
    ),
    "ProvisionedThroughputExceededException",
    _THROUGHPUT,
)
SLOWED_DOWN = Failure(
    _list_error_arguments(50, "MaxTimeMSExpired", "operation exceeded time limit", kind="ExecutionTimeout"),
    "ThrottlingException",
    "Rate exceeded",
)
LIMITED = Failure(
    THROTTLED.pymongo, "RequestLimitExceeded", "Throughput exceeds the current throughput limit for your account."
)
# Nothing is sent, because DynamoDB is unavailable, or pymongo's pool has no free connection.
UNAVAILABLE = Failure(
    ("WaitQueueTimeoutError", "Timed out while checking out a connection from connection pool"),
    "ServiceUnavailable",
    "The service is temporarily unavailable.",
    503,
)


def make_cancellation_error(store: Store, request: Request) -> Exception:
    """Return the error for an entity that a concurrent transaction is changing."""
    if find_kind(store) == "collection":
        return make_server_error(
            112, "WriteConflict", "Write conflict: retry the transaction", ["TransientTransactionError"]
        )
    if is_transaction(request):
        others = len(request.arguments["TransactItems"]) - 1
        conflict = {"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
        reasons = [conflict, *[{"Code": "None"}] * others]
        codes = ", ".join(reason["Code"] for reason in reasons)
        text = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
        return make_client_error(store, request, "TransactionCanceledException", text, {"CancellationReasons": reasons})
    if is_single_write(request):
        return make_client_error(store, request, "TransactionConflictException", "Transaction is ongoing for the item")
    raise ConfigurationError(
        f"A transaction never cancels {request.method}: plan cancel_transaction for a single write or for a transaction."
    )


def is_answer(error: Exception) -> bool:
    """Whether the error comes from the server. Otherwise, the driver didn't send the request."""
    # botocore's ReadTimeoutError and ConnectionClosedError have a response too, which is None.
    return getattr(error, "response", None) is not None or hasattr(error, "code")


def driver_retries(store: Store, request: Request) -> bool:
    """Whether the driver sends the request again if the connection breaks. For botocore, `add_second_try` decides."""
    if find_kind(store) != "collection":
        return True
    if getattr(request.arguments.get("session"), "in_transaction", False) or request.method not in RETRYABLE_WRITES:
        return not request.writes
    client = store.database.client
    if not is_pymongo_client(client):
        return True  # a stand-in, treated as a replica set
    servers = client.topology_description.server_descriptions().values()
    return client.options.retry_writes and any(server.retryable_writes_supported for server in servers)


def add_second_try(store: Store) -> Store:
    """Return a store whose driver loses the first response. It sends the request again unless it's limited to one attempt.

    On MongoDB this is the store itself: the server returns the first response again for a retried write.
    """
    if find_kind(store) == "collection":
        return store
    from botocore.exceptions import ConnectionClosedError

    client = make_copy(find_client(store))
    client._endpoint = make_copy(client._endpoint)
    attempt, urls = client._endpoint._do_get_response, list[str]()

    def lose_first(request: Any, operation: Any, context: Any) -> Any:
        result = attempt(request, operation, context)
        if urls:
            return result
        urls.append(request.url)
        error = ConnectionClosedError(endpoint_url=request.url)
        return _discard(cast("Awaitable[object]", result), error) if isinstance(result, Awaitable) else (None, error)

    client._endpoint._do_get_response = lose_first
    return client


async def _discard(result: Awaitable[object], error: Exception) -> tuple[None, Exception]:
    await result
    return None, error


def make_client_error(
    store: Store, request: Request, code: str, text: str, members: Mapping[str, Any] | None = None, *, status: int = 400
) -> Exception:
    """Return the error with the client's own class from `client.exceptions`."""
    response: dict[str, Any] = {
        "Error": {"Code": code, "Message": text},
        "ResponseMetadata": {"RequestId": "", "HTTPStatusCode": status, "HTTPHeaders": {}, "RetryAttempts": 0},
        "message": text,
        **(members or {}),
    }
    return find_client(store).exceptions.from_code(code)(response, request.method)  # type: ignore[no-any-return]  # a client's classes of errors have no types


def make_server_error(code: int, name: str, text: str, labels: Sequence[str]) -> Exception:
    """Return pymongo's error for a response of MongoDB."""
    from pymongo.errors import OperationFailure

    _, *arguments = _list_error_arguments(code, name, text, labels)
    return OperationFailure(*arguments)
