"""A step that a workflow engine repeats takes effect once. The page itself repeats one on DBOS."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import inngest
import pytest
from inngest.experimental import mocked

from tests.support.pages import ROOT, namespace_of

PAID: dict[str, Any] = {"eventId": "evt-2", "account": "bob", "cents": 900}
Page = dict[str, Any]


def run_on_temporal(page: Page) -> None:
    page["credit_activity"]("bob", 900)


def run_on_inngest(page: Page) -> None:
    run = mocked.trigger(page["pay_inngest"], inngest.Event(name="shop/paid", data=PAID), mocked.Inngest(app_id="shop"))
    assert run.status == mocked.Status.COMPLETED


def run_on_aws(page: Page) -> None:
    page["pay_durably"](PAID, SimpleNamespace(step=lambda function, name: function(None)))


@pytest.mark.parametrize("run", [run_on_temporal, run_on_inngest, run_on_aws])
def test_repeated_step_takes_effect_once(run: Callable[[Page], None]) -> None:
    page = namespace_of(ROOT / "docs" / "workflows.md")
    run(page)
    run(page)
    assert page["accounts"].find_one({"_id": "bob"}) == {"_id": "bob", "cents": 900}
