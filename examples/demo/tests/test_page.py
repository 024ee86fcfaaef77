from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from demo import MongoShop
from demo.handlers import CLAIM, ONEWRITE, PLAIN
from demo.web import PageServer

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer(MongoShop) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def demo(server: PageServer, page: Page) -> Page:
    """The page at its highest speed, without deaths and duplicates by chance."""
    page.goto(server.url)
    for name, key in (("speed", "End"), ("duplicates", "Home"), ("crashes", "Home")):
        page.locator(f"#{name}").press(key)
    page.get_by_role("button", name="Start again").click()
    return page


def test_payments_arrive_and_are_added(demo: Page) -> None:
    demo.wait_for_function("() => document.getElementById('sent').innerText.startsWith('Payment 3, €')")

    assert demo.locator(".lane h2").all_inner_texts() == [PLAIN, CLAIM, ONEWRITE]
    assert "€0" not in demo.locator(".balance b").all_inner_texts()
    assert demo.locator(".drift").all_inner_texts() == ["exact"] * 3


@pytest.mark.parametrize(("name", "end"), [(PLAIN, "too much"), (CLAIM, "missing"), (ONEWRITE, "exact")])
def test_killed_worker_shows_its_damage(name: str, end: str, demo: Page) -> None:
    lane = demo.locator(f'.lane[data-lane="{name}"]')
    lane.get_by_role("button", name=f"Kill the worker of {name}").press("Enter")
    death, redelivery = (demo.locator("#log li").filter(has_text=text) for text in ("The worker dies", "Payment"))
    death.locator("summary").press("Enter")
    assert death.locator("b").inner_text() == name
    assert death.locator("p").is_visible()

    redelivery.filter(has_not_text="dies").wait_for()

    assert end in lane.locator(".drift").inner_text()


def test_pause_stops_the_turns(demo: Page) -> None:
    demo.get_by_role("button", name="Pause").press("Space")
    demo.wait_for_timeout(300)  # for a request in flight
    paused = demo.locator(".doing").all_inner_texts()
    demo.wait_for_timeout(300)
    assert demo.locator(".doing").all_inner_texts() == paused

    demo.get_by_role("button", name="One step").press("Enter")

    demo.wait_for_function("(paused) => document.querySelector('.doing').innerText !== paused", arg=paused[0])


def test_page_reports_that_the_demo_has_ended(server: PageServer, demo: Page) -> None:
    server.shutdown()
    server.server_close()

    demo.get_by_role("alert").wait_for()


def test_every_control_has_a_name(demo: Page) -> None:
    names = [
        each.evaluate("(each) => each.labels?.[0]?.innerText || each.innerText")
        for each in demo.locator("button, input").all()
    ]
    assert len(names) > 8
    assert all(names)
