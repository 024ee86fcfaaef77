"""Hears what any client or collection in the process sends while a handler runs, and hands it on as a request to a store."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.handler.calls import current_call
from onewrite.testing.model.machine import Machine
from onewrite.testing.seams import AIOBOTOCORE, BOTOCORE, PYMONGO, check
from onewrite.testing.taps.aws import dynamodb, services
from onewrite.testing.taps.aws.clients import is_dynamodb
from onewrite.testing.taps.mongodb import collection as mongodb
from onewrite.testing.taps.mongodb.sessions import start_session
from onewrite.testing.taps.tap import is_async
from onewrite.testing.taps.traffic import Request


class Answerer(Protocol):
    """Answers a request, or raises. The answer is awaited if that is what the sender does."""

    def __call__(self, request: Request, *, awaited: bool) -> Any: ...


class Senders:
    """The listener of an exploration. `refuse` is given what cannot be explored, and raises it."""

    def __init__(self, machine: Machine, answer: Answerer, refuse: Callable[[ConfigurationError], Any]) -> None:
        self.closed = False
        self.machine = machine
        self._answer = answer
        self.refuse = refuse
        self._taps: dict[tuple[str, bool], Any] = {}  # on collections, by the store that performs their requests

    def running(self, loop: Any) -> AbstractContextManager[None]:
        """What must be around the run of an event loop."""
        call = current_call.get()
        return nullcontext() if call is None or not call.runs_in_this_thread else call.running(loop)

    def note(self, result: object) -> None:
        call = current_call.get()
        if call is not None:
            call.outcomes.append(result)

    def call(self, owner: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            if hasattr(cast("type[Any]", type(owner)), "_make_api_call"):
                called: Callable[..., Any] = partial(self._api_call, owner)
            elif method == "start_session":
                called = partial(self._start_session, owner)
            else:
                called = getattr(self._proxy(owner), method)
            return called(*args, **kwargs)
        except ConfigurationError as error:
            return self.refuse(error)

    def _api_call(self, client: Any, operation_name: str, api_params: Any) -> Any:
        awaited = is_async(client)
        check(AIOBOTOCORE if awaited else BOTOCORE)
        store = self.machine.databases.adopt_client(client)
        if is_dynamodb(client):
            request = dynamodb.request_of(store, operation_name, api_params, self.machine.key_names(store))
        else:
            request = services.request_of(store, operation_name, api_params)
        if awaited:
            return dynamodb.awaited_from(client, partial(self._answer, request, awaited=True))
        with dynamodb.raised_by(client):
            return self._answer(request, awaited=False)

    def _start_session(self, client: Any, *args: Any, **kwargs: Any) -> Any:
        check(PYMONGO)
        kind = cast("type[Any]", type(client))
        # A stand-in has one client for both kinds of collections, so it starts sessions for those of the world.
        is_of_pymongo = kind.__module__.startswith("pymongo.")
        awaited = inspect.iscoroutinefunction(kind.close) if is_of_pymongo else self.machine.is_async
        store = self.machine.databases.store_of_server(client)
        return start_session(client, partial(self._gate, awaited=awaited), store, *args, awaited=awaited, **kwargs)

    def _proxy(self, owner: Any) -> Any:
        """A proxy of a collection or a database whose requests are performed by a store that the machine knows."""
        check(PYMONGO)
        kind = cast("type[Any]", type(owner))
        is_collection = hasattr(kind, "update_one")
        database = owner.database if is_collection else owner
        awaited = inspect.iscoroutinefunction(database.list_collection_names)
        store = self.machine.databases.adopt_database(database)
        if (store, awaited) not in self._taps:
            self._taps[store, awaited] = mongodb.tap_for(partial(self._gate, awaited=awaited), store, kind, awaited=awaited)
        performer = self.machine.databases.stores[store]
        other = mongodb.named(performer, owner.name) if is_collection else performer.database
        return self._taps[store, awaited].proxy(owner, mongodb.options_beside(owner, other))

    def _gate(self, request: Request, *, awaited: bool) -> Any:
        if request.arguments.get("session") is not None:
            raise ConfigurationError(
                f"{request} was sent in a session that was started before the exploration, so that its commit would not be seen: let "
                "the handler start its session itself."
            )
        return self._answer(request, awaited=awaited)
