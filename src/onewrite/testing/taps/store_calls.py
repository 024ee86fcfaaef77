"""Work on a store as a generator of calls, so that the same code serves blocking and asynchronous stores.

The generator yields each call that it needs. It is sent what the call returns, or has thrown in what the call raises.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from onewrite.flow import adrive, drive

T = TypeVar("T")
StoreCalls: TypeAlias = Generator[Callable[[], Any], Any, T]


def make_calls(calls: StoreCalls[T]) -> T:
    """Make the calls, which block, and return what the generator returns."""
    return drive(calls, operator.call)


async def amake_calls(calls: StoreCalls[T]) -> T:
    """Make the calls, await those that must be, and return what the generator returns."""
    return await adrive(calls, _acall)


async def _acall(call: Callable[[], Any]) -> Any:
    answer = call()
    return await answer if inspect.isawaitable(answer) else answer
