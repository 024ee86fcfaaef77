"""Check that deliveries in two processes share nothing but the stores.

All deliveries of an exploration run in one process. A lock in a module, a flag on a class, a lock file, or a fake of Redis is therefore
shared even by deliveries with a `build` each. Such a lock would keep the deliveries apart that really run in two processes, and nothing
removes it if a process is killed. The explorer can't see what deliveries share. It checks instead whether one of them behaves
differently while another one is stopped at a request, compared to a run in which the other one has crashed there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.recall import make_comparable
from onewrite.testing.explorer.schedule import Delivery, ScheduleStep
from onewrite.testing.explorer.subject import Subject, format_delivery
from onewrite.testing.explorer.trial import Trial, TrialStep
from onewrite.testing.taps.fault import Fault

_MAX_PLACES = 40  # places at which a delivery is stopped, with two runs each


def check_separation(subject: Subject, request_counts: Sequence[int]) -> None:
    """Raise `ConfigurationError` if a delivery sees by something other than the stores that another one is in progress.

    `request_counts` contains the number of requests of each message in undisturbed processing.
    """
    for stopped, place, other in islice(_list_places(request_counts), _MAX_PLACES):
        during = _deliver(subject, stopped, place, other, Fault.BEGUN)
        after = _deliver(subject, stopped, place, other, Fault.CRASH_BEFORE)
        if _differ(during, after):
            first, second = (format_delivery(subject.titles.messages, Delivery(*each)) for each in _name(stopped, other))
            raise ConfigurationError(
                f"{second} behaves differently while {first} is stopped at a request, although each has its own process. They share a "
                "lock, a flag, or a cache outside build(store), for example in a module, a class, a file, or a fake of Redis. Create "
                "locks and flags in build(store), because two processes don't share memory. A lock that processes share stays locked if its "
                "process is killed. Make it an entity in a store of world(). If your service is one process whose deliveries never "
                "overlap, explore with concurrency=1."
            )


def _list_places(request_counts: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the message to stop, the request at which it is stopped, and the message to deliver: itself, or the next one."""
    count = len(request_counts)
    for message, requests in enumerate(request_counts):
        for other in dict.fromkeys([message, (message + 1) % count]):
            yield from ((message, place, other) for place in range(requests))


def _name(stopped: int, other: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (stopped, 0), (other, int(stopped == other))


def _deliver(subject: Subject, stopped: int, place: int, other: int, fault: Fault) -> Sequence[TrialStep]:
    """Stop a delivery at this request, or crash it there, and return the steps of another delivery in another process."""
    step = ScheduleStep(Delivery(stopped, 0))
    trial = Trial(subject)
    try:
        trial.take(step._replace(fault=Fault.BEGUN))
        for _ in range(place):
            if not trial.progress.open:
                break
            trial.take(step)
        if fault is not Fault.BEGUN and trial.progress.open:
            trial.take(step._replace(fault=fault))
        trial.change_process()
        first = len(trial.steps)
        trial.deliver(other, trial.progress.parts[other])
        return trial.steps[first:]
    finally:
        trial.abandon()


def _differ(during: Sequence[TrialStep], after: Sequence[TrialStep]) -> bool:
    """Whether a delivery behaved differently although it had received the same responses."""
    for one, other in zip_longest(during, after):
        if one is None or other is None:
            return True
        ours, others = one.taken_step, other.taken_step
        if str(ours.request) != str(others.request) or (isinstance(ours.key, int) and ours.key != others.key):
            return True
        if [*map(make_comparable, one.answers)] != [*map(make_comparable, other.answers)]:
            return False
        if (ours.has_ended, ours.settled_parts, _name_error(one)) != (
            others.has_ended,
            others.settled_parts,
            _name_error(other),
        ):
            return True
    return False


def _name_error(step: TrialStep) -> str | None:
    return None if step.end is None or step.end.error is None else type(step.end.error).__name__
