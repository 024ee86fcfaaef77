"""What a schedule may end in: the states that processing each message once, one at a time, reaches in some order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any, NamedTuple, TypeVar, cast

from onewrite.errors import ConfigurationError
from onewrite.outcome import Stale
from onewrite.testing.explorer.difference import difference
from onewrite.testing.explorer.schedule import Delivery, Steps, Taken
from onewrite.testing.explorer.trial import Happening, Stores, Subject, Trial, name_of

T = TypeVar("T")

MOST_ORDERS = 5040  # of the messages: all orders of seven


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong at the end of a schedule. `observed` is a text where there is no state to observe."""

    reason: str
    expected: tuple[Any, ...]
    observed: Any


@dataclass(frozen=True, slots=True)
class Shown:
    """A schedule that was run, and what it showed."""

    happenings: tuple[Happening, ...]
    finding: Finding | None

    @property
    def steps(self) -> Steps:
        return tuple(happening.taken.step for happening in self.happenings if not happening.settling)


class Reference(NamedTuple):
    """What undisturbed processing in one order came to."""

    taken: tuple[Taken, ...]
    observed: Any
    stale: bool  # a message came too late to be processed, so that this is no processing of every message
    failure: str | None


class UndecidedError(Exception):
    """A state is in question that none of the orders tried so far has reached. A world holds one trial at a time: the others
    are tried when this one is given up, and then it is run once more."""

    def __init__(self, order: Sequence[int]) -> None:
        super().__init__(order)
        self.order = tuple(order)


