"""Emitted events are those that consumers read, and no two entities are one source.

`tests/gallery/test_publishing.py` goes through every order of an outbox's steps.
"""

from __future__ import annotations

from typing import Any

from bson import ObjectId
from hypothesis import given
from hypothesis import strategies as st

from onewrite import Event, Message, Outbox
from onewrite.core.features.event import make_emitter
from onewrite.core.features.pending import read_box
from onewrite.dynamodb.outboxes import format_key as format_item_key
from onewrite.identity import cloudevent
from onewrite.mongodb.outboxes import format_key as format_document_key

OUTBOX = Outbox("shop/orders")


texts = st.text(st.characters(exclude_categories=["Cs"]))
kinds = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=500)
bodies = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
)
item_keys = st.dictionaries(texts.filter(bool), texts | st.integers(-(10**37), 10**37) | st.binary(), min_size=1, max_size=2)
document_keys = texts | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.binary(min_size=12, max_size=12).map(ObjectId)


@given(bodies, kinds, item_keys | document_keys, st.integers(0, 10**18))
def test_consumer_reads_events_as_emitted(body: Any, kind: str, key: Any, sent: int) -> None:
    written = make_emitter(OUTBOX, "ow_l").emit([Message("m1")], [Event(kind, body)], 1_790_000_000.0, "call")
    held: dict[str, Any] = {"ow_o": OUTBOX.label, "ow_events": [dict(event) for event in written.events]}
    held |= {"ow_sent": sent, "ow_life": "life"}
    place = format_item_key(key) if isinstance(key, dict) else format_document_key(key)
    (event,) = [read_box(OUTBOX.label, {}, f"{OUTBOX.name}/{place}", held).outgoing(0)]
    message = cloudevent(parse_float=float)({"messageId": "any", "body": event.cloudevent()})
    assert (message.source, message.sequence, message.attributes["type"]) == (event.source, sent + 1, kind)
    assert message.body == body


@given(item_keys, item_keys)
def test_two_items_have_different_sources(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (format_item_key(one) == format_item_key(other)) == (one == other)


@given(document_keys, document_keys)
def test_two_documents_have_different_sources(one: Any, other: Any) -> None:
    assert (format_document_key(one) == format_document_key(other)) == (one == other and type(one) is type(other))
