"""Reads that can miss the last write, and the responses that they then get."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from onewrite.testing.explorer.calls import Reply
from onewrite.testing.explorer.recall import make_comparable
from onewrite.testing.model.machine import Machine, WorldState
from onewrite.testing.taps.mongodb_methods import DOCUMENT_READS
from onewrite.testing.taps.tap import Store, find_kind
from onewrite.testing.taps.traffic import Request

_READS = frozenset({"GetItem", "Query", "Scan", "BatchGetItem", "ExecuteStatement"})
_FROM_SECONDARIES = frozenset({"secondary", "secondaryPreferred", "nearest"})


class StaleReads:
    """The stale reads of a handler. `has_any` is true once the handler has sent a read that can be stale."""

    def __init__(self, perform: Callable[[Request], Reply]) -> None:
        self.has_any = False
        self._perform = perform

    def find(self, request: Request, machine: Machine) -> Reply | None:
        """Return the response from before the last write that changed it. Return None if there is none, or the read is never stale."""
        if not may_be_stale(machine.databases.stores[request.store], request):
            return None
        self.has_any = True
        present = make_comparable(self._perform_at(machine.present, request, machine))
        for state in reversed(machine.earlier):
            reply = self._perform_at(state, request, machine)
            if reply.error is None and make_comparable(reply) != present:
                return reply
        return None

    def _perform_at(self, state: WorldState, request: Request, machine: Machine) -> Reply:
        with machine.looking_at(state):
            return self._perform(request)


def may_be_stale(store: Store, request: Request) -> bool:
    """Whether the response can leave out an acknowledged write.

    DynamoDB's reads are eventually consistent unless they set `ConsistentRead`. The reads of a transaction are always consistent.

    On MongoDB, only a read from a secondary counts. It can lag behind the primary with any read concern, including "majority". A
    read from the primary sees all acknowledged writes. In a causally consistent session, reads wait for the session's own writes,
    so reads in sessions don't count.
    """
    if request.writes:
        return False
    if find_kind(store) == "collection":
        return request.method in DOCUMENT_READS and _is_from_a_secondary(store, request)
    # A BatchGetItem sets it for each table. A mixed one isn't split: it counts as consistent.
    tables = request.arguments.get("RequestItems")
    parts = list(cast("Mapping[str, Any]", tables).values()) if isinstance(tables, Mapping) else [request.arguments]
    consistent = (isinstance(part, Mapping) and cast("Mapping[str, Any]", part).get("ConsistentRead") for part in parts)
    return request.method in _READS and not any(consistent)


def _is_from_a_secondary(store: Store, request: Request) -> bool:
    own = request.tables[0] == store.name or request.tables[0].startswith(f"{store.name}.")
    preference = request.options.get("read_preference") or getattr(store if own else store.database, "read_preference", None)
    name = getattr(preference, "mongos_mode", None)
    return name in _FROM_SECONDARIES and request.arguments.get("session") is None
