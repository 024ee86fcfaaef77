"""What the drivers raise when a request fails on its way, with the classes and contents that they give it.

A second try by botocore is not imitated: botocore itself makes it, after its first answer has been taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.taps.aws import client_of, copy_of
from onewrite.testing.taps.mongodb_methods import RETRYABLE_WRITES
from onewrite.testing.taps.tap import Store, is_async, kind_of
from onewrite.testing.taps.traffic import Request, is_single_write, is_transaction


def lost_answer_error(store: Store, request: Request) -> Exception:
    """The connection closes before the answer has come, and the driver does not try again."""
    if kind_of(store) == "collection":
        from pymongo.errors import AutoReconnect  # noqa: PLC0415  # a test on DynamoDB may run without pymongo

        return _in_transaction(AutoReconnect("connection closed"), request)
    from botocore.exceptions import ConnectionClosedError  # noqa: PLC0415  # a test on MongoDB may run without boto3

    return ConnectionClosedError(endpoint_url=_url_of(store))


def timeout_error(store: Store, request: Request) -> Exception:
    """No answer comes in time."""
    if kind_of(store) == "collection":
        from pymongo.errors import NetworkTimeout  # noqa: PLC0415  # a test on DynamoDB may run without pymongo

        return _in_transaction(NetworkTimeout("timed out"), request)
    from botocore.exceptions import ReadTimeoutError  # noqa: PLC0415  # a test on MongoDB may run without boto3

    return ReadTimeoutError(endpoint_url=_url_of(store))


def connection_error(store: Store, _request: Request) -> Exception:
    """No server takes the connection, and the request is not sent."""
    if kind_of(store) == "collection":
        from pymongo.errors import ServerSelectionTimeoutError  # noqa: PLC0415  # a test on DynamoDB may run without pymongo

        return ServerSelectionTimeoutError("connection refused")
    from botocore.exceptions import EndpointConnectionError  # noqa: PLC0415  # a test on MongoDB may run without boto3

    return EndpointConnectionError(endpoint_url=_url_of(store), error="connection refused")


def connect_timeout_error(store: Store, request: Request) -> Exception:
    """No server takes the connection in time, and the request is not sent."""
    if kind_of(store) == "collection":
        return timeout_error(store, request)
    from botocore.exceptions import ConnectTimeoutError  # noqa: PLC0415  # a test on MongoDB may run without boto3

    return ConnectTimeoutError(endpoint_url=_url_of(store))


def server_failure(store: Store, request: Request) -> Exception:
    """The server fails, and the driver has given up. MongoDB's is no longer the primary."""
    if kind_of(store) == "collection":
        from pymongo.errors import NotPrimaryError  # noqa: PLC0415  # a test on DynamoDB may run without pymongo

        details = {"ok": 0.0, "errmsg": "not primary", "code": 10107, "codeName": "NotWritablePrimary"}
        return _in_transaction(NotPrimaryError("not primary", details), request)
    return client_error(store, request, "InternalServerError", "Internal server error", status=500)


def slow_down_error(store: Store, request: Request) -> Exception:
    """The server refuses requests in another way because it has too many."""
    if kind_of(store) == "collection":
        return server_error(50, "MaxTimeMSExpired", "operation exceeded time limit", [])
    return client_error(store, request, "ThrottlingException", "Rate exceeded")


def _in_transaction(error: Any, request: Request) -> Exception:
    if request.is_uncommitted:
        error._add_error_label("TransientTransactionError")  # noqa: SLF001  # as pymongo does it
    return cast("Exception", error)


def throttling_error(store: Store, request: Request) -> Exception:
    """The server refuses requests because it has too many, and the driver has given up."""
    if kind_of(store) == "collection":
        labels = ["SystemOverloadedError", "RetryableError"]
        return server_error(462, "IngressRequestRateLimitExceeded", "Request rejected: rate limit exceeded", labels)
    text = (
        "The level of configured provisioned throughput for the table was exceeded. Consider increasing it with UpdateTable."
    )
    return client_error(store, request, "ProvisionedThroughputExceededException", text)


