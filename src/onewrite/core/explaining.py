"""What a call of a store would send first: the call is made on a copy of the store whose client sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from inspect import iscoroutine
from typing import Any, TypeVar, cast

from onewrite.core.flow import Meter, meter
from onewrite.errors import ConfigurationError

S = TypeVar("S")

# The names of what pymongo's methods take by position.
_POSITIONS = {
    "update_one": ("filter", "update"),
    "find_one_and_update": ("filter", "update"),
    "insert_one": ("document",),
    "find_one": ("filter",),
}


class _FirstRequest(BaseException):
    """Ends a call when it sends its first request. No flow catches this, as it may catch what a client raises."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__()
        self.request = request


class _Client:
    """Tells of the first request. What a collection is asked about its indexes first is answered as if all is well."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields

    def index_information(self) -> Any:
        unique_index = {"key": {"key": [(name, 1) for name in self._fields], "unique": True}} if self._fields else {}
        return {"_id_": {"key": [("_id", 1)]}, **unique_index}

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def tell(*args: Any, **arguments: Any) -> None:
            raise _FirstRequest({method: {**dict(zip(_POSITIONS.get(method, ()), args, strict=False)), **arguments}})

        return tell


class _AsyncClient(_Client):
    async def index_information(self) -> Any:
        return super().index_information()


def explain_write(
    store: Any, flows: Any, method: str, args: Sequence[Any], native: Mapping[str, Any], *, fields: Sequence[str] = ()
) -> dict[str, Any]:
    """The arguments of the first request of this method, called with these arguments."""
    request: dict[str, Any]
    (request,) = explain_call(store, flows, lambda target: getattr(target, method)(*args, **native), fields).values()
    return request


def check_alone(beside: Sequence[object], native: Mapping[str, object]) -> None:
    """Refuse arguments beside a function, which would be ignored."""
    if beside or native:
        arguments = ", ".join([*map(repr, beside), *(f"{name}=" for name in native)])
        raise ConfigurationError(
            f"explain got a function and {arguments} beside it: write the arguments into the call, explain(lambda store: store.record(message, ...))."
        )


def explain_call(store: S, flows: Any, call: Callable[[S], object], fields: Sequence[str] = ()) -> dict[str, Any]:
    """The first request of this call of the store, by the name of the client's method. `flows` are the store's."""
    if not callable(call):
        raise ConfigurationError(
            f"explain takes a message and what follows it, or a function of the store, and got a {type(cast('object', call)).__name__}: write "
            "explain(lambda store: store.record(message, ...)), with the call that you want to see."
        )
    client = _AsyncClient(fields) if flows.is_async else _Client(fields)
    # The flows are copied, because what they learn here about entities and indexes is not so.
    store_copy, flows_copy = copy(store), copy(flows)
    if getattr(flows, "raw_target", None) is not None:
        flows_copy.raw_target = client
    vars(store_copy).update(_flows=flows_copy, _target=client, _collection=client)
    token = meter.set(Meter())  # nothing is sent, and nothing is counted
    try:
        result = call(store_copy)
        if iscoroutine(result):
            try:
                result.send(None)
            finally:
                result.close()
    except _FirstRequest as request_sent:
        return request_sent.request
    finally:
        meter.reset(token)
    raise ConfigurationError("This call sends nothing to the store: explain(lambda store: store.record(message, ...)).")
