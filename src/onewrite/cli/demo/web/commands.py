"""What the page can ask for. A command comes as JSON, and is checked here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from onewrite.cli.demo.comparison import HANDLERS


@dataclass(frozen=True, slots=True)
class Settings:
    """`speed` is in turns a second. `duplicates` is how many of a hundred messages are sent twice, and `crashes` at how many of a
    hundred steps a worker dies."""

    speed: int = 3
    duplicates: int = 20
    crashes: int = 2
    running: bool = True


RANGES = MappingProxyType({"speed": (1, 12), "duplicates": (0, 60), "crashes": (0, 30)})


@dataclass(frozen=True, slots=True)
class Change:
    """Settings that are to change, by name."""

    values: Mapping[str, Any]

    def of(self, settings: Settings) -> Settings:
        return replace(settings, **self.values)


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the worker of this handler, or of each."""

    lane: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """Go on by one turn."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Begin anew, with the same settings."""


Command: TypeAlias = Change | Kill | Step | Restart


def command(name: str, body: object) -> Command:
    """What is asked for by this name. Raises LookupError for a name that is not known, and ValueError for a body that is wrong."""
    if name not in ("settings", "kill", "step", "restart"):
        raise LookupError(name)
    if not isinstance(body, dict):
        raise ValueError("The body must be a JSON object.")  # noqa: TRY004  # one kind of error for whatever a body may be
    values = cast("dict[str, object]", body)
    if name == "settings":
        return _change(values)
    if name == "kill":
        return _kill(values)
    if values:
        raise ValueError(f"{name} takes no values.")
    return Step() if name == "step" else Restart()


def _change(values: Mapping[str, object]) -> Change:
    for name, value in values.items():
        if name == "running":
            if not isinstance(value, bool):
                raise ValueError("running must be true or false.")
        elif name not in RANGES:
            raise ValueError(f"There is no setting {name!r}.")
        elif type(value) is not int or not RANGES[name][0] <= value <= RANGES[name][1]:
            raise ValueError("{} must be a whole number from {} to {}.".format(name, *RANGES[name]))
    return Change(values)


def _kill(values: Mapping[str, object]) -> Kill:
    lane = values.get("lane")
    if set(values) != {"lane"} or not (lane is None or lane in list(HANDLERS)):
        raise ValueError(f"lane must be null or one of {', '.join(HANDLERS)}.")
    return Kill(cast("str | None", lane))
