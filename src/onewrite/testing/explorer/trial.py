"""Run one schedule: call the handler, and perform its requests in the schedule's order and with its faults."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, cast

from onewrite.outcome import Busy, Rejected, Uncertain
from onewrite.testing.explorer.calls import NEVER_SENT, TIME_PASSES, HandlerCall, Reply, Standstill, error_in_words
from onewrite.testing.explorer.deliverables import LambdaEvent, read_outcomes
from onewrite.testing.explorer.recall import (
    AnyCall,
    CallFromMemory,
    History,
    Recall,
    UnknownError,
    copy_replies,
    copy_reply,
)
from onewrite.testing.explorer.schedule import Delivery, Progress, ScheduleStep, TakenStep
from onewrite.testing.explorer.subject import Invocation, Subject, format_delivery
from onewrite.testing.model.machine import TAKES_TOKEN, TOKEN, Position, WorldState
from onewrite.testing.model.tokens import hide_other_attempts, list_own_tokens
from onewrite.testing.taps.aws import is_batch, leave_one_out
from onewrite.testing.taps.fault import MAX_OUTAGE, Fault, list_faults, list_variants
from onewrite.testing.taps.mongodb_methods import may_find_nothing
from onewrite.testing.taps.traffic import Key, Request

# --- trials -----------------------------------------------------------------------------------------------------------

_LATER = Delivery(0, 1)  # any delivery that isn't its message's first
_EVENTS = {Fault.SLOW: TIME_PASSES, Fault.NEVER_SENT: NEVER_SENT}  # events that a pending request gets instead of a response

ROUNDS = 25  # rounds of redelivery until every message is settled, enough for a lease that ends after a few deliveries


@dataclass(frozen=True, slots=True)
class TrialStep:
    """A step that a trial has taken, with its result."""

    taken_step: TakenStep
    answers: tuple[Reply, ...]  # empty if the request wasn't sent, two if it was retried
    end: Reply | None  # the result of the delivery, if this was its last step
    settling: bool = False  # whether it belongs to a redelivery after the schedule's own steps
    outcomes: tuple[object, ...] = ()  # outcomes of the guarded stores, or of the handler if there is no such store
    repeated_parts: tuple[int, ...] = ()  # the records that the delivery's response reports as failed
    states: tuple[WorldState, ...] = ()  # states of the stores before the request and after each response
    failures: tuple[str, ...] = ()  # the handler's errors, and where they were raised
    partial_parts: tuple[int, ...] = ()  # the records that the delivery brings, if it doesn't bring all
    effect_name: str = ""  # the name of the last effect that the delivery began


RequestIdentity: TypeAlias = tuple[str, str, tuple[str, ...], tuple[Key, ...] | None]


class _Outage(NamedTuple):
    """A lasting fault, the request that it affects, and how often it has occurred."""

    fault: Fault
    request: RequestIdentity
    times: int = 1


class _Creation(NamedTuple):
    """A last step that added a MongoDB document: its delivery, and the store's state and the progress before it."""

    delivery: Delivery
    state: WorldState
    progress: Progress


