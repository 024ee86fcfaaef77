"""The write units that DynamoDB charges, by the rules of its documentation. Pure.

A write is charged for the item before or after it, whichever is larger, in whole units of 1 KB, and at least one. A condition that
fails is charged for the item that is there. Each index is charged for itself, and only where what it projects of the item changes: one
write of the larger of the two entries; where the entry's key changes, the old one is removed and the new one is put, and both are charged.
A transaction charges twice for its items, and once for the indexes. The 100 bytes that an entry of an index has beside its attributes are
stored, and not counted here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias, cast

from onewrite.core.flow import Call, Flow
from onewrite.core.inbox import Inbox
from onewrite.core.label import OUTBOX, Slot, is_ours
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.entry import Advance, Remember
from onewrite.core.write import NoStep, Write
from onewrite.dynamodb.layout import ATTEMPT_SLOTS, attempts_name, name_of
from onewrite.dynamodb.participants import marks_of
from onewrite.dynamodb.request import ATTEMPTS, TOKEN_BYTES, names_and_values, new_token, parts_of
from onewrite.dynamodb.size import LARGEST_ITEM, item_size, value_size
from onewrite.message import Message
from onewrite.operate.image import EntityStore
from onewrite.operate.plan.inputs import (
    BIRTH,
    SECOND,
    Cycle,
    Does,
    IndexLoad,
    Inputs,
    MessageStream,
    Texts,
    counts_of,
    cycle_of,
    ring_counts,
    turns,
    units,
)
from onewrite.operate.plan.ways import Cost, OtherWay, Sizes, Spread, StoreSample, sample_of

Item: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SecondaryIndex:
    """A secondary index. `names`: the attributes that it projects, or None for all of them."""

    name: str
    key: tuple[str, ...]
    table_key: tuple[str, ...]
    names: tuple[str, ...] | None
    is_local: bool = False

    def entry(self, item: Item | None) -> dict[str, Any] | None:
        """The item's entry in the index; none where the item lacks a part of the index's key."""
        if item is None or any(name not in item for name in self.key):
            return None
        if self.names is None:
            return dict(item)
        projection = dict.fromkeys([*self.table_key, *self.key, *self.names])
        return {name: item[name] for name in projection if name in item}


# --- What a ledger adds to an item of DynamoDB, found by making the ledger's own writes on paper. Pure --------------------


def written_item(item: Mapping[str, Any], ledger: Ledger, message: Message, now: float, call: str) -> dict[str, Any]:
    """The item after a guarded write of a message that the ledger lets in. `call` is a name that no other call has."""
    entry = ledger.entry(message, now)
    return after(item, Write(message, {}, now, entry, NoStep(exact=False), token=new_token(ledger.attribute, call, now)))


def after(item: Mapping[str, Any], write: Write) -> dict[str, Any]:
    """The item after the ledger's part of a write."""
    parts = parts_of(write)
    names, values = names_and_values(write)
    names, values = {**parts.words.names, **names}, {**parts.values, **values}
    result = dict(item)
    for name, value in _pairs(parts.sets, "="):
        held_value = values[value]
        result[names.get(name, name)] = held_value if isinstance(held_value, str | int) else frozenset(held_value)
    for word, value in _pairs(parts.adds, " "):
        name = names.get(word, word)
        result[name] = frozenset([*result.get(name, ()), *values[value]])
    for name in parts.removes:
        result.pop(names.get(name, name), None)
    return result


def _pairs(actions: list[str], between: str) -> list[tuple[str, str]]:
    return [cast("tuple[str, str]", tuple(action.split(between))) for action in actions]


