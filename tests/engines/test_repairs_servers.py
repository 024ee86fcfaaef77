"""`forget`, `set-mark` and `clear` on real servers: what they write, and that a guarded write in between wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onewrite import HighWaterMark, Message, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.operate import repair
from tests.support.repairs import Place, output_of

pytestmark = pytest.mark.measured

MESSAGES = [Message(f"m{n}", source="s", sequence=n) for n in range(1, 4)]
FRESH = Message("m9", source="s", sequence=4)


def business(place: Place) -> dict[str, Any]:
    found = place.contents() or {}
    return {name: value for name, value in found.items() if name not in ("id", "_id")}


ACTS = [
    (SeenIds(), ("forget", "--message", "m2", "--source", "s")),
    (SeenIds(None, readable=True), ("forget", "--message", "m2", "--source", "s")),
    (HighWaterMark(), ("set-mark", "--sequence", "1", "--source", "s")),
    (HighWaterMark(), ("set-mark", "--sequence", "9", "--source", "s")),
    (HighWaterMark(), ("set-mark", "--sequence", "9", "--source", "new")),
    (HighWaterMark(), ("set-mark", "--remove", "--source", "s")),
    (SeenIds(), ("clear",)),
]


@pytest.mark.parametrize(
    ("ledger", "act"), ACTS, ids=lambda each: " ".join(each[:2]) if isinstance(each, tuple) else each.layout
)
def test_repair_writes_nothing_if_entity_changed_after_the_read(
    ledger: Ledger, act: tuple[str, ...], place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.apply(ledger, *MESSAGES)
    write: Callable[..., bool] = vars(repair)["_write"]

    def after_another(*arguments: Any) -> bool:
        assert place.apply(ledger, FRESH) == ["Applied"]
        return write(*arguments)

    monkeypatch.setattr(repair, "_write", after_another)
    assert place.run(*act, "--yes") == 1
    assert "Another writer changed the entity in the meantime. Nothing was written" in capsys.readouterr().err
    assert place.apply(ledger, MESSAGES[-1], FRESH) in (["Duplicate", "Duplicate"], ["Stale", "Duplicate"])
    monkeypatch.undo()


@pytest.mark.parametrize("count", [400, 2000])
def test_ledger_with_many_sources_is_cleared_by_one_request(
    count: int, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """DynamoDB limits the length of a request, and the command then writes nothing."""
    messages = [Message(f"m{n}", source=f"source {n}", sequence=1) for n in range(count)]
    change: dict[str, Any] = {"update": {"$inc": {"n": 1}}, "upsert": True}
    if place.names_tokens:
        change = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}
    for n in range(0, count, 400):
        place.store(HighWaterMark()).update_batch(messages[n : n + 400], lambda _: {**place.address(), **change})
    if place.names_tokens and count == 2000:
        assert place.run("clear", "--yes") == 2
        assert "The UpdateExpression has" in capsys.readouterr().err
        assert len(business(place)) > count
    else:
        assert len(output_of(capsys, lambda: place.run("clear", "--json", "--yes"))["requests"]) == 1
        assert business(place).keys() == {"n"}
