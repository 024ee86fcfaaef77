"""Our own Python in one call for a fresh message, from the making of the Message to the outcome.

The target is a stub that answers at once; what calling it costs is subtracted. The processor's caches are
warm here. Between two real requests they are not, and the same code takes several times as long: the ratios contain that.
"""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Iterator
from typing import Any

from pymongo import WriteConcern
from pymongo.results import UpdateResult

from onewrite import HighWaterMark, InSequence, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from tests.benchmarks.measure import Plan, Row
from tests.benchmarks.speed_dynamodb import BUSINESS as DYNAMODB_UPDATE
from tests.benchmarks.speed_dynamodb import TABLE
from tests.benchmarks.speed_mongodb import BUSINESS as MONGODB_UPDATE

TARGET = 30.0  # microseconds: little beside the millisecond that a request takes over loopback
_ID = "1b4e28ba-2fa1-41d2-883f-0016d3cca427"
_CALLS = 100  # in one timing: a few milliseconds, so most timings are not interrupted
_TIMINGS = 41  # to one median
_MEDIANS = 5

LEDGERS = {
    "SeenIds": SeenIds(),
    "SeenIds(readable)": SeenIds(readable=True),
    "SeenIds(None)": SeenIds(retention=None),
    "HighWaterMark": HighWaterMark(),
    "InSequence": InSequence(),
}


class StubTable:
    """Answers as a boto3 Table or client does. `name` is what tells a Table."""

    def __init__(self, name: str | None) -> None:
        self.name = name

    def update_item(self, **_: Any) -> dict[str, Any]:
        return {}


class StubCollection:
    """Answers as a pymongo Collection does."""

    write_concern = WriteConcern()
    reply = UpdateResult({"n": 1}, acknowledged=True)

    def with_options(self, **_: Any) -> StubCollection:
        return self

    def update_one(self, *_: Any, **__: Any) -> UpdateResult:
        return self.reply

    def index_information(self) -> dict[str, Any]:
        return {"_id_": {"key": [("_id", 1)]}}


def rows(plan: Plan) -> Iterator[Row]:
    del plan  # a median of what takes microseconds needs no tuning
    for name, ledger in LEDGERS.items():
        yield _row(f"{name}, client", dynamodb_call(ledger, client=True), _dynamodb_stub())
        yield _row(f"{name}, Table", dynamodb_call(ledger, client=False), _dynamodb_stub())
        yield _row(f"{name}, Collection", mongodb_call(ledger), _mongodb_stub())


def dynamodb_call(ledger: Any, *, client: bool) -> Callable[[], object]:
    stub: Any = StubTable(None if client else TABLE)
    store = GuardedTable(stub, ledger, table_name=TABLE) if client else GuardedTable(stub, ledger)
    return lambda: store.update_item(Message(_ID, "s", sequence=7), Key={"id": "o-1"}, **DYNAMODB_UPDATE)


def mongodb_call(ledger: Any) -> Callable[[], object]:
    store = GuardedCollection(StubCollection(), ledger)
    return lambda: store.update_one(Message(_ID, "s", sequence=7), {"_id": "o-1"}, MONGODB_UPDATE)


def _dynamodb_stub() -> Callable[[], object]:
    stub = StubTable(TABLE)
    return lambda: stub.update_item(Key={"id": "o-1"}, **DYNAMODB_UPDATE)


def _mongodb_stub() -> Callable[[], object]:
    stub = StubCollection()
    return lambda: stub.update_one({"_id": "o-1"}, MONGODB_UPDATE, upsert=False)


def _row(what: str, ours: Callable[[], object], stub: Callable[[], object]) -> Row:
    """The least median: what else the machine does only ever adds."""
    bare = min(_medians(stub))
    medians = [median - bare for median in _medians(ours)]
    return Row(what, "own Python, driver excluded", min(medians), min(medians), max(medians), "us", TARGET)


def _medians(call: Callable[[], object]) -> list[float]:
    """Microseconds of one call."""
    timer = timeit.Timer(call)
    timer.timeit(_CALLS)
    return [statistics.median(timer.repeat(_TIMINGS, _CALLS)) / _CALLS * 1e6 for _ in range(_MEDIANS)]
