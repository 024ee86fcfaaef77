"""Two workers take the same request, and their requests to the database and the provider come in every order that there is."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest

from payment.count import Counting
from payment.moments import Count, World
from payment.payments import Reply

_LONGEST = 30.0  # real seconds for a request
ORDERS = sorted({"".join(order) for order in itertools.permutations("AAAABBBB")})


class Worker:
    """Takes the request in a thread of its own, which stands still before each of its requests until it is told to go on."""

    def __init__(self, take: Callable[[], Reply | None]) -> None:
        self._take, self._stands, self._goes = take, threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.reply: Reply | None = None
        self.has_ended = False

    def start(self) -> None:
        """Until it is before its first request."""
        self._thread.start()
        self._await()

    def go_on(self) -> None:
        """Until it is before its next request, or has ended."""
        if not self.has_ended:
            self._goes.release()
            self._await()

    def come(self, name: str) -> None:
        if name.startswith("before") and threading.current_thread() is self._thread:
            self._stands.release()
            assert self._goes.acquire(timeout=_LONGEST)

    def _await(self) -> None:
        assert self._stands.acquire(timeout=_LONGEST)

    def _work(self) -> None:
        try:
            self.reply = self._take()
        finally:
            self.has_ended = True
            self._stands.release()


def both(world: World, order: str, seconds: float) -> list[Worker]:
    """Each letter is a request of one of the two, and takes so many seconds."""
    workers = {name: Worker(world.work) for name in "AB"}

    def come(name: str) -> None:
        for worker in workers.values():
            worker.come(name)

    world.moments.each = come
    for worker in workers.values():
        worker.start()
    for name in order:
        workers[name].go_on()
        world.wait(seconds)
    for worker in workers.values():
        while not worker.has_ended:  # it had more to do than four requests
            worker.go_on()
    return [*workers.values()]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 16.0, 31.0], ids=lambda seconds: f"{seconds:g}s")
def test_every_schedule_charges_once_with_equal_responses(counting: Counting, seconds: float) -> None:
    """With 31 seconds a request, the lease is over at each of them, and the two take the effect over from each other."""
    for order in ORDERS:
        with counting.world("eager").watched() as world:
            replies = [worker.reply for worker in both(world, order, seconds)]
            answer = world.ask()
        assert answer is not None, order
        assert answer.status == 201, order
        assert {reply for reply in replies if reply is not None and reply.retry_after is None} <= {answer}, order
        assert world.count() == Count(charges=1, records=1, events=1, effects=0), order
