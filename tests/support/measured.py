"""In CI, coverage is measured in the quick tests, in a sample of the contract's, and in slow tests that are marked `measured`.

To measure takes as long again as to run, and the other tests would add no line.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.ci import in_ci
from tests.support.sampling import sample

_WAS_MEASURED: pytest.StashKey[bool] = pytest.StashKey()
_BEYOND_THE_SAMPLE: pytest.StashKey[bool] = pytest.StashKey()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_chosen(config):
        for name in _modules():  # else a module would be unknown whose first importer is not measured
            importlib.import_module(name)
        contract = [
            item for item in items if item.path.parent.name == "contract" and item.get_closest_marker("slow") is None
        ]
        for item in set(contract) - set(sample(contract)):
            item.stash[_BEYOND_THE_SAMPLE] = True


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run what is not to be measured without a tracer, and what is without what was computed by the former.

    A worker of pytest-xdist has two measurements of pytest-cov, and its own mark `no_cover` ends only one of them.
    """
    if not is_chosen(item.config):
        return (yield)
    is_now_measured = is_measured(item)
    if is_now_measured and not item.config.stash.get(_WAS_MEASURED, True):
        forget()
    item.config.stash[_WAS_MEASURED] = is_now_measured
    if is_now_measured:
        return (yield)
    with _untraced():
        return (yield)


@contextmanager
def _untraced() -> Iterator[None]:
    tracer, thread_tracer = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        threading.settrace(thread_tracer)


def is_chosen(config: pytest.Config) -> bool:
    """Are some tests measured, and others not?"""
    return in_ci() and config.pluginmanager.hasplugin("_cov")


def is_measured(item: pytest.Item) -> bool:
    is_quick = item.get_closest_marker("slow") is None and _BEYOND_THE_SAMPLE not in item.stash
    return is_quick or item.get_closest_marker("measured") is not None


def forget() -> None:
    """Empty the caches of all functions of ours."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "onewrite":
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear") and getattr(value, "__module__", "").startswith("onewrite"):
                    value.cache_clear()


def _modules() -> Iterator[str]:
    package = importlib.import_module("onewrite")
    for module in pkgutil.walk_packages(package.__path__, "onewrite."):
        if not module.name.endswith("__main__"):  # to import that one is to run it
            yield module.name
