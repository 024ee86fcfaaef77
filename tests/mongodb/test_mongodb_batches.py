"""What a guarded collection does with several messages: the requests, and each answer that MongoDB can give to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from pymongo.errors import DocumentTooLarge

from onewrite import Applied, Duplicate, InSequence, Message, SeenIds, Stale
from onewrite.core.features import batches
from onewrite.core.flow import Call
from onewrite.core.ledgers import Ledger
from onewrite.mongodb.flows import Flows
from tests.support.driven import Collection, play_requests, reply

NOW = 1_790_000_000.0
OTHER = {"$exists": False}
QUERY: dict[str, Any] = {"_id": "o-1"}
OPEN_ONLY: dict[str, Any] = {"_id": "o-1", "closed": OTHER}
ENTITY: dict[str, Any] = {"_id": "o-1", "n": 1}
IN_TRANSACTION: Any = SimpleNamespace(in_transaction=True)
BY_ID: dict[str, Any] = {"_id_": {"key": [("_id", 1)]}}
M4, M5 = (Message(f"m{n}", source="s", sequence=n) for n in (4, 5))


LANDED, CREATED, NOTHING = reply(1), reply(1, upserted="o-1"), reply()


def flows(ledger: Ledger, clock: Callable[[], float]) -> Flows:
    store = Flows(Collection(), ledger, clock, (), "majority", is_async=False)
    store._indexes = BY_ID
    return store


def adding(query: Any = QUERY, **native: Any) -> Callable[[list[Message]], dict[str, Any]]:
    def function(fresh: list[Message]) -> dict[str, Any]:
        return {"filter": query, "update": {"$inc": {"n": len(fresh)}}, **native}

    return function


def update_batch(
    ledger: Ledger,
    messages: Sequence[Message],
    function: Any = None,
    *answers: Any,
    clock: Callable[[], float] = lambda: NOW,
) -> tuple[list[Any], list[Call]]:
    return play_requests(batches.update_batch(flows(ledger, clock), messages, function or adding()), *answers)


def marked(**marks: int) -> dict[str, Any]:
    return {**ENTITY, "ow_l": "ow1 marks", "ow_@": marks}


# --- failures ---------------------------------------------------------------------------------------------------------


def test_request_too_large_is_halved_in_a_transaction_too() -> None:
    outcomes, _ = update_batch(SeenIds(), [M4, M5], adding(session=IN_TRANSACTION), DocumentTooLarge("no"), LANDED, LANDED)
    assert outcomes == [Applied(M4), Applied(M5)]


# --- others who write at the same time ----------------------------------------------------------------------------------


def test_messages_go_one_by_one_if_marks_keep_moving() -> None:
    batch = [Message(f"{source}2", source=source, sequence=2) for source in "stu"]
    looks = [marked(s=1, t=1), marked(s=2, t=1, u=1), marked(s=2, t=2, u=1)]
    outcomes, calls = update_batch(
        InSequence(), batch, None, *[answer for look in looks for answer in (NOTHING, look)], LANDED
    )
    assert [type(outcome) for outcome in outcomes] == [Duplicate, Duplicate, Applied]
    assert [call.args[1]["$inc"]["n"] for call in calls if call.method == "update_one"] == [3, 2, 2, 1]


def test_source_is_read_again_if_others_moved_its_mark() -> None:
    answers = [NOTHING, marked(s=3)] * 2 + [NOTHING, marked(s=6)] * 2
    outcomes, _ = update_batch(InSequence(), [M4, M5], adding(OPEN_ONLY), *answers)
    assert outcomes == [Stale(M4, 6, ENTITY), Stale(M5, 6, ENTITY)]