class Trial:
    """One run of a schedule. `progress` contains its progress, `steps` the steps taken, and `position` the machine's position.

    By default, if a delivery's tasks wait for several requests at once, the tasks run one after the other: the task that
    received the response continues first. If several tasks can be next, `choices` contains the index of the chosen task.
    After the end of `choices`, the first task is chosen. `widths` counts the tasks that could be next at each choice.
    """

    def __init__(self, subject: Subject, choices: Sequence[int] = ()) -> None:
        self.widths: list[int] = []
        self._choices = choices
        self.progress = subject.start
        self.steps: list[TrialStep] = []
        self._subject = subject
        self._calls: dict[Delivery, AnyCall] = {}
        self._histories: dict[
            Delivery, History
        ] = {}  # histories of the open deliveries, if the handler's behavior is recorded
        self._open_parts: dict[Delivery, tuple[int, ...]] = {}  # the parts that each open delivery has brought
        self._processes: dict[Delivery, Invocation] = {}  # the processes of the open deliveries
        self._tokens: dict[int, set[str]] = {}  # the DynamoDB tokens that each message's deliveries sent
        self._attempts: dict[Delivery, frozenset[str]] = {}  # the tokens of the guarded writes of each open delivery
        self._outages: dict[Delivery, _Outage] = {}
        self._creation: _Creation | None = None
        self._states: list[WorldState] = []
        self._spares: list[Invocation] = []  # processes that were started before the schedule
        self._start()
        self.position = subject.machine.position

    def take(self, step: ScheduleStep) -> TakenStep:
        """Make a delivery send its next request. If it hasn't started, start it."""
        before = self.position[0]
        trial_step, self.position = self._take(step)
        self.steps.append(trial_step)
        taken = trial_step.taken_step
        is_creation = self._subject.traits.has_upserts and self._subject.has_added(before, taken.request, self.position[0])
        self._creation = _Creation(taken.step.delivery, before, self.progress) if is_creation else None
        self.progress = self.progress.after(taken)
        if taken.has_ended:
            del self._open_parts[step.delivery]
            self._outages.pop(step.delivery, None)
            if attempts := self._attempts.pop(step.delivery, None):
                self.position = self._subject.machine.forget_attempts(self.position, attempts)
        return taken

    def _take(self, step: ScheduleStep) -> tuple[TrialStep, Position]:
        """Return the taken step, and the machine's position after it."""
        self.go_here()
        is_beginning = step.delivery not in self._calls
        if is_beginning:
            self._forget_tokens(step.delivery)
            self._begin(step.delivery, self._find_batch(step))
        call = self._calls[step.delivery]
        had_returned = call.has_returned and not call.is_at_start
        stop = call.stop
        # The delivery ended immediately, or doesn't send anything yet.
        if not stop.pending or (is_beginning and step.fault is Fault.BEGUN):
            self._end_transactions(step.delivery, call)
            fault = Fault.BEGUN if stop.pending else Fault.NONE
            step = ScheduleStep(step.delivery, fault, batch=step.batch)
            taken_step = TakenStep(step, request=None, key=None, has_ended=call.has_ended)
            return self._make_trial_step(taken_step, call, answers=()), self._subject.machine.position
        index = step.request_index % len(stop.pending)  # a random schedule draws any number
        request, cancelled = stop.pending[index]
        request = self._subject.add_entities(request)
        outage = self._repeat_outage(step.delivery, request)
        faults = () if outage else self._list_faults(step.delivery, stop, index, request)
        variants = [variant for fault in faults for variant in list_variants(fault, request)]
        race_state = None if outage or cancelled else self._find_race_state(step.delivery, request)
        if race_state is not None:
            faults = (*faults, Fault.RACED)
        # Any other fault would make no difference to this request.
        fault = step.fault if step.fault in (*faults, *variants) else Fault.NONE
        step = step._replace(fault=fault, request_index=index)
        # A search follows only the variants to which the handler has reacted differently.
        faults = *faults, *[variant for variant in variants if variant in self._subject.traits.variants]
        if step.fault.is_lasting:
            self._outages[step.delivery] = _Outage(step.fault, self._find_lasting_request(step.fault, request))
        history = self._histories.get(step.delivery)
        key = self._subject.key(request) if history is None else history.keys[index]
        self._states = [self._subject.machine.present]
        self._attempts[step.delivery] = self._attempts.get(step.delivery, frozenset()).union(list_own_tokens(request))
        answers = self._perform(call, request, key, step._replace(fault=outage or step.fault), race_state)
        if TOKEN in request.arguments:
            self._tokens.setdefault(step.delivery.message, set()).add(str(request.arguments[TOKEN]))
        self._end_transactions(step.delivery, call)
        others = () if index else tuple(range(1, len(stop.pending)))
        taken_step = TakenStep(
            step,
            request,
            key,
            call.has_ended,
            faults=faults,
            others=others,
            cancelled=cancelled,
            outage=outage,
        )
        return self._make_trial_step(taken_step, call, answers, had_returned=had_returned), self._subject.machine.position

    def list_next_steps(self, delivery: Delivery) -> list[ScheduleStep]:
        """Return the possible next steps of a delivery: several if it hasn't begun and can bring different records."""
        if delivery in self._open_parts:
            return [ScheduleStep(delivery)]
        return [ScheduleStep(delivery, batch=number) for number in range(len(self._list_batches(delivery.message)))]

    def _list_batches(self, message: int) -> list[tuple[int, ...]]:
        deliverable = self._subject.deliverables[message]
        return self.progress.list_batches(message, deliverable.lanes if deliverable.can_come_apart else None)

    def _find_batch(self, step: ScheduleStep) -> tuple[int, ...]:
        batches = self._list_batches(step.delivery.message)
        return batches[step.batch % len(batches)]

    def _find_state_before_creation(self, delivery: Delivery) -> WorldState | None:
        """Return the state before the last step, if that step added a MongoDB document and could overlap with this delivery."""
        creation = self._creation
        if creation is None or delivery == creation.delivery:
            return None
        return creation.state if creation.progress.may_overlap(delivery, creation.delivery) else None

    def _find_race_state(self, delivery: Delivery, request: Request) -> WorldState | None:
        """Return the state before the last step, if this request could have read it and would then have a different effect.

        Record that the handler sends upserts, because only then are creations remembered.
        """
        if not may_find_nothing(request):
            return None
        self._subject.traits.has_upserts = True
        before = self._find_state_before_creation(delivery)
        return None if before is None or not self._subject.may_race(before, request) else before

    def _repeat_outage(self, delivery: Delivery, request: Request) -> Fault:
        """Return the lasting fault that affects this request again, and count it. Return `Fault.NONE` if there is none."""
        outage = self._outages.get(delivery)
        if outage is None or outage.times == MAX_OUTAGE or not _is_repeated(outage, request):
            return Fault.NONE
        self._outages[delivery] = outage._replace(times=outage.times + 1)
        return outage.fault

    def _find_lasting_request(self, fault: Fault, request: Request) -> RequestIdentity:
        """Return the request that a lasting fault affects from now on: this one, or the part of a batch that is left."""
        if not fault.is_partial:
            return _make_identity(request)
        left = {**request.arguments, "RequestItems": leave_one_out(request)[1]}
        return _make_identity(self._subject.add_entities(replace(request, arguments=left, keys=None)))

    def go_here(self) -> None:
        """Set the machine to this trial's position."""
        self._subject.machine.go_to(self.position)

    def list_keys(self) -> frozenset[Key]:
        """Return the keys of all entities in the stores at this trial's position."""
        self.go_here()
        return self._subject.machine.list_keys()

    def _forget_tokens(self, delivery: Delivery) -> None:
        """Forget a message's tokens if none of its deliveries is in progress.

        DynamoDB remembers a token for ten minutes, and a message can be redelivered later than that.
        """
        if not any(other.message == delivery.message for other in self.progress.open):
            self._subject.machine.forget_tokens(self._tokens.pop(delivery.message, set()))

    def _end_transactions(self, delivery: Delivery, call: AnyCall) -> None:
        """Abort the transactions that an ended call has left open."""
        if call.has_ended:
            self._subject.machine.transactions.end_all(format_delivery(self._subject.names, delivery))

    def list_able(self) -> list[Delivery]:
        """Return the deliveries that can take the next step, sorted by message."""
        return self.progress.list_able()

    @property
    def state(self) -> Hashable:
        """Return the contents of the store, and its open transactions."""
        return self._store_form, self._subject.machine.transactions.form

    @property
    def _store_form(self) -> Hashable:
        """Return the contents of the store, and its earlier contents if a stale read can still show them."""
        can_be_stale = self._subject.stale_reads.has_any and self.progress.faults < self._subject.bounds.faults
        return self.position if can_be_stale else self.position[0]

    @property
    def place(self) -> Hashable:
        """Return a value that is equal for trials with the same possible continuations, or None if the handler might use its memory.

        Of an ended delivery, the value contains only the effects on the store and the tokens.
        """
        if self._subject.recall is None:
            return None
        numbers = sorted([history.number for history in self._histories.values()])
        tokens = frozenset([(message, frozenset(tokens)) for message, tokens in self._tokens.items()])
        outages = frozenset([(self._histories[delivery].number, outage) for delivery, outage in self._outages.items()])
        progress = self.progress
        settled, creation = frozenset(progress.settled_parts), None
        if self._creation is not None:
            creator = self._histories.get(self._creation.delivery)
            creator_number = None if creator is None else creator.number
            new_may_race = self._creation.progress.may_overlap(_LATER, self._creation.delivery)
            is_settling = len(self._creation.progress.settled_parts) < len(settled)
            creation = self._creation.state, creator_number, new_may_race, is_settling
        return self.state, tuple(numbers), tokens, progress.start_counts, progress.faults, settled, outages, creation

    def finish(self) -> Iterator[TakenStep]:
        """Run the open deliveries to their ends without faults, one after the other."""
        while self.progress.open:
            yield self.take(self._choose_step(min(self.progress.open)))

    def _choose_step(self, delivery: Delivery) -> ScheduleStep:
        """Return the next step of a delivery whose tasks run one after the other. A cancelled request isn't sent."""
        stop = self._stop(delivery)
        able = stop.in_turn or [index for index, entry in enumerate(stop.pending) if not entry.cancelled]
        if not able:
            return ScheduleStep(delivery, Fault.NEVER_SENT if stop.pending else Fault.NONE)
        choice = self._choices[len(self.widths)] if len(self.widths) < len(self._choices) else 0
        self.widths.append(len(able))
        return ScheduleStep(delivery, request_index=able[choice])

    def _stop(self, delivery: Delivery) -> Standstill:
        return self._calls[delivery].stop

    def settle(self, order: Sequence[int]) -> str | None:
        """Deliver the unsettled parts in this order, one delivery at a time, until all are settled.

        Consecutive parts of one event come in one delivery, but SQS redelivers each record in its own batch. Return None, or
        the handler's last failure if a part is never settled.
        """
        failure: str | None = None
        for _ in range(ROUNDS):
            missing = [part for part in order if part not in self.progress.settled_parts]
            if not missing:
                return None
            for message, parts in self._split_into_deliveries(missing):
                error = self.deliver(message, parts).error
                failures = self.steps[-1].failures
                if failures:
                    failure = failures[0]
                elif error is not None:
                    failure = error_in_words(error)
        return failure or f"the handler never settles the message{_explain_unsettled(self.steps[-1])}"

    def deliver(self, message: int, parts: tuple[int, ...]) -> Reply:
        """Deliver these parts of the message once more, from start to end, regardless of the bounds and any time later."""
        self.go_here()
        self._subject.machine.forget_tokens()
        self.position = self._subject.machine.position
        delivery = Delivery(message, self.progress.start_counts[message])
        self._begin(delivery, parts)
        self.position = self._subject.machine.position  # building the handler again might have written something
        end: Reply | None = None
        while True:
            has_ended = self.take(self._choose_step(delivery)).has_ended
            self.steps[-1] = replace(self.steps[-1], settling=True)
            end = end or self.steps[-1].end
            if has_ended:
                return end or Reply()

    def abandon(self) -> None:
        """Kill the calls that haven't ended."""
        for call in self._calls.values():
            self._release(call)
        self._calls.clear()
        self._subject.keep_unused(self._spares)
        self._spares = []

    def _split_into_deliveries(self, parts: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the messages of these parts, each with the parts of one delivery."""
        owners = {part: message for message, own in enumerate(self.progress.parts) for part in own}
        first = 0
        for place in range(1, len(parts) + 1):
            before = parts[place - 1]
            message = owners[before]
            comes_alone = self.progress.start_counts[message] and self._subject.deliverables[message].can_come_apart
            # A delivery also ends before a part of another message, and before one that the event has earlier.
            if comes_alone or place == len(parts) or owners[parts[place]] != message or parts[place] < before:
                yield message, tuple(parts[first:place])
                first = place

    def _start(self) -> None:
        self._process: Invocation | None
        self._process, *self._spares = self._subject.begin_processes(1 + self._subject.spare_processes)

    def take_over(self) -> None:
        """Continue in the process that would take over after a crash, if the bounds allow faults."""
        if self._subject.bounds.faults:
            self.change_process()

    def change_process(self) -> None:
        """Continue in another process, in which no delivery has begun."""
        self._process = self._spares.pop() if self._spares else None

    def _leave_process(self, delivery: Delivery, *, has_died: bool) -> None:
        """Remove an ended delivery from its process. If the process has crashed, later deliveries go to a spare process.

        Deliveries in progress stay in their process. The spare was started before the schedule, because `build` can empty
        data for a new schedule. A process that reads from the store at its start is started only when it takes over.
        """
        if self._processes.pop(delivery) is self._process and has_died:
            self.take_over()

    def _begin(self, delivery: Delivery, parts: tuple[int, ...]) -> None:
        """Begin a delivery of these parts, in its own process if each delivery has one."""
        if self._subject.mode.has_own_processes and (self._spares or self._subject.traits.has_recovery):
            self.change_process()
        if self._process is None:
            self._process = self._subject.build()
        self._processes[delivery] = self._process
        self._calls[delivery] = call = self._subject.call(self._process, delivery, parts)
        self._open_parts[delivery] = parts
        if self._subject.recall is not None:
            self._histories[delivery] = self._subject.recall.root(delivery, parts)
            self._subject.recall.note(self._histories[delivery], call)

    def _resume(self, call: AnyCall, delivery: Delivery, answer: Reply, index: int) -> None:
        """Pass a response to the call, and record its behavior."""
        # A copy, because the handler can change the values that it has read, and the report shows the response.
        answer = self._hide_other_attempts(delivery, answer)
        is_changeable = isinstance(cast("object", answer.value), dict | list)
        given = answer._replace(value=copy.deepcopy(answer.value)) if is_changeable else answer
        if self._subject.recall is None:
            call.resume(given, index)
            return
        self._histories[delivery] = self._subject.recall.after(self._histories[delivery], answer, index)
        call.resume(given, index)
        self._subject.recall.note(self._histories[delivery], cast("HandlerCall", call))

    def _hide_other_attempts(self, delivery: Delivery, answer: Reply) -> Reply:
        """Return the response as if all other deliveries had ended. A guarded write only asks whether a token is its own."""
        own = self._attempts.get(delivery, frozenset())
        if isinstance(cast("object", answer.value), dict | list):
            return answer._replace(value=hide_other_attempts(answer.value, own))
        response = getattr(answer.error, "response", None)
        if response is not None:
            cast("Any", answer.error).response = hide_other_attempts(response, own)
        return answer

    def _release(self, call: AnyCall) -> None:
        """Release the call's thread, if it has one."""
        if not isinstance(call, CallFromMemory):
            self._subject.threads.release(call)

    def _make_trial_step(
        self, taken_step: TakenStep, call: AnyCall, answers: tuple[Reply, ...], *, had_returned: bool = False
    ) -> TrialStep:
        """Return a step with its result. The message is settled when the handler returns, even if a task is still running."""
        delivery, is_dead = taken_step.step.delivery, call.is_dead
        parts = self._open_parts[delivery]
        partial_parts = parts if len(parts) < len(self.progress.parts[delivery.message]) else ()
        end: Reply | None = None
        repeated_parts: tuple[int, ...] = ()
        outcomes: tuple[object, ...] = ()
        failures: tuple[str, ...] = ()
        if call.has_returned and not had_returned:
            settled_parts, repeated_parts = self._read_settlement(delivery, call)
            taken_step = taken_step._replace(settled_parts=settled_parts)
            end, failures = call.result, tuple(call.failures)
            # The outcomes of the stores are more reliable than the handler's return value.
            store_answers = call.outcomes or [call.result.value]
            outcomes = tuple([outcome for answer in store_answers for outcome in read_outcomes(answer)])
        if call.has_ended:
            self._release(self._calls.pop(delivery))
            self._histories.pop(delivery, None)
            self._leave_process(delivery, has_died=is_dead)
        if self._subject.traits.misuse is not None:
            raise self._subject.traits.misuse
        return TrialStep(
            taken_step,
            answers,
            end,
            outcomes=outcomes,
            repeated_parts=repeated_parts,
            states=tuple(self._states) if answers else (),
            failures=failures,
            partial_parts=partial_parts,
            effect_name=call.effect_name,
        )

    def _read_settlement(self, delivery: Delivery, call: AnyCall) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the parts that the end of the handler settles, and the records that its response reports as failed."""
        if call.has_died or call.result.error is not None:
            return (), ()
        deliverable, parts = self._subject.deliverables[delivery.message], self._open_parts[delivery]
        first = self.progress.parts[delivery.message][0]
        failed_places = deliverable.failures(call.result.value, tuple(part - first for part in parts))
        settled_parts = tuple(part for part in parts if part - first not in failed_places)
        repeated_parts = tuple(first + place for place in failed_places) if isinstance(deliverable, LambdaEvent) else ()
        return settled_parts, repeated_parts

    def _list_faults(self, delivery: Delivery, stop: Standstill, index: int, request: Request) -> tuple[Fault, ...]:
        """Return the faults that can affect this request."""
        if stop.pending[index].cancelled:
            return (Fault.NEVER_SENT,)
        has_more = self.progress.faults < self._subject.bounds.faults
        if not self._subject.bounds.faults or not (has_more or is_batch(request)):
            return ()
        is_first = all(entry.cancelled for entry in stop.pending[:index])
        slow = (Fault.SLOW,) if stop.timers and is_first else ()
        faults = *list_faults(request), *self._subject.list_dependent_faults(request), *slow
        has_partial = not self._was_left(delivery, request)
        return tuple([fault for fault in faults if (has_partial if fault.is_partial else has_more)])

    def _was_left(self, delivery: Delivery, request: Request) -> bool:
        """Whether a part of this batch was left unprocessed before in the same delivery."""
        taken = (step.taken_step for step in self.steps if step.taken_step.step.fault.is_partial)
        return any(
            step.step.delivery == delivery
            and step.request is not None
            and _make_identity(step.request) == _make_identity(request)
            for step in taken
        )

    def _perform(
        self, call: AnyCall, request: Request, key: Hashable, step: ScheduleStep, race_state: WorldState | None
    ) -> tuple[Reply, ...]:
        """Perform the request under the step's fault, and resume the call. Return the store's responses.

        `race_state` is the state in which a raced upsert looked for its document.
        """
        delivery, fault, index, _ = step
        if fault.is_crash and fault.is_kept_back:
            call.die()
            return ()
        if fault.is_kept_back:
            is_event = fault in _EVENTS
            reply = _EVENTS[fault] if is_event else Reply(error=self._subject.make_error(fault, request), faulty=True)
            self._resume(call, delivery, reply, index)
            return ()
        self._subject.traits.has_written = self._subject.traits.has_written or request.writes
        if fault is Fault.RACED and race_state is not None:
            answer = self._subject.race(race_state, request)
        else:
            answer = self._subject.perform_under(fault, request, key)
        self._states.append(self._subject.machine.present)
        if fault is Fault.RETRIED:
            # DynamoDB recognizes a repeated transaction by its token, and responds as to the first.
            is_recognized = request.method in TAKES_TOKEN and answer.error is None
            second_answer = _note_retry(copy.deepcopy(answer) if is_recognized else self._subject.perform(request, key))
            self._states.append(self._subject.machine.present)
            self._resume(call, delivery, second_answer._replace(faulty=True), index)
            return answer, second_answer
        if fault is Fault.CRASH_AFTER:
            call.die()
        else:
            reply = Reply(error=self._subject.make_error(fault, request)) if fault.is_lost else answer
            self._resume(call, delivery, reply._replace(faulty=fault.is_counted), index)
        return (answer,)


def _make_identity(request: Request) -> RequestIdentity:
    """Return a value that is equal for identical requests, even if the driver adds different tokens."""
    return request.store, request.method, request.tables, request.keys


def _is_repeated(outage: _Outage, request: Request) -> bool:
    """Whether the request is the one that a lasting fault affects, or contains the part of a batch that is left."""
    store, method, _, keys = outage.request
    if outage.fault.is_partial and (store, method) == (request.store, request.method):
        return set(keys or ()) <= set(request.keys or ())
    return outage.request == _make_identity(request)


def _explain_unsettled(last: TrialStep) -> str:
    """Explain why a message is never settled, based on its last delivery."""
    unsettled_outcomes = [outcome for outcome in last.outcomes if getattr(outcome, "settled", True) is False]
    if not unsettled_outcomes:
        return f". Its last result was {last.end.value!r}" if last.repeated_parts and last.end is not None else ""
    last_outcome = unsettled_outcomes[-1]
    text = f". The guarded store's last outcome was {type(last_outcome).__name__}"
    if isinstance(last_outcome, Uncertain):
        return (
            f"{text}. No one knows whether the effect happened, and only an operator can settle the message. If you mean that, explore with "
            "faults=0. Otherwise, pass the key_valid_for= of a provider that knows its keys"
        )
    if isinstance(last_outcome, Rejected):
        return f"{text}. {last_outcome.reason}"
    if isinstance(last_outcome, Busy):
        return (
            f"{text}. The message's effect is open until its lease ends. Pass the effect as finishes= to the write that remembers it. If you "
            "do, don't pass clock= to the store, so that its time advances with each delivery. If the lease doesn't end within "
            f"{ROUNDS} redeliveries, pass a longer redelivered_after="
        )
    return text


def _note_retry(answer: Reply) -> Reply:
    """Add the number of retries to a second response's metadata, as botocore does. Return the response."""
    response: Any = answer.value if answer.error is None else getattr(answer.error, "response", None)
    if isinstance(response, dict):
        response = cast("dict[str, Any]", response)
        response["ResponseMetadata"] = {**response.get("ResponseMetadata", {}), "RetryAttempts": 1}
    return answer


# --- recalled trials --------------------------------------------------------------------------------------------------
#
# In these trials, no handler runs: the behavior of its calls is recalled.


class _Effect(NamedTuple):
    """The result of a step for the same state of the store and the delivery."""

    trial_step: TrialStep
    position: Position
    history: History | None  # None: the delivery has ended
    outage: _Outage | None
    attempts: frozenset[str] | None


Effects: TypeAlias = dict[tuple[Hashable, ...], _Effect]


class TrialFromMemory(Trial):
    """A trial that runs no handler, and that can be forked at any step."""

    def __init__(self, subject: Subject, effects: Effects) -> None:
        self._recall = cast("Recall", subject.recall)
        self._effects = effects
        super().__init__(subject)

    def fork(self) -> TrialFromMemory:
        """Return another trial in the same state."""
        other = object.__new__(TrialFromMemory)
        other.__dict__.update(self.__dict__)
        other.steps, other.widths = self.steps.copy(), []
        other._histories = self._histories.copy()
        other._open_parts, other._outages = self._open_parts.copy(), self._outages.copy()
        other._attempts = self._attempts.copy()
        return other

    def list_able(self) -> list[Delivery]:
        """Return the deliveries that can take the next step, one from each group of interchangeable deliveries."""
        histories = self._histories
        able = {
            (delivery.message, histories.get(delivery), self._outages.get(delivery)): delivery
            for delivery in reversed(self.progress.list_able())
        }
        return [*reversed(able.values())]

    @property
    def state(self) -> Hashable:
        return self._store_form, frozenset[Hashable]()  # handlers that begin a transaction aren't recalled

    def _take(self, step: ScheduleStep) -> tuple[TrialStep, Position]:
        delivery, fault, index, batch = step
        if delivery not in self._histories:
            self._begin(delivery, self._find_batch(step))
        history = self._histories[delivery]
        index %= max(len(history.stop.pending), 1)
        step = step._replace(request_index=index)
        outage = self._outages.get(delivery)
        race = self._find_state_before_creation(delivery)
        key = self.state, history, fault, index, self.progress.faults < self._subject.bounds.faults, outage, race, batch
        effect = self._effects.get(key)
        if effect is None:
            effect = self._effects[key] = self._find_effect(step, history)
        if effect.history is None:
            self._histories.pop(delivery, None)
        else:
            self._histories[delivery] = effect.history
        if effect.outage is not None:
            self._outages[delivery] = effect.outage
        if effect.attempts is not None:
            self._attempts[delivery] = effect.attempts
        taken_step = effect.trial_step.taken_step
        if taken_step.step.delivery == delivery:
            return effect.trial_step, effect.position
        taken_step = taken_step._replace(step=taken_step.step._replace(delivery=delivery))
        return replace(effect.trial_step, taken_step=taken_step), effect.position

    def _find_effect(self, step: ScheduleStep, history: History) -> _Effect:
        """Return the effect of a step that isn't known yet. Run the handler if its behavior isn't recorded yet."""
        before = self._outages.copy()
        try:
            self._calls = {step.delivery: CallFromMemory(self._recall, history)}
            trial_step, position = super()._take(step)
        except UnknownError as unknown:
            missing = unknown.history
            self._outages = before
        else:
            call = cast("CallFromMemory | None", self._calls.get(step.delivery))
            outage, attempts = self._outages.get(step.delivery), self._attempts.get(step.delivery)
            return _Effect(trial_step, position, None if call is None else call.history, outage, attempts)
        # Run the handler outside the `except` block, so that its errors don't get `unknown` as their context.
        self._learn(step.delivery, missing)
        return self._find_effect(step, history)

    def _learn(self, delivery: Delivery, history: History) -> None:
        """Run the handler with these responses, and record its behavior. Continue a call that waits for the last one, if there is one."""
        paused = self._recall.take_paused(history.before)
        invocation = self._subject.begin() if paused is None else None
        self.go_here()
        if invocation is not None:
            call = self._subject.call(invocation, delivery, self._open_parts[delivery], copy_replies(history))
        else:
            call = cast("HandlerCall", paused)
        try:
            if paused is not None:
                call.resume(copy_reply(history.answer), history.request_index)
            self._recall.learn(history, call)
        finally:
            self._recall.keep_paused(history, call)

    def _stop(self, delivery: Delivery) -> Standstill:
        return self._histories[delivery].stop

    def _start(self) -> None:
        self._process, self._spares = None, []
        self._subject.machine.reset()

    def _begin(self, delivery: Delivery, parts: tuple[int, ...]) -> None:
        self._histories[delivery] = self._recall.root(delivery, parts)
        self._open_parts[delivery] = parts

    def _resume(self, call: AnyCall, delivery: Delivery, answer: Reply, index: int) -> None:
        call.resume(self._hide_other_attempts(delivery, answer), index)

    def _leave_process(self, delivery: Delivery, *, has_died: bool) -> None:
        """Do nothing, because processes without memory are interchangeable."""
