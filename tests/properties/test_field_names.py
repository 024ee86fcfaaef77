"""Any text as a source, a part or an id: no two share a name or a mark, and every name is one that the engines take."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onewrite import HighWaterMark, Message, SeenIds, sortable
from onewrite.core.label import EFFECTS, OUTBOX, TOMBSTONE, Slot, is_ours, make_name_prefix
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.entry import Advance, Remember
from onewrite.core.ledgers.marks import locate_mark
from onewrite.dynamodb import layout as dynamodb
from onewrite.mongodb import layout as mongodb
from onewrite.operate.dynamodb import LAYOUT as IN_TABLES
from onewrite.operate.mongodb import LAYOUT as IN_COLLECTIONS

NOW = 1_790_000_000.0

# Every text that a message takes, and often the characters that have a meaning somewhere.
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.sampled_from(list(".$%@25E4\0~:a/+#1"))),
)
ids = texts.filter(bool)
parts = st.lists(texts, max_size=3).map(tuple)
messages = st.builds(Message, id=ids, source=texts, parts=parts)
ledger_names = st.one_of(
    st.text(st.sampled_from("abl0_-R"), max_size=32),
    st.sampled_from(["", "l", "r0", "all", "14d_r", "t0", "ow_l", "billing"]),
)
retentions = st.one_of(
    st.none(),
    st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=400)),
    st.sampled_from([timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=36), timedelta(days=14)]),
)
moments = st.floats(min_value=0, max_value=4e9)


@st.composite
def ledgers(draw: st.DrawFn, name: str | None = None) -> Ledger:
    named = draw(ledger_names) if name is None else name
    if draw(st.booleans()):
        return HighWaterMark(name=named)
    return SeenIds(draw(retentions), name=named, readable=draw(st.booleans()))


def identity(message: Message) -> tuple[str, tuple[str, ...], str]:
    return message.source, message.parts, message.id


def mark(ledger: SeenIds, message: Message, now: float = NOW) -> str:
    own = ledger.entry(message, now).own
    assert isinstance(own, Remember)
    return own.mark


# --- marks ------------------------------------------------------------------------------------------------------------


@given(messages, messages, moments)
def test_two_messages_never_share_a_mark(one: Message, other: Message, now: float) -> None:
    assume(identity(one) != identity(other))
    for ledger in (SeenIds(), SeenIds(readable=True)):
        assert mark(ledger, one, now) != mark(ledger, other, now)


@given(st.lists(texts, min_size=2, max_size=4), st.lists(texts, min_size=2, max_size=4))
def test_characters_cut_differently_never_share_a_mark(one: list[str], other: list[str]) -> None:
    """The same characters, cut elsewhere: a source, any parts, an id."""
    assume(one != other)
    assume(one[-1])
    assume(other[-1])
    first, second = (Message(cut[-1], source=cut[0], parts=tuple(cut[1:-1])) for cut in (one, other))
    for ledger in (SeenIds(), SeenIds(readable=True)):
        assert mark(ledger, first) != mark(ledger, second)


# --- names of sources -------------------------------------------------------------------------------------------------


@given(texts, parts, texts, parts)
def test_two_sources_or_parts_never_share_a_slot(one: str, a: tuple[str, ...], other: str, b: tuple[str, ...]) -> None:
    assume((one, a) != (other, b))
    assert locate_mark("ow_l", one, a) != locate_mark("ow_l", other, b)


@given(messages)
def test_slot_name_contains_no_path_syntax(message: Message) -> None:
    slot = locate_mark("ow_l", message.source or "s", message.parts)
    assert slot.key
    assert not set(".$\0") & set(slot.key)
    assert mongodb.locate_slot(slot).split(".") == [slot.group, slot.key]


# --- names of fields --------------------------------------------------------------------------------------------------


def made_slots(ledger: Ledger, message: Message, now: float) -> list[Slot]:
    """Every slot that a write of the message may touch."""
    entry = ledger.entry(message, now)
    labels = [label.slot for label in entry.terms.labels]
    if isinstance(entry.own, Advance):
        return [*labels, entry.own.slot]
    sets = entry.own.sets
    return [*labels, *dict.fromkeys([*sets.live, *sets.dead])]


def in_dynamodb(ledger: Ledger, message: Message, now: float) -> list[str]:
    return [dynamodb.locate_slot(slot) for slot in made_slots(ledger, message, now)]


def in_mongodb(ledger: Ledger, message: Message, now: float) -> list[str]:
    return [*dict.fromkeys([slot.group for slot in made_slots(ledger, message, now)])]


OF_COMMAND = {dynamodb: IN_TABLES, mongodb: IN_COLLECTIONS}
engines = pytest.mark.parametrize(
    ("layout", "names"), [(dynamodb, in_dynamodb), (mongodb, in_mongodb)], ids=["dynamodb", "mongodb"]
)


def numbered(message: Message) -> Message:
    return Message(message.id, message.source or "s", 1, parts=message.parts)


@engines
@given(ledger=ledgers(), message=messages, now=moments)
def test_ledgers_fields_are_its_own_and_all_differ(
    layout: Any, names: Any, ledger: Ledger, message: Message, now: float
) -> None:
    made = names(ledger, numbered(message), now)
    assert len(set(made)) == len(made)
    assert all(OF_COMMAND[layout].is_made_by(ledger.attribute, name) and is_ours(name) for name in made)


@engines
@given(data=st.data(), one=messages, other=messages, now=moments)
def test_two_ledgers_of_different_names_never_share_a_field(
    layout: Any, names: Any, data: st.DataObject, one: Message, other: Message, now: float
) -> None:
    first, second = data.draw(ledgers()), data.draw(ledgers())
    assume(first.attribute != second.attribute)
    mine, theirs = names(first, numbered(one), now), names(second, numbered(other), now)
    assert set(mine).isdisjoint(theirs)
    assert not any(OF_COMMAND[layout].is_made_by(first.attribute, name) for name in theirs)
    assert {*mine, *theirs}.isdisjoint({*OUTBOX, EFFECTS, TOMBSTONE})


@engines
@given(data=st.data(), name=ledger_names, message=messages, now=moments)
def test_ledgers_of_one_name_share_label_and_tokens_alone(
    layout: Any, names: Any, data: st.DataObject, name: str, message: Message, now: float
) -> None:
    """So each finds its own, after one has taken the other's place."""
    first, second = data.draw(ledgers(name)), data.draw(ledgers(name))
    assume(first.layout != second.layout)
    shared = set(names(first, numbered(message), now)) & set(names(second, numbered(message), now))
    # On MongoDB all sources are in one field, whatever is kept of them.
    prefix = make_name_prefix(first.attribute)
    kept = {each for each in shared if not each.startswith(f"{prefix}t")}
    assert kept - {f"{prefix}@"} == {first.attribute}
    slots = [made_slots(ledger, numbered(message), now) for ledger in (first, second)]
    assert set(slots[0]) & set(slots[1]) == {Slot(first.attribute)}


