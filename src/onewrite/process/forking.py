"""Undo signal handlers and close listening sockets in a forked child, because they belong to its parent.

A message handler can fork, as `multiprocessing` does. `terminate()` would not end a child with the parent's handler of SIGTERM, and
a child with the parent's listener would keep its port.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Mask(threading.local):
    """The signals that this thread had blocked before it forked."""

    before: set[int] | None = None


_undos: dict[object, Callable[[], object]] = {}
_mask = _Mask()


def handle_stop_signals(handle: Callable[[int, FrameType | None], object]) -> Callable[[], None]:
    """Install the handler for the stop signals, and return a function that restores the earlier handlers."""
    earlier_handlers = {number: signal.signal(number, handle) for number in STOP_SIGNALS}

    def put_back() -> None:
        for number, handler in earlier_handlers.items():
            # A handler of None wasn't set from Python, and can't be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    return put_back


@contextmanager
def undo_in_children(undo: Callable[[], object]) -> Generator[None, None, None]:
    """Call `undo` in each process that is forked within this block."""
    key = object()
    _undos[key] = undo
    try:
        yield
    finally:
        del _undos[key]


@contextmanager
def on_signals(act: Callable[[], None]) -> Generator[None, None, None]:
    """Call `act` on SIGTERM and SIGINT. Do nothing outside the main thread, because only it can set signal handlers in Python."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    put_back = handle_stop_signals(lambda _number, _frame: act())
    try:
        with undo_in_children(put_back):
            yield
    finally:
        put_back()


def _block() -> None:
    """Block the stop signals, so that a signal to the child waits until its handlers are reset."""
    if _undos:
        _mask.before = {*signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)}


def _unblock() -> None:
    """Restore the signals that were blocked before the fork."""
    if _mask.before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)
        _mask.before = None


def _undo_all() -> None:
    """Undo everything in a child, and let its signals arrive."""
    for undo in reversed([*_undos.values()]):  # the last one first, because each restores the state that it found
        undo()
    _undos.clear()
    _unblock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_undo_all)
