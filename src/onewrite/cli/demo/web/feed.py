"""The latest view of the stream, for all pages that are open."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from threading import Condition


class Feed:
    """One thread publishes, and any number read. Who is slow misses views, and gets the latest one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._edition = 1
        self._closed = False
        self._readers = 0
        self._changed = Condition()

    @property
    def is_read(self) -> bool:
        return self._readers > 0

    @contextmanager
    def reading(self) -> Generator[None]:
        with self._changed:
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1

    def publish(self, text: str) -> None:
        with self._changed:
            if text != self._text:
                self._text = text
                self._edition += 1
                self._changed.notify_all()

    def close(self) -> None:
        """Let all who read come to an end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def after(self, edition: int, patience: float) -> tuple[int, str] | None:
        """The latest view and its edition, which is this one again where no other came in time. None: there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._edition != edition, patience)
            return None if self._closed else (self._edition, self._text)
