"""Runs one schedule: calls the handler, and performs its requests in the order and with the faults of the schedule."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from onewrite.outcome import Busy
from onewrite.testing.explorer.handler.calls import Answer, HandlerCall
from onewrite.testing.explorer.handler.deliverables import LambdaEvent, outcomes_of
from onewrite.testing.explorer.handler.invocation import Invocation
from onewrite.testing.explorer.handler.recall import AnyCall, RecordedCall
from onewrite.testing.explorer.schedule import Delivery, Fault, Step, TakenStep, faults_for
from onewrite.testing.explorer.trials.subject import Subject, name_of
from onewrite.testing.explorer.trials.waiting import must_wait
from onewrite.testing.model.machine import Position
from onewrite.testing.model.tokens import TAKES_TOKEN, TOKEN
from onewrite.testing.taps.traffic import Request

ROUNDS = 25  # of redelivery until every message is settled: enough for a lease that ends after a few deliveries


@dataclass(frozen=True, slots=True)
class TrialStep:
    """A step that a trial has taken, with what came of it."""

    taken: TakenStep
    answers: tuple[Answer, ...]  # none if the request was not sent, two if it was sent again
    end: Answer | None  # the result of the delivery, if this was its last step
    settling: bool = False  # it belongs to a redelivery that follows the schedule's own steps
    outcomes: tuple[object, ...] = ()  # what guarded stores returned to the delivery; where there was none, what it returned
    again: tuple[str, ...] = ()  # the ids of the records that come again because of the answer of the delivery
    only: tuple[str, ...] = ()  # the ids of the records that the delivery brings, if it brings some only


class Trial:
    """One run of a schedule. `progress` says how far it has come, and `steps` what has happened.

    `position` is where the machine stands.
    """

    def __init__(self, subject: Subject) -> None:
        self.progress = subject.start
        self.steps: list[TrialStep] = []
        self._subject = subject
        self._calls: dict[Delivery, AnyCall] = {}
        self._brought: dict[Delivery, tuple[int, ...]] = {}  # the parts that an open delivery has brought
        self._processes: dict[Delivery, Invocation] = {}  # those in which the open deliveries are
        self._tokens: dict[int, set[str]] = {}  # those that the deliveries of each message have given to DynamoDB
        self._start()
        self.position = subject.machine.position

    def take(self, step: Step) -> TakenStep:
        """Let a delivery send its next request. If it has not started, start it."""
        done, self.position = self._done(step)
        self.steps.append(done)
        self.progress = self.progress.after(done.taken)
        if done.taken.ended:
            del self._brought[step.delivery]
        return done.taken

    def _done(self, step: Step) -> tuple[TrialStep, Position]:
        """What comes of the step, and where it leaves the machine."""
        self.go_here()
        starts = step.delivery not in self._calls
        reaches_others = starts and self._forget_tokens_of(step.delivery)
        if starts:
            reaches_others = reaches_others or self._process is None
            self._begin(step.delivery, self.progress.brings(step.delivery.message))
        call = self._calls[step.delivery]
        request = None if starts and self._waits(step.delivery) else call.request
        faults = self._faults(request)
        if step.fault not in faults:
            step = Step(step.delivery)  # the fault would make no difference to this request
        key = None if request is None else call.key or self._subject.key(request)
        if request is not None and self._subject.blockers(request):
            reaches_others = True  # it will end what it waits for
        answers = () if request is None else self._perform(call, request, key, step.fault)
        settled, again = self._sorted_out(step.delivery, call)
        reaches_others = self._ends_more(step.delivery, call, request) or reaches_others
        taken = TakenStep(step, request, key, call.ended, settled, faults, reaches_others)
        if call.ended:
            self._release(self._calls.pop(step.delivery))
            self._leave_process(step.delivery, died=call.died)
        if self._subject.misuse is not None:
            raise self._subject.misuse
        done = _what_was_done(taken, answers, call, again, self._only(step.delivery))
        return done, self._subject.machine.position

    def go_here(self) -> None:
        """Let the store be as it is where this trial stands."""
        self._subject.machine.go_to(self.position)

    def _forget_tokens_of(self, delivery: Delivery) -> bool:
        """Let the tokens of a message be forgotten that comes again when none of its deliveries is under way. Were there any?

        DynamoDB remembers a token for ten minutes, and a message may come again later than that.
        """
        if self._others_are_open(delivery):
            return False
        return self._subject.machine.forget_tokens(self._tokens.pop(delivery.message, set()))

    def _ends_more(self, delivery: Delivery, call: AnyCall, request: Request | None) -> bool:
        """Has the end of this call ended a transaction too, or may the tokens of its message be forgotten from now on?"""
        if request is not None and TOKEN in request.arguments:
            self._tokens.setdefault(delivery.message, set()).add(str(request.arguments[TOKEN]))
        if not call.ended:
            return False
        had_written = self._subject.machine.end_transactions_of(name_of(self._subject.names, delivery))
        return had_written or (delivery.message in self._tokens and not self._others_are_open(delivery))

    def _others_are_open(self, delivery: Delivery) -> bool:
        """Are other deliveries of its message under way?"""
        return any(other.message == delivery.message and other != delivery for other in self.progress.open)

    def able(self) -> list[Delivery]:
        """The deliveries that may take the next step, sorted by message."""
        return [delivery for delivery in self.progress.able() if not self._waits(delivery)]

    def allows(self, step: Step) -> bool:
        return self.progress.allows(step) and not self._waits(step.delivery)

    def _waits(self, delivery: Delivery) -> bool:
        """Does its request wait for a transaction of another delivery?"""
        if delivery not in self._calls or not self._subject.machine.has_transactions:
            return False
        waited_for = {
            name_of(self._subject.names, other): frozenset[str]()
            if call.request is None
            else self._subject.blockers(call.request)
            for other, call in self._calls.items()
        }
        return must_wait(name_of(self._subject.names, delivery), waited_for)

    @property
    def state(self) -> Hashable:
        """What the store holds, and its open transactions."""
        machine = self._subject.machine
        return (self._held, machine.state) if machine.has_transactions else self._held

    @property
    def _held(self) -> Hashable:
        """What the store holds; and what it held before, where a stale read may still show that."""
        shows = self._subject.reads_may_be_stale and self.progress.faults < self._subject.bounds.faults
        return self.position if shows else self.position[0]

    @property
    def memory(self) -> Hashable:
        """What the next delivery would find in memory, and what those find that are under way, where that is something else."""
        forms = {
            id(process): process.memory for process in {*self._processes.values(), self._process} if process is not None
        }
        present = None if self._process is None else forms[id(self._process)]
        found = ((delivery, forms[id(process)]) for delivery, process in self._processes.items())
        return present, frozenset((delivery, form) for delivery, form in found if form != present)

    def pending(self) -> dict[Delivery, Hashable]:
        """The key of the request that each open delivery is about to send."""
        calls = self._calls.items()
        return {delivery: self._subject.key(call.request) for delivery, call in calls if call.request is not None}

    def finish(self) -> Iterator[TakenStep]:
        """Let the open deliveries end without faults, one after the other."""
        while self.progress.open:
            yield self.take(Step(min(delivery for delivery in self.progress.open if not self._waits(delivery))))

    def settle(self, order: Sequence[int]) -> BaseException | None:
        """Deliver the unsettled parts in this order, one delivery at a time, until all are settled.

        Parts of one event that follow each other come with one delivery, but records that SQS delivers again come each in a
        batch of its own. The result is None, or what the handler failed with last if some part is never settled.
        """
        failure: BaseException | None = None
        for _ in range(ROUNDS):
            missing = [part for part in order if part not in self.progress.settled]
            if not missing:
                return None
            for message, parts in self._batches(missing):
                failure = self.deliver(message, parts).error or failure
        return failure or TimeoutError(f"the handler never says that it is done{_why_never_done(self.steps[-1])}")

    def deliver(self, message: int, parts: tuple[int, ...]) -> Answer:
        """Deliver these parts of the message once more, from start to end, whatever the bounds say and however much later."""
        self.go_here()
        self._subject.machine.forget_tokens()
        self.position = self._subject.machine.position
        delivery = Delivery(message, self.progress.started[message])
        self._begin(delivery, parts)
        self.position = self._subject.machine.position  # a handler that was built anew may have written something
        while True:
            ended = self.take(Step(delivery)).ended
            self.steps[-1] = replace(self.steps[-1], settling=True)
            if ended:
                end = self.steps[-1].end
                return end or Answer()

    def abandon(self) -> None:
        """Let the calls that have not ended die."""
        for call in self._calls.values():
            self._release(call)
        self._calls.clear()

    def _batches(self, parts: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The messages that these parts belong to, each with those of its parts that come with one delivery."""
        owners = {part: message for message, own in enumerate(self.progress.parts) for part in own}
        first = 0
        for place in range(1, len(parts) + 1):
            before = parts[place - 1]
            message = owners[before]
            alone = self.progress.started[message] and self._subject.deliverables[message].comes_apart
            if alone or place == len(parts) or owners[parts[place]] != message or parts[place] < before:
                yield message, tuple(parts[first:place])
                first = place

    def _start(self) -> None:
        subject = self._subject
        spares = subject.bounds.faults if subject.new_process and not subject.recovers else 0
        self._process: Invocation | None
        self._process, *self._spares = subject.begin_processes(1 + spares)

    def take_over(self) -> None:
        """Let the process go on that would go on after a crash, if one would."""
        if self._subject.new_process:
            self._process = self._spares.pop() if self._spares else None

    def _leave_process(self, delivery: Delivery, *, died: bool) -> None:
        """A delivery has ended. If its process has died, what is delivered from now on goes to another one.

        What is under way goes on where it is. The other process was started before anything happened, so that what `build` empties
        for a new schedule is not emptied in the middle of it. One that asks the store for data when it starts is started when it
        takes over.
        """
        if self._processes.pop(delivery) is self._process and died:
            self.take_over()

    def _begin(self, delivery: Delivery, parts: tuple[int, ...]) -> None:
        if self._process is None:
            self._process = self._subject.build()
        self._processes[delivery] = self._process
        made, recall = self._subject.call(self._process, delivery, parts), self._subject.recall
        self._calls[delivery] = made if recall is None else RecordedCall(made, recall, recall.root(delivery, parts))
        self._brought[delivery] = parts

    def _release(self, call: AnyCall) -> None:
        self._subject.threads.release(call.call if isinstance(call, RecordedCall) else cast("HandlerCall", call))

    def _only(self, delivery: Delivery) -> tuple[str, ...]:
        ids = self._subject.deliverables[delivery.message].ids
        places = self._places(delivery, self._brought[delivery])
        return tuple(ids[place] for place in places) if len(places) < len(ids) else ()

    def _places(self, delivery: Delivery, parts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(part - self.progress.parts[delivery.message][0] for part in parts)

    def _sorted_out(self, delivery: Delivery, call: AnyCall) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """The parts that the end of this call settles, and the ids of the records that its answer names as failed."""
        if not call.ended or call.died or call.result.error is not None:
            return (), ()
        deliverable, brought = self._subject.deliverables[delivery.message], self._brought[delivery]
        places = self._places(delivery, brought)
        failed = deliverable.failed(call.result.value, places)
        settled = tuple(part for part, place in zip(brought, places, strict=True) if place not in failed)
        return settled, tuple(deliverable.ids[place] for place in failed) if isinstance(deliverable, LambdaEvent) else ()

    def _faults(self, request: Request | None) -> tuple[Fault, ...]:
        """What may befall the request here."""
        if request is None or self.progress.faults == self._subject.bounds.faults:
            return ()
        return *faults_for(request), *self._subject.faults_for(request)

    def _perform(self, call: AnyCall, request: Request, key: Hashable, fault: Fault) -> tuple[Answer, ...]:
        """Perform the request as the fault demands, and let the call go on. The result is what the store answered."""
        if fault.keeps_back:
            if fault.kills:
                call.die()
            else:
                call.resume(Answer(error=self._subject.failure(fault, request), faulty=True))
            return ()
        self._subject.wrote = self._subject.wrote or request.writes
        answer = self._subject.perform_under(fault, request, key)
        if fault is Fault.RETRIED:
            is_known = request.method in TAKES_TOKEN and answer.error is None
            again = _retried(copy.deepcopy(answer) if is_known else self._subject.perform(request, key))
            call.resume(again._replace(faulty=True))
            return answer, again
        if fault is Fault.CRASH_AFTER:
            call.die()
        else:
            met = Answer(error=self._subject.failure(fault, request)) if fault is Fault.LOST else answer
            call.resume(met._replace(faulty=bool(fault)))
        return (answer,)


def _why_never_done(last: TrialStep) -> str:
    """What to say of the last delivery of a message that is never settled."""
    unsettled = [outcome for outcome in last.outcomes if getattr(outcome, "settled", True) is False]
    if not unsettled:
        return ""
    said = f". The last answer of the guarded store was {type(unsettled[-1]).__name__}"
    if not isinstance(unsettled[-1], Busy):
        return said
    return (
        f"{said}: the step is another delivery's until its lease ends, and where time stands still, that never comes. Let time go "
        "on with each delivery: give the store clock=lambda: now[0], let the handler begin with now[0] += 60, and let build set now[0] to the "
        "same time at each start"
    )


def _what_was_done(
    taken: TakenStep, answers: tuple[Answer, ...], call: AnyCall, again: tuple[str, ...], only: tuple[str, ...]
) -> TrialStep:
    if not call.ended:
        return TrialStep(taken, answers, None, only=only)
    # What a handler returns may be made up. Stores know better what became of a message.
    said = call.outcomes or [call.result.value]
    outcomes = tuple([outcome for found in said for outcome in outcomes_of(found)])
    return TrialStep(taken, answers, call.result, outcomes=outcomes, again=again, only=only)


def _retried(answer: Answer) -> Answer:
    """The second answer as botocore returns it, with the number of retries in its metadata."""
    response: Any = answer.value if answer.error is None else getattr(answer.error, "response", None)
    if isinstance(response, dict):
        response = cast("dict[str, Any]", response)
        response["ResponseMetadata"] = {**response.get("ResponseMetadata", {}), "RetryAttempts": 1}
    return answer._replace(form=None)
