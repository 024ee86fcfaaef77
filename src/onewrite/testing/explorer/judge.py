"""Decide whether a schedule ended in a correct state: one that undisturbed processing of the messages reaches in some order."""

from __future__ import annotations

import contextvars
import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar, cast

from onewrite.errors import ConfigurationError
from onewrite.message import full_name
from onewrite.process.failures import format_line
from onewrite.testing.explorer.calls import error_in_words, place_in_words
from onewrite.testing.explorer.deliverables import has_unprocessed_message
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
from onewrite.testing.explorer.proof import prove
from onewrite.testing.explorer.recall import NotRecallableError, Recall
from onewrite.testing.explorer.remarks import NOTE, Remark, list_remarks, remark_on_invariant
from onewrite.testing.explorer.schedule import Delivery, Steps, TakenStep
from onewrite.testing.explorer.sharing import check_separation
from onewrite.testing.explorer.subject import LeaseMetError, Stores, Subject, format_delivery, names_its_delivery
from onewrite.testing.explorer.surroundings import clock_ahead, is_frozen, run_in_child
from onewrite.testing.explorer.trial import Effects, Trial, TrialFromMemory, TrialStep
from onewrite.testing.model.machine import Position, changes_structure
from onewrite.testing.taps.mongodb_methods import DESCRIBING, INDEXING
from onewrite.testing.taps.traffic import Request, is_guarded

# --- orders -----------------------------------------------------------------------------------------------------------
#
# The possible orders of the messages' parts in undisturbed processing. Pure.


def find_predecessors(subject: Subject) -> Iterator[tuple[int, ...]]:
    """Yield, for each part, the parts that come before it in every order.

    A failed record is redelivered after the others. Only the records of one lane keep their order, because their source
    guarantees it.
    """
    parts = subject.start.parts
    for message, earlier in enumerate(subject.start.predecessors):
        lanes = subject.deliverables[message].lanes
        before = [part for other in earlier for part in parts[other]]
        for place, lane in enumerate(lanes):
            same_lane = [parts[message][other] for other in range(place) if lane is not None and lanes[other] == lane]
            yield *before, *same_lane


