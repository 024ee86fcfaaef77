"""A file that says how far a migration has come."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from onewrite.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Bookmark:
    """`of` says which migration it is of: another one would leave entities out."""

    path: Path
    of: str

    def read(self) -> object:
        """Where to go on, or None at the beginning."""
        if not self.path.parent.is_dir():
            raise ConfigurationError(
                f"There is no folder {self.path.parent} to keep the bookmark in. Make it, or give another file."
            )
        if not self.path.exists():
            return None
        try:
            held = cast("dict[str, object]", json.loads(self.path.read_text()))
            of, position = held["of"], held["position"]
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise ConfigurationError(f"{self.path} is no bookmark of a migration. Give another file.") from error
        if of != self.of:
            raise ConfigurationError(f"{self.path} is of another migration: {of}. Give another file, or remove it.")
        return position

    def write(self, position: object) -> None:
        """It replaces the file at once, so that whoever is killed leaves the old one or the new one."""
        if position is None:
            self.path.unlink(missing_ok=True)
            return
        fresh = self.path.with_name(f"{self.path.name}.new")
        fresh.write_text(json.dumps({"of": self.of, "position": position}))
        fresh.replace(self.path)
