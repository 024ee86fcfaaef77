"""A real browser without a screen: Chromium, driven by Playwright. It may ask nothing but loopback and files.

A page is watched for what its visitor would never see: errors of its scripts, and requests that leave the machine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import pytest

from tests.support.ci import in_ci

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
MISSING = "there is no Chromium on PATH: apt-get install chromium, or its like"
# As root it has no sandbox; and what it would ask of its makers is nothing to us.
ARGUMENTS = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
_AT_HOME = ("file", "data", "blob", "about")


@dataclass
class WatchedPage:
    """A page, and what went wrong on it behind its visitor's back."""

    page: Page
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def notice(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def note_request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in _AT_HOME and parts.hostname not in ("127.0.0.1", "localhost"):
            self.outside.append(request.url)


def program() -> str:
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if path is None:
        (pytest.fail if in_ci() else pytest.skip)(MISSING)
    return path


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium, for as long as it is needed. One serves many pages."""
    path = program()
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # slow to import, and few tests need it

    sandbox = [] if os.getuid() else ["--no-sandbox"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, *sandbox])
        yield chromium
        chromium.close()


@contextmanager
def watch(
    chromium: Browser, *, scheme: Literal["light", "dark"] = "light", width: int = 1280, height: int = 900
) -> Iterator[WatchedPage]:
    """An empty page. At the end it must have had no error, and asked for nothing outside this machine."""
    page = chromium.new_page(color_scheme=scheme, viewport={"width": width, "height": height})
    watched_page = WatchedPage(page)
    page.on("console", watched_page.notice)
    page.on("pageerror", lambda error: watched_page.errors.append(str(error)))
    page.on("request", watched_page.note_request)
    try:
        yield watched_page
        if watched_page.errors or watched_page.outside:
            pytest.fail(f"The page has errors {watched_page.errors}, and asks for {watched_page.outside}")
    finally:
        page.close()
