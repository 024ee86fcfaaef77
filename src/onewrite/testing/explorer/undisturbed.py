"""Process the messages undisturbed, each once, one at a time, and without faults. The results are the expected states and the remarks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, cast

from onewrite.core.label import OUTBOX, is_ours
from onewrite.errors import ConfigurationError
from onewrite.outcome import Applied, Deferred, Duplicate, Missing, Rejected, Stale
from onewrite.testing.explorer.calls import Reply, error_in_words
from onewrite.testing.explorer.deliverables import has_unprocessed_message
from onewrite.testing.explorer.schedule import TakenStep
from onewrite.testing.explorer.subject import Subject
from onewrite.testing.explorer.trial import ROUNDS, Trial, TrialStep
from onewrite.testing.model.machine import Position
from onewrite.testing.taps.mongodb_methods import DESCRIBING, INDEXING
from onewrite.testing.taps.traffic import Key, Request, is_guarded

Order: TypeAlias = tuple[int, ...]

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

    def extend(order: Order) -> Iterator[tuple[int, ...]]:
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


# --- the expected states ----------------------------------------------------------------------------------------------


class Reference(NamedTuple):
    """The result of undisturbed processing in one order of the messages."""

    order: Order
    taken_steps: tuple[TakenStep, ...]
    observed: Any
    position: Position  # the machine's position at the end
    incomplete: bool  # whether a guarded store refused a message, and not every message was processed
    failure: str | None
    widths: tuple[int, ...] = ()  # the number of requests that could be next at each choice of a task

    def is_like(self, other: Reference) -> bool:
        """Whether the handler sent the same requests in both runs."""
        return [step.key for step in self.taken_steps] == [step.key for step in other.taken_steps]


class References:
    """The results of undisturbed processing in the orders tried so far. `expected` has each state that they reached once."""

    max_orders = 5040  # all orders of seven messages or records

    def __init__(self, subject: Subject, observe: Callable[[], Any]) -> None:
        self.order = tuple(
            part for parts in subject.start.parts for part in parts
        )  # the order in which the user passed the messages
        self.expected: tuple[Any, ...] = ()
        self.are_complete = False  # whether all orders, or the first `max_orders`, were tried
        self.has_untried = False  # whether there are more orders than `max_orders`
        self._subject = subject
        self._observe = observe
        self._predecessors = tuple(find_predecessors(subject))
        self._orders = self.list_orders()
        self._by_order: dict[Order, Reference] = {}
        self._of_tasks: list[Reference] = []  # results with the tasks of deliveries in other orders

    def list_orders(self) -> Iterator[Order]:
        """Return the possible orders. The first is the order in which the messages were passed."""
        return list_orders(self._predecessors)

    @property
    def first(self) -> Reference:
        """Return the result in the order in which the messages were passed."""
        return self._by_order[self.order]

    @property
    def failure(self) -> str | None:
        """Return why the handler failed, if it did."""
        return next((reference.failure for reference in self._by_order.values() if reference.failure is not None), None)

    @property
    def request_counts(self) -> list[int]:
        """Return the number of requests that each message needs."""
        steps = self.first.taken_steps
        messages = range(len(self._subject.deliverables))
        return [sum(step.step.delivery.message == message for step in steps) for message in messages]

    @property
    def ends_by_task_order(self) -> tuple[Any, ...]:
        """Return two observations that differ only by the task order within a delivery, or () if the task order doesn't matter."""
        for order, reference in self._by_order.items():
            for other in self._of_tasks:
                if other.order == order and other.failure is None and other.observed != reference.observed:
                    return reference.observed, other.observed
        return ()

    def needs(self, order: Order) -> bool:
        """Whether the orders tried so far don't decide a state that was reached by settling the parts in this order."""
        return not self.are_complete or (order not in self._by_order and self._is_possible(order))

    def try_more(self, order: Order) -> None:
        """Add the state that this order reaches to the expected states. If the order was tried or is impossible, try all orders."""
        if order in self._by_order or not self._is_possible(order):
            for other in islice(self._orders, self.max_orders):
                if other not in self._by_order:
                    self._by_order[other] = self.process(other)
            self.are_complete = True
            self.has_untried = next(self._orders, None) is not None
            self._try_task_orders()
        else:
            self._by_order[order] = self.process(order)
        # Sorted, because a replay tries the orders in a different sequence and must expect the same results.
        references = [reference for _, reference in sorted(self._by_order.items(), key=itemgetter(0))]
        successes = [reference for reference in (*references, *self._of_tasks) if reference.failure is None]
        clean = [reference for reference in successes if not reference.incomplete]
        self.expected = _distinct([reference.observed for reference in clean or (successes if self.are_complete else [])])

    def _try_task_orders(self) -> None:
        """Try the other orders of the tasks within each delivery too, changing one choice at a time."""
        self._of_tasks = []
        for order, first in sorted(self._by_order.items(), key=itemgetter(0)):
            choices = _next_choices((), first.widths)
            while choices is not None:
                if len(self._by_order) + len(self._of_tasks) >= self.max_orders:
                    self.has_untried = True
                    return
                reference = self.process(order, choices)
                self._of_tasks.append(reference)
                choices = _next_choices(choices, reference.widths)

    def _is_possible(self, order: Order) -> bool:
        """Whether each part comes after its predecessors."""
        return all(set(self._predecessors[part]) <= set(order[:place]) for place, part in enumerate(order))

    def process(self, order: Order, choices: tuple[int, ...] = (), *, in_another_process: bool = False) -> Reference:
        """Process the messages undisturbed in this order, and return the result."""
        trial = Trial(self._subject, choices)
        try:
            if in_another_process:
                trial.take_over()
            failure = trial.settle(order)
            taken_steps = tuple(step.taken_step for step in trial.steps)
            return Reference(
                order,
                taken_steps,
                observed=self._observe_end() if failure is None else None,
                position=trial.position,
                incomplete=failure is None and has_unprocessed_message(step.outcomes for step in trial.steps),
                failure=None if failure is None else f"{describe_unsettled(self._subject, trial)}: {failure}",
                widths=tuple(trial.widths),
            )
        finally:
            trial.abandon()

    def _observe_end(self) -> Any:
        try:
            return self._observe()
        except ConfigurationError:  # its message already explains the mistake
            raise
        except Exception as error:
            raise ConfigurationError(
                f"observe(store) fails after processing without faults: {error_in_words(error)}."
            ) from error