class ItemLedger:
    """The bytes of a ledger in an item that gets a stream of messages."""

    limit = LARGEST_ITEM

    def __init__(self, ledger: Ledger, texts: Texts) -> None:
        self._ledger, self._texts = ledger, texts
        self.parts = (Cycle(self._marks, cycle_of(ledger)), Cycle(self._tokens, ATTEMPTS))

    def _marks(self, stream: MessageStream, moment: int) -> int:
        """Of all but the tokens of attempts."""
        last = stream.last_by(moment)
        entry = self._ledger.entry(self._texts.message(last), stream.moment(last) / SECOND)
        labels = item_size({name_of(label.slot): label.text for label in entry.terms.labels})
        match entry.own:
            case Remember(sets=sets, mark=mark):
                counts, size = counts_of(self._ledger, stream, moment), value_size(mark)
                names = {key: len(name_of(Slot(sets.present.group, key)).encode()) for key in counts}
                return labels + sum([names[key] + n * size for key, n in counts.items()])
            case Advance(slot=slot):
                name = len(name_of(slot).encode())
                return labels + sum([n * (name + value_size(k)) for k, n in turns(last, self._texts.sources)])

    def _tokens(self, stream: MessageStream, moment: int) -> int:
        counts = ring_counts(stream, ATTEMPTS, ATTEMPT_SLOTS, moment)
        names = {slot: len(attempts_name(self._ledger.attribute, slot).encode()) for slot in counts}
        return sum([names[slot] + n * TOKEN_BYTES for slot, n in counts.items()])


# --- What guarded writes cost on DynamoDB, and what else keeps out duplicates there. Pure ---------------------------------


_PER_ITEM = 100  # bytes that DynamoDB stores beside an item's own
_TRANSACTION = 2  # times the units of the same writes alone
_RECORD = 250  # bytes of a record of Powertools: a function's name with a hash, its state and times, and a short result
_RECORD_WRITES = 2  # of a fresh message: begun, and completed
_OUTBOX_ENTRIES = 2  # writes of the index of an outbox: the entry is put, and removed


class OnDynamoDB:
    """Counts write units."""

    limit = LARGEST_ITEM
    a_second: float | None = 1000  # write units that a partition takes, and so an item

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._item = IndexLoad(
            "", inputs.item_bytes, copies_ledger=True, does="changes"
        )  # the table is charged as such an index is

    def sized_ledger(self, ledger: Ledger) -> ItemLedger:
        return ItemLedger(ledger, self._inputs.texts)

    def cost(self, ledger: Ledger, stream: MessageStream, sizes: Sizes) -> Cost:
        del stream  # the sizes say all
        del ledger
        loads, entries = (self._item, *self._inputs.indexes), self._inputs.emitting * _OUTBOX_ENTRIES
        fresh = Spread.of(sizes, lambda size: sum([self._fresh(load, size) for load in loads]) + entries)
        return Cost(fresh, Spread.of(sizes, self._table))

    def _fresh(self, load: IndexLoad, ledger: int) -> float:
        """What a fresh message costs on average in the item or in an index, with the relay's write that clears its events."""
        emitting = self._inputs.emitting
        return (1 - emitting) * load.units(ledger) + emitting * load.units(ledger, self._inputs.pending_bytes)

    def load(self, ledger: Ledger, size: int) -> float:
        """Each global index has partitions of its own, and holds up the table where they take no more. A local one is in the item's."""
        del ledger
        again = self._table(size) * self._inputs.duplicates
        return self._busiest_of(self._fresh(self._item, size) + again, lambda index: self._fresh(index, size))

    def _busiest_of(self, table: float, units_of: Callable[[IndexLoad], float]) -> float:
        """Units of the partition that has the most to do: `table` are those of the item alone."""
        indexes = self._inputs.indexes
        local = sum([units_of(index) for index in indexes if index.is_local])
        return max([table + local, *[units_of(index) for index in indexes if not index.is_local]])

    def copies(self) -> int:
        return 1 + sum(index.copies_ledger for index in self._inputs.indexes)

    def other_ways(self) -> list[OtherWay]:
        write_units = Spread.always(self._table(0) + self._indexes())
        return [
            OtherWay("no guard: duplicates take effect", Cost(write_units, write_units), 0, self._busiest()),
            self._inbox(),
            self._powertools(),
        ]

    def _table(self, ledger: int) -> int:
        return self._item.units(ledger)

    def _indexes(self) -> int:
        """What a write costs in the indexes where the item has no ledger."""
        return sum([index.units(0) for index in self._inputs.indexes])

    def _busiest(self) -> float:
        """Units of the partition that has the most to do, where the item has no ledger."""
        duplicates = 1 + self._inputs.duplicates
        return self._busiest_of(self._table(0) * duplicates, lambda index: index.units(0) * duplicates)

    def _inbox(self) -> OtherWay:
        """A transaction that writes the item, and puts the message into a table of those that were processed."""
        mark = self._mark_bytes()
        item_and_mark = _TRANSACTION * (self._table(0) + units(mark))
        cost = Cost(Spread.always(item_and_mark + self._indexes()), Spread.always(item_and_mark))
        table = self._table(0) * _TRANSACTION * (1 + self._inputs.duplicates)
        load = self._busiest_of(table, lambda index: index.units(0))
        return OtherWay("processed table, in a transaction", cost, self._storage(mark), load)

    def _powertools(self) -> OtherWay:
        record = units(_RECORD)
        fresh = Spread.always(self._table(0) + self._indexes() + _RECORD_WRITES * record)
        cost = Cost(fresh, Spread.always(record))
        return OtherWay(
            "Powertools idempotency", cost, self._storage(_RECORD), self._busiest() / (1 + self._inputs.duplicates)
        )

    def _storage(self, size: int) -> float:
        """Bytes of the records of all messages within the retention."""
        return self._inputs.per_day * (self._inputs.retention / timedelta(days=1)) * (size + _PER_ITEM)

    def _mark_bytes(self) -> int:
        inbox = Inbox(object(), consumer="consumer", retention=self._inputs.retention, table_name="processed")
        (mark,) = marks_of(inbox, self._inputs.texts.message(0), "", lambda: BIRTH / SECOND)
        return item_size(mark.item)


