"""What a ledger adds to an item of DynamoDB, found by making the ledger's own writes on paper. Pure.

The clauses are those that are sent: `request` writes them, and this reads them. So what is predicted follows what is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from onewrite.costs.stream import SECOND, Stream, held
from onewrite.costs.texts import Cycle, Texts, blocks_held, counts_of, cycle_of, turns
from onewrite.dynamodb.layout import ATTEMPT_SLOTS, attempts_name, lookup, name_of
from onewrite.dynamodb.request import ATTEMPTS, TOKEN_BYTES, new_token, of_write, parts_of
from onewrite.dynamodb.size import LARGEST_ITEM, item_size, value_size
from onewrite.label import Slot
from onewrite.ledgers import Ledger, SeenNumbers
from onewrite.ledgers.entry import Advance, Remember
from onewrite.message import Message
from onewrite.write import NoStep, Write


def written(item: Mapping[str, Any], ledger: Ledger, message: Message, now: float, call: str) -> dict[str, Any]:
    """The item after a guarded write of a message that the ledger lets in. `call` is a name that no other call has."""
    entry = ledger.entry(message, now).facing(lookup(item))
    return after(item, Write(message, {}, now, entry, NoStep(exact=False), token=new_token(ledger.attribute, call, now)))


def after(item: Mapping[str, Any], write: Write) -> dict[str, Any]:
    """The item after the ledger's part of a write."""
    parts = parts_of(write)
    names, values = of_write(write)
    names, values = {**parts.words.names, **names}, {**parts.values, **values}
    changed = dict(item)
    for name, value in _pairs(parts.sets, "="):
        held_value = values[value]
        changed[names.get(name, name)] = held_value if isinstance(held_value, str | int) else frozenset(held_value)
    for word, value in _pairs(parts.adds, " "):
        name = names.get(word, word)
        changed[name] = frozenset([*changed.get(name, ()), *values[value]])
    for name in parts.removes:
        changed.pop(names.get(name, name), None)
    return changed


def _pairs(actions: list[str], between: str) -> list[tuple[str, str]]:
    return [cast("tuple[str, str]", tuple(action.split(between))) for action in actions]


class ItemLedger:
    """The bytes of a ledger in an item that gets a stream of messages."""

    limit = LARGEST_ITEM

    def __init__(self, ledger: Ledger, texts: Texts) -> None:
        self._ledger, self._texts = ledger, texts
        self.parts = (Cycle(self._marks, cycle_of(ledger, texts)), Cycle(self._tokens, ATTEMPTS))

    def _marks(self, stream: Stream, moment: int) -> int:
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
            case _:
                ledger = cast("SeenNumbers", self._ledger)  # no other changes numbers
                sizes = [n * _numbers(ledger, self._texts, k) for k, n in turns(last, self._texts.sources)]
                return labels + sum(sizes)

    def _tokens(self, stream: Stream, moment: int) -> int:
        counts = held(stream, ATTEMPTS, ATTEMPT_SLOTS, moment)
        names = {slot: len(attempts_name(self._ledger.attribute, slot).encode()) for slot in counts}
        return sum([names[slot] + n * TOKEN_BYTES for slot, n in counts.items()])


@lru_cache(maxsize=4096)
def _numbers(ledger: SeenNumbers, texts: Texts, last: int) -> int:
    """The bytes of the slots of one source."""
    item: dict[str, Any] = {}
    for block in blocks_held(ledger, last):
        message = texts.of_source(0, block[0])
        item = written(item, ledger, message, 0, "")
        item[name_of(ledger.look(message, 0).numbers)] = frozenset(block)  # the others of the block join it there
    return item_size({name: value for name, value in item.items() if "@" in name})
