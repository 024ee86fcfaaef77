"""What the stores of both engines share: the checks of a table, a collection, or a key, and `explain`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from inspect import iscoroutine, iscoroutinefunction, unwrap
from typing import Any, TypeVar, cast

from onewrite.core.flow import meter
from onewrite.core.hook import check_arguments
from onewrite.core.ledgers.entry import Terms
from onewrite.errors import ConfigurationError

T = TypeVar("T")
_MONGODB = ("pymongo", "mongomock", "motor")


def check_table(table: object, table_name: object = None) -> None:
    """Raise unless a guarded table accepts this table or client."""
    _check_argument("GuardedTable", "table", "boto3.resource('dynamodb').Table('orders')", table)
    if _find_package(table) in _MONGODB:
        raise ConfigurationError(f"{type(table).__name__} is from MongoDB. Use GuardedCollection.")
    service = _find_service(table)
    if service not in (None, "dynamodb"):
        raise ConfigurationError(
            f"GuardedTable: expected a DynamoDB client, got a client for {service}. Pass boto3.client('dynamodb') "
            "or a Table."
        )
    if not hasattr(table, "update_item"):
        if hasattr(table, "Table"):
            raise ConfigurationError("GuardedTable: expected a table, got a resource. Pass resource.Table('orders').")
        raise ConfigurationError(
            f"{table!r} has no update_item. Pass a boto3 Table, or a low-level client with table_name='orders'."
        )
    if table_name is not None and not isinstance(table_name, str):
        raise ConfigurationError(f"table_name={table_name!r}: expected the name of the table, a string.")


def check_key(key: Sequence[str], is_taken: Callable[[str], bool]) -> None:
    """Raise unless these fields can identify an entity. `is_taken` returns whether the store itself uses a field."""
    for name in key:
        if not name or name.startswith("$") or "\0" in name:
            raise ConfigurationError(f"key={key!r}: {name!r} isn't the name of a field.")
        if name == "_id":
            raise ConfigurationError(
                f"key={key!r}: _id always identifies a document. Remove _id, or omit key= if it has no other field."
            )
        if is_taken(name.partition(".")[0]):
            raise ConfigurationError(f"key={key!r}: the store uses {name!r} itself. Pass your own fields.")
    if len({*key}) < len(key):
        raise ConfigurationError(f"key={key!r}: a field occurs twice. Pass each field once.")


def check_collection(collection: object) -> None:
    """Raise unless a guarded collection accepts this collection."""
    _check_argument("GuardedCollection", "collection", "pymongo.MongoClient().shop.orders", collection)
    if _find_service(collection) is not None:
        raise ConfigurationError(f"{collection!r} is from DynamoDB. Use GuardedTable.")
    kind = type(collection).__name__
    if kind.endswith("Database"):
        raise ConfigurationError("GuardedCollection: expected a collection, got a database. Pass database['orders'].")
    if kind.endswith("Client"):
        raise ConfigurationError("GuardedCollection: expected a collection, got a client. Pass client['shop']['orders'].")
    if not hasattr(collection, "update_one"):
        raise ConfigurationError(f"{collection!r} has no update_one. Pass a pymongo collection.")


def _check_argument(name: str, expected: str, example: str, argument: object) -> None:
    """Raise for values that are often passed by mistake instead of a table or collection."""
    if isinstance(argument, str):
        raise ConfigurationError(
            f"{name}({argument!r}, ...): expected a {expected}, got its name. Pass for example {example}."
        )
    if isinstance(argument, type):
        raise ConfigurationError(
            f"{name}({argument.__name__}, ...): expected a {expected}, got a class. Pass for example {example}."
        )
    if isinstance(getattr(argument, "terms", None), Terms):
        raise ConfigurationError(
            f"{name}({argument!r}, ...): expected a {expected} first, got a ledger. Pass the ledger second."
        )
    if type(argument).__name__ in ("GuardedTable", "AsyncGuardedTable", "GuardedCollection", "AsyncGuardedCollection"):
        raise ConfigurationError(
            f"{name}: expected a {expected}, got a guarded store. Pass the {expected} itself, for example {example}."
        )
    if argument is None:
        raise ConfigurationError(f"{name}(None, ...): expected a {expected}, for example {example}.")


def _find_package(argument: object) -> str:
    return type(argument).__module__.partition(".")[0]


def _find_service(argument: object) -> str | None:
    """Return the service of a client or resource of botocore's, or None."""
    if _find_package(argument) in _MONGODB:  # a collection has an attribute of any name
        return None
    meta: Any = getattr(argument, "meta", None)
    model: Any = getattr(meta, "service_model", None)
    if model is None:
        model = getattr(getattr(getattr(meta, "client", None), "meta", None), "service_model", None)
    name = cast("object", getattr(model, "service_name", None))
    return name if isinstance(name, str) else None


