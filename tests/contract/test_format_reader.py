"""The page about the stored format is true and complete: who reads an entity by it agrees with the library after any history."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onewrite import (
    Applied,
    Begun,
    Busy,
    Duplicate,
    Event,
    Gone,
    HighWaterMark,
    IdSet,
    InSequence,
    Message,
    Outbox,
    SeenIds,
    Stale,
    Tombstones,
    Uncertain,
    sortable,
)
from onewrite.core.ledgers import Ledger
from onewrite.outbox import Outgoing
from tests.contract.stores import MakeIn, Place, Shop
from tests.support import format_reader
from tests.support.examples import examples
from tests.support.format_reader import MessageName

ORDER = "o-1 &=/"
OUTBOX, TOMBSTONES = Outbox("shop/orders"), Tombstones(timedelta(days=30))
# One event of each kind: without a name, of another type, a second one of the first type, with a name.
EVENTS = (Event("A", {"n": 1}), Event("B", "é"), Event("A", None), Event("C", [1.5], name="only"))
DAY = timedelta(days=1)

What: TypeAlias = Literal[
    "add",
    "create",
    "remember",
    "delete",
    "begin_effect",
    "finish",
    "release_effect",
    "update_batch",
    "flush",
    "wait",
    "expire",
]
WHATS: tuple[What, ...] = get_args(What)


class Case(NamedTuple):
    """The ledgers of one or two services that write to the entity, and by which names the page calls what they keep."""

    ledgers: tuple[Ledger, ...]
    names: tuple[str, ...] = ("",)
    sources: tuple[str, ...] = ("orders", "order-7", "a.b$c%d\0+e", "a source that is longer than that")
    texts: bool = False  # sequences are texts
    lasts: timedelta = 14 * DAY

    def messages(self) -> list[Message]:
        def of(n: int, source: str) -> Message:
            return Message(f"m{n}", source=source, sequence=sortable(n) if self.texts else n)

        plain = [of(n, source) for source in self.sources for n in (1, 2, 3, 9)]
        return [
            *plain,
            plain[0].part("line"),
            plain[-1].part("li/n+e").part("é"),
            Message("@m", "s", sequence=plain[0].sequence),
        ]


BESIDE = SeenIds(name="other", previous=SeenIds())
CASES = {
    "ids": Case((SeenIds(),), sources=("", "order-7", "a.b$c%d\0+e", "another")),
    "ids for 36 hours": Case((SeenIds(retention=timedelta(hours=36)),), lasts=timedelta(hours=36)),
    "readable ids": Case((SeenIds(readable=True),), sources=("", "order-7", "@x", "another")),
    "ids forever": Case((SeenIds(retention=None),)),
    "readable ids forever, with a name": Case((SeenIds(retention=None, readable=True, name="b"),), ("b",)),
    "message ids": Case((IdSet("messageIDs"),), ("@messageIDs",)),
    "marks": Case((HighWaterMark(),)),
    "marks that are texts, with a name": Case((HighWaterMark(name="b-1"),), ("b-1",), texts=True),
    "in sequence": Case((InSequence(),)),
    "ids of two names": Case((SeenIds(previous=SeenIds(name="other")), BESIDE), ("", "other")),
    "ids beside a set": Case(
        (SeenIds(previous=IdSet("messageIDs")), IdSet("messageIDs", previous=SeenIds())), ("", "@messageIDs")
    ),
    "marks of two names": Case(
        (HighWaterMark(previous=HighWaterMark(name="m")), HighWaterMark(name="m", previous=HighWaterMark())), ("", "m")
    ),
}
EFFECTS = st.lists(st.tuples(st.sampled_from(WHATS), st.integers(0, 18), st.integers(0, 1), st.booleans()), max_size=30)
_places = (Place(f"reader{n}") for n in itertools.count())


@pytest.fixture(scope="module", params=["dynoxide client", "mongod"])
def store(request: pytest.FixtureRequest) -> str:
    """The other stores write the same."""
    return str(request.param)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.few(2)
def test_reader_of_the_format_page_agrees_with_the_library(opened: MakeIn, case: Case) -> None:
    @settings(
        max_examples=examples(40), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
    )
    @given(EFFECTS)
    def agree(effects: list[tuple[What, int, int, bool]]) -> None:
        history = History(opened, case)
        for what, which, service, odd in effects:
            history.go_on(what, history.messages[which], history.shops[service % len(history.shops)], odd=odd)
        for message in history.messages:
            history.compare_message(message)

    agree()


class History:
    """An entity, and whoever writes to it."""

    def __init__(self, opened: MakeIn, case: Case) -> None:
        self.case, self.messages, place = case, case.messages(), next(_places)
        self.shops = [opened(ledger, place, OUTBOX, TOMBSTONES) for ledger in case.ledgers]
        self.begun: dict[str, tuple[Shop, Begun]] = {}

    def go_on(self, what: What, message: Message, shop: Shop, *, odd: bool) -> None:
        before, emit = self.stored(), EVENTS if odd else None
        if what in ("add", "create", "remember", "delete"):
            options = {} if what == "remember" else {"emit": emit}
            if isinstance(getattr(shop, what)(message, ORDER, **options), Applied) and "emit" in options and emit:
                self.compare_ids(message, shop, emit)
        elif what == "begin_effect":
            if isinstance(begun := shop.begin_effect(message, ORDER), Begun):
                self.begun[repr(message)] = shop, begun
        elif what in ("finish", "release_effect") and (open_effect := self.begun.get(repr(message))):
            its_shop, begun = open_effect
            if what == "finish":
                its_shop.add(message, ORDER, finishes=begun)
            else:
                its_shop.release_effect(begun, sent=odd)
        elif what == "update_batch":
            shop.update_batch([message, *self.messages[:2]], ORDER)
        elif what == "flush":
            self.flush(shop, before, accepted=2 if odd else len(EVENTS) * 30)
        elif what == "wait":
            shop.clock.now += self.case.lasts.total_seconds() / 60
        elif what == "expire" and format_reader.tombstone(before) and not before.get("ow_events"):
            shop.delete_raw(ORDER)
        self.compare_entity(shop)
        self.compare_message(message)

    def stored(self) -> dict[str, Any]:
        return self.shops[0].raw(ORDER) or {}

    def key(self) -> dict[str, tuple[str, str]]:
        return {name: ("S", text) for name, text in self.shops[0].key(ORDER).items()}

    def flush(self, shop: Shop, before: Mapping[str, Any], *, accepted: int) -> None:
        """What goes out is what the page says is pending, as the page says, and so is what stays."""
        told: list[Outgoing] = []

        def publish(events: list[Outgoing]) -> list[Outgoing]:
            told.extend(events)
            return events if len(told) > accepted else []

        expected = format_reader.pending(before, self.key())
        shop.relay(publish).flush(ORDER)
        shown = [(each["published"], each["source"], each["number"], each["type"], each["body"]) for each in expected]
        assert [(event.id, event.source, event.sequence, event.type, event.body) for event in told] == shown[: accepted + 1]
        assert format_reader.pending(self.stored(), self.key()) == expected[accepted:]

    def compare_ids(self, message: Message, shop: Shop, emit: Sequence[Event]) -> None:
        """The events of a write have the ids that the page gives them."""
        ledger = self.case.names[self.shops.index(shop)]
        places: dict[str, Any] = {}
        ids = [
            format_reader.event_id(
                told(message), event.type, event.name, next(places.setdefault(event.type, itertools.count())), ledger
            )
            for event in emit
        ]
        assert [event["id"] for event in self.stored()["ow_events"]][-len(emit) :] == ids

    def compare_entity(self, shop: Shop) -> None:
        """The page says which fields are the caller's, which effects are open, and whether the entity was deleted."""
        stored = self.stored()
        tombstone = format_reader.tombstone(stored)
        sets = {name.removeprefix("@") for name in self.case.names if name.startswith("@")}
        mine = {name: value for name, value in stored.items() if not name.startswith("ow_") and name not in sets}
        assert shop.get(ORDER) == (None if tombstone or not stored else mine)
        if tombstone:
            assert (tombstone["expires"] is None) == bool(stored.get("ow_events"))
        else:
            left = format_reader.effects(stored).values()
            assert sorted(effect.message.id for effect in shop.open_effects(ORDER)) == sorted(
                effect["id"] for effect in left
            )

    def compare_message(self, message: Message) -> None:
        """The page says what the library says of the message: that it was seen, that its effect is open, that the entity is gone."""
        stored, its = self.stored(), told(message)
        names = self.case.names
        seen = any(format_reader.remembers(stored, name, its) for name in names)
        marks = {format_reader.effect_mark(its, name) for name in names} & format_reader.effects(stored).keys()
        for mark in marks:
            assert format_reader.effects(stored)[mark]["key"] == format_reader.child(its, "charge")
        for shop in self.shops:
            answer = shop.preview(message, ORDER)
            if marks:  # although a later message of the source may have moved the mark
                assert isinstance(answer, (Busy, Uncertain))
            elif seen:
                assert isinstance(
                    answer, (Duplicate, Gone if format_reader.tombstone(stored) else Stale)
                )  # Gone goes before Stale
            elif format_reader.tombstone(stored):
                assert isinstance(answer, Gone)
            else:
                assert not isinstance(answer, (Duplicate, Stale, Gone, Busy, Uncertain))


def told(message: Message) -> MessageName:
    return MessageName(message.id, message.source, message.parts, message.sequence)
