"""Reads what the options of `plan` say: spans of time, shares, and indexes. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import cast

from onewrite.costs.capacity import Does, IndexLoad
from onewrite.costs.inputs import Prices
from onewrite.errors import ConfigurationError
from onewrite.ledgers.seen_ids import UNITS

_SPAN = re.compile(r"(\d{1,9})(d|h|m|s)")
_INDEX = re.compile(
    r"(?:(?P<name>[\w.-]+)=)?(?P<kind>ALL|KEYS_ONLY|INCLUDE)(?::(?P<size>\d{1,9}))?(?::(?P<does>still|changes|moves))?"
)
_WRITES = re.compile(r"(?P<name>[\w.-]+)=(?P<does>still|changes|moves)")
_RATE = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)/(s|m|h|d)")
_PRICES = re.compile(r"(\d{1,9}(?:\.\d{1,9})?),(\d{1,9}(?:\.\d{1,9})?)")
_ALL = 100  # percent
_KEYS = 100  # bytes that the keys of an entry are taken to have


def span(text: str) -> timedelta:
    """A retention, as 14d or 36h."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ConfigurationError(f"--retention {text}: give a number with d, h, m or s behind it, as in 14d or 36h.")
    return int(found[1]) * UNITS[found[2]]


def index_load(text: str, place: int, item_bytes: int) -> IndexLoad:
    """An index, as `by-status=ALL`, `INCLUDE:200:changes` or `KEYS_ONLY:still`. One without a name is called by its `place`."""
    found = _INDEX.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"--index {text}: write [NAME=]ALL, KEYS_ONLY or INCLUDE:BYTES, and behind it :still, :changes or :moves for what "
            "your write does to the index's entry."
        )
    kind, size = found["kind"], found["size"]
    if kind == "INCLUDE" and size is None:
        raise ConfigurationError(f"--index {text}: say how many bytes the index projects, as in INCLUDE:200.")
    if size is not None and int(size) < 1:
        raise ConfigurationError(f"--index {text}: an entry has a byte at least.")
    usual = {"ALL": item_bytes, "KEYS_ONLY": _KEYS, "INCLUDE": 0}[kind]
    does = found["does"] or ("still" if kind == "KEYS_ONLY" else "changes")
    return IndexLoad(found["name"] or f"index {place}", int(size or usual), kind == "ALL", cast("Does", does))


def with_writes(loads: Sequence[IndexLoad], texts: Sequence[str]) -> tuple[IndexLoad, ...]:
    """The indexes of a live table, with what the options say of writes to them, as in `by-day=moves`."""
    said: dict[str, Does] = {}
    for text in texts:
        found = _WRITES.fullmatch(text)
        if found is None:
            raise ConfigurationError(
                f"--writes {text}: write NAME=still, NAME=changes or NAME=moves, with the name of an index."
            )
        if found["name"] not in {load.name for load in loads}:
            raise ConfigurationError(f"--writes {text}: no item that was looked at is in an index of that name.")
        said[found["name"]] = cast("Does", found["does"])
    return tuple([replace(load, does=said.get(load.name, load.does)) for load in loads])


def share(option: str, percent: float | None) -> float | None:
    """A share, of a number of percent."""
    if percent is not None and not 0 <= percent <= _ALL:
        raise ConfigurationError(f"{option} {percent:g}: give percent, from 0 to 100.")
    return None if percent is None else percent / _ALL


def per_day(text: str) -> float:
    """Messages a day, as 20/s or 10000/d say it."""
    found = _RATE.fullmatch(text)
    if found is None or float(found[1]) == 0:
        raise ConfigurationError(
            f"--messages {text}: give a number above 0, and for each s, m, h or d, as in 20/s or 10000/d."
        )
    return float(found[1]) * (timedelta(days=1) / UNITS[found[2]])


def price_list(text: str | None) -> Prices:
    """The prices that were given, or the usual ones."""
    if text is None:
        return Prices()
    found = _PRICES.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"--prices {text}: give dollars for a million write units and for a gigabyte a month, as in 0.625,0.25."
        )
    return Prices(float(found[1]), float(found[2]), "as given")
