"""Handlers for the explorer that are written as one function of a store and a message."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


def build_from(handle: Callable[[Any, Any], Any]) -> Callable[[Any], Callable[[Any], Any]]:
    """Return what `explore` calls to build the handler: it gives each process the handler with its store."""
    return lambda store: partial(handle, store)