@engines
@given(ledger=ledgers(), message=messages, now=moments, theirs=st.dictionaries(texts, st.integers(), max_size=4))
def test_hidden_fields_are_exactly_the_ledgers_fields(
    layout: Any, names: Any, ledger: Ledger, message: Message, now: float, theirs: dict[str, int]
) -> None:
    made = dict.fromkeys(names(ledger, numbered(message), now), 0)
    callers = {name: value for name, value in theirs.items() if not is_ours(name)}
    assert layout.without_ledger(ledger.terms, made | callers) == callers


# --- derived text -----------------------------------------------------------------------------------------------------


@given(st.integers(min_value=0), st.integers(min_value=0))
def test_sortable_text_sorts_as_the_numbers_do(one: int, other: int) -> None:
    assert (sortable(one) < sortable(other)) == (one < other)
    assert (sortable(one) == sortable(other)) == (one == other)


@given(messages, texts, messages, texts)
def test_two_messages_sources_parts_or_names_never_share_a_child(
    one: Message, name: str, other: Message, another: str
) -> None:
    assume((one, name) != (other, another))
    assert one.child(name) != other.child(another)


@given(st.lists(texts, min_size=1, max_size=4), st.data())
def test_characters_cut_differently_never_share_a_child(pieces: list[str], data: st.DataObject) -> None:
    """Of an id, a source, parts and a name, of which any may look as if it had the lengths of others in it."""
    marked = data.draw(
        st.lists(st.sampled_from([*pieces, *[f"{len(each)}:{each}" for each in pieces], "of ", " "]), max_size=6)
    )
    text = "".join(marked)
    cuts = st.lists(st.integers(0, len(text)), min_size=2, max_size=4).map(sorted)
    keys: dict[str, tuple[Message, str]] = {}
    for places in (data.draw(cuts), data.draw(cuts)):
        first, *others, name = [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]
        source, *rest = [*others, ""]
        made = Message(first or "m", source, parts=tuple(rest[:-1])), name
        assert keys.setdefault(made[0].child(name), made) == made