_BLOCKING_HOMES = ("boto3", "botocore", "pymongo.synchronous")


def is_asynchronous(target: object, method: str) -> bool:
    """Whether this method of a client must be awaited, as far as that is known without a call."""
    home = type(target).__module__
    return iscoroutinefunction(getattr(target, method, None)) or home.partition(".")[0] in ("motor", "aiobotocore")


def check_awaited(target: object, method: str, *, is_async: bool) -> None:
    """Raise before anything is sent if only one of the store and its guard is asynchronous."""
    kind = type(target)
    home = kind.__module__
    must_await = is_asynchronous(target, method)
    if must_await and not is_async:
        raise ConfigurationError(
            f"{kind.__name__} is asynchronous. Guard it with AsyncGuardedTable or AsyncGuardedCollection."
        )
    if is_async and not must_await and home.startswith(_BLOCKING_HOMES):
        raise ConfigurationError(f"{kind.__name__} isn't asynchronous. Guard it with GuardedTable or GuardedCollection.")


# --- explain: the first request of a call, which runs with a client that sends nothing ---------------------------------


class _FirstRequest(BaseException):
    """Raised to end a call at its first request, whose arguments it contains. No flow catches it."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments


class SilentClient:
    """Replaces a client, or one of its methods. `replies` contains the replies of methods that a store calls before its verb's request."""

    def __init__(self, replies: Mapping[str, Any], *, is_async: bool, path: str = "") -> None:
        self._replies, self._is_async, self._path = replies, is_async, path

    def __getattr__(self, name: str) -> SilentClient:
        return SilentClient(self._replies, is_async=self._is_async, path=f"{self._path}.{name}".lstrip("."))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the reply to a request that only prepares the verb's own. For the verb's own, raise `_FirstRequest` with its arguments."""
        if self._path in self._replies:
            return self._reply() if self._is_async else self._replies[self._path]
        # pymongo's methods take these arguments by position.
        names = ("document",) if self._path == "insert_one" else ("filter", "update")
        raise _FirstRequest({**dict(zip(names, args, strict=False)), **kwargs})

    async def _reply(self) -> Any:
        return self._replies[self._path]


def with_attributes(instance: T, **attributes: object) -> T:
    """Return a copy of an object that has these attributes."""
    twin = copy(instance)
    vars(twin).update(attributes)
    return twin


def find_first_request(
    silent_store: object, verbs: Sequence[str], verb: object, args: Sequence[Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of the first request that the verb of a store makes, by their names. The store has a `SilentClient`."""
    if not isinstance(verb, str) or verb not in verbs:
        raise ConfigurationError(
            f"explain({verb!r}): expected the name of a method first, one of {', '.join(verbs)}. Write "
            f"explain({verbs[0]!r}, message, ...), with the method's arguments."
        )
    meter_token = meter.set(None)  # the meter of a handler's batch counts only requests that are sent
    # Call the method without `followed`. A handler must not list the call as unsettled, because nothing is written.
    method = unwrap(getattr(type(silent_store), verb))
    try:
        call = method(silent_store, *args, **arguments)
        if iscoroutine(call):
            call.send(None)  # raises, unless an update_batch function waits
            call.close()
            raise ConfigurationError(
                "explain can't run an update_batch function that awaits. Pass a function that doesn't await."
            )
    except _FirstRequest as request:
        return request.arguments
    except TypeError:
        check_arguments(method, (silent_store, *args), arguments)
        raise
    except StopIteration:  # the coroutine returned without a request
        pass
    finally:
        meter.reset(meter_token)
    raise ConfigurationError("explain: this call sends no request.")
