"""The plugin of this package, loaded here so its imports are measured too, pytest's own for tests of plugins, and ours."""

import gc
from collections.abc import Iterator
from functools import cache

import botocore.loaders
import pytest

pytest_plugins = [
    "onewrite.testing.plugin",
    "pytester",
    "tests.support.slow",
    "tests.support.sampling",
    "tests.support.measured",
    "tests.support.profiles",
    "tests.support.queues",
]

# Every session of boto3 reads the descriptions of the services from files again, and moto gives each test a session of its own.
botocore.loaders.create_loader = cache(botocore.loaders.create_loader)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nothing of the tens of thousands of tests is garbage: to look for some takes as long as to collect them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