class Judge:
    """Runs trials, and says what is wrong with their ends."""

    def __init__(
        self, subject: Subject, observe: Callable[[Stores], Any], invariant: Callable[[Stores], Any] | None = None
    ) -> None:
        self.names = subject.names
        self._subject = subject
        self._observe = observe
        self._invariant = invariant
        self._orders = _orders(subject.start.predecessors)
        self._tried: dict[tuple[int, ...], Reference] = {}
        self._all_tried = False  # or as many as is sensible
        self._untried = False
        self._sees_nothing = False
        self.expected: tuple[Any, ...] = ()  # the states known so far, each once
        self.nondeterministic: str | None = None

    @property
    def remarks(self) -> Iterator[str]:
        """What a reader of the report should know."""
        if self._sees_nothing:
            yield "No message changes what observe() sees: does it look at the right entity?"
        if self._untried:
            yield f"There are more orders of the messages than {MOST_ORDERS}: not all were tried for what is expected."
        if self._subject.machine.why_slow is not None:
            yield self._subject.machine.why_slow

    def run(self, body: Callable[[Trial], T]) -> T:
        """Run a trial, a second time if the first had to be given up for want of references."""
        while True:
            trial = Trial(self._subject)
            try:
                return body(trial)
            except UndecidedError as question:
                order = question.order
            finally:
                trial.abandon()
            self._try_more(order)

    def check(self, trial: Trial) -> Finding | None:
        """What is wrong, if this is where it would show."""
        if not trial.board.is_legal_end:
            return None
        try:
            observed = self._observed()
        except Exception as error:
            return Finding(f"observe failed with {_in_words(error)}", self.expected, _in_words(error))
        if observed not in self.expected:
            if not self._all_tried or trial.board.settled not in self._tried:
                raise UndecidedError(trial.board.settled)
            return Finding("no processing of each message once, one at a time, ends like this", self.expected, observed)
        broken = self._broken_invariant()
        return None if broken is None else Finding(broken, self.expected, observed)

    def conclude(self, trial: Trial) -> Finding | None:
        """Let open deliveries end, redeliver what is left, and check."""
        for _ in trial.finish():
            if (finding := self.check(trial)) is not None:
                return finding
        if not trial.board.is_legal_end:
            failure = trial.settle(range(len(self._subject.messages)))
            if failure is None:
                return self.check(trial)
            return Finding(f"{self._unsettled(trial)}: {_in_words(failure)}", self.expected, self._observed_or_words())
        return None

    def prepare(self) -> None:
        """Process the messages undisturbed, twice, or say why that fails."""
        given = tuple(range(len(self._subject.messages)))
        self._run_twice(given)
        self._try_more(given)
        if not self.expected:
            self._try_more(given)
        if not self.expected:
            failures = [reference.failure for reference in self._tried.values() if reference.failure is not None]
            raise ConfigurationError(f"The handler fails even undisturbed: {failures[0]}. Mend that first.")
        self._sees_nothing = self.expected == self._observed_at_first()

    def differs(self, delivery: Delivery, before: Taken | None, after: Taken | None) -> None:
        """The same schedule, run again, has sent something else."""
        requests = (None if taken is None else taken.request for taken in (before, after))
        self.nondeterministic = self.nondeterministic or difference(name_of(self.names, delivery), *requests)

    def _run_twice(self, order: tuple[int, ...]) -> None:
        one, other = self._reference(order), self._reference(order)
        pairs: Iterable[tuple[Taken | None, Taken | None]] = zip_longest(one.taken, other.taken)
        for before, after in pairs:
            if before is None or after is None or before.key != after.key:
                self.differs((before or cast("Taken", after)).step.delivery, before, after)
                return
        if one.observed == other.observed:
            return
        if self._subject.always_anew:
            self.nondeterministic = (
                f"the same requests end in {one.observed!r} one time and in {other.observed!r} another. What observe() sees "
                "beside the store must be made anew in build() or world()."
            )
        else:
            self._subject.always_anew = True  # what is observed stands elsewhere too, and `world` may be what empties it
            self._run_twice(order)

    def _try_more(self, order: tuple[int, ...]) -> None:
        """This order if it has not been tried, else all."""
        if order in self._tried:
            for other in islice(self._orders, MOST_ORDERS):
                self._tried.setdefault(other, self._reference(other))
            self._all_tried = True
            self._untried = next(self._orders, None) is not None
        else:
            self._tried[order] = self._reference(order)
        done = [reference for reference in self._tried.values() if reference.failure is None]
        clean = [reference for reference in done if not reference.stale]
        self.expected = _distinct([reference.observed for reference in clean or (done if self._all_tried else [])])

    def _reference(self, order: tuple[int, ...]) -> Reference:
        trial = Trial(self._subject)
        try:
            failure = trial.settle(order)
            taken = tuple(happening.taken for happening in trial.happenings)
            if failure is not None:
                return Reference(taken, None, stale=False, failure=f"{self._unsettled(trial)}: {_in_words(failure)}")
            stale = any(isinstance(each, Stale) for happening in trial.happenings for each in happening.outcomes)
            return Reference(taken, self._observed_undisturbed(), stale, None)
        finally:
            trial.abandon()

    def _observed_undisturbed(self) -> Any:
        try:
            return self._observed()
        except Exception as error:
            raise ConfigurationError(f"observe(store) fails after undisturbed processing: {_in_words(error)}.") from error

    def _observed_at_first(self) -> tuple[Any, ...]:
        """Before any message; nothing where `observe` needs something to look at."""
        trial = Trial(self._subject)
        try:
            return (self._observed(),)
        except Exception:
            return ()
        finally:
            trial.abandon()

    def _unsettled(self, trial: Trial) -> str:
        left = [name for number, name in enumerate(self._subject.names) if number not in trial.board.settled]
        return f"{', '.join(left)} never settled"

    def _observed(self) -> Any:
        return copy.deepcopy(self._subject.complete(self._observe(self._subject.stores)))

    def _observed_or_words(self) -> Any:
        try:
            return self._observed()
        except Exception as error:
            return _in_words(error)

    def _broken_invariant(self) -> str | None:
        if self._invariant is None:
            return None
        try:
            held = self._subject.complete(self._invariant(self._subject.stores))
        except Exception as error:
            return f"the invariant is broken: {_in_words(error)}"
        return None if held is None or held else "the invariant is broken"


def _distinct(states: Sequence[Any]) -> tuple[Any, ...]:
    """Each once; states may be of types that have no hash."""
    found: list[Any] = []
    for state in states:
        if state not in found:
            found.append(state)
    return tuple(found)


def _in_words(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _orders(predecessors: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """The orders in which each message comes after its predecessors."""

    def extend(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == len(predecessors):
            yield order
        for message, earlier in enumerate(predecessors):
            if message not in order and set(earlier) <= set(order):
                yield from extend((*order, message))

    return extend(())