def describe_unsettled(subject: Subject, trial: Trial) -> str:
    names = [name for number, name in enumerate(subject.titles.messages) if not trial.progress.is_settled(number)]
    return f"{', '.join(names)} never settled"


def _next_choices(choices: tuple[int, ...], widths: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the choices after these in counting order, or None after the last. `widths` contains the number of tasks at each choice."""
    prefix = [*choices, *[0] * (len(widths) - len(choices))]
    while prefix:
        last = prefix.pop() + 1
        if last < widths[len(prefix)]:
            return (*prefix, last)
    return None


def _distinct(states: Sequence[Any]) -> tuple[Any, ...]:
    """Return each state once. States don't have to be hashable."""
    distinct_states: list[Any] = []
    for state in states:
        if state not in distinct_states:
            distinct_states.append(state)
    return tuple(distinct_states)


# --- the effects of each part -----------------------------------------------------------------------------------------
#
# Undisturbed processing part by part, to see the effect of each.

_CREATIONS = ("insert_one", "PutItem")


@dataclass(slots=True)
class PartResult:
    """The result of a part that was processed until it was settled."""

    error: BaseException | None = None  # the error of its first failed delivery
    has_changed: bool = False  # whether it changed a store's contents, or the value that `observe` returns
    is_seen: bool = False  # whether it changed the value that `observe` returns
    unapplied_write: Request | None = None  # a write refused as a duplicate of an earlier write of the same delivery
    outcomes: list[object] = field(default_factory=list[object])
    returned: object = None  # the handler's latest return value
    has_found_nothing: bool = False  # whether it tried to read or change a missing entity
    has_found_entity: bool = False  # whether it tried to read or change an existing entity by its key
    is_forestalled: bool = False  # whether it tried to create an entity that another message had upserted
    writes: list[Request] = field(default_factory=list[Request])

    @property
    def is_lost(self) -> bool:
        """Whether the part had no effect, permanently, because an entity didn't exist yet or already existed."""
        if self.has_changed or self.error is not None:
            return False
        return self.is_forestalled or (self.has_found_nothing and not self.is_unsettled_or_refused)

    @property
    def is_unsettled_or_refused(self) -> bool:
        """Whether a guarded store reported the part as unsettled, or refused it permanently.

        A missing entity that the handler accepts doesn't count.
        """
        return any(
            isinstance(outcome, Rejected | Stale | Deferred) or (isinstance(outcome, Missing) and not outcome.settled)
            for outcome in self.outcomes
        )

    @property
    def is_ignored(self) -> bool:
        """Whether the handler settled the part without an effect on an entity that it asked for, and no guarded store reported a reason."""
        return self.has_found_entity and not self.has_changed and self.error is None and not self.has_reason

    @property
    def is_refused_for_good(self) -> bool:
        """Whether the caller's condition refused the part, which the call declared final, and the part had no effect."""
        return not self.has_changed and any(isinstance(outcome, Rejected) and outcome.settled for outcome in self.outcomes)

    @property
    def has_reason(self) -> bool:
        """Whether a guarded store reported that it is right to change nothing."""
        return any(isinstance(outcome, Rejected | Missing | Stale | Deferred) for outcome in self.outcomes)


PartResults: TypeAlias = Mapping[int, PartResult]


class OrderResult(NamedTuple):
    """The results of the parts in one order."""

    results: PartResults
    start: object  # the value of `observe` before the first part
    end: object  # the value of `observe` after the last part
    end_state: Hashable  # of the stores


def process_by_part(subject: Subject, order: Order, observe: Callable[[], object]) -> OrderResult:
    """Deliver the parts one at a time in this order, and the unsettled ones again. Return the effects of each."""
    return _RunByPart(subject, order, observe).process()


class _RunByPart:
    """Undisturbed processing in one order, with a delivery for each part."""

    def __init__(self, subject: Subject, order: Order, observe: Callable[[], object]) -> None:
        self._subject = subject
        self._order = order
        self._observe = observe
        self._trial = Trial(subject)
        self._results = {part: PartResult() for part in order}
        self._upserted_keys: set[Key] = set()  # entities that were created in this order by upserts

    def process(self) -> OrderResult:
        """Process the parts, and then process the unsettled parts again."""
        try:
            start = self._observe()
            for _ in range(ROUNDS):
                for part in [part for part in self._order if part not in self._trial.progress.settled_parts]:
                    self._deliver(part)
            return OrderResult(self._results, start, self._observe(), self._subject.machine.state)
        finally:
            self._trial.abandon()

    def _look(self) -> tuple[Hashable, object]:
        """Return the state of the stores, and the value of `observe`."""
        return self._subject.machine.state, self._observe()

    def _deliver(self, part: int) -> None:
        """Deliver the part once, and add the delivery's effects to the part's result."""
        result, trial = self._results[part], self._trial
        before, first, keys_before = self._look(), len(trial.steps), trial.list_keys()
        owner = next(message for message, parts in enumerate(trial.progress.parts) if part in parts)
        answer: Reply = trial.deliver(owner, (part,))
        after, keys_after = self._look(), trial.list_keys()
        steps = trial.steps[first:]
        requests = [step.taken_step.request for step in steps]
        writes = [request for request in requests if request is not None and request.writes]
        result.writes += writes
        # A guarded creation of an existing entity only adds the message's mark.
        forestalled_keys = self._upserted_keys & keys_before
        if not (writes and all(_sets_on_insert(write) and set(write.keys or ()) & forestalled_keys for write in writes)):
            result.has_changed = result.has_changed or after != before
            result.is_seen = result.is_seen or after[1] != before[1]
        result.error = result.error or answer.error
        result.outcomes += trial.steps[-1].outcomes
        result.returned = answer.value
        result.unapplied_write = result.unapplied_write or _find_unapplied_write(steps)
        created_keys: set[Key] = set()
        for step in steps:
            request = step.taken_step.request
            if request is None:
                continue
            keys = set(request.keys or ())
            if _is_creation(request):
                created_keys |= keys
                is_rejected = any(isinstance(outcome, Rejected) for outcome in result.outcomes)
                # If the rejected write has a different key, a unique index refused it because of one of the upserted entities.
                rival_keys = self._upserted_keys if is_rejected and not keys & keys_before else keys & self._upserted_keys
                result.is_forestalled = result.is_forestalled or bool(rival_keys)
            elif not _is_for_a_relay(request):
                is_absent = bool(keys) and not keys & (keys_before | keys_after)
                has_read_nothing = not request.writes and any(_is_nothing(request, answer) for answer in step.answers)
                result.has_found_entity = result.has_found_entity or bool(keys & keys_before)
                result.has_found_nothing = result.has_found_nothing or is_absent or has_read_nothing
        self._upserted_keys |= keys_after - keys_before - created_keys


def _is_creation(request: Request) -> bool:
    return request.method in _CREATIONS or _sets_on_insert(request)


def _sets_on_insert(request: Request) -> bool:
    """Whether the request adds nothing to an existing document except for the mark of a guarded write."""
    update = request.arguments.get("update")
    if not isinstance(update, Mapping) or "$setOnInsert" not in update:
        return False
    changes = cast("Mapping[str, Mapping[str, object]]", update)
    fields = {path.partition(".")[0] for name, change in changes.items() if name != "$setOnInsert" for path in change}
    return all(is_ours(field) and field not in OUTBOX for field in fields)


def _is_for_a_relay(request: Request) -> bool:
    """Whether the request reads pending events. If it finds none, nothing is lost, because each event has its own notification."""
    text = str(request.arguments)
    return not request.writes and (OUTBOX.events in text or OUTBOX.due in text)


def _is_nothing(request: Request, answer: Reply) -> bool:
    """Whether this is the response to a read that found nothing."""
    if answer.error is not None:
        return False
    if request.method == "GetItem":
        return "Item" not in answer.value
    if request.method in ("Query", "Scan"):
        return not answer.value["Count"]  # a query that only counts returns no Items
    return answer.value is None or answer.value in (0, [])


def _find_unapplied_write(steps: Sequence[TrialStep]) -> Request | None:
    """Return a guarded write that was refused as a duplicate because this delivery had already written to the same entity, or None."""
    applied_keys: set[Hashable] = set()
    was_repeated = False
    for outcome in steps[-1].outcomes:
        if isinstance(outcome, Applied):
            applied_keys.add((outcome.message.source, outcome.message.id, outcome.message.parts))
        elif isinstance(outcome, Duplicate):
            message_key = outcome.message.source, outcome.message.id, outcome.message.parts
            was_repeated = was_repeated or message_key in applied_keys
    if not was_repeated:
        return None
    writes: list[Request] = []
    for step in steps:
        request = step.taken_step.request
        if request is not None and request.writes:
            has_guard = is_guarded(request) or request.method in _CREATIONS
            if has_guard and any(_may_share_an_entity(request, earlier) for earlier in writes):
                return request
            writes.append(request)
    return None


def _may_share_an_entity(one: Request, other: Request) -> bool:
    """Whether both requests can touch the same entity. The entities of some requests, such as a Scan, aren't known."""
    if one.tables and other.tables and not set(one.tables) & set(other.tables):
        return False
    if one.keys is None or other.keys is None:
        return () not in (one.keys, other.keys)  # None: the request can touch any entity; (): it touches none
    return bool(set(one.keys) & set(other.keys))
