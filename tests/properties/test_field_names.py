"""Any text as a source or an id: no two share a name or a mark, and every name is one that the engines take."""

from __future__ import annotations

import uuid

from hypothesis import assume, given
from hypothesis import strategies as st

from onewrite import HighWaterMark, Message, SeenIds, sortable
from onewrite.dynamodb.request import attempt_attribute, attribute_of, slot_of
from onewrite.ledger import source_slot

# Every text that a message takes, and often the characters that have a meaning somewhere.
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.sampled_from(list(".$%@25E4\0~:a"))),
)
attributes = texts.filter(lambda text: text not in ("", "_id") and not set("$\0") & set(text))
NOW = 1_790_000_000.0


@given(texts, texts)
def test_two_sources_never_share_a_slot(one: str, other: str) -> None:
    assume(one != other)
    assert source_slot(one) != source_slot(other)


@given(texts)
def test_a_slot_has_nothing_that_an_engine_reads_as_a_path(source: str) -> None:
    slot = source_slot(source)
    assert not set(".$\0") & set(slot)
    assert slot
    assert not slot.isdigit()


@given(texts)
def test_a_source_can_be_read_from_its_slot(source: str) -> None:
    plain = source_slot(source)[1:].replace("%2E", ".").replace("%24", "$").replace("%00", "\0").replace("%25", "%")
    assert plain == source


@given(attributes, texts, attributes, texts)
def test_two_ledgers_or_sources_never_share_an_attribute(a: str, source: str, b: str, other: str) -> None:
    assume((a, source) != (b, other))
    assert attribute_of(a, source_slot(source)) != attribute_of(b, source_slot(other))


def test_a_dot_in_a_source_and_a_dot_in_an_attribute_are_not_the_same() -> None:
    assert attribute_of("a", source_slot("b.c")) != attribute_of("a.b", source_slot("c"))


@given(attributes, texts, st.floats(min_value=0, max_value=4e9))
def test_a_ledgers_attributes_are_all_known_as_its_own_and_all_differ(attribute: str, source: str, now: float) -> None:
    message = Message("m", source=source, sequence=1)
    remember, advance = SeenIds(attribute=attribute).entry(message, now), HighWaterMark(attribute).entry(message, now)
    slots = [*[slot for slot, _ in remember.lacks], *remember.ring.drops, advance.slot, ""]
    for_ever = SeenIds(None, attribute).entry(message, now)
    attempts = [attempt_attribute(attribute, entry.slot) for entry in (advance, for_ever)]
    names = [*[attribute_of(attribute, slot) for slot in slots], *attempts]
    assert len(set(names)) == len(names)
    assert all(slot_of(attribute, name) is not None for name in names)


@given(st.integers(min_value=0), st.integers(min_value=0))
def test_sortable_text_sorts_as_the_numbers_do(one: int, other: int) -> None:
    assert (sortable(one) < sortable(other)) == (one < other)
    assert (sortable(one) == sortable(other)) == (one == other)


@given(st.integers(0, 200), st.integers(0, 200), st.integers(-1, 1), st.integers(-1, 1))
def test_sortable_text_sorts_at_every_count_of_digits(a: int, b: int, over: int, under: int) -> None:
    one, other = max(0, 10**a + over), max(0, 10**b + under)
    assert (sortable(one) < sortable(other)) == (one < other)


@given(texts.filter(bool), texts.filter(bool))
def test_two_ids_never_share_a_digest(one: str, other: str) -> None:
    assume(one != other)
    assert digest(one) != digest(other)


@given(st.uuids())
def test_a_uuid_is_kept_exactly(value: uuid.UUID) -> None:
    assert digest(str(value)) == value.bytes


@given(st.uuids())
def test_another_spelling_of_a_uuid_is_another_id(value: uuid.UUID) -> None:
    text = str(value)
    spellings = {text, text.upper(), value.hex, f"{{{text}}}", value.urn, text.replace("-", "", 1) + "-"}
    assert len({digest(spelling) for spelling in spellings}) == len(spellings)


@given(texts.filter(bool))
def test_a_digest_has_16_bytes(text: str) -> None:
    assert len(digest(text)) == 16


@given(texts.filter(bool), texts, texts.filter(bool), texts)
def test_two_messages_or_names_never_share_a_child(one: str, a: str, other: str, b: str) -> None:
    assume((one, a) != (other, b))
    assert Message(one).child(a) != Message(other).child(b)


@given(texts.filter(bool), texts.filter(bool), st.floats(min_value=0, max_value=4e9), st.booleans())
def test_two_ids_never_share_a_mark_at_any_time(one: str, other: str, now: float, digest: bool) -> None:
    assume(one != other)
    ledger = SeenIds(digest=digest)
    first = {mark for _, mark in ledger.entry(Message(one), now).lacks}
    second = {mark for _, mark in ledger.entry(Message(other), now).lacks}
    assert first.isdisjoint(second)


def digest(text: str) -> bytes:
    mark = SeenIds(retention=None, digest=True).entry(Message(text), NOW).mark
    assert isinstance(mark, bytes)
    return mark
