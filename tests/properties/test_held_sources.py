"""A handler of a standard queue loses no message of a numbered source, whichever calls fail, if the queue delivers the oldest first."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from onewrite import HighWaterMark, InSequence, Message, Missing, Outcome
from onewrite.aws_lambda import sqs_handler
from onewrite.mongodb import GuardedCollection
from onewrite.testing.standins.stores import mongomock_collection
from tests.support.batches import identifiers, sqs


def read_places(record: Any) -> list[Message]:
    """A body such as `a1 b4 a2` has three messages of two sources."""
    return [Message(place, place[0], int(place[1:])) for place in record["body"].split()]


def make_bodies(rng: random.Random) -> list[str]:
    last = {"a": 0, "b": 0, "c": 0}

    def make_place() -> str:
        source = rng.choice("abc")
        last[source] += 1
        return f"{source}{last[source]}"

    return [" ".join([make_place() for _ in range(rng.choice([1, 1, 1, 2, 3]))]) for _ in range(rng.randint(4, 14))]


class Shop:
    """One entity. A call fails before or after its write, or finds the entity missing."""

    def __init__(self, rng: random.Random, ledger: HighWaterMark | InSequence) -> None:
        self.collection, self.rng = mongomock_collection("c"), rng
        self.store, self.risk = GuardedCollection(self.collection, ledger), rng.random() / 2

    def write(self, messages: list[Message]) -> list[Outcome]:
        fate = self.rng.random() / self.risk
        if fate < 1:
            raise TimeoutError
        if fate < 1.2:
            return [*map(Missing, messages)]
        outcomes = self.store.update_batch(
            messages,
            lambda fresh: {
                "filter": {"_id": "e"},
                "update": {"$push": {"ids": {"$each": [message.id for message in fresh]}}},
                "upsert": True,
            },
        )
        if fate < 1.4:
            raise TimeoutError
        return outcomes

    def make_handler(self) -> Any:
        async def awaited(message: Message) -> Outcome:
            await asyncio.sleep(0)
            return self.write([message])[0]

        workers = self.rng.choice([1, 4])
        if self.rng.random() < 0.4:  # the share of handlers with groups
            return sqs_handler(read_places, max_workers=workers, group_by=lambda each: int(each.id[1:]) % 3)(self.write)
        each = self.rng.choice([awaited, lambda message: self.write([message])[0]])
        return sqs_handler(read_places, max_workers=workers)(each)


@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence()], ids=["mark", "sequence"])
@pytest.mark.parametrize("seed", range(40))
def test_no_message_of_a_numbered_source_is_lost(seed: int, ledger: HighWaterMark | InSequence) -> None:
    rng = random.Random(seed)
    shop, bodies = Shop(rng, ledger), make_bodies(rng)
    handler, places = shop.make_handler(), sorted(" ".join(bodies).split())
    for _ in range(300):
        batch = bodies[: rng.randint(1, 10)]
        failed = identifiers(handler(sqs(rng.sample(batch, len(batch)))))
        bodies = [body for body in bodies if body not in batch or f"id-{body}" in failed]
        if not bodies:
            break
    assert sorted((shop.collection.find_one({"_id": "e"}) or {}).get("ids", [])) == places
