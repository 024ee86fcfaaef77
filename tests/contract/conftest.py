from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.contract.stores import OPENERS, Engines, MakeShop
from tests.support.engines import dynoxide_binary, mongod_binary, require


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    with ExitStack() as stack:
        yield Engines(stack)


@pytest.fixture(params=list(OPENERS))
def store(request: pytest.FixtureRequest) -> str:
    """The name of a store; a stand-in that is wrong about a case is marked with the reason."""
    name: str = request.param
    for mark in request.node.iter_markers("wrong_on"):
        if name.startswith(mark.args[0]):
            request.applymarker(pytest.mark.xfail(reason=mark.kwargs["reason"], strict=True))
    return name


@pytest.fixture
def make_shop(store: str, engines: Engines) -> Iterator[MakeShop]:
    if store.startswith("dynoxide"):
        require(dynoxide_binary)
    if store.startswith("mongod"):
        require(mongod_binary)
    with OPENERS[store](engines) as make:
        yield make
