"""The site that `make docs` builds: nothing is left out of it, nothing in it leads nowhere, and it is read from the disk without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.test_house import PACKAGES
from tests.support.browser import browser, watch
from tests.support.ci import in_ci
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DOCS = ROOT / "docs"
SITE = ROOT / ".site"
SETTINGS = (DOCS / "site" / "mkdocs.yml").read_text()
IN_NAVIGATION = re.findall(r"^ +- [^#\n]+: (\S+\.md)$", SETTINGS, re.MULTILINE)
SOURCES = sorted((DOCS / "diagrams").glob("*.dot"))
DRAW = DOCS / "diagrams" / "draw.py"
HOOKED = {"changelog.md", "infra.md", *(f"examples/{page.parent.name}.md" for page in ROOT.glob("examples/*/README.md"))}


def test_every_page_has_one_place_in_the_navigation() -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | HOOKED
    assert sorted(IN_NAVIGATION) == sorted(pages)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_picture_is_drawn_from_the_source_beside_it(source: Path) -> None:
    drawn = source.with_suffix(".svg").read_text()
    code = f"import sys; sys.path.insert(0, {str(DRAW.parent)!r}); import draw; print(draw.mark(sys.stdin.read()))"
    asked = subprocess.run(
        [sys.executable, "-c", code], input=source.read_text(), capture_output=True, text=True, check=True
    )
    assert drawn.splitlines()[0] == asked.stdout.strip(), "draw it anew by `make diagrams`"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_the_page_of_a_module_lists_its_names_in_a_checkout_too(package: ModuleType) -> None:
    page = DOCS / "reference" / f"{package.__name__.rpartition('.')[2]}.md"
    assert [name for name in package.__all__ if f"`{name}`" not in page.read_text()] == []


# ---------------------------------------------------------------- the built site


@pytest.fixture(scope="module")
def site() -> Path:
    if not (SITE / "index.html").exists():
        (pytest.fail if in_ci() else pytest.skip)("the site is not built: `make docs` does that")
    return SITE


class Read(HTMLParser):
    """What a page of the site names, leads to and loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self.anchors.update(given[key] for key in ("id", "name") if key in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "link", "iframe", "source") and given.get("rel") not in ("canonical", "prev", "next"):
            self.loads += [given[key] for key in ("src", "href") if key in given]


@cache
def read(page: Path) -> Read:
    found = Read()
    found.feed(page.read_text())
    return found


def broken(page: Path) -> Iterator[str]:
    for address in [*read(page).links, *read(page).loads]:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        target = target / "index.html" if target.is_dir() else target
        if not target.is_file() or (
            parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in {*read(target).anchors, "__skip"}
        ):
            yield f"{page.relative_to(SITE)}: {address}"


@pytest.mark.slow
def test_every_link_and_anchor_of_the_site_leads_somewhere(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) >= len(IN_NAVIGATION)
    assert [problem for page in pages for problem in broken(page)] == []


@pytest.mark.slow
def test_no_page_of_the_site_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = {address for page in site.rglob("*.html") for address in read(page).loads}
    assert [address for address in loaded if urlsplit(address).netloc] == []


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


VIEWS = [("light", 1280), ("dark", 1280), ("light", 400), ("dark", 400)]


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), VIEWS)
def test_pages_read_from_the_disk_have_no_error_ask_for_nothing_and_fit(
    site: Path, chromium: Browser, scheme: Literal["light", "dark"], width: int
) -> None:
    """Each page in one of the views: what could go wrong in another is the same on every page."""
    with watch(chromium, scheme=scheme, width=width) as seen:
        for place in IN_NAVIGATION[VIEWS.index((scheme, width)) :: len(VIEWS)]:
            seen.page.goto((site / place).with_suffix(".html").as_uri())
            assert seen.page.locator("h1").first.is_visible()
            assert dark(seen.page) == (scheme == "dark")
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width, place
            assert seen.page.evaluate("[...document.images].filter(each => !each.naturalWidth).length") == 0, place


def dark(page: Page) -> bool:
    return page.evaluate("document.body.getAttribute('data-md-color-scheme')") == "slate"


@pytest.mark.slow
def test_a_reader_finds_a_page_by_navigation_and_by_search_and_turns_the_light_off(site: Path, chromium: Browser) -> None:
    with watch(chromium) as seen:
        page = seen.page
        page.goto((site / "index.html").as_uri())
        page.locator(".md-tabs").get_by_role("link", name="Reference").click()
        page.locator(".md-sidebar--primary").get_by_role("link", name="What is stored").click()
        page.wait_for_url("**/format.html")
        page.locator(".md-search__input").click()
        page.keyboard.type("tombstone")
        page.locator(".md-search-result__item").first.wait_for()
        assert "ombstone" in page.locator(".md-search-result__list").inner_text()
        page.keyboard.press("Escape")
        page.locator("label[title='Switch to dark']").click()
        page.wait_for_function("document.body.getAttribute('data-md-color-scheme') == 'slate'")