def list_orders(predecessors: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Yield the orders in which each part comes after its predecessors."""

    def extend(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == len(predecessors):
            yield order
        for part, earlier in enumerate(predecessors):
            if part not in order and set(earlier) <= set(order):
                yield from extend((*order, part))

    return extend(())


# --- initialization ---------------------------------------------------------------------------------------------------
#
# The requests that a handler sends only once per process, such as creating an index or looking up a queue's address. Pure.

# Methods that read a setting that stays the same for the life of the process, or that create a resource.
_AWS = ("Describe", "List", "GetQueueUrl", "GetParameter", "GetSecretValue", "GetCallerIdentity")
_AWS_MADE = frozenset({"CreateTable", "CreateQueue", "CreateTopic", "CreateBucket", "CreateEventBus", "AssumeRole"})
_MONGODB = INDEXING | DESCRIBING | {"command"}


def find_initialization(first: Sequence[TakenStep], second: Sequence[TakenStep]) -> list[Request] | None:
    """Return the initializing requests that only the first of two runs sent.

    Return None if the runs differ in any other way.
    """
    rest = list(second)
    only_first: list[Request] = []
    for step in first:
        if rest and rest[0].key == step.key:
            rest.pop(0)
        elif step.request is not None and _can_be_cached(step.request, first):
            only_first.append(step.request)
        else:
            return None
    return None if rest else only_first


def _can_be_cached(request: Request, taken_steps: Sequence[TakenStep]) -> bool:
    """Whether the request initializes a process: a setting, a resource, or a read of entities that no message writes."""
    if request.method.startswith(_AWS) or request.method in _AWS_MADE | _MONGODB:
        return True
    writes = [step.request for step in taken_steps if step.request is not None and step.request.writes]
    is_apart = [
        set(write.tables).isdisjoint(request.tables)
        or (write.keys is not None and set(write.keys).isdisjoint(request.keys or ()))
        for write in writes
    ]
    return not request.writes and bool(request.keys) and all(is_apart)


# --- the judge --------------------------------------------------------------------------------------------------------

T = TypeVar("T")

_OWN_LEASE = f"If the handler waits for its own lease, {LEASE_CLOCK}"
_NEW_PROCESSES = 3
MAX_ORDERS = 5040  # tried to find the expected states: all orders of seven messages or records


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


class Reference(NamedTuple):
    """The result of undisturbed processing in one order of the messages."""

    order: tuple[int, ...]
    taken_steps: tuple[TakenStep, ...]
    observed: Any
    position: Position  # of the machine
    incomplete: bool  # whether a guarded store refused a message, so not every message was processed
    failure: str | None
    widths: tuple[int, ...] = ()  # the number of requests that could be next at each choice of a task


class ScheduleEnd(NamedTuple):
    """The observation at the end of a schedule. `observed` is a string if `observe` failed."""

    observed: Any
    has_failed: bool
    breach: str | None  # the reason to report if the invariant doesn't hold


class UndecidedError(Exception):
    """A trial ended in a state that no order tried so far has reached, so more orders must be tried.

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
        self._order = tuple(part for parts in subject.start.parts for part in parts)  # as passed by the user
        self._predecessors = tuple(find_predecessors(subject))
        self._orders = list_orders(self._predecessors)
        self._references: dict[tuple[int, ...], Reference] = {}
        self._task_references: list[Reference] = []  # with the tasks of deliveries in other orders
        self._all_tried = False  # whether all orders, or the first MAX_ORDERS, were tried
        self._some_untried = False  # whether there are more orders than MAX_ORDERS
        self._invariant_has_judged = False  # whether it has ever returned a value other than None, or raised
        self._invariant_has_asked = False  # whether it has ever sent a request to a store
        self._is_separation_checked = False
        self._effects: Effects = {}
        self._ends: dict[Hashable, ScheduleEnd] = {}  # by state, while the handler's behavior is recorded
        self.expected: tuple[Any, ...] = ()  # the states that the orders tried so far have reached, each once
        self.nondeterministic: str | None = None

    def find_remarks(self, *, passes: bool) -> Iterator[Remark]:
        """Yield the report's remarks. If no schedule ends wrongly, process the messages undisturbed once more to find them."""
        if self._some_untried:
            text = f"The messages and their tasks have more than {MAX_ORDERS} orders, so the expected states come from only some of them."
            yield Remark(NOTE, text)
        if not passes:
            return
        yield from list_remarks(self.subject, list_orders(self._predecessors), lambda: self._look().observed)
        if self._invariant is not None and not self._invariant_has_judged:
            yield from remark_on_invariant(self._invariant, has_asked=self._invariant_has_asked)
        if self.subject.hashes_at is not None:
            yield Remark(
                "hash",
                f"The handler uses the hash() of a string at {place_in_words(self.subject.hashes_at)}. It differs between processes, so "
                "a redelivery can write somewhere else. Use zlib.crc32 or hashlib instead.",
            )
        if self.subject.unreturned is not None:
            message, note = self.subject.unreturned
            line = "" if note.code is None else f" at {format_line(note.code, note.line)}"
            yield Remark(
                "unreturned",
                f"For {full_name(message)} a guarded call{line} returned {type(note.outcome).__name__}, which isn't settled, and the handler "
                "returns something else. Here, as with sqs_handler and the other decorators, the message is redelivered. A consumer of your "
                "own might acknowledge it. Return that outcome too, or raise. If the message is done in spite of it, return an outcome of your "
                "own, for example Applied(message).",
            )
        if ends_by_task_order := self._ends_by_task_order:
            ends = " and ".join(map(show, ends_by_task_order))
            yield Remark(
                "tasks",
                f"The end depends on which task of a delivery comes first, even without faults. All of these ends count as correct: {ends}. "
                "If one is wrong, await one task before you start the other.",
            )

    @property
    def _ends_by_task_order(self) -> tuple[Any, ...]:
        """Return two observations that differ only by the task order within a delivery, or () if the task order doesn't matter."""
        for order, reference in self._references.items():
            for other in self._task_references:
                if other.order == order and other.failure is None and other.observed != reference.observed:
                    return reference.observed, other.observed
        return ()

    @property
    def is_recording(self) -> bool:
        """Whether the handler's behavior is recorded, which requires that it depends only on the responses that the handler received."""
        return self.subject.recall is not None

    @property
    def is_recalling(self) -> bool:
        """Whether the handler is recalled instead of run, if its behavior is known."""
        return self.is_recording and not self.subject.must_run

    def recall(self) -> None:
        """Recall the handler's behavior from now on, unless it is already known that this is impossible."""
        subject = self.subject
        if self.nondeterministic is not None or subject.always_anew:
            return
        if self._observes_memory():
            if subject.has_recovery:  # building the handler after a crash would reset the data that `observe` reads
                raise ConfigurationError(
                    "build(store) reads data from the store, so it runs again after a crash, and would reset what observe() reads "
                    "outside the store. Create that in world()."
                )
        elif not (subject.has_recovery and subject.bounds.faults):  # with both, a crash does more than end a delivery
            subject.recall = Recall(subject.key, lambda: subject.threads.names_used or subject.deliveries_differ)
            requests = [step.request for step in self._references[self._order].taken_steps]
            if any(request is not None and names_its_delivery(request) for request in requests):
                self.run_always()

    def prove(self) -> None:
        """Raise `NotRecallableError` if other deliveries in the same process change the handler's behavior."""
        if self.subject.recall is not None:
            prove(self.subject, self.subject.recall)

    def check_separation(self) -> None:
        """Raise `ConfigurationError` if two processes share more than the stores. A handler that is recalled was checked for memory."""
        if self.subject.bounds.concurrency > 1 and not (
            self.is_recording or self.nondeterministic or self._is_separation_checked
        ):
            check_separation(self.subject, self.request_counts)
            self._is_separation_checked = True

    @property
    def may_share_memory(self) -> bool:
        """Whether concurrent deliveries might have used memory that separate processes don't share.

        If `observe` reads one process's memory, the world can't have other processes.
        """
        return self.subject.bounds.concurrency > 1 and (self.subject.is_taking_turns or not self.is_recording)

    def take_turns(self) -> None:
        """Run the deliveries in one process one after the other from now on, because they wait for each other's locks."""
        self.subject.take_turns()
        self._forget()
        self.recall()

    def restart_at_lease(self, work: Callable[[], T]) -> T:
        """Return the result of the work. If a delivery encounters another delivery's lease, restart the work with an advancing clock."""
        try:
            return work()
        except LeaseMetError:
            self.let_time_go_on()
            return work()

    def let_time_go_on(self) -> None:
        """Advance the clock by `redelivered_after` for each redelivery from now on, so that leases end."""
        self.subject.is_clock_moving = self.subject.deliveries_differ = True
        was_recording = self.is_recording
        self._forget()
        if was_recording:
            self.recall()

    def separate(self) -> None:
        """Run each delivery in its own process from now on. The handler's behavior can then be recalled again."""
        self.subject.separate()
        self._forget()
        self.recall()

    def _forget(self) -> None:
        self.subject.recall = None
        self._effects.clear()
        self._ends.clear()

    def run_always(self) -> None:
        """Run the handler for each schedule from now on, and compare its behavior with the recorded behavior."""
        self.subject.must_run = True
        # Transactions and tokens contain the names of their deliveries.
        self.subject.recall = Recall(self.subject.key, lambda: True)

    def do_not_recall(self) -> None:
        """Run the handler each time from now on, because its behavior differed from the recorded behavior."""
        if not self.subject.deliveries_differ and self.subject.can_tell_deliveries_apart:
            self.subject.deliveries_differ = True
            self._forget()
            self.recall()
            return
        self.subject.recall = None
        before = self._process_undisturbed(self._order) if self.subject.own_processes else self._references[self._order]
        self._note_first_difference(before, self._process_undisturbed(self._order))

    @property
    def request_counts(self) -> list[int]:
        """Return the number of requests that each message needs in undisturbed processing."""
        steps = self._references[self._order].taken_steps
        messages = range(len(self.subject.deliverables))
        return [sum(step.step.delivery.message == message for step in steps) for message in messages]

    def _observes_memory(self) -> bool:
        """Whether `observe` returns a different value for the same store state after the handler is rebuilt."""
        reference = self._references[self._order]
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
            self.try_more(order)

    def make_trial(self) -> Trial:
        return Trial(self.subject)

    def make_recalled_trial(self) -> TrialFromMemory:
        return TrialFromMemory(self.subject, self._effects)

    def find_mistake(self, trial: Trial) -> WrongEnd | None:
        """Return the mistake in the present state, or None if it is correct or the schedule can't end here."""
        if not trial.progress.is_legal_end:
            return None
        end = self._observe_end(trial)
        if end.has_failed:
            return self._make_finding(f"observe failed with {end.observed}", end.observed)
        if end.observed not in self.expected:
            order = trial.progress.settled_parts
            if not self._all_tried or (order not in self._references and self._is_possible(order)):
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
                f"{self._describe_unsettled(trial)}: {failure}{self._advise_on_leases()}", self._observe_end(trial).observed
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
        self.try_more(self._order)
        for order, observed in in_new_processes.items() if self.nondeterministic is None else ():
            here = self._process_undisturbed(order)
            if here.failure is None and here.observed != observed:
                names = [self.subject.titles.parts[part] for part in order]
                self.nondeterministic = describe_process_difference(names, observed, here.observed)
        if not self.expected:
            self.try_more(self._order)  # now that this order was tried, it tries all of them
        if not self.expected:
            failures = [reference.failure for reference in self._references.values() if reference.failure is not None]
            raise ConfigurationError(f"The handler fails even without faults: {failures[0]}. Fix that first.")

    def _process_in_new_processes(self) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Yield orders that begin with another message than the given one, and the state that each reaches in a new process."""
        if not self.subject.machine.databases.are_in_memory:
            return
        firsts = {
            order[0]: order for order in islice(list_orders(self._predecessors), MAX_ORDERS) if order[0] != self._order[0]
        }
        for order in islice(firsts.values(), _NEW_PROCESSES):
            result = run_in_child(partial(self._process_in_child, order))
            if result is not None:
                yield order, result[0]

    def _process_in_child(self, order: tuple[int, ...]) -> tuple[Any]:
        self.subject.renew_loop()
        reference = self._process_undisturbed(order)
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
        if not self._all_tried:
            raise UndecidedError(self._order)
        return WrongEnd(reason, self.expected, observed)

    def _check_determinism(self, order: tuple[int, ...]) -> None:
        """Check whether undisturbed processing is the same each time."""
        one, other = self._process_twice(order)
        if not _are_alike(one, other):
            is_lasting = _are_alike(other, self._process_undisturbed(order))
            self._note_first_difference(one, other, Cause.LASTING if is_lasting else Cause.UNKNOWN)
            return
        self._check_context(order, other)
        self._check_next_year(order, other)
        if one.observed == other.observed:
            self._check_new_world(order, other)
        elif self.subject.always_anew:
            self.nondeterministic = describe_state_difference(one.observed, other.observed)
        else:
            self.subject.always_anew = True  # `observe` reads data outside the store, which `world` might reset
            self._check_determinism(order)

    def _check_context(self, order: tuple[int, ...], reference: Reference) -> None:
        """Check whether the handler does the same if all messages are handled in one context, as in a thread of a worker."""
        self.subject.threads.context = contextvars.copy_context()
        try:
            later = self._process_undisturbed(order)
        finally:
            self.subject.threads.context = None
        if not _are_alike(reference, later):
            self._note_first_difference(reference, later, Cause.CONTEXT)

    def _check_next_year(self, order: tuple[int, ...], reference: Reference) -> None:
        """Check whether the handler does the same a year later. A test that stops the clock means another time on purpose."""
        if is_frozen():
            return
        with clock_ahead():
            later = self._process_undisturbed(order)
        pairs = zip_longest(reference.taken_steps, later.taken_steps)
        # A guarded store's ledger depends on the day, but it recognizes its own messages.
        if not all(before and after and _is_same_next_year(before, after) for before, after in pairs):
            self._note_first_difference(reference, later, Cause.LEAD)

    def _process_twice(self, order: tuple[int, ...]) -> tuple[Reference, Reference]:
        """Process the messages undisturbed, twice, and return both results without the process's initialization."""
        one, other = self._process_undisturbed(order), self._process_undisturbed(order, in_another_process=True)
        only_first = find_initialization(one.taken_steps, other.taken_steps)
        if only_first:
            self.subject.begin_with(tuple(request for request in only_first if request.writes))
        if only_first or self.subject.tapped_late:
            one, other = other, self._process_undisturbed(order, in_another_process=True)
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
        new_reference = self._process_undisturbed(order)
        if new_reference.observed != reference.observed:
            raise ConfigurationError(
                f"world() must create the same state each time: after processing without faults, observe() returned "
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

    def try_more(self, order: tuple[int, ...]) -> None:
        """Add the state that this order reaches to the expected states. If the order was tried or is impossible, try all orders."""
        if order in self._references or not self._is_possible(order):
            for other in islice(self._orders, MAX_ORDERS):
                if other not in self._references:
                    self._references[other] = self._process_undisturbed(other)
            self._all_tried = True
            self._some_untried = next(self._orders, None) is not None
            self._try_task_orders()
        else:
            self._references[order] = self._process_undisturbed(order)
        # Sorted, because a replay tries the orders in a different sequence and must expect the same results.
        references = [reference for _, reference in sorted(self._references.items(), key=itemgetter(0))]
        successes = [reference for reference in (*references, *self._task_references) if reference.failure is None]
        clean = [reference for reference in successes if not reference.incomplete]
        self.expected = _distinct([reference.observed for reference in clean or (successes if self._all_tried else [])])

    def _try_task_orders(self) -> None:
        """Try the other orders of the tasks within each delivery too, changing one choice at a time."""
        self._task_references = []
        for order, first in sorted(self._references.items(), key=itemgetter(0)):
            choices = _next_choices((), first.widths)
            while choices is not None:
                if len(self._references) + len(self._task_references) >= MAX_ORDERS:
                    self._some_untried = True
                    return
                reference = self._process_undisturbed(order, choices)
                self._task_references.append(reference)
                choices = _next_choices(choices, reference.widths)

    def _is_possible(self, order: tuple[int, ...]) -> bool:
        """Whether each part comes after its predecessors."""
        return all(set(self._predecessors[part]) <= set(order[:place]) for place, part in enumerate(order))

    def _process_undisturbed(
        self, order: tuple[int, ...], choices: tuple[int, ...] = (), *, in_another_process: bool = False
    ) -> Reference:
        """Process the messages undisturbed in this order, and return the result."""
        trial = Trial(self.subject, choices)
        try:
            if in_another_process:
                trial.take_over()
            failure = trial.settle(order)
            taken_steps = tuple(step.taken_step for step in trial.steps)
            return Reference(
                order,
                taken_steps,
                observed=self._observe_undisturbed() if failure is None else None,
                position=trial.position,
                incomplete=failure is None and has_unprocessed_message(step.outcomes for step in trial.steps),
                failure=None if failure is None else f"{self._describe_unsettled(trial)}: {failure}",
                widths=tuple(trial.widths),
            )
        finally:
            trial.abandon()

    def _observe_undisturbed(self) -> Any:
        try:
            return self._call_observe()
        except ConfigurationError:  # its message states already what is wrong
            raise
        except Exception as error:
            raise ConfigurationError(
                f"observe(store) fails after processing without faults: {error_in_words(error)}."
            ) from error

    def _describe_unsettled(self, trial: Trial) -> str:
        names = [name for number, name in enumerate(self.subject.titles.messages) if not trial.progress.is_settled(number)]
        return f"{', '.join(names)} never settled"

    def _observe_end(self, trial: Trial) -> ScheduleEnd:
        """Return the observation at the trial's present state.

        While the handler's behavior is recorded, raise `NotRecallableError` if the same state had a different observation before.
        """
        known_end = self._ends.get(trial.state) if self.is_recording else None
        if known_end is not None and isinstance(trial, TrialFromMemory):
            return known_end  # no handler ran, so there is nothing to compare
        trial.go_here()
        end = self._look()
        if known_end is not None and end != known_end:
            raise NotRecallableError
        if self.is_recording:
            self._ends[trial.state] = end
        return end

    def _look(self) -> ScheduleEnd:
        breach = self._find_breach()
        try:
            return ScheduleEnd(self._call_observe(), has_failed=False, breach=breach)
        except Exception as error:
            if self.subject.misuse is not None:
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


def _next_choices(choices: tuple[int, ...], widths: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the choices after these in counting order, or None after the last. `widths` contains the number of tasks at each choice."""
    prefix = [*choices, *[0] * (len(widths) - len(choices))]
    while prefix:
        last = prefix.pop() + 1
        if last < widths[len(prefix)]:
            return (*prefix, last)
    return None


def _is_same_next_year(before: TakenStep, after: TakenStep) -> bool:
    is_guarded_write = before.request is not None and is_guarded(before.request)
    return str(before.request) == str(after.request) if is_guarded_write else before.key == after.key


def _are_alike(one: Reference, other: Reference) -> bool:
    """Whether the handler sent the same requests in these two runs."""
    return [step.key for step in one.taken_steps] == [step.key for step in other.taken_steps]


def _distinct(states: Sequence[Any]) -> tuple[Any, ...]:
    """Return each state once. States don't have to be hashable."""
    distinct_states: list[Any] = []
    for state in states:
        if state not in distinct_states:
            distinct_states.append(state)
    return tuple(distinct_states)
