"""Of the cases that a test multiplies, somebody who waits gets a sample.

A cross product of store, ledger and case finds in its thousands what a few of them find. Each test keeps every value of each
of its parameters but the store: each case of the contract keeps one store of each engine, so each store has a share of the cases. A test whose cases take long and are much alike
is marked `few(count, each=...)` instead: `count` of its cases run, or as many for each value of the parameter that `each` names.
So is every test of the engines, as the contract has its cases there already.
Which ones these are is up to a hash of their names, so they are the same everywhere. With `--slow`, and in a file that is named, all of
them run. With CI=true all but those of `another_way`: several clients that send the same requests share the cases, one for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any
from zlib import crc32

import pytest

from tests.support.ci import in_ci
from tests.support.slow import named_files

_FEW = {"engines": pytest.mark.few(2).mark}


@pytest.hookimpl(trylast=True)  # of what is not slow: a value that only a slow case shows is not missed
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    named_paths = set(named_files(config.args, config.invocation_params.dir))
    candidates = [item for item in items if item.path not in named_paths]
    if in_ci():
        candidates = [item for item in candidates if item.get_closest_marker("another_way") is not None]
    left_out = set(candidates) - set(sample(candidates))
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def sample(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """Those that show something which none before them has shown, in the order of their hashes."""
    shown_kinds: set[Hashable] = set()
    counts: Counter[Hashable] = Counter()
    for item in sorted(items, key=lambda item: (crc32(item.nodeid.encode()), item.nodeid)):
        if (mark := item.get_closest_marker("few") or _FEW.get(item.path.parent.name)) is not None:
            kind = _kind(item, **mark.kwargs)
            counts[kind] += 1
            if counts[kind] <= mark.args[0]:
                yield item
            continue
        shows = set(_shown_by(item))
        if not shows or shows - shown_kinds:
            shown_kinds |= shows
            yield item


def _kind(item: pytest.Item, *, each: str | None = None) -> Hashable:
    """What `few` counts: the test, or the test with one value of a parameter."""
    test = item.nodeid.partition("[")[0]
    return test if each is None else (test, repr(getattr(item, "callspec").params[each]))  # noqa: B009  # an item has it if it has parameters


def _shown_by(item: pytest.Item) -> Iterator[Hashable]:
    """Nothing, if it has no parameters."""
    if (call := getattr(item, "callspec", None)) is None:
        return
    test = item.nodeid.partition("[")[0]
    values: list[str] = list(call._idlist)
    store: Any = call.params.get("store")
    if isinstance(store, str) and store in values:
        values.remove(store)
        yield test, store.startswith("mongo"), *values
    yield from ((test, place, value) for place, value in enumerate(values))
