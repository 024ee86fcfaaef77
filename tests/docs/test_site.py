"""The site that `make docs` builds: nothing is left out of it, nothing in it leads nowhere, and it is read from the disk without a network."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from onewrite import Begun, Message, SeenIds
from onewrite.aws_lambda import Report
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay
from onewrite.sqs import Worker
from tests.support.ci import in_ci
from tests.support.pages import ROOT

DOCS = ROOT / "docs"
SITE = ROOT / ".site"
SETTINGS = (DOCS / "site" / "mkdocs.yml").read_text()
IN_NAVIGATION = re.findall(r"^ +- [^#\n]+: (\S+\.md)$", SETTINGS, re.MULTILINE)
SOURCES = sorted((DOCS / "diagrams").glob("*.dot"))
DRAW = DOCS / "diagrams" / "draw.py"


def load_collect() -> ModuleType:
    spec = importlib.util.spec_from_file_location("collect_site", DOCS / "site" / "collect.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COLLECT: Any = load_collect()


def test_every_page_has_one_place_in_the_navigation() -> None:
    assert sorted(IN_NAVIGATION) == sorted([*COLLECT.source_pages().values(), *COLLECT.module_pages()])


def test_reference_lists_every_public_name_of_each_module() -> None:
    listed = COLLECT.read_names()
    assert {module: sorted(names) for module, names in listed.items()} == {
        module: sorted(importlib.import_module(module).__all__) for module in listed
    }


@pytest.mark.parametrize("store", [GuardedTable, GuardedCollection])
def test_reference_shows_each_method_of_a_store(store: type) -> None:
    methods = {name for name in dir(store) if inspect.isfunction(getattr(store, name)) and name[0] != "_"}
    assert methods - {*COLLECT.STORE_METHODS} == set()


def test_reference_shows_each_method_that_a_page_names() -> None:
    hidden = re.search(r'"!(\^\(.+\)\$)"', SETTINGS)
    assert hidden is not None
    named = {
        name
        for page in DOCS.glob("*.md")
        for name in re.findall(r"`(?:Relay|relay|orders|store|effect|report|result)\.(\w+)", page.read_text())
    }
    assert {"peek", "key"} <= named
    assert [name for name in named if re.match(hidden[1], name)] == []


def test_libraries_of_the_brokers_page_are_tabs() -> None:
    page = (DOCS / "brokers.md").read_text()
    tabs = re.findall(r'^=== "(.+)"\n\n    \S', COLLECT.make_tabs(page), re.MULTILINE)
    assert tabs == re.findall(r"^### (.+)$", page, re.MULTILINE)
    assert len(tabs) > 5


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_picture_matches_its_source(source: Path) -> None:
    drawn = source.with_suffix(".svg").read_text()
    code = f"import sys; sys.path.insert(0, {str(DRAW.parent)!r}); import draw; print(draw.mark(sys.stdin.read()))"
    asked = subprocess.run(
        [sys.executable, "-c", code], input=source.read_text(), capture_output=True, text=True, check=True
    )
    assert drawn.splitlines()[0] == asked.stdout.strip(), "draw it anew by `make diagrams`"


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
def test_links_and_anchors_of_the_site_exist(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) >= len(IN_NAVIGATION)
    assert [problem for page in pages for problem in broken(page)] == []


@pytest.mark.slow
@pytest.mark.parametrize("shown", [Begun, GuardedCollection, GuardedTable, Message, Relay, Report, SeenIds, Worker])
def test_reference_shows_every_option_of_a_constructor(site: Path, shown: type) -> None:
    texts = [re.sub(r"<[^>]+>", "", page.read_text()) for page in site.glob("reference/*.html")]
    calls = [part[:2000] for text in texts for part in re.split(rf"\b{shown.__name__}\(", text)[1:]]
    assert any(all(f"{option}:" in call for option in inspect.signature(shown).parameters) for call in calls)


@pytest.mark.slow
def test_pages_of_the_site_load_nothing_from_other_hosts(site: Path) -> None:
    loaded = {address for page in site.rglob("*.html") for address in read(page).loads}
    assert [address for address in loaded if urlsplit(address).netloc] == []


@pytest.mark.slow
def test_search_without_a_server_finds_every_page(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {place.replace(".md", ".html") for place in IN_NAVIGATION} <= found
    for place in IN_NAVIGATION:
        page = (site / place).with_suffix(".html")
        assert any(address.endswith("site/iframe-worker.js") for address in read(page).loads), place
