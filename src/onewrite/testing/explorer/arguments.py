"""What `explore` is called with: its options as types, and all its arguments as values, checked and with their defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias, TypedDict

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.handler.invocation import Handler
from onewrite.testing.explorer.schedule import Bounds, Reorder, check_count
from onewrite.testing.explorer.trials.subject import Stores
from onewrite.testing.model.worlds import World

Build: TypeAlias = Callable[[Stores], Handler]
Observe: TypeAlias = Callable[[Stores], Any]
Invariant: TypeAlias = Callable[[Stores], Any]

_DEFAULTS = Bounds()
_SIMILAR = 0.55  # of 1: as similar as `max_faults` is to `faults`


class ExploreOptions(TypedDict, total=False):
    """The options of `explore` and `explore.random`. The docstring of `explore` says what each of them means."""

    invariant: Invariant | None
    deliveries: int
    faults: int
    reorder: Reorder
    concurrency: int
    schedules: int | None
    replay: str | None
    timeout: float


def check_options(function: str, options: Iterable[str], *others: str) -> None:
    """Refuse an option that does not exist. `others` are those that this function has besides."""
    known = [*ExploreOptions.__annotations__, *others]
    for name in options:
        if name not in known:
            nearest = get_close_matches(name, known, 1, _SIMILAR)
            guess = (
                f" Did you mean {nearest[0]}=?" if nearest else " It is one of explore.random()." if name == "seed" else ""
            )
            raise ConfigurationError(f"{function} has no option {name}=.{guess} Its options are {', '.join(known)}.")


WIDER_BOUNDS: ExploreOptions = {"deliveries": 3, "faults": 2, "concurrency": 3}  # the defaults of `explore.random`


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call of `explore` or of `explore.random`."""

    build: Build
    messages: Sequence[Any]
    world: World
    observe: Observe
    _: KW_ONLY
    invariant: Invariant | None = None
    deliveries: int = _DEFAULTS.deliveries
    faults: int = _DEFAULTS.faults
    reorder: Reorder = _DEFAULTS.reorder
    concurrency: int = _DEFAULTS.concurrency
    schedules: int | None = None
    replay: str | None = None
    timeout: float = 30.0
    at_random: bool = False
    seed: object = None

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.deliveries, self.faults, self.reorder, self.concurrency)

    def __post_init__(self) -> None:
        for name in ("build", "world", "observe", *(["invariant"] if self.invariant is not None else [])):
            # A collection is callable too: it takes any attribute that it does not know for a collection inside it.
            if not callable(given := getattr(self, name)) or hasattr(given, "find_one_and_update"):
                raise ConfigurationError(f"{name}={given!r}: give a function.")
        if self.schedules is not None:
            check_count("schedules", self.schedules, 1)
        _check_seconds(self.timeout)


def _check_seconds(timeout: object) -> None:
    if not isinstance(timeout, int | float) or not timeout > 0:
        raise ConfigurationError(f"timeout={timeout!r}: give a number of seconds.")
