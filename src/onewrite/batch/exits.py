"""Tells an exit of the program from an exception that the code of a record has raised.

SystemExit or KeyboardInterrupt raised by a record's code fails that record. If it ended the batch, the records before it would
be done again and those after it never begun, until all of them are in the dead-letter queue. Only a real signal ends the batch.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import cast


class _Seen:
    interrupts = 0  # how often this process has been interrupted while a batch was under way


def interrupts() -> int:
    return _Seen.interrupts


def is_interrupt(error: BaseException, before: int) -> bool:
    """Whether the error comes from a real SIGINT, of which there had been so many before. A group is if a member is."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_interrupt(each, before) for each in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, KeyboardInterrupt) and _Seen.interrupts > before


class NoticedInterrupts:
    """Around a block in which a real SIGINT is counted before it raises KeyboardInterrupt, as it does by default.

    `instead` may do something else about it, and returns whether it has. If the program handles SIGINT itself, or this is no
    main thread, nothing is changed. asyncio.Runner does the same.
    """

    __slots__ = ("_instead", "_ours")

    def __init__(self, instead: Callable[[], bool] = lambda: False) -> None:
        self._instead = instead

    def __enter__(self) -> None:
        self._ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._ours:
            signal.signal(signal.SIGINT, self._notice)

    def __exit__(self, *_: object) -> None:
        if self._ours and signal.getsignal(signal.SIGINT) == self._notice:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _notice(self, number: int, frame: FrameType | None) -> None:
        _Seen.interrupts += 1
        if not self._instead():
            signal.default_int_handler(number, frame)
