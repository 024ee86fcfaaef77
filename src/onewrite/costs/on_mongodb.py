"""What guarded writes cost on MongoDB, and what else keeps out duplicates there. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson

from onewrite.costs.documents import LARGEST_DOCUMENT, DocumentLedger, written
from onewrite.costs.inputs import Inputs
from onewrite.costs.oplog import insert_operation, transaction_bytes, update_bytes, update_operation
from onewrite.costs.plan import Cost, Other, Spread
from onewrite.costs.sizes import Sizes, evenly
from onewrite.costs.stream import BIRTH, CENTURY, SECOND, Stream
from onewrite.inbox import TOKEN, Inbox, token_of
from onewrite.ledgers import Ledger

_KEY = "0" * 36  # an `_id` as long as a UUID
# What the caller's own update changes is not known: one number is counted.
_BEFORE: dict[str, Any] = {"n": 0}
_AFTER: dict[str, Any] = {"n": 1}


class OnMongoDB:
    """Counts bytes of the oplog. A refused message writes nothing there."""

    limit = LARGEST_DOCUMENT
    a_second: float | None = None  # how fast a document can be written depends on the machine

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs

    def sized(self, ledger: Ledger) -> DocumentLedger:
        return DocumentLedger(ledger, self._inputs.texts)

    def cost(self, ledger: Ledger, stream: Stream, looked: Sizes) -> Cost:
        sized = self.sized(ledger)
        moments = evenly(sized.parts[0], stream, self._inputs.lifetime)
        if self._inputs.item_bytes + looked.high > self.limit:
            moments = []  # it would not come so far
        logged = [self._logged(ledger, sized, stream, moment) for moment in dict.fromkeys(moments)]
        fresh = Spread(sum(logged) / len(logged), min(logged), max(logged)) if logged else Spread.always(0)
        return Cost(fresh, Spread.always(0))

    def _logged(self, ledger: Ledger, sized: DocumentLedger, stream: Stream, moment: int) -> int:
        """Of the message after this moment: of the source that the last one had, which stands in the fields."""
        n = stream.last_by(moment) + self._inputs.sources
        before = {} if n < self._inputs.sources else sized.expanded(stream, moment)
        message = self._inputs.texts.message(max(n, 0))
        now = min(stream.moment(n), BIRTH + 2 * CENTURY) / SECOND  # a ledger takes no later one for a time
        after = written(before, ledger, message, now)
        return update_bytes(self._inputs.namespace, _KEY, {**_BEFORE, **before}, {**_AFTER, **after})

    def load(self, ledger: Ledger, size: int) -> float:
        """Nothing that has a bound."""
        del ledger, size
        return 0

    def copies(self) -> int:
        return 1

    def others(self) -> list[Other]:
        plain = Spread.always(update_bytes(self._inputs.namespace, _KEY, _BEFORE, _AFTER))
        return [Other("no guard: duplicates take effect", Cost(plain, plain), 0, 0), self._inbox()]

    def _inbox(self) -> Other:
        """A transaction that writes the document, and inserts the message into a collection of those that were processed."""
        inbox = Inbox(object(), consumer="consumer", retention=self._inputs.retention)
        (key,) = inbox.marks(self._inputs.texts.message(0))
        mark = {"_id": key, inbox.ttl_attribute: datetime.fromtimestamp(0, UTC), TOKEN: token_of("")}
        database = self._inputs.namespace.partition(".")[0]
        inserted = insert_operation(f"{database}.processed", mark)
        updated = update_operation(self._inputs.namespace, _KEY, _BEFORE, _AFTER)
        fresh = Spread.always(transaction_bytes([inserted, updated]))
        kept = self._inputs.per_day * (self._inputs.retention / timedelta(days=1)) * len(bson.encode(mark))
        return Other("processed collection, in a transaction", Cost(fresh, Spread.always(0)), kept, 0)