def cancellation_error(store: Store, request: Request) -> Exception:
    """Another transaction is changing the entity."""
    if kind_of(store) == "collection":
        return server_error(112, "WriteConflict", "Write conflict: retry the transaction", ["TransientTransactionError"])
    if is_transaction(request):
        others = len(request.arguments["TransactItems"]) - 1
        conflict = {"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
        reasons = [conflict, *[{"Code": "None"}] * others]
        codes = ", ".join(reason["Code"] for reason in reasons)
        text = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
        return client_error(store, request, "TransactionCanceledException", text, {"CancellationReasons": reasons})
    if is_single_write(request):
        return client_error(store, request, "TransactionConflictException", "Transaction is ongoing for the item")
    raise ConfigurationError(
        f"A transaction never cancels {request.method}: plan cancel_transaction for a single write or for a transaction."
    )


def refuse_partial(_store: Store, request: Request) -> Exception:
    raise ConfigurationError(
        f"{request.method} is done whole or not at all: plan leave_unprocessed for BatchWriteItem or BatchGetItem."
    )


def is_answer(error: Exception) -> bool:
    """Does the error come from the server? Otherwise the driver did not send the request."""
    return hasattr(error, "response") or hasattr(error, "code")


def driver_retries(store: Store, request: Request) -> bool:
    """Does the driver send the request again when the connection breaks? botocore is asked by `with_second_try` instead."""
    if kind_of(store) != "collection":
        return True
    if getattr(request.arguments.get("session"), "in_transaction", False) or request.method not in RETRYABLE_WRITES:
        return not request.writes
    client = store.database.client
    if not type(client).__module__.startswith("pymongo."):
        return True  # a stand-in, taken for a replica set
    servers = client.topology_description.server_descriptions().values()
    return client.options.retry_writes and any(server.retryable_writes_supported for server in servers)


def with_second_try(store: Store) -> Store:
    """A store whose driver loses the first answer. It sends the request again, unless it is configured to make one attempt.

    On MongoDB this is the store itself: the server answers a retryable write that is sent again as it did the first time.
    """
    if kind_of(store) == "collection":
        return store
    client = copy_of(client_of(store))
    client._endpoint = copy_of(client._endpoint)  # noqa: SLF001  # botocore has no public name for one attempt
    wrap = _alosing_first if is_async(store) else _losing_first
    client._endpoint._do_get_response = wrap(client._endpoint._do_get_response)  # noqa: SLF001  # the same
    return client


Attempt: TypeAlias = Callable[..., Any]  # (request, operation, context) -> (answer, None) or (None, exception)


def _losing_first(attempt: Attempt) -> Attempt:
    lost_answers: list[object] = []

    def losing_first(request: Any, operation: Any, context: Any) -> Any:
        result = attempt(request, operation, context)
        return result if lost_answers else _lost_answer(result, request, lost_answers)

    return losing_first


def _alosing_first(attempt: Attempt) -> Attempt:
    lost_answers: list[object] = []

    async def losing_first(request: Any, operation: Any, context: Any) -> Any:
        result = await attempt(request, operation, context)
        return result if lost_answers else _lost_answer(result, request, lost_answers)

    return losing_first


def _lost_answer(result: object, request: Any, lost_answers: list[object]) -> tuple[None, Exception]:
    from botocore.exceptions import ConnectionClosedError  # noqa: PLC0415  # a test on MongoDB may run without boto3

    lost_answers.append(result)
    return None, ConnectionClosedError(endpoint_url=request.url)


def _url_of(store: Store) -> str:
    return client_of(store).meta.endpoint_url  # type: ignore[no-any-return]  # a client is of any type here


def client_error(
    store: Store, request: Request, code: str, text: str, members: Mapping[str, Any] | None = None, *, status: int = 400
) -> Exception:
    """The error as the client raises it: its class is the one in `client.exceptions`."""
    response: dict[str, Any] = {
        "Error": {"Code": code, "Message": text},
        "ResponseMetadata": {"RequestId": "", "HTTPStatusCode": status, "HTTPHeaders": {}, "RetryAttempts": 0},
        "message": text,
        **(members or {}),
    }
    return client_of(store).exceptions.from_code(code)(response, request.method)  # type: ignore[no-any-return]  # the same


def server_error(code: int, name: str, text: str, labels: list[str]) -> Exception:
    """The error that pymongo makes of an answer of MongoDB's."""
    from pymongo.errors import ExecutionTimeout, OperationFailure  # noqa: PLC0415  # a test on DynamoDB may run without pymongo

    kind = ExecutionTimeout if name == "MaxTimeMSExpired" else OperationFailure
    return kind(text, code, {"ok": 0.0, "errmsg": text, "code": code, "codeName": name, "errorLabels": labels})
