"""What is to be done with a store, in steps, for blocking and asynchronous stores alike.

A step is a call to be made. Its generator is sent what the call answers, or has thrown in what it raises.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from onewrite.flow import adrive, drive

T = TypeVar("T")
Steps: TypeAlias = Generator[Callable[[], Any], Any, T]


def run(steps: Steps[T]) -> T:
    return drive(steps, operator.call)


async def arun(steps: Steps[T]) -> T:
    return await adrive(steps, operator.call)
