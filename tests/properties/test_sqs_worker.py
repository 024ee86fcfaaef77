"""Whatever fails, and wherever a worker dies: every effect is applied exactly once, on a FIFO queue in order, and the queue is empty."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from hypothesis import given
from hypothesis import strategies as st

from onewrite import Applied, Busy, ConfigurationError, Deferred, Duplicate, Message, Outcome, TakenOver, Uncertain
from onewrite.aws_lambda import sqs_handler
from onewrite.sqs import backoff
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime, client_error, lost_connection
from tests.support.seams import worker_in

Fault = Literal[
    "none", "dies before", "dies after", "throttled", "answer lost", "is redelivered", "not taken", "never taken"
]
Trouble = Literal[
    "none", "fails", "is deferred", "is busy", "is taken over", "is uncertain", "is slow", "dies before", "dies after"
]

_ROUNDS = 300


def steady(tries: int) -> float:
    """The worker's own, without chance: it draws nothing while the next example is drawn."""
    return backoff(tries, jitter=lambda: 0.5)


def group_of(message: Message) -> object:
    """Some neighbours have one in common."""
    return message.id[0], int(message.id[2:]) // 6


class Died(SystemExit):
    """The end of a process: nothing that it asks for afterwards reaches the queue."""


@dataclass(slots=True)
class World:
    """A queue and an entity that outlive the workers. The drawn faults happen one after the other, and then no more."""

    sqs: FakeSqs
    faults: Iterator[Fault]
    troubles: Iterator[Trouble]
    effects: list[str]
    fault: Fault = "none"
    dead: bool = False
    lock: Any = field(default_factory=threading.Lock)

    def before(self, _method: str) -> None:
        if self.dead:
            raise Died
        self.fault = next(self.faults, "none")
        if self.fault == "dies before":
            self.die()
        if self.fault == "throttled":
            raise client_error("RequestThrottled")
        if self.fault == "is redelivered":
            for stored in self.sqs.messages:
                stored.visible_at = min(stored.visible_at, self.sqs.time.now)

    def after(self, _method: str) -> None:
        if self.fault == "dies after":
            self.die()
        if self.fault == "answer lost":
            raise lost_connection()

    def refuse(self, _kind: str, entry: Mapping[str, Any]) -> bool | None:
        if entry["Id"] != "0":
            return None
        return {"not taken": False, "never taken": True}.get(self.fault)

    def die(self) -> None:
        self.dead = True
        raise Died

    def handle(self, message: Message) -> Outcome:
        trouble = next(self.troubles, "none")
        if trouble == "dies before":
            self.die()
        if trouble == "fails":
            raise ValueError
        refused: dict[str, Outcome] = {
            "is deferred": Deferred(message, 1),
            "is busy": Busy(message, self.sqs.time.now + 45),
            "is taken over": TakenOver(message),
            "is uncertain": Uncertain(message, self.sqs.time.now, "fence"),
        }
        if trouble in refused:
            return refused[trouble]
        if trouble == "is slow":
            self.sqs.time.sleep(25)
        with self.lock:
            outcome = Duplicate(message) if message.id in self.effects else Applied(message)
            if isinstance(outcome, Applied):
                self.effects.append(message.id)
        if trouble == "dies after":
            self.die()
        return outcome

    def handle_group(self, messages: list[Message]) -> list[Outcome]:
        """Each message has its own troubles; an error is that of them all. In a FIFO group nothing is done behind what is not settled."""
        assert len({group_of(message) for message in messages}) == 1
        outcomes: list[Outcome] = []
        for message in messages:
            waits = self.sqs.fifo and not all(outcome.settled for outcome in outcomes)
            outcomes.append(Deferred(message, 1) if waits else self.handle(message))
        return outcomes

    def work(self, has_groups: bool) -> None:
        one: Any = sqs_handler(lambda record: Message(record["body"]), clock=self.sqs.time)
        several: Any = sqs_handler(lambda record: Message(record["body"]), group_by=group_of, clock=self.sqs.time)
        handler = several(self.handle_group) if has_groups else one(self.handle)
        for _ in range(_ROUNDS):
            if not self.sqs.messages:
                return
            self.dead = False
            options: dict[str, Any] = {"wait": 20, "stop_when_empty": True, "backoff": steady}
            with suppress(Died, ConfigurationError):  # SQS may not be there at the start, for too long
                worker_in(self.sqs.time, URL, handler, client=self.sqs, **options).run()
        raise AssertionError("the queue is never empty")


@given(
    bodies=st.lists(st.integers(0, 7), min_size=1, max_size=24),
    faults=st.lists(st.sampled_from(get_args(Fault)), max_size=30),
    troubles=st.lists(st.sampled_from(get_args(Trouble)), max_size=30),
    fifo=st.booleans(),
    has_groups=st.booleans(),
)
def test_every_effect_happens_once_and_the_queue_empties(
    bodies: list[int], faults: list[Fault], troubles: list[Trouble], fifo: bool, has_groups: bool
) -> None:
    """With handlers of one message and of groups. On a FIFO queue the effects of a message group are also in its order."""
    sqs = FakeSqs(VirtualTime(), fifo=fifo)
    world = World(sqs, iter(faults), iter(troubles), [])
    sqs.before, sqs.after, sqs.refuse = world.before, world.after, world.refuse
    sent = []
    for number, body in enumerate(bodies):
        name = f"{body % 3}-{number - number % 2:03}"  # some are sent twice
        sqs.send(name, group=name[0])
        sent.append(name)
    world.work(has_groups)
    assert Counter(world.effects) == Counter(set(sent))
    if fifo:
        for group in "012":
            assert [name for name in world.effects if name[0] == group] == sorted(
                {name for name in sent if name[0] == group}
            )
