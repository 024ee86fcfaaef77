"""The names and values that an expression speaks of by placeholders. Pure."""

from __future__ import annotations

from typing import Any


class Placeholders:
    """Collects the names and values of one request that is wholly ours."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self._placeholders: dict[str, str] = {}

    def name(self, name: str) -> str:
        placeholder = self._placeholders.setdefault(name, f"#n{len(self._placeholders)}")
        self.names[placeholder] = name
        return placeholder

    def value(self, value: Any) -> str:
        placeholder = f":v{len(self.values)}"
        self.values[placeholder] = value
        return placeholder
