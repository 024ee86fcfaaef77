"""What a plan assumes of messages, and what that means for each kind of ledger, on any engine. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import NamedTuple, cast

from onewrite.costs.stream import Stream, held
from onewrite.ledgers import Ledger, SeenIds, SeenNumbers
from onewrite.ledgers.ring import Window, window
from onewrite.ledgers.seen_ids import SLOTS
from onewrite.ledgers.seen_numbers import blocks_of
from onewrite.message import Message


class Texts(NamedTuple):
    """How long the ids and sources of messages are, in bytes, and how many sources an entity hears of. These take turns."""

    id_bytes: int
    source_bytes: int
    sources: int

    def message(self, n: int) -> Message:
        return self.of_source(n % self.sources, n // self.sources + 1)

    def of_source(self, source: int, sequence: int) -> Message:
        name = f"{source:0{self.source_bytes}d}" if self.source_bytes else ""
        return Message(f"{sequence:0{self.id_bytes}d}"[-self.id_bytes :], source=name, sequence=sequence)


class Blocks(NamedTuple):
    """What has no ring changes with the numbers of its messages: each of the sources that take turns has blocks of so many."""

    size: int
    sources: int

    def edges(self, last: int) -> list[int]:
        """The last message, the last before all sources entered a block, and the one with which they all had."""
        entered = (((last // self.sources + 1) // self.size) * self.size - 1) * self.sources
        return [n for n in dict.fromkeys((last, entered - 1, entered + self.sources - 1)) if 0 <= n <= last]


class Cycle(NamedTuple):
    """Bytes that an entity has at a moment, and what they follow: the time of a ring, or the numbers of messages."""

    size: Callable[[Stream, int], int]
    turns: Window | Blocks


def cycle_of(ledger: Ledger, texts: Texts) -> Window | Blocks:
    if isinstance(ledger, SeenIds) and ledger.retention is not None:
        return _window(ledger)
    return Blocks(blocks_of(ledger.window).size, texts.sources) if isinstance(ledger, SeenNumbers) else Blocks(1, 1)


def counts_of(ledger: Ledger, stream: Stream, moment: int) -> Mapping[str, int]:
    """How many marks stand in each slot of a ledger of ids. The only slot of one that never forgets has no key."""
    if isinstance(ledger, SeenIds) and ledger.retention is not None:
        return held(stream, _window(ledger), SLOTS, moment)
    return {"": stream.last_by(moment) + 1}


def _window(ledger: SeenIds) -> Window:
    return window(cast("timedelta", ledger.retention), cast("timedelta", ledger.skew))


def turns(last: int, sources: int) -> list[tuple[int, int]]:
    """The last sequence of sources that take turns up to message `last`, and how many sources have come to it."""
    whole, more = divmod(last + 1, sources)
    return [(sequence, count) for sequence, count in ((whole + 1, more), (whole, sources - more)) if sequence and count]


def blocks_held(ledger: SeenNumbers, last: int) -> list[range]:
    """The numbers that a ledger of numbers holds of a source whose messages came in order, from 1 to the last, block by block."""
    size, slots = blocks_of(ledger.window)
    newest = last // size
    blocks = [
        range(max(1, n * size), min(last, n * size + size - 1) + 1) for n in range(newest - slots + 1, newest + 1) if n >= 0
    ]
    return [block for block in blocks if block]
