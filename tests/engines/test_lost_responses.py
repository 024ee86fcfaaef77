"""Requests and responses get lost on the way, and each client repeats what it sends, or raises.

Every write adds 1 to `n`, so an effect that two attempts applied shows.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from aiobotocore.config import AioConfig
from botocore.exceptions import ClientError, HTTPClientError
from pymongo.errors import AutoReconnect

from onewrite import (
    Applied,
    Begun,
    Busy,
    Duplicate,
    Event,
    HighWaterMark,
    InSequence,
    Message,
    Outbox,
    Rejected,
    SeenIds,
    TakenOver,
    Tombstones,
)
from onewrite.testing.standins.stores import table_request
from tests.contract.endpoints import DUMMIES, CollectionPlace, TablePlace
from tests.contract.stores import EFFECT, Adding, MakeIn, Place, Shop, open_collections, open_tables
from tests.engines.ledgers import LEDGERS, AnyLedger, ledgers
from tests.support.mongo_proxy import MongoProxy
from tests.support.proxy import Fault, FaultProxy

pytestmark = pytest.mark.usefixtures("quick_retries")

M1, M2 = (Message(f"m{n}", source="s", sequence=n) for n in (1, 2))
LOST = [Fault.DROP_ANSWER, Fault.RESET, Fault.ERROR_500_AFTER]
NOT_CONNECTED = (HTTPClientError, AutoReconnect)
# How often each client sends a request before it raises. Some send the same requests as another one.
ATTEMPTS = {
    "table": 3,
    "client": 3,
    "legacy client": 3,
    "lean client": 4,
    "async client": 3,
    "pymongo": 2,
    "async pymongo": 2,
}
WRITES: dict[str, Callable[[Shop, Message], Any]] = {
    "update": lambda shop, m: shop.add(m, "o"),
    "update and return": lambda shop, m: shop.add_and_return(m, "o"),
    "create": lambda shop, m: shop.create(m, "o", 1),
    "remember": lambda shop, m: shop.remember(m, "o"),
    "batch": lambda shop, m: shop.update_batch([m], "o")[0],
    "delete": lambda shop, m: shop.delete(m, "o"),
}
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
on_dynamodb = pytest.mark.parametrize("client", ["client"], indirect=True)
OPTIONS: Any = {"outbox": Outbox("shop"), "tombstones": Tombstones(timedelta(days=14))}
PAID = [Event("Paid", 1)]
_places = (Place(f"p{n}") for n in itertools.count())


@dataclass(frozen=True, slots=True)
class Line:
    """Shops whose client reaches its server through a proxy, and shops that reach it directly."""

    client: str
    proxy: FaultProxy | MongoProxy
    through: MakeIn
    direct: MakeIn
    place: Place

    def shop(self, ledger: AnyLedger) -> Shop:
        return self.through(ledger, self.place, **OPTIONS)

    def other(self, ledger: AnyLedger) -> Shop:
        return self.direct(ledger, self.place, **OPTIONS)

    def applied(self, message: Message) -> Applied:
        """The outcome after a lost response: MongoDB recognizes the driver's second attempt itself."""
        return Applied(message, retried="pymongo" not in self.client)

    def lose(self, *faults: Fault, then: Callable[[], object] | None = None) -> None:
        if not {*faults} <= self.proxy.faults:
            pytest.skip("a fault of HTTP")
        self.proxy.after_write = then
        self.proxy.plan(*faults)


_OTHER_WAYS = {"table", "legacy client", "async client", "async pymongo"}
_CLIENTS = [pytest.param(name, marks=[pytest.mark.another_way] if name in _OTHER_WAYS else []) for name in ATTEMPTS]


