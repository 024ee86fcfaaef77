"""What guarded writes cost on DynamoDB, and what else keeps out duplicates there. Pure."""

from __future__ import annotations

from datetime import timedelta

from onewrite.costs.capacity import units
from onewrite.costs.inputs import Inputs
from onewrite.costs.items import ItemLedger
from onewrite.costs.plan import Cost, Other, Spread
from onewrite.costs.sizes import Sizes
from onewrite.costs.stream import BIRTH, SECOND, Stream
from onewrite.dynamodb.participants import marks_of
from onewrite.dynamodb.size import LARGEST_ITEM, item_size
from onewrite.inbox import Inbox
from onewrite.ledgers import Ledger, SeenNumbers
from onewrite.ledgers.seen_numbers import blocks_of

_PER_ITEM = 100  # bytes that DynamoDB stores beside an item's own
_TRANSACTION = 2  # times the units of the same writes alone
_RECORD = 250  # bytes of a record of Powertools: a function's name with a hash, its state and times, and a short result
_RECORD_WRITES = 2  # of a fresh message: begun, and completed


class OnDynamoDB:
    """Counts write units."""

    limit = LARGEST_ITEM
    a_second: float | None = 1000  # write units that a partition takes, and so an item

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs

    def sized(self, ledger: Ledger) -> ItemLedger:
        return ItemLedger(ledger, self._inputs.texts)

    def cost(self, ledger: Ledger, stream: Stream, looked: Sizes) -> Cost:
        del stream  # the sizes say all
        again = _second_tries(ledger)
        fresh = Spread.of(looked, lambda size: self._table(size) * (1 + again) + self._indexes(size))
        return Cost(fresh, Spread.of(looked, self._table))

    def load(self, ledger: Ledger, size: int) -> float:
        """Each index has partitions of its own, and holds up the table where they take no more."""
        table = self._table(size) * (1 + _second_tries(ledger) + self._inputs.duplicates)
        return max([table, *[index.units(size) for index in self._inputs.indexes]])

    def copies(self) -> int:
        return 1 + sum(index.copies_ledger for index in self._inputs.indexes)

    def others(self) -> list[Other]:
        return [self._unguarded(), self._inbox(), self._powertools()]

    def _table(self, ledger: int) -> int:
        return units(self._inputs.item_bytes + ledger)

    def _indexes(self, ledger: int) -> int:
        return sum([index.units(ledger) for index in self._inputs.indexes])

    def _unguarded(self) -> Other:
        written = Spread.always(self._table(0) + self._indexes(0))
        return Other("no guard: duplicates take effect", Cost(written, written), 0, self._busiest())

    def _busiest(self) -> float:
        """Units of the partition that has the most to do, where the item has no ledger."""
        duplicates = 1 + self._inputs.duplicates
        return max([self._table(0) * duplicates, *[index.units(0) * duplicates for index in self._inputs.indexes]])

    def _inbox(self) -> Other:
        """A transaction that writes the item, and puts the message into a table of those that were processed."""
        mark = self._mark_bytes()
        both = _TRANSACTION * (self._table(0) + units(mark))
        cost = Cost(Spread.always(both + self._indexes(0)), Spread.always(both))
        load = self._table(0) * _TRANSACTION * (1 + self._inputs.duplicates)
        return Other("processed table, in a transaction", cost, self._kept(mark), max(load, self._busiest()))

    def _powertools(self) -> Other:
        record = units(_RECORD)
        fresh = Spread.always(self._table(0) + self._indexes(0) + _RECORD_WRITES * record)
        cost = Cost(fresh, Spread.always(record))
        return Other("Powertools idempotency", cost, self._kept(_RECORD), self._busiest() / (1 + self._inputs.duplicates))

    def _kept(self, size: int) -> float:
        """Bytes of the records of all messages within the retention."""
        return self._inputs.per_day * (self._inputs.retention / timedelta(days=1)) * (size + _PER_ITEM)

    def _mark_bytes(self) -> int:
        inbox = Inbox(object(), consumer="consumer", retention=self._inputs.retention, table_name="processed")
        (mark,) = marks_of(inbox, self._inputs.texts.message(0), "", lambda: BIRTH / SECOND)
        return item_size(mark.item)


def _second_tries(ledger: Ledger) -> float:
    """The share of messages whose first try is refused, because they are the first of a block of numbers."""
    return 1 / blocks_of(ledger.window).size if isinstance(ledger, SeenNumbers) else 0
