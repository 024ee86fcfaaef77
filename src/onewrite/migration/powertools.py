"""When a table of Powertools' idempotency is needed no more. Pure.

Its records cannot be carried over: the key of a record is a hash, from which nobody can read the message, and nothing in it names
an entity. So consumers run with both for a while, Powertools around the function and a guarded store inside. Every message that
takes effect under both is in a ledger. What took effect before is known to Powertools alone, until its record expires; and then
Powertools itself would have let it in again. From that moment on, Powertools adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onewrite.event import moment


@dataclass(slots=True)
class Remaining:
    """Counts the records that consumers of before have left.

    `switched`: when the last consumer without a guarded store had stopped. `lives`: for how many seconds a record counts.
    """

    switched: float
    lives: float
    now: float
    read: int = 0
    waits: int = 0
    open: int = 0
    longer: int = 0
    last: float = 0.0

    def add(self, record: Mapping[str, Any]) -> None:
        """A record, as plain values."""
        self.read += 1
        expires = float(record.get("expiration", 0))
        if expires <= self.now:
            return
        if expires > self.now + self.lives:
            self.longer += 1
        if expires <= self.needed_until:
            self.waits += 1
            self.last = max(self.last, expires)
            self.open += record.get("status") == "INPROGRESS"

    @property
    def needed_until(self) -> float:
        return self.switched + self.lives

    @property
    def is_needed(self) -> bool:
        return bool(self.waits or self.longer or self.now < self.needed_until)

    def sentences(self) -> list[str]:
        said = [_CANNOT]
        if self.longer:
            return [*said, _LONGER.format(self.longer, self.lives)]
        if self.open:
            said.append(_OPEN.format(self.open))
        if self.is_needed:
            return [*said, _KEEP.format(self.waits, self.read, moment(self.needed_until))]
        return [*said, _DONE.format(self.read)]

    def details(self) -> dict[str, Any]:
        """For a program."""
        counts = {"read": self.read, "waits": self.waits, "in progress": self.open, "longer": self.longer}
        return {**counts, "needed": self.is_needed, "until": moment(self.needed_until), "next": self.sentences()}


_CANNOT = (
    "Records of Powertools cannot be carried into ledgers: their keys are hashes, and they name no entity. They are waited for, while "
    "consumers run with both."
)
_LONGER = "{} records live for longer than {:g} seconds: --expires-after is not what the consumers had. Give the longest."
_OPEN = (
    "{} records of before are still in progress. If such a consumer died after its effect, the message takes effect again when it "
    "is redelivered, with Powertools and without: look at these."
)
_KEEP = "{} of {} records may be from before. Keep Powertools around your functions until {}."
_DONE = (
    "None of {} records is from before. Powertools is needed no more around these functions, as far as their entities go."
)