@pytest.fixture(scope="module", params=_CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def opened(client: str, request: pytest.FixtureRequest) -> Iterator[tuple[FaultProxy | MongoProxy, MakeIn, MakeIn]]:
    with ExitStack() as stack:
        if "pymongo" in client:
            server = request.getfixturevalue("mongod")
            mongo_proxy = stack.enter_context(MongoProxy("127.0.0.1", server.port))
            options = "serverMonitoringMode=poll&serverSelectionTimeoutMS=5000"
            near = CollectionPlace(f"{mongo_proxy.uri}&{options}", "lost", "orders")
            through = stack.enter_context(open_collections(near, asynchronous=client.startswith("async")))
            direct = open_collections(CollectionPlace(server.uri, "lost", "orders"), asynchronous=False)
            yield mongo_proxy, through, stack.enter_context(direct)
        else:
            server = request.getfixturevalue("dynoxide")
            name = client.replace(" ", "-")
            request.getfixturevalue("dynamo").create_table(**table_request(name, "orderId"))
            proxy = stack.enter_context(FaultProxy("127.0.0.1", server.port))
            retries: Any = {
                "mode": "legacy" if client.startswith(("legacy", "async")) else "standard",
                "total_max_attempts": 3,
            }
            settings = {**DUMMIES, "endpoint_url": proxy.endpoint, "config": AioConfig(retries=retries)}
            kind = client.removeprefix("legacy ")
            through = stack.enter_context(open_tables(TablePlace(settings, name), kind))
            direct = open_tables(TablePlace({**DUMMIES, "endpoint_url": server.endpoint}, name), "client")
            yield proxy, through, stack.enter_context(direct)


@pytest.fixture
def line(client: str, opened: tuple[FaultProxy | MongoProxy, MakeIn, MakeIn]) -> Iterator[Line]:
    proxy, through, direct = opened
    proxy.operations.clear()
    proxy.past_faults.clear()
    yield Line(client, proxy, through, direct, next(_places))
    proxy.calm()
    proxy.after_write = None


@pytest.fixture(params=LOST, ids=lambda fault: fault.name)
def fault(request: pytest.FixtureRequest) -> Fault:
    return Fault(request.param)


def n_of(shop: Shop) -> int:
    return int((shop.get("o") or {}).get("n", 0))


def is_counted(write: Any) -> bool:
    """Whether the entity shows the effect of this write."""
    return write not in (WRITES["remember"], WRITES["delete"])


# --- a write ----------------------------------------------------------------------------------------------------------


@writes
def test_write_is_applied_if_its_request_is_lost(line: Line, write: Any) -> None:
    shop = line.shop(SeenIds())
    line.lose(Fault.DROP_REQUEST)
    outcome = write(shop, M1)
    assert (type(outcome), outcome.retried) == (Applied, False)
    assert line.proxy.past_faults == [Fault.DROP_REQUEST]
    assert isinstance(write(shop, M1), Duplicate)
    assert n_of(shop) == is_counted(write)


@writes
@ledgers
def test_write_is_applied_once_if_its_response_is_lost(line: Line, ledger: AnyLedger, write: Any, fault: Fault) -> None:
    shop = line.shop(ledger)
    line.lose(fault)
    outcome = write(shop, M1)
    assert (type(outcome), outcome.retried) == (Applied, line.applied(M1).retried)
    assert line.proxy.past_faults == [fault]
    assert isinstance(write(shop, M1), Duplicate)
    assert n_of(shop) == is_counted(write)


@writes
@pytest.mark.parametrize("ledger", [SeenIds(), InSequence()], ids=str)
def test_redelivery_is_a_duplicate_if_retries_are_exhausted(line: Line, ledger: AnyLedger, write: Any) -> None:
    shop = line.shop(ledger)
    line.lose(*[Fault.DROP_ANSWER] * ATTEMPTS[line.client])
    with pytest.raises(NOT_CONNECTED):
        write(shop, M1)
    assert isinstance(write(shop, M1), Duplicate)
    assert n_of(shop) == is_counted(write)


def test_entity_is_returned_if_response_is_lost(line: Line, fault: Fault) -> None:
    shop = line.shop(SeenIds())
    line.lose(fault)
    first, second = shop.add_and_return(M1, "o"), shop.add_and_return(M1, "o")
    assert (first, second) == (replace(line.applied(M1), entity=shop.get("o")), Duplicate(M1, shop.get("o")))


def test_counted_refusal_is_remembered_if_response_is_lost(line: Line, fault: Fault) -> None:
    shop = line.shop(InSequence())
    shop.put_raw("o", n=0, closed=True)
    line.lose(Fault.PASS, fault)
    refused = shop.add(M1, "o", if_open=True, create=False, rejected_ok=True)
    assert refused == Rejected(M1, shop.get("o"), settled=True)
    assert line.proxy.past_faults == [fault]
    assert isinstance(shop.add(M1, "o", if_open=True), Duplicate)
    assert isinstance(shop.add(M2, "o"), Applied)
    assert n_of(shop) == 1


# --- transaction conflicts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["client", "lean client"], indirect=True)
@pytest.mark.parametrize("times", [1, 5])
def test_transaction_conflict_is_retried(line: Line, times: int) -> None:
    shop = line.shop(SeenIds())
    line.lose(*[Fault.CONFLICT] * times)
    assert shop.add(M1, "o") == Applied(M1)
    assert line.proxy.operations == ["UpdateItem"] * (times + 1)
    assert n_of(shop) == 1


@on_dynamodb
def test_lasting_transaction_conflict_is_raised(line: Line) -> None:
    shop = line.shop(SeenIds())
    line.lose(*[Fault.CONFLICT] * 6)
    with pytest.raises(ClientError, match="TransactionConflictException"):
        shop.add(M1, "o")
    assert len(line.proxy.operations) == 6
    assert shop.raw("o") is None


@on_dynamodb
def test_write_is_recognized_if_response_is_lost_between_conflicts(line: Line) -> None:
    shop = line.shop(SeenIds())
    line.lose(Fault.CONFLICT, Fault.RESET, Fault.CONFLICT)
    assert shop.add(M1, "o") == Applied(M1, retried=True)
    assert n_of(shop) == 1


# --- effects ----------------------------------------------------------------------------------------------------------


def begin(shop: Shop, name: str = "charge") -> Begun:
    effect = shop.begin_effect(M1, "o", name)
    assert isinstance(effect, Begun)
    return effect


@ledgers
def test_effect_completes_if_each_response_is_lost(line: Line, ledger: AnyLedger, fault: Fault) -> None:
    shop = line.shop(ledger)
    shop.put_raw("o", n=0)
    line.lose(fault)
    effect = begin(shop)
    assert shop.begin_effect(M1, "o") == Busy(M1, effect.until)
    line.lose(fault)
    shop.release_effect(effect)
    line.lose(fault)
    taken = begin(shop)
    assert (taken.key, taken.first) == (effect.key, False)
    line.lose(fault)
    assert shop.add(M1, "o", finishes=taken) == line.applied(M1)
    assert line.proxy.past_faults == [fault] * 4
    assert isinstance(shop.begin_effect(M1, "o"), Duplicate)
    assert (shop.open_effects("o"), n_of(shop)) == ([], 1)


@pytest.mark.parametrize("sent", [True, False], ids=["sent", "unsent"])
def test_repeated_release_keeps_effect_of_another_worker(line: Line, fault: Fault, *, sent: bool) -> None:
    shop, other = line.shop(SeenIds()), line.other(SeenIds())
    shop.put_raw("o", n=0)
    effect, others = begin(shop), list[Begun]()
    line.lose(fault, then=lambda: others.append(begin(other)))
    shop.release_effect(effect, sent=sent)
    shop.release_effect(effect, sent=sent)
    assert line.proxy.past_faults == [fault]
    assert shop.begin_effect(M1, "o") == Busy(M1, others[0].until)
    assert isinstance(shop.add(M1, "o", finishes=effect), TakenOver)
    assert isinstance(other.add(M1, "o", finishes=others[0]), Applied)
    assert n_of(shop) == 1


@ledgers
def test_begin_without_response_keeps_its_key_after_the_lease(line: Line, ledger: AnyLedger) -> None:
    shop, lease = line.shop(ledger), EFFECT["lease"].total_seconds()
    shop.put_raw("o", n=0)
    line.lose(*[Fault.DROP_ANSWER] * ATTEMPTS[line.client])
    with pytest.raises(NOT_CONNECTED):
        shop.begin_effect(M1, "o")
    assert shop.begin_effect(M1, "o") == Busy(M1, shop.clock.now + lease)
    shop.clock.now += lease
    effect = begin(shop, "charge of a later version")
    assert (effect.first, effect.key) == (False, M1.child("charge"))
    line.lose(*[Fault.DROP_ANSWER] * ATTEMPTS[line.client])
    with pytest.raises(NOT_CONNECTED):
        shop.add(M1, "o", finishes=effect)
    assert isinstance(shop.add(M1, "o", finishes=effect), Duplicate)
    assert n_of(shop) == 1


# --- other writers ----------------------------------------------------------------------------------------------------


def numbered(n: int) -> Message:
    return Message(f"m{n}", source="s", sequence=n)


MOVING: dict[str, AnyLedger] = {
    "ids after marks": SeenIds(name="seen", previous=HighWaterMark(name="marks")),
    "marks after ids after other ids": HighWaterMark(name="marks", previous=SeenIds(previous=SeenIds(None))),
}
# What another writer does to the entity, given its shop and the number of the next message, before the client sends again.
MEANWHILE: dict[str, Callable[[Shop, int], object]] = {
    "nothing": lambda _, __: None,
    "another message": lambda shop, n: shop.add(numbered(n), "o", emit=PAID),
    "many messages": lambda shop, n: [shop.add(numbered(each), "o") for each in range(n, n + 12)],
    "an effect": lambda shop, n: shop.begin_effect(numbered(n), "o"),
    "a delete": lambda shop, n: shop.delete(numbered(n), "o"),
}
VERBS: dict[str, Callable[[Shop, Message, Callable[[], None]], Any]] = {
    "update": lambda shop, m, _: shop.add(m, "o", emit=PAID),
    "update on a condition": lambda shop, m, _: shop.update_batch([m], "o", Adding(limit=2)),
    "create": lambda shop, m, _: shop.create(m, "o", 1, emit=PAID),
    "remember": lambda shop, m, _: shop.remember(m, "o", emit=PAID),
    "delete": lambda shop, m, _: shop.delete(m, "o", shows=True, emit=PAID),
    "batch": lambda shop, m, _: shop.update_batch([numbered(n) for n in (2, 3, 4)], "o"),
    "finish": lambda shop, m, lose: shop.add(m, "o", finishes=_begin_and(lose, shop, m), emit=PAID),
    "perform": lambda shop, m, lose: shop.perform_effect(m, "o", lambda _: lose(), lambda _: 1),
}


def _begin_and(lose: Callable[[], None], shop: Shop, m: Message) -> Any:
    effect = shop.begin_effect(m, "o")
    lose()
    return effect


# A part of the product, the same in each run.
RACES = random.Random(7).sample([*itertools.product(LEDGERS | MOVING, VERBS, MEANWHILE)], 60)


@pytest.mark.parametrize(("name", "verb", "meanwhile"), RACES)
def test_write_is_settled_despite_others_before_its_retry(line: Line, name: str, verb: str, meanwhile: str) -> None:
    ledger = (LEDGERS | MOVING)[name]
    shop, other = line.shop(ledger), line.other(ledger)
    number = 1 if verb == "create" else 2
    if verb != "create":
        other.add(numbered(1), "o")

    def others() -> None:
        shop.clock.now += 100.0
        MEANWHILE[meanwhile](other, 5 if verb == "batch" else number + 1)

    def lose() -> None:
        line.lose(Fault.DROP_ANSWER, then=others)

    if verb not in ("finish", "perform"):
        lose()
    outcome = VERBS[verb](shop, numbered(number), lose)
    found = outcome if isinstance(outcome, list) else [outcome]
    assert all(each.settled for each in found)
    assert all(each.retried == line.applied(M1).retried for each in found if isinstance(each, Applied))
    if meanwhile in ("nothing", "an effect"):  # which leave the token of this call
        assert {type(each) for each in found} == {Applied}
    assert line.proxy.past_faults == [Fault.DROP_ANSWER]
    if "delete" not in f"{verb} {meanwhile}":
        own = 0 if verb == "remember" else 3 if verb == "batch" else 1
        before, after = int(verb != "create"), {"another message": 1, "many messages": 12}.get(meanwhile, 0)
        assert n_of(shop) == before + own + after


# --- tasks ------------------------------------------------------------------------------------------------------------


on_tasks = pytest.mark.parametrize("client", ["async client", "async pymongo"], indirect=True)


def in_tasks(line: Line, story: Callable[[Callable[[Message], Any]], Any]) -> Shop:
    """Run the story with a write that is awaited, in the event loop of the line's client."""
    shop = line.shop(SeenIds())
    run, shop._done = shop._done, lambda coroutine: coroutine
    run(story(lambda message: shop.add(message, "o")))
    shop._done = run
    return shop


@on_tasks
def test_redelivery_is_a_duplicate_if_task_is_cancelled_after_writing(line: Line) -> None:
    written, cancelled = threading.Event(), threading.Event()

    def hold() -> None:
        written.set()
        assert cancelled.wait(30)

    line.lose(Fault.DROP_ANSWER, then=hold)

    async def story(apply: Callable[[Message], Any]) -> None:
        task = asyncio.create_task(apply(M1))
        assert await asyncio.to_thread(written.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cancelled.set()
        assert isinstance(await apply(M1), Duplicate)

    assert n_of(in_tasks(line, story)) == 1


# pymongo leaves the socket of a task that is cancelled while it connects to the collector, which warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@on_tasks
def test_effects_are_exact_if_tasks_time_out(line: Line) -> None:
    choice, outcomes = random.Random(31), list[Any]()
    messages = [Message(f"m-{n}") for n in range(120)]

    async def deliver(apply: Callable[[Message], Any], message: Message) -> None:
        try:
            async with asyncio.timeout(choice.uniform(0, 0.012)):
                outcomes.append(await apply(message))
        except TimeoutError:
            outcomes.append(await apply(message))

    async def story(apply: Callable[[Message], Any]) -> None:
        await apply(Message("the connection is there"))
        for n in range(0, len(messages), 4):
            async with asyncio.TaskGroup() as group:
                for message in messages[n : n + 4]:
                    group.create_task(deliver(apply, message))

    assert n_of(in_tasks(line, story)) == len(messages) + 1
    assert {type(outcome) for outcome in outcomes} <= {Applied, Duplicate}
    assert len(outcomes) == len(messages)
