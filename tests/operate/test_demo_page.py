"""The page of `onewrite demo --web` in a real browser: what a visitor sees, and what each control does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest

from onewrite.operate.demo.comparison import CLAIM, ONEWRITE, PLAIN
from onewrite.operate.demo.shops import Engine, shops
from onewrite.operate.demo.stream import Change, PaymentStream
from onewrite.operate.demo.web import Commands, Feed, PageServer, play, text_of
from tests.support.browser import browser, watch

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.slow

STANDING = Change({"running": False, "duplicates": 0, "crashes": 0})
NAMES = """() => [...document.querySelectorAll("button, input, [role=log], section, form")].map((element) =>
    element.getAttribute("aria-label")
    || document.getElementById(element.getAttribute("aria-labelledby"))?.textContent
    || element.labels?.[0]?.textContent.trim()
    || (element.matches("button") ? element.textContent.trim() : ""))"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as chromium:
        yield chromium


@contextmanager
def served(*changes: Change) -> Iterator[tuple[PaymentStream, PageServer]]:
    commands: Commands = SimpleQueue()
    with shops(Engine.MONGODB) as open_shop:
        stream = PaymentStream(open_shop, 1)
        for change in changes:
            stream.obey(change)
        feed = Feed(text_of(stream))
        server = PageServer(0, feed, commands.put)
        player = threading.Thread(target=play, args=(stream, feed, commands))
        player.start()
        try:
            yield stream, server
        finally:
            commands.put(None)
            player.join()
            server.close()


@pytest.fixture
def standing(chromium: Browser) -> Iterator[Page]:
    """A page on which nothing happens but what it is asked for."""
    with served(STANDING) as (_, server), watch(chromium) as seen:
        seen.page.goto(server.url)
        seen.page.wait_for_selector(".lane")
        yield seen.page


def lane(page: Page, name: str) -> Locator:
    return page.locator(f'.lane[data-lane="{name}"]')


def step(page: Page, until: Callable[[], bool]) -> None:
    for _ in range(40):
        if until():
            return
        with page.expect_response("**/step"):
            page.click("#step")
        page.wait_for_timeout(20)  # for the view that comes next; if it is later, there is one more step
    pytest.fail("It never happened")


def test_messages_arrive_in_all_three_queues_and_are_added(standing: Page) -> None:
    assert standing.locator(".lane h2").all_inner_texts() == [PLAIN, CLAIM, ONEWRITE]
    step(standing, lambda: standing.locator("#sent").inner_text().startswith("Payment 1, €"))
    assert lane(standing, ONEWRITE).locator(".token b").first.inner_text() == "#1"
    step(standing, lambda: "€0" not in standing.locator(".balance b").all_inner_texts())
    assert standing.locator(".drift").all_inner_texts() == ["exact"] * 3


@pytest.mark.parametrize(("name", "end"), [(PLAIN, "too much"), (CLAIM, "missing"), (ONEWRITE, "exact")])
def test_a_killed_worker_is_seen_to_die_and_its_message_comes_again(standing: Page, name: str, end: str) -> None:
    mine = lane(standing, name)
    mine.get_by_role("button", name=f"Kill the worker of {name}").press("Enter")
    mine.get_by_role("button", name="Will die at a bad moment").wait_for()
    step(standing, lambda: mine.locator(".worker.dead").count() == 1)
    assert mine.locator(".token.hidden i").inner_text().endswith(" s")
    assert mine.get_by_role("button", name="The worker is dead").get_attribute("aria-disabled") == "true"
    assert standing.locator(".worker.dead").count() == 1
    story = standing.locator("#log li").filter(has_text="The worker dies")
    assert story.locator("b").inner_text() == name
    assert story.locator("p").is_hidden()
    story.locator("summary").press("Enter")
    assert story.locator("p").is_visible()
    step(standing, lambda: standing.locator("#log li").count() == 2)
    assert end in mine.locator(".drift").inner_text()
    assert ("wrong" in (mine.get_attribute("class") or "")) == (end != "exact")


def test_the_sliders_and_the_buttons_work_from_the_keyboard(chromium: Browser) -> None:
    with served(STANDING) as (stream, server), watch(chromium) as seen:
        page = seen.page
        page.goto(server.url)
        for name, says in (("speed", "12 a second"), ("duplicates", "60 %"), ("crashes", "30 %")):
            page.focus(f"#{name}")
            with page.expect_response("**/settings"):
                page.keyboard.press("End")
            assert page.locator(f"output[for={name}]").inner_text() == says
            assert page.get_attribute(f"#{name}", "aria-valuetext") == says
        page.get_by_role("button", name="Go on").press("Space")
        page.get_by_role("button", name="Pause").wait_for()
        page.wait_for_function("() => document.querySelectorAll('#log li').length > 5")
        assert page.get_by_role("button", name="One step").is_disabled()
        assert (stream.settings.speed, stream.settings.duplicates, stream.settings.crashes) == (12, 60, 30)
        page.get_by_role("button", name="Pause").press("Enter")
        page.get_by_role("button", name="Go on").wait_for()
        page.get_by_role("button", name="Start again").press("Enter")
        page.wait_for_function("() => document.querySelectorAll('#log li').length === 0")


def test_every_control_has_a_name_and_the_log_is_told(standing: Page) -> None:
    names = standing.evaluate(NAMES)
    assert len(names) > 12
    assert all(names)
    assert standing.locator("#log").get_attribute("aria-live") == "polite"
    assert standing.locator("html").get_attribute("lang") == "en"
    labels = standing.locator("button.kill").all_text_contents()
    assert len(labels) == len(set(labels))


def test_a_page_whose_demo_has_ended_says_so(chromium: Browser) -> None:
    with watch(chromium) as seen:
        with served(STANDING) as (_, server):
            seen.page.goto(server.url)
            seen.page.wait_for_selector(".lane")
            assert seen.page.locator("#gone").is_hidden()
        seen.page.get_by_role("alert").wait_for()
        seen.errors.clear()  # The browser reports that it reaches nobody.
