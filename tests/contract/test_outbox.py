"""What every store and every client promises of events: emitted with the write, and published once in order."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onewrite import (
    Applied,
    ConfigurationError,
    Duplicate,
    Event,
    InSequence,
    LedgerMismatch,
    Message,
    Missing,
    Outbox,
    Rejected,
    SeenIds,
    Tombstones,
)
from onewrite.outbox import Outgoing
from tests.contract.stores import Adding, MakeShop, Shop
from tests.support.seams import drawing

OUTBOX = Outbox("shop/orders")
TOMBSTONES = Tombstones(timedelta(days=14))
PAID = Event("OrderPaid", {"cents": 1250})
M1, M2 = Message("m1"), Message("m2")


@pytest.fixture
def shop(make_shop: MakeShop) -> Shop:
    return make_shop(SeenIds(), OUTBOX)


@pytest.fixture
def swept_shop(make_shop: MakeShop) -> Shop:
    """A shop whose sweeps find nothing of other tests in the same store."""
    shop = make_shop(SeenIds(), OUTBOX)
    shop.delete_all_raw()
    return shop


@pytest.fixture
def busy_shop(store: str, shop: Shop) -> Shop:
    """A shop that is written to while its relay publishes."""
    if "async" in store:
        pytest.skip("a blocking write cannot come in between; the flow and the requests are those of the blocking store")
    return shop


class Broker:
    """Keeps what it accepts. What it is told to refuse, it does not accept."""

    def __init__(self) -> None:
        self.accepted: list[Outgoing] = []
        self.refuses: Callable[[Outgoing], bool] = lambda _: False

    def __call__(self, events: list[Outgoing]) -> list[Outgoing]:
        refused = [event for event in events if self.refuses(event)]
        self.accepted += [event for event in events if event not in refused]
        return refused

    def said(self) -> list[tuple[str, int]]:
        return [(event.type, event.sequence) for event in self.accepted]


def _pending(shop: Shop, order: str) -> list[str]:
    return [event["type"] for event in (shop.raw(order) or {}).get("ow_events", [])]


def test_event_is_stored_with_the_write_and_hidden(shop: Shop) -> None:
    assert isinstance(shop.add(M1, "o", emit=[PAID, Event("Thanked", "m")]), Applied)
    assert _pending(shop, "o") == ["OrderPaid", "Thanked"]
    entity = shop.get("o")
    assert entity is not None
    assert entity["n"] == 1
    assert not [name for name in entity if name.startswith("ow_")]


def test_redelivered_message_emits_no_event(shop: Shop) -> None:
    shop.add(M1, "o", emit=[PAID])
    outcome = shop.add(M1, "o", emit=[PAID])
    assert isinstance(outcome, Duplicate)
    assert outcome.entity is not None
    assert not [name for name in outcome.entity if name.startswith("ow_")]
    assert _pending(shop, "o") == ["OrderPaid"]


def test_refused_write_emits_no_event(shop: Shop) -> None:
    assert isinstance(shop.add(M1, "o", create=False, emit=[PAID]), Missing)
    shop.put_raw("p", closed=True)
    assert isinstance(shop.add(M2, "p", if_open=True, emit=[PAID]), Rejected)
    assert (_pending(shop, "o"), _pending(shop, "p")) == ([], [])


def test_message_refused_in_sequence_emits_no_event_but_moves_mark(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence(), OUTBOX)
    shop.put_raw("o", closed=True)
    assert isinstance(shop.add(Message("m1", "s", sequence=1), "o", if_open=True, emit=[PAID], rejected_ok=True), Rejected)
    assert isinstance(shop.add(Message("m2", "s", sequence=2), "o", emit=[Event("Second", None)]), Applied)
    assert _pending(shop, "o") == ["Second"]


def test_events_are_published_in_order_and_numbered_without_a_gap(shop: Shop) -> None:
    broker = Broker()
    relay = shop.relay(broker)
    shop.add(M1, "o", emit=[Event("A", 1), Event("B", 2)])
    flushed = relay.flush("o")
    assert [event.sequence for event in flushed.published] == [1, 2]
    assert (flushed.remaining, flushed.refused, flushed.cleared) == ((), None, True)
    shop.add(M2, "o", emit=[Event("C", 3)])
    relay.flush("o")
    assert broker.said() == [("A", 1), ("B", 2), ("C", 3)]
    assert len({event.source for event in broker.accepted}) == 1
    assert len({event.id for event in broker.accepted}) == 3
    assert relay.flush("o").published == ()
    assert shop.get("o") == {**(shop.get("o") or {}), "n": 2}


def test_refused_event_stops_its_entity_after_clearing_accepted_ones(shop: Shop) -> None:
    broker = Broker()
    broker.refuses = lambda event: event.type == "Poison"
    shop.add(M1, "o", emit=[Event("A", 1), Event("Poison", 2), Event("C", 3)])
    flushed = shop.relay(broker).flush("o")
    assert broker.said() == [("A", 1)]
    assert flushed.refused is not None
    assert [(event.type, event.sequence) for event in flushed.remaining] == [("Poison", 2), ("C", 3)]
    assert _pending(shop, "o") == ["Poison", "C"]


def test_skipped_event_keeps_its_number_without_blocking_others(shop: Shop) -> None:
    broker = Broker()
    broker.refuses = lambda event: event.type == "Poison"
    shop.add(M1, "o", emit=[Event("A", 1), Event("Poison", 2), Event("C", 3)])
    relay = shop.relay(broker)
    refused = relay.flush("o").refused
    assert refused is not None
    skipped = relay.skip("o", refused.id)
    assert skipped is not None
    assert (skipped.id, skipped.sequence, skipped.type) == (refused.id, 2, "onewrite.skipped")
    assert json.loads(skipped.body) == {"type": "Poison", "entity": dict(refused.entity)}
    assert relay.skip("o", refused.id) == skipped
    assert relay.skip("o", "no such id") is None
    relay.flush("o")
    assert broker.said() == [("A", 1), ("onewrite.skipped", 2), ("C", 3)]


def test_postponed_entity_is_retried_when_due(swept_shop: Shop) -> None:
    broker = Broker()
    broker.refuses = lambda _: True
    swept_shop.add(M1, "o", emit=[PAID])
    relay: Any = swept_shop.relay(broker, clock=swept_shop.clock)
    drawing(relay._relay, 1.0)
    assert len(relay.sweep().refused) == 1
    broker.refuses = lambda _: False
    assert relay.notify("o").entities == 0
    assert relay.sweep().entities == 0
    assert [each.age for each in relay.pending()] == [0.0]
    swept_shop.clock.now += 2
    assert relay.notify("o").published == 1


def test_sweep_finds_unpublished_entities_but_not_recent_ones(swept_shop: Shop) -> None:
    broker, shop = Broker(), swept_shop
    relay = shop.relay(broker, clock=shop.clock)
    for n in range(12):
        shop.add(M1, f"o{n}", emit=[Event("A", n), Event("B", n)])
    assert relay.sweep(older_than=timedelta(seconds=5)).published == 0
    assert len(relay.pending()) == 12
    shop.clock.now += 5
    swept = relay.sweep(older_than=timedelta(seconds=5))
    assert (swept.entities, swept.published, swept.pending, swept.oldest) == (12, 24, 0, 0.0)
    assert sorted(broker.said()) == [("A", 1)] * 12 + [("B", 2)] * 12
    assert (relay.sweep().published, relay.pending()) == (0, [])


def test_recreated_entity_is_a_different_source(shop: Shop) -> None:
    broker = Broker()
    relay = shop.relay(broker)
    for _ in range(2):
        shop.add(M1, "o", emit=[PAID])
        relay.flush("o")
        shop.delete_raw("o")
    first, second = broker.accepted
    assert (first.sequence, second.sequence) == (1, 1)
    assert first.source != second.source
    assert first.id != second.id


def test_late_clear_keeps_events_of_a_recreated_entity(busy_shop: Shop) -> None:
    def meanwhile(events: list[Outgoing]) -> None:
        busy_shop.delete_raw("o")
        busy_shop.add(M2, "o", emit=[Event("Later", None)])

    busy_shop.add(M1, "o", emit=[PAID])
    flushed = busy_shop.relay(meanwhile).flush("o")
    assert (len(flushed.published), flushed.cleared) == (1, False)
    assert _pending(busy_shop, "o") == ["Later"]


def test_event_emitted_during_publishing_stays_pending(busy_shop: Shop) -> None:
    def meanwhile(events: list[Outgoing]) -> None:
        busy_shop.add(M2, "o", emit=[Event("Later", None)])

    busy_shop.add(M1, "o", emit=[PAID])
    assert busy_shop.relay(meanwhile).flush("o").cleared
    assert _pending(busy_shop, "o") == ["Later"]
    broker = Broker()
    busy_shop.relay(broker).flush("o")
    assert broker.said() == [("Later", 2)]


def test_restarted_entity_is_a_new_source_and_keeps_pending_events(shop: Shop) -> None:
    broker = Broker()
    relay = shop.relay(broker)
    shop.add(M1, "o", emit=[PAID])
    relay.flush("o")
    shop.add(M2, "o", emit=[Event("LabelledLedger", None)])
    source = relay.restart("o")
    relay.flush("o")
    assert broker.said() == [("OrderPaid", 1), ("LabelledLedger", 1)]
    assert broker.accepted[1].source == source != broker.accepted[0].source
    assert relay.restart("o") not in (None, source)  # with no pending event
    assert relay.restart("nowhere") is None


def test_event_stays_pending_if_its_publisher_raises(shop: Shop) -> None:
    def fails(events: list[Outgoing]) -> None:
        if events[0].type == "B":
            raise ConnectionError

    shop.add(M1, "o", emit=[Event("A", 1), Event("B", 2)])
    with pytest.raises(ConnectionError):
        shop.relay(fails).flush("o")
    assert _pending(shop, "o") == ["B"]


def test_store_without_outbox_cannot_emit_and_hides_other_outboxes(make_shop: MakeShop) -> None:
    shop, plain = make_shop(SeenIds(), OUTBOX), make_shop(SeenIds())
    shop.add(M1, "o", emit=[PAID])
    assert not [name for name in plain.get("o") or {} if name.startswith("ow_")]
    with pytest.raises(ConfigurationError, match=r"this store has none|has no outbox"):
        plain.add(M2, "o", emit=[PAID])
    with pytest.raises(ConfigurationError, match=r"this store has none|has no outbox"):
        plain.relay(Broker())


def test_two_services_emit_two_events_for_one_message(make_shop: MakeShop) -> None:
    billing, shipping = (make_shop(SeenIds(name=each), OUTBOX) for each in ("billing", "shipping"))
    assert isinstance(billing.add(M1, "o", emit=[PAID]), Applied)
    assert isinstance(shipping.add(M1, "o", emit=[PAID]), Applied)
    broker = Broker()
    billing.relay(broker).flush("o")
    assert broker.said() == [("OrderPaid", 1), ("OrderPaid", 2)]
    assert len({event.id for event in broker.accepted}) == 2


# The name of a relay or of another writer, beside that of the writer: what is alike, and what is not.
NAMES = ["shop/order", "shop/orders2", "Shop/orders", "shop/orders/", "shop", "shop/orders/de", "billing"]


@pytest.mark.parametrize("name", NAMES)
def test_event_is_not_published_by_another_outboxs_relay(make_shop: MakeShop, swept_shop: Shop, name: str) -> None:
    other, broker = make_shop(SeenIds(), Outbox(name)), Broker()
    swept_shop.add(M1, "o", emit=[PAID])
    before = swept_shop.raw("o")
    told = re.escape(f"Outbox('shop/orders'), but the store or relay uses Outbox('{name}')")
    with pytest.raises(LedgerMismatch, match=told):
        other.relay(broker).flush("o")
    with pytest.raises(LedgerMismatch, match=told):
        other.relay(broker).restart("o")
    with pytest.raises(LedgerMismatch, match=told):
        other.relay(broker).skip("o", "id")
    swept = other.relay(broker).sweep()
    assert [type(each.error) for each in swept.broken] == [LedgerMismatch]
    assert (broker.accepted, swept_shop.raw("o")) == ([], before)
    assert swept_shop.relay(broker).sweep().broken == []
    assert broker.said() == [("OrderPaid", 1)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_sent", [True, False])
def test_event_is_not_emitted_by_another_outboxs_writer(make_shop: MakeShop, name: str, is_sent: bool) -> None:
    shop, other = make_shop(SeenIds(), OUTBOX, TOMBSTONES), make_shop(SeenIds(), Outbox(name), TOMBSTONES)
    shop.add(M1, "o", emit=[PAID])
    if is_sent:
        shop.relay(Broker()).flush("o")
    before = shop.raw("o")
    with pytest.raises(LedgerMismatch, match="To rename an outbox"):
        other.add(M2, "o", emit=[PAID])
    with pytest.raises(LedgerMismatch, match="To rename an outbox"):
        other.create(M2, "o", emit=[PAID])
    with pytest.raises(LedgerMismatch, match="To rename an outbox"):
        other.delete(M2, "o", emit=[PAID])
    with pytest.raises(LedgerMismatch, match="To rename an outbox"):
        other.update_batch([M2, Message("m3")], "o", Adding(emit=lambda m: Event("Paid", 1, cause=m)))
    assert shop.raw("o") == before
    assert isinstance(other.add(M2, "o"), Applied)  # which emits nothing
    assert "ow_o" not in (other.get("o") or {})


@pytest.mark.parametrize("fields", [{"ow_events": ["mine"]}, {"ow_o": "ow9 outbox"}])
def test_foreign_value_in_the_outbox_field_is_kept(shop: Shop, fields: dict[str, Any]) -> None:
    shop.put_raw("o", **fields)
    with pytest.raises(LedgerMismatch, match="outbox"):
        shop.add(M1, "o", emit=[PAID])
    with pytest.raises(LedgerMismatch, match="outbox"):
        shop.relay(Broker()).flush("o")
    raw = shop.raw("o") or {}
    assert {name: raw[name] for name in fields} == fields


LATE = {"id": "i", "type": "A", "body": "1", "time": "some day", "nonce": "n", "cause": "c"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("events", []), ("events", [LATE]), ("events", None), ("due", "x"), ("due", None), ("sent", None), ("life", 1)],
)
def test_unreadable_outbox_is_named_without_blocking_others(swept_shop: Shop, name: str, value: object) -> None:
    broker = Broker()
    for order in ("odd", "good"):
        swept_shop.add(M1, order, emit=[PAID])
    raw = swept_shop.raw("odd") or {}
    due = {"ow_due": raw["ow_events"][0]["time"]}
    swept_shop.delete_raw("odd")
    swept_shop.put_raw("odd", **{**raw, **due, f"ow_{name}": value, **swept_shop.key("odd")})
    swept_shop.relay(broker).sweep()
    assert broker.said() == [("OrderPaid", 1)]
    with pytest.raises(LedgerMismatch, match=r"doesn't contain an outbox's events|other data than events"):
        swept_shop.relay(broker).flush("odd")


# --- the ids of events --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, "receipt"])
def test_message_applied_again_emits_new_events(make_shop: MakeShop, name: str | None) -> None:
    shop, broker = make_shop(SeenIds(timedelta(hours=1)), OUTBOX), Broker()
    for turn in range(3):
        assert isinstance(shop.add(M1, "o", emit=[Event("Paid", 1, name=name)]), Applied)
        shop.relay(broker).flush("o")
        for n in range(4):  # each write forgets what is old enough
            shop.clock.now += 3600
            shop.add(Message(f"another {turn} {n}"), "o")
    assert [event.sequence for event in broker.accepted] == [1, 2, 3]
    assert len({event.id for event in broker.accepted}) == 3
    assert len({event.source for event in broker.accepted}) == 1