# --- a live table, which is only read ------------------------------------------------------------------------------------


def table_sample(store: EntityStore, most: int) -> Flow[StoreSample]:
    """The first page of a scan, whose order is that of a hash and so as good as random; eventually consistent, at half the price."""
    description = (yield Call("describe_table", (), {"TableName": store.name}))["Table"]
    images = (yield from store.scan(consistent=False, size=most).next()) or []
    # DynamoDB counts the items anew about every six hours.
    sample = sample_of("dynamodb", store.name, description.get("ItemCount", 0), images)
    items = [{name: value for name, value in image.fields.items() if not is_ours(name)} for image in images]
    loads = {index.name: _load(index, items) for index in indexes_of(description)}
    used_indexes = tuple([load for load in loads.values() if load is not None])
    return replace(sample, indexes=used_indexes, unused=tuple([name for name, load in loads.items() if load is None]))


def indexes_of(table: Mapping[str, Any]) -> list[SecondaryIndex]:
    """The secondary indexes of a table as DynamoDB describes it, except for that of an outbox, which is counted with the events."""
    key = tuple([part["AttributeName"] for part in table["KeySchema"]])
    indexes = list[SecondaryIndex]()
    for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        for index in table.get(kind, []):
            own = tuple([part["AttributeName"] for part in index["KeySchema"]])
            projection = index["Projection"]
            names = None if projection["ProjectionType"] == "ALL" else tuple(projection.get("NonKeyAttributes", []))
            if OUTBOX.due not in own:
                indexes.append(SecondaryIndex(index["IndexName"], own, key, names, is_local=kind.startswith("Local")))
    return indexes


def _load(index: SecondaryIndex, items: Sequence[Mapping[str, Any]]) -> IndexLoad | None:
    """What the index has of those items that are in it. What the caller's writes do to it does not show."""
    sizes = [item_size(entry) for item in items if (entry := index.entry(item)) is not None]
    if not sizes:
        return None
    does: Does = "still" if index.names == () else "changes"
    return IndexLoad(index.name, round(sum(sizes) / len(sizes)), index.names is None, does, index.is_local)
