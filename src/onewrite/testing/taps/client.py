"""The client of a tapped collection: a proxy that begins sessions, and hands out the tapped database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.taps.sessions import AsyncSession, Session, start_session
from onewrite.testing.taps.traffic import Gate

_SILENT = frozenset({"codec_options", "options", "read_concern", "read_preference", "write_concern"})
_DATABASES = frozenset({"get_database", "get_default_database"})


class Client:
    """`database` makes the tapped form of the database with this name."""

    def __init__(self, raw: Any, gate: Gate, store: str, database: Callable[[str], Any], *, awaited: bool) -> None:
        self._raw = raw
        self._gate = gate
        self._store = store
        self._database = database
        self._awaited = awaited

    @property  # type: ignore[misc]  # `isinstance` reads this; unittest.mock does the same
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # the same
        return cast("Any", type(self._raw))

    def start_session(self, *args: Any, **kwargs: Any) -> Session | AsyncSession:
        return start_session(self, self._gate, self._store, *args, awaited=self._awaited, **kwargs)

    def __getitem__(self, name: str) -> Any:
        return self._database(name)

    def get_database(self, name: str, *_: Any, **__: Any) -> Any:
        return self._database(name)

    def __getattr__(self, name: str) -> Any:
        if name in _SILENT or name.startswith("_"):
            return getattr(self._raw, name)
        if hasattr(type(self._raw), name):
            raise ConfigurationError(
                f"{name} of a client cannot be tapped: a tap would not see what it sends. Leave it out of what is tested."
            )
        return self._database(name)

    def __eq__(self, other: object) -> bool:
        return bool(self._raw == (other._raw if type(other) is Client else other))

    def __hash__(self) -> int:
        return hash(self._raw)

    def __repr__(self) -> str:
        return repr(self._raw)
