"""A step that a workflow engine repeats takes effect once. The page itself repeats one on DBOS."""

from __future__ import annotations

from tests.support.pages import ROOT, namespace_of


def test_repeated_activity_takes_effect_once() -> None:
    page = namespace_of(ROOT / "docs" / "workflows.md")
    for _ in range(2):
        page["credit_activity"]("bob", 900)
    assert page["accounts"].find_one({"_id": "bob"}) == {"_id": "bob", "cents": 900}
