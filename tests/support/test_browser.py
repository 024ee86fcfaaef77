"""The browser of our tests notices what a visitor would not."""

from __future__ import annotations

import pytest

from tests.support.browser import browser, watch


@pytest.mark.slow
def test_a_page_shows_and_its_errors_and_its_requests_to_the_world_are_noticed() -> None:
    with browser() as chromium:
        with watch(chromium, scheme="dark") as dark:
            dark.page.set_content("<h1>hello</h1>")
            assert dark.page.inner_text("h1") == "hello"
            assert dark.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        with pytest.raises(pytest.fail.Exception, match="nowhere is not defined"), watch(chromium) as page_with_errors:
            page_with_errors.page.set_content("<script>nowhere()</script>")
        with pytest.raises(pytest.fail.Exception, match=r"https://example\.invalid/x\.png"), watch(chromium) as abroad:
            abroad.page.set_content("<img src='https://example.invalid/x.png'>")


def test_without_chromium_a_test_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"), browser():
        raise AssertionError
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"), browser():
        raise AssertionError
