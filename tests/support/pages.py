"""The pages of the documentation, and the world that some of them take for granted.

A reader of a page has a table and a collection already. So the page shows how they are used and not how they are made, and they are made here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import mongomock
import pytest

from onewrite.testing import moto_table
from tests.support.absent_packages import STAND_INS

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for pattern in ("README.md", "docs/*.md", "examples/*/README.md", "infra/README.md")
    for page in sorted(ROOT.glob(pattern))
]


@contextmanager
def a_shop(key: str = "orderId") -> Iterator[None]:
    """A table `orders`, and a MongoDB at the default address that has a collection with three pieces of sku-1 left."""
    mongo: Any = mongomock.MongoClient()
    mongo.shop.stock.insert_one({"_id": "sku-1", "left": 3})
    region = {
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "of a stand-in",
        "AWS_SECRET_ACCESS_KEY": "of a stand-in",
    }
    with (
        moto_table("orders", key),
        mock.patch("pymongo.MongoClient", return_value=mongo),
        mock.patch.dict("os.environ", region),
    ):
        yield


@contextmanager
def a_shop_with_many_packages() -> Iterator[None]:
    """The same, with Powertools' table, and with stand-ins of packages that are not installed for the tests."""
    # Only these are taken out again. What a page imports stays, because a second copy of a package knows nothing of the first.
    with pytest.MonkeyPatch.context() as patch, a_shop(), moto_table("idempotency", "id"):
        for package, stand_in in STAND_INS.items():
            patch.setitem(sys.modules, package, stand_in)
        yield


WORLDS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "docs/index.md": a_shop,
    "docs/recipes.md": a_shop_with_many_packages,
    "docs/wire.md": partial(a_shop, key="id"),
}


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@contextmanager
def world(page: Path) -> Iterator[None]:
    """What the page expects to be there. What it leaves open until its process ends is closed behind it."""
    with WORLDS.get(name(page), nullcontext)(), ExitStack() as left_open, mock.patch("atexit.register", left_open.callback):
        yield
