"""The queue of a worker's tests, whose time passes only where nothing else can happen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fake_sqs import FakeSqs, VirtualTime


@pytest.fixture
def time() -> Iterator[VirtualTime]:
    virtual = VirtualTime()
    yield virtual
    virtual.let_go()


@pytest.fixture
def sqs(time: VirtualTime) -> FakeSqs:
    return FakeSqs(time)


@pytest.fixture
def fifo(time: VirtualTime) -> FakeSqs:
    return FakeSqs(time, fifo=True)
