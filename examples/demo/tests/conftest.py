from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from demo import DynamoShop, MongoShop, Shop
from tests.support.ci import in_ci

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# Chromium must ask its makers for nothing.
QUIET = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture(params=[DynamoShop, MongoShop], ids=["moto", "mongomock"])
def open_shop(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Shop]]:
    """Opens shops that the end of the test closes: moto's tables are the same for the whole process."""
    with ExitStack() as shops:
        yield lambda name: shops.enter_context(closing(request.param(name)))


@pytest.fixture(scope="module")  # playwright keeps an event loop running in this thread
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        (pytest.fail if in_ci() else pytest.skip)("there is no Chromium on PATH: apt-get install chromium")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # slow to import, and few tests need it

    sandbox = [] if os.getuid() else ["--no-sandbox"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=[*QUIET, *sandbox])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page. Its scripts must not fail, and it must load nothing from another machine."""
    page, problems = browser.new_page(viewport={"width": 1280, "height": 880}), list[str]()

    def check(request: Request) -> None:
        if urlsplit(request.url).hostname != "127.0.0.1":
            problems.append(request.url)

    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", check)
    yield page
    page.close()
    assert problems == []
