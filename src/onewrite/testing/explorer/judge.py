"""Decide whether a schedule ended in a correct state: one that undisturbed processing of the messages reaches in some order."""

from __future__ import annotations

import contextvars
import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, zip_longest
from typing import Any, NamedTuple, TypeVar, cast

from onewrite.errors import ConfigurationError
from onewrite.message import full_name
from onewrite.process.failures import format_line
from onewrite.testing.explorer.calls import BlockedError, error_in_words, place_in_words
from onewrite.testing.explorer.difference import (
    LEASE_CLOCK,
    Cause,
    describe_difference,
    describe_process_difference,
    describe_state_difference,
    explain_incomparable,
    has_time,
    hint_on_states,
    is_read_once,
    show,
)
from onewrite.testing.explorer.modes import Handling, Mode, Obstacle, Processes, WrongModeError, find_next
from onewrite.testing.explorer.proof import prove
from onewrite.testing.explorer.remarks import NOTE, Remark, list_remarks, remark_on_invariant
from onewrite.testing.explorer.schedule import Delivery, Steps, TakenStep
from onewrite.testing.explorer.sharing import check_separation
from onewrite.testing.explorer.subject import Stores, Subject, format_delivery, names_its_delivery
from onewrite.testing.explorer.surroundings import clock_ahead, is_frozen, run_in_child
from onewrite.testing.explorer.trial import Effects, Trial, TrialFromMemory, TrialStep
from onewrite.testing.explorer.undisturbed import Reference, References, describe_unsettled, find_initialization
from onewrite.testing.model.machine import changes_structure
from onewrite.testing.taps.traffic import is_guarded

# --- the judge --------------------------------------------------------------------------------------------------------

T = TypeVar("T")

_OWN_LEASE = f"If the handler waits for its own lease, {LEASE_CLOCK}"
_NEW_PROCESSES = 3


@dataclass(frozen=True, slots=True)
class WrongEnd:
    """The mistake at the end of a schedule. `observed` is a string if `observe` failed."""

    reason: str
    expected: tuple[Any, ...]
    observed: Any


@dataclass(frozen=True, slots=True)
class JudgedSchedule:
    """A schedule that was run, and the mistake found at its end."""

    trial_steps: tuple[TrialStep, ...]
    finding: WrongEnd | None

    @property
    def steps(self) -> Steps:
        """Return the schedule's own steps, without the steps of the redeliveries after them."""
        return tuple(step.taken_step.step for step in self.trial_steps if not step.settling)

    @property
    def behavior(self) -> Hashable:
        """Return a value that is equal for schedules in which the handler sent the same requests and settled the same parts."""
        taken_steps = [step.taken_step for step in self.trial_steps]
        return tuple([(step.step.delivery, step.key, step.has_ended, step.settled_parts) for step in taken_steps])


class ScheduleEnd(NamedTuple):
    """The observation at the end of a schedule. `observed` is a string if `observe` failed."""

    observed: Any
    has_failed: bool
    breach: str | None  # the reason to report if the invariant doesn't hold


class UndecidedError(Exception):
    """A trial ended in a state that no order tried so far has reached. More orders must be tried.

    The world supports one trial at a time. The trial is therefore abandoned, and run again after the orders were tried.
    """

    def __init__(self, order: Sequence[int]) -> None:
        super().__init__(order)
        self.order = tuple(order)


