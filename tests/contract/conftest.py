from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.contract.stores import OPENERS, Engines, MakeIn, MakeShop, Place
from tests.support.engines import dynoxide_binary, mongod_binary, require

_places = (Place(f"p{n}") for n in itertools.count())
# Each promise is shown on both stand-ins and both engines, blocking and asynchronous. These are other ways to the same requests.
_OTHER_WAYS = {
    *("moto client", "dynoxide client", "dynoxide lean client", "dynoxide async table"),
    "mongomock async",
}
_MARKS = [pytest.mark.slow, pytest.mark.another_way]
_STORES = [pytest.param(name, marks=_MARKS if name in _OTHER_WAYS else []) for name in OPENERS]


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    with ExitStack() as stack:
        yield Engines(stack)


@pytest.fixture(scope="module", params=_STORES)
def store(request: pytest.FixtureRequest) -> str:
    """The name of a store."""
    return str(request.param)


@pytest.fixture(scope="module")
def opened(store: str, engines: Engines) -> Iterator[MakeIn]:
    """Opened once for a file: to make a client takes longer than most tests."""
    if store.startswith("dynoxide"):
        require(dynoxide_binary)
    if store.startswith("mongod"):
        require(mongod_binary)
    with OPENERS[store](engines) as make:
        yield make


@pytest.fixture
def make_shop(opened: MakeIn) -> MakeShop:
    """Shops of this test's own."""
    place = next(_places)
    return lambda ledger, outbox=None, tombstones=None: opened(ledger, place, outbox, tombstones)
