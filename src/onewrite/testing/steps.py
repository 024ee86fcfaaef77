"""What is to be done with a store, in steps, for blocking and asynchronous stores alike.

A step is a call to be made. Its generator is sent what the call answers, or has thrown in what it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[Callable[[], Any], Any, T]


def run(steps: Steps[T]) -> T:
    with closing(steps):
        try:
            step = next(steps)
            while True:
                try:
                    answer = step()
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # StopIteration does not know what it carries


async def arun(steps: Steps[T]) -> T:
    with closing(steps):
        try:
            step = next(steps)
            while True:
                try:
                    answer = await step()
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # StopIteration does not know what it carries
