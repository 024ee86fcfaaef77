"""What a worker holds is bounded by bytes, whatever the size of messages."""

from __future__ import annotations

import pytest

from onewrite import BeginOutcome, Deferred, Message
from onewrite.aws_lambda import sqs_handler
from onewrite.sqs import state
from onewrite.sqs.state import MAX_BYTES
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime
from tests.support.seams import worker_in

GROUP = 10  # messages, which SQS gives out together: nine of them wait behind a deferred one
OVERHEAD = 1.01  # for what is not a message's body


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [(5_000, 250 << 10), (1_500, 1 << 20)])
@pytest.mark.parametrize("fifo", [False, True])
def test_large_deferred_messages_are_bounded_by_bytes(
    count: int, size: int, fifo: bool, time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "MAX_DEFERRED", count)
    sqs, body, seen, held = FakeSqs(time, fifo=fifo, visibility=3600), "x" * size, set[str](), list[int]()
    for number in range(count):
        sqs.send(body, group=str(number // GROUP))

    def defer(message: Message) -> BeginOutcome:
        seen.add(message.id)
        assert stopping._threads is not None
        held.append(stopping._threads.state.count_messages()["bytes_at_hand"])
        if len(seen) == (count // GROUP if fifo else count):
            stopping.stop()
        return Deferred(message, 1)

    handler = sqs_handler(lambda record: Message(record["messageId"]))(defer)
    stopping = worker_in(time, URL, handler, client=sqs, backoff=lambda _: 1e6)
    stopping.run()
    assert MAX_BYTES / 3 < max(held) <= MAX_BYTES * OVERHEAD