class Judge:
    """Runs trials, and finds the mistakes at their ends."""

    def __init__(
        self, subject: Subject, observe: Callable[[Stores], Any], invariant: Callable[[Stores], Any] | None = None
    ) -> None:
        self.subject = subject
        self._observe = observe
        self._invariant = invariant
        self._references = References(subject, self._call_observe)
        self._order = self._references.order
        self._invariant_has_judged = False  # whether it has ever returned a value other than None, or raised
        self._invariant_has_asked = False  # whether it has ever sent a request to a store
        self._is_separation_checked = False
        self._effects: Effects = {}
        self._ends: dict[Hashable, ScheduleEnd] = {}  # the ends of each state, while the handler's behavior is recorded
        self.nondeterministic: str | None = None

    def find_remarks(self, *, passes: bool) -> Iterator[Remark]:
        """Yield the report's remarks. If no schedule ends wrongly, process the messages undisturbed once more to find them."""
        if self._references.has_untried:
            text = f"The messages and their tasks have more than {self._references.max_orders} orders, so the expected states come from only some of them."
            yield Remark(NOTE, text)
        if not passes:
            return
        yield from list_remarks(self.subject, self._references.list_orders(), lambda: self._look().observed)
        if self._invariant is not None and not self._invariant_has_judged:
            yield from remark_on_invariant(self._invariant, has_asked=self._invariant_has_asked)
        if self.subject.traits.hashes_at is not None:
            yield Remark(
                "hash",
                f"The handler uses the hash() of a string at {place_in_words(self.subject.traits.hashes_at)}. A "
                "redelivery can write somewhere else, because the hash differs between processes. Use zlib.crc32 or hashlib instead.",
            )
        if self.subject.traits.unreturned is not None:
            message, note = self.subject.traits.unreturned
            line = "" if note.code is None else f" at {format_line(note.code, note.line)}"
            yield Remark(
                "unreturned",
                f"For {full_name(message)} a guarded call{line} returned {type(note.outcome).__name__}, which isn't settled, and the handler "
                "returns something else. Here, as with sqs_handler and the other decorators, the message is redelivered. A consumer of your "
                "own might acknowledge it. Return that outcome too, or raise. If the message is done in spite of it, return an outcome of your "
                "own, for example Applied(message).",
            )
        if ends_by_task_order := self._references.ends_by_task_order:
            ends = " and ".join(map(show, ends_by_task_order))
            yield Remark(
                "tasks",
                f"The end depends on which task of a delivery comes first, even without faults. All of these ends count as correct: {ends}. "
                "If one is wrong, await one task before you start the other.",
            )

    @property
    def mode(self) -> Mode:
        return self.subject.mode

    def switch(self, mode: Mode) -> None:
        """Continue in this mode, or in one that records less, if the handler and `observe` require that."""
        self._effects.clear()
        self._ends.clear()
        self.subject.switch(replace(mode, handling=Handling.RUN))
        if mode.is_recording and self._can_record():
            self.subject.switch(replace(mode, handling=Handling.COMPARED) if self._names_deliveries() else mode)

    def escape(self, obstacle: Obstacle) -> bool:
        """Switch to the mode in which the obstacle doesn't matter. Return False if there is none."""
        before = self.mode
        mode = find_next(before, obstacle, can_tell_deliveries_apart=self.subject.can_tell_deliveries_apart)
        if mode is None:
            return False
        self.switch(mode)
        if obstacle is Obstacle.MEMORY and not mode.is_recording:
            reference = self._references.process(self._order) if before.has_own_processes else self._references.first
            self._note_first_difference(reference, self._references.process(self._order))
        return True

    def run_in_mode(self, work: Callable[[], T]) -> T:
        """Return the result of the work. If it encounters an obstacle, do the work again in the mode that follows."""
        while True:
            try:
                return work()
            except WrongModeError as wrong:
                self.escape(wrong.obstacle)
            except BlockedError:
                if not self.escape(Obstacle.LOCK):
                    raise

    def _can_record(self) -> bool:
        """Whether the handler's behavior and the states that `observe` sees can depend on the responses alone, as far as is known."""
        if self.nondeterministic is not None or self.mode.has_new_worlds:
            return False
        has_recovery = self.subject.traits.has_recovery
        if not self._observes_memory():
            return not (has_recovery and self.subject.bounds.faults)  # with both, a crash does more than end a delivery
        if has_recovery:  # building the handler after a crash would reset the data that `observe` reads
            raise ConfigurationError(
                "build(store) reads data from the store. It therefore runs again after a crash, and would reset the data that observe() reads "
                "outside the store. Create that data in world()."
            )
        return False

    def _names_deliveries(self) -> bool:
        """Whether the responses depend on more than the store's contents in undisturbed processing."""
        requests = [step.request for step in self._references.first.taken_steps]
        return any(request is not None and names_its_delivery(request) for request in requests)

    def prove(self) -> None:
        """Raise `WrongModeError` if other deliveries in the same process change the handler's behavior."""
        if self.subject.recall is not None:
            prove(self.subject, self.subject.recall)

    def check_separation(self) -> None:
        """Raise `ConfigurationError` if two processes share more than the stores. A handler that is recalled was checked for memory."""
        if self.subject.bounds.concurrency > 1 and not (
            self.mode.is_recording or self.nondeterministic or self._is_separation_checked
        ):
            check_separation(self.subject, self.request_counts)
            self._is_separation_checked = True

    @property
    def may_share_memory(self) -> bool:
        """Whether concurrent deliveries might have used memory that separate processes don't share.

        If `observe` reads one process's memory, the world can't have other processes.
        """
        return self.subject.bounds.concurrency > 1 and (
            self.mode.processes is Processes.IN_TURN or not self.mode.is_recording
        )

    @property
    def expected(self) -> tuple[Any, ...]:
        """Return the states that the orders tried so far have reached, each once."""
        return self._references.expected

    @property
    def request_counts(self) -> list[int]:
        """Return the number of requests that each message needs in undisturbed processing."""
        return self._references.request_counts

    def _observes_memory(self) -> bool:
        """Whether `observe` returns a different value for the same store state after the handler is rebuilt."""
        reference = self._references.first
        trial = Trial(self.subject)
        trial.position = reference.position
        trial.go_here()
        return reference.failure is None and bool(self._look().observed != reference.observed)

    def run(self, body: Callable[[Trial], T], begin: Callable[[], Trial]) -> T:
        """Run a trial. If it ends undecided, try more orders, and run it again."""
        while True:
            trial = begin()
            try:
                return body(trial)
            except UndecidedError as undecided:
                order = undecided.order
            finally:
                trial.abandon()
            self._references.try_more(order)

    def make_trial(self) -> Trial:
        """Return a trial that runs the handler."""
        return Trial(self.subject)

    def make_fast_trial(self) -> Trial:
        """Return a trial that recalls the handler's behavior, if the mode allows that."""
        return TrialFromMemory(self.subject, self._effects) if self.mode.is_recalling else Trial(self.subject)

    def find_mistake(self, trial: Trial) -> WrongEnd | None:
        """Return the mistake in the present state, or None if it is correct or the schedule can't end here."""
        if not trial.progress.is_legal_end:
            return None
        end = self._observe_end(trial)
        if end.has_failed:
            return self._make_finding(f"observe failed with {end.observed}", end.observed)
        if end.observed not in self.expected:
            order = trial.progress.settled_parts
            if self._references.needs(order):
                raise UndecidedError(order)
            hint = hint_on_states(end.observed, self.expected)
            reason = "processing each message once, one at a time, never ends like this"
            return self._make_finding(reason if hint is None else f"{reason}. {hint}", end.observed)
        return None if end.breach is None else self._make_finding(end.breach, end.observed)

    def conclude(self, trial: Trial) -> WrongEnd | None:
        """Finish the open deliveries, redeliver the unsettled messages, and check the final state."""
        for _ in trial.finish():
            if (finding := self.find_mistake(trial)) is not None:
                return finding
        if not trial.progress.is_legal_end:
            failure = trial.settle(self._order)
            if failure is None:
                return self.find_mistake(trial)
            return self._make_finding(
                f"{describe_unsettled(self.subject, trial)}: {failure}{self._advise_on_leases()}",
                self._observe_end(trial).observed,
            )
        return None

    def _advise_on_leases(self) -> str:
        """Return how to make a lease of the handler's own end, if the stores contain a time, otherwise an empty string."""
        contents = self.subject.machine.present.contents.values()
        return f". {_OWN_LEASE}" if any(has_time(entity) for each in contents for entity in each.entities.values()) else ""

    def prepare(self) -> None:
        """Process the messages undisturbed, twice, to find the expected states. Raise if the handler fails."""
        in_new_processes = dict(self._process_in_new_processes())  # first, before this process has handled any message
        self._check_determinism(self._order)
        self._references.try_more(self._order)
        for order, observed in in_new_processes.items() if self.nondeterministic is None else ():
            here = self._references.process(order)
            if here.failure is None and here.observed != observed:
                names = [self.subject.titles.parts[part] for part in order]
                self.nondeterministic = describe_process_difference(names, observed, here.observed)
        if not self.expected:
            self._references.try_more(self._order)  # now that this order was tried, it tries all of them
        if not self.expected:
            raise ConfigurationError(f"The handler fails even without faults: {self._references.failure}. Fix that first.")

    def _process_in_new_processes(self) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Yield orders that begin with another message than the given one, and the state that each reaches in a new process."""
        if not self.subject.machine.databases.are_in_memory:
            return
        orders = islice(self._references.list_orders(), self._references.max_orders)
        firsts = {order[0]: order for order in orders if order[0] != self._order[0]}
        for order in islice(firsts.values(), _NEW_PROCESSES):
            result = run_in_child(partial(self._process_in_child, order))
            if result is not None:
                yield order, result[0]

    def _process_in_child(self, order: tuple[int, ...]) -> tuple[Any]:
        self.subject.renew_loop()
        reference = self._references.process(order)
        if reference.failure is not None:
            raise ConfigurationError(reference.failure)  # the parent reports it, if it fails there too
        return (reference.observed,)

    def note_difference(
        self, delivery: Delivery, before: TakenStep | None, after: TakenStep | None, cause: Cause = Cause.UNKNOWN
    ) -> None:
        """Remember that this delivery sent a different request when the same schedule was run again."""
        one, other = (None if step is None else step.request for step in (before, after))
        words = describe_difference(format_delivery(self.subject.titles.messages, delivery), one, other, cause)
        self.nondeterministic = self.nondeterministic or words

    def _make_finding(self, reason: str, observed: Any) -> WrongEnd:
        """Return a `WrongEnd`. Raise `UndecidedError` until all orders were tried, because a report shows every expected state."""
        if not self._references.are_complete:
            raise UndecidedError(self._order)
        return WrongEnd(reason, self.expected, observed)

    def _check_determinism(self, order: tuple[int, ...]) -> None:
        """Check whether undisturbed processing is the same each time."""
        one, other = self._process_twice(order)
        if not one.is_like(other):
            is_lasting = other.is_like(self._references.process(order))
            self._note_first_difference(one, other, Cause.LASTING if is_lasting else Cause.UNKNOWN)
            return
        self._check_context(order, other)
        self._check_next_year(order, other)
        if one.observed == other.observed:
            self._check_new_world(order, other)
        elif self.mode.has_new_worlds:
            self.nondeterministic = describe_state_difference(one.observed, other.observed)
        else:
            self.subject.switch(
                replace(self.mode, has_new_worlds=True)
            )  # `observe` reads data outside the store, which `world` might reset
            self._check_determinism(order)

    def _check_context(self, order: tuple[int, ...], reference: Reference) -> None:
        """Check whether the handler does the same if all messages are handled in one context, as in a thread of a worker."""
        self.subject.threads.context = contextvars.copy_context()
        try:
            later = self._references.process(order)
        finally:
            self.subject.threads.context = None
        if not reference.is_like(later):
            self._note_first_difference(reference, later, Cause.CONTEXT)

    def _check_next_year(self, order: tuple[int, ...], reference: Reference) -> None:
        """Check whether the handler does the same a year later. A test that stops the clock means another time on purpose."""
        if is_frozen():
            return
        with clock_ahead():
            later = self._references.process(order)
        pairs = zip_longest(reference.taken_steps, later.taken_steps)
        # A guarded store's ledger depends on the day, but it recognizes its own messages.
        if not all(before and after and _is_same_next_year(before, after) for before, after in pairs):
            self._note_first_difference(reference, later, Cause.LEAD)

    def _process_twice(self, order: tuple[int, ...]) -> tuple[Reference, Reference]:
        """Process the messages undisturbed, twice, and return both results without the process's initialization."""
        one, other = self._references.process(order), self._references.process(order, in_another_process=True)
        only_first = find_initialization(one.taken_steps, other.taken_steps)
        if only_first:
            self.subject.begin_with(tuple(request for request in only_first if request.writes))
        if only_first or self.subject.tapped_late:
            one, other = other, self._references.process(order, in_another_process=True)
        return one, other

    def _check_new_world(self, order: tuple[int, ...], reference: Reference) -> None:
        """Raise if `world()` doesn't reset everything that `observe()` reads, such as a queue."""
        if not any(step.request is not None and changes_structure(step.request) for step in reference.taken_steps):
            return
        self.subject.renew()
        trial = Trial(self.subject)
        trial.settle(order)  # without calling `observe`, which might receive messages from a queue
        trial.abandon()
        self.subject.renew()
        new_reference = self._references.process(order)
        if new_reference.observed != reference.observed:
            raise ConfigurationError(
                f"world() must create the same state each time. After processing without faults, observe() returned "
                f"{reference.observed!r}, and in a new world {new_reference.observed!r}. Create or clear everything that observe() "
                "reads in world(), such as a queue."
            )

    def _note_first_difference(self, one: Reference, other: Reference, cause: Cause = Cause.UNKNOWN) -> None:
        """Remember the first difference between the requests of two runs of one order."""
        pairs: Iterable[tuple[TakenStep | None, TakenStep | None]] = zip_longest(one.taken_steps, other.taken_steps)
        for before, after in pairs:
            if before is None or after is None or before.key != after.key:
                self.note_difference((before or cast("TakenStep", after)).step.delivery, before, after, cause)
                break

    def _observe_end(self, trial: Trial) -> ScheduleEnd:
        """Return the observation at the trial's present state.

        While the handler's behavior is recorded, raise `WrongModeError` if the same state had a different observation before.
        """
        known_end = self._ends.get(trial.state) if self.mode.is_recording else None
        if known_end is not None and isinstance(trial, TrialFromMemory):
            return known_end  # no handler ran, so there is nothing to compare
        trial.go_here()
        end = self._look()
        if known_end is not None and end != known_end:
            raise WrongModeError(Obstacle.MEMORY)
        if self.mode.is_recording:
            self._ends[trial.state] = end
        return end

    def _look(self) -> ScheduleEnd:
        breach = self._find_breach()
        try:
            return ScheduleEnd(self._call_observe(), has_failed=False, breach=breach)
        except Exception as error:
            if self.subject.traits.misuse is not None:
                raise
            return ScheduleEnd(error_in_words(error), has_failed=True, breach=breach)

    def _call_observe(self) -> Any:
        observation = self.subject.look(self._observe)
        if (reason := explain_incomparable(observation)) is not None:
            raise ConfigurationError(f"observe(store) must return a comparable value, but {reason}.")
        return copy.deepcopy(observation)

    def _find_breach(self) -> str | None:
        """Return the reason to report if the invariant doesn't hold, otherwise None.

        Record whether it has judged anything and asked a store, for the remark on an invariant that can't fail.
        """
        if self._invariant is None:
            return None
        try:
            result = self.subject.look(self._invariant)
        except Exception as error:
            self._invariant_has_judged = True
            return f"the invariant is broken: {error_in_words(error)}"
        if isinstance(result, tuple) or is_read_once(result):
            raise ConfigurationError(
                f"The invariant returned {result!r}, which is true regardless of its content. Return True or False, or use assert."
            )
        self._invariant_has_judged = self._invariant_has_judged or result is not None
        self._invariant_has_asked = self._invariant_has_asked or bool(self.subject.look_requests)
        return None if result is None or result else "the invariant is broken"


def _is_same_next_year(before: TakenStep, after: TakenStep) -> bool:
    is_guarded_write = before.request is not None and is_guarded(before.request)
    return str(before.request) == str(after.request) if is_guarded_write else before.key == after.key
