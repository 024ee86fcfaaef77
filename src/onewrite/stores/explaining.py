"""Returns the first request of a call, which runs with a client that sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from inspect import iscoroutine, unwrap
from typing import Any, TypeVar

from onewrite.core.flow import meter
from onewrite.core.forgotten import check_arguments
from onewrite.errors import ConfigurationError

T = TypeVar("T")


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
    # Call the method without `followed`: nothing is written, so a handler must not list the call as unsettled.
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
