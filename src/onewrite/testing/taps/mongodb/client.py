"""The client of a tapped collection: a proxy that begins sessions, and hands out the tapped database."""

from __future__ import annotations

from typing import Any, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.taps.mongodb.sessions import TappedAsyncSession, TappedSession, start_session
from onewrite.testing.taps.traffic import Gate

# `topology_description` is what pymongo knows of its servers.
_SILENT = frozenset({"codec_options", "options", "read_concern", "read_preference", "topology_description", "write_concern"})


class TappedClient:
    """The client of `raw_database`, whose tapped form is `database`."""

    def __init__(self, raw_database: Any, database: Any, gate: Gate, store: str, *, awaited: bool) -> None:
        self._raw = raw_database.client
        self._name = raw_database.name
        self._database = database
        self._gate = gate
        self._store = store
        self._awaited = awaited

    @property  # type: ignore[misc]  # `isinstance` reads this; unittest.mock does the same
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # the same
        return cast("Any", type(self._raw))

    def start_session(self, *args: Any, **kwargs: Any) -> TappedSession | TappedAsyncSession:
        return start_session(self, self._gate, self._store, *args, awaited=self._awaited, **kwargs)

    def __getitem__(self, name: str) -> Any:
        if name != self._name:
            raise ConfigurationError(
                f"The database {name!r} cannot be reached through a tapped collection of {self._name!r}: give its collection as "
                "a store of its own."
            )
        return self._database

    def get_database(self, name: str | None = None, *_: Any, **__: Any) -> Any:
        return self[self._name if name is None else name]

    get_default_database = get_database

    def __getattr__(self, name: str) -> Any:
        if name in _SILENT or name.startswith("_"):
            return getattr(self._raw, name)
        if hasattr(cast("type[Any]", type(self._raw)), name):
            raise ConfigurationError(
                f"{name} of a client cannot be tapped: a tap would not see what it sends. Leave it out of what is tested."
            )
        return self[name]

    def __eq__(self, other: object) -> bool:
        return bool(self._raw == (other._raw if type(other) is TappedClient else other))

    def __hash__(self) -> int:
        return hash(self._raw)

    def __repr__(self) -> str:
        return repr(self._raw)
