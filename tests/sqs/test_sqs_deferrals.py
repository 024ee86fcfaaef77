"""The deferred messages of a worker: which is retried when, compared with a search through all of them."""

from __future__ import annotations

from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onewrite.sqs.waiting import Deferrals, QueueMessage

SEQUENCES: list[int | str | None] = [None, 1, 2, 3, 10, "1", "2", "10"]
SOURCES = ["a", "b"]


class Model:
    """Finds everything by a look at each deferred message, in the order in which they came."""

    def __init__(self) -> None:
        self.due: dict[QueueMessage, float] = {}

    def note_progress(self, source: str, settled: int | str | None) -> list[QueueMessage]:
        related = [message for message in self.due if message.source == source]
        chosen = [message for message in related if message.sequence is None]
        later = [message for message in related if message.sequence is not None and self._follows(message.sequence, settled)]
        chosen += sorted(later, key=lambda message: (type(message.sequence).__name__, message.sequence))[:1]
        granted = [message for message in chosen if 2 * message.early_tries <= message.tries]
        return self._take(granted)

    def take_due(self, now: float) -> list[QueueMessage]:
        return self._take(sorted((message for message in self.due if self.due[message] <= now), key=self.due.__getitem__))

    def _take(self, messages: list[QueueMessage]) -> list[QueueMessage]:
        for message in messages:
            del self.due[message]
        return messages

    def _follows(self, sequence: Any, settled: Any) -> bool:
        return settled is None or (type(sequence) is type(settled) and sequence > settled)


sources, sequences = st.sampled_from(SOURCES), st.sampled_from(SEQUENCES)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), sources | st.none(), sequences, st.integers(0, 20)),
        st.tuples(st.just("settle"), sources, sequences, st.none()),
        st.tuples(st.just("time"), st.none(), st.none(), st.integers(0, 8)),
    ),
    max_size=60,
)


@given(steps)
def test_deferred_messages_are_retried_as_a_search_through_all_says(steps: list[tuple[str, Any, Any, Any]]) -> None:
    model, pauses = Model(), [0.0]
    deferrals = Deferrals(lambda _: pauses[0])
    now = 0.0
    for number, (step, source, sequence, seconds) in enumerate(steps):
        if step == "add":
            message = QueueMessage({"ReceiptHandle": f"{number}"}, None, 0.0, inf, size=1, held_bytes=1)
            pauses[0] = float(seconds)
            deferrals.add(message, source, sequence, now)
            model.due[message] = now + seconds
        elif step == "settle":
            expected = model.note_progress(source, sequence)
            assert deferrals.note_progress(source, sequence) == expected
        else:
            now += seconds
            assert deferrals.take_due(now) == model.take_due(now)
        assert deferrals.find_next_due() == min(model.due.values(), default=inf)
        assert len(deferrals) == deferrals.held_bytes == len(model.due)


def test_messages_that_have_left_do_not_accumulate() -> None:
    deferrals = Deferrals(lambda _: 1e6)
    message = QueueMessage({"ReceiptHandle": "m"}, None, 0.0, inf, size=1)
    for _ in range(1000):
        message.tries += 2
        deferrals.add(message, "a", 2, 0.0)
        assert deferrals.note_progress("a", 1) == [message]
    assert len(deferrals._heap) < 100
