"""Runs one schedule: calls the handler, and performs its requests in the order and with the faults of the schedule."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.calls import Answer, CallThreads, HandlerCall, current_call, in_an_event_loop
from onewrite.testing.explorer.comparable import comparable
from onewrite.testing.explorer.deliverables import Deliverable, LambdaEvent, deliverables_of, outcomes_of
from onewrite.testing.explorer.invocation import Handler, Invocation
from onewrite.testing.explorer.recall import Call, NotRecallableError, Recall, RecordedCall
from onewrite.testing.explorer.schedule import Bounds, Delivery, Fault, Progress, Step, TakenStep, faults_for
from onewrite.testing.explorer.senders import Senders
from onewrite.testing.explorer.waiting import must_wait
from onewrite.testing.model.machine import Machine, Position, World
from onewrite.testing.model.tokens import TAKES_TOKEN, TOKEN
from onewrite.testing.model.transition import State
from onewrite.testing.taps.everywhere import heard_by, taps, unheard
from onewrite.testing.taps.failures import answer_lost, throttled, transaction_cancelled, unreachable
from onewrite.testing.taps.partial_batches import naming, without_last
from onewrite.testing.taps.staleness import may_be_stale
from onewrite.testing.taps.tap import is_async
from onewrite.testing.taps.traffic import Request, is_single_write, is_transaction

Stores: TypeAlias = Any

_FAILURES: Mapping[Fault, Callable[[Any, Request], Exception]] = {
    Fault.LOST: answer_lost,
    Fault.THROTTLED: throttled,
    Fault.CONFLICT: transaction_cancelled,
    Fault.UNREACHABLE: unreachable,
}
ROUNDS = 25  # of redelivery until every message is settled: enough for a lease that ends after a few deliveries


@dataclass(frozen=True, slots=True)
class TrialStep:
    """A step that a trial has taken, with what came of it."""

    taken: TakenStep
    answers: tuple[Answer, ...]  # none if the request was not sent, two if it was sent again
    end: Answer | None  # the result of the delivery, if this was its last step
    settling: bool = False  # it belongs to a redelivery that follows the schedule's own steps
    outcomes: tuple[object, ...] = ()  # what the delivery returned, and what guarded stores returned to it
    again: tuple[str, ...] = ()  # the ids of the records that come again because of the answer of the delivery


class Subject:
    """What is explored: the handler, its messages and its world. All trials of an exploration share it."""

    always_anew = False  # make a new world for every trial
    reads_may_be_stale = False  # such a read has been seen
    misuse: ConfigurationError | None = None  # set when the handler does what cannot be explored
    wrote = False  # has a call of the handler sent a write?
    looked = False  # has `observe` or the invariant sent a request?
    tapped_late = False  # the handler has imported a driver, so its first requests may have passed unseen
    _asked = False  # has a request been sent that is no step?

    def __init__(
        self,
        build: Callable[[Stores], Handler],
        messages: Sequence[Any],
        world: World,
        bounds: Bounds,
        timeout: float,
    ) -> None:
        self.deliverables = deliverables_of(messages)
        self.names = tuple(deliverable.name for deliverable in self.deliverables)
        self.bounds = bounds
        self.start = _start(self.deliverables, bounds)
        self.recall: Recall | None = None  # what is remembered of the handler, if its calls can be recalled
        self._forms: dict[Hashable, Hashable] = {}  # of answers, by the state of the store and the key of the request
        self._in_transactions: set[str] = set()  # the tables that transactions have touched
        self._build = build
        self._ident = threading.get_ident()
        self._loop = asyncio.Runner()
        self.machine = Machine(world)
        self._begin_asynchronous()
        self.stores: Stores = self.machine.stores(self._gate)
        self._keys = self.machine  # it numbers the requests, also after a new machine has taken its place
        taps.extend()  # `world` may have imported a driver
        self._senders = Senders(self.machine, self._answer, self._refuse)
        self.threads = CallThreads(timeout, time.time(), self._senders)

    def close(self) -> None:
        self._senders.closed = True
        self.threads.close()
        self._loop.close()

    def begin(self) -> Invocation:
        """Go back to the beginning of the world, and build a handler."""
        self.tapped_late = taps.extend()
        if self.tapped_late or self.always_anew:
            self.renew()
        self.machine.reset()
        with heard_by(self._senders):
            handler = self._build(self.stores)
        if not callable(handler):
            raise ConfigurationError(f"build(store) gave {handler!r}: let it return the handler, a function of a message.")
        return Invocation(handler)

    def call(
        self, invocation: Invocation, delivery: Delivery, parts: Sequence[int], known: Sequence[Answer] = ()
    ) -> HandlerCall:
        """Begin a call of the handler, with these parts of its message, whose first requests get these answers."""
        deliverable, first = self.deliverables[delivery.message], self.start.parts[delivery.message][0]
        message = deliverable.copy_of(tuple(part - first for part in parts))
        return self.threads.begin(invocation.of(deliverable), message, name_of(self.names, delivery), known)

    def check(self) -> None:
        """Raise if the exploration could see nothing that was wrong."""
        if self.misuse is not None:
            raise self.misuse
        if not self.wrote:
            raise ConfigurationError(
                "No call of the handler has sent a write, so nothing was tested. Give messages that the handler acts on. What the "
                "explorer sees are requests of boto3 and aiobotocore clients, and of pymongo and mongomock collections, which the "
                "handler sends itself: not in a process or a thread that was there before, and not by another driver."
            )

    def key(self, request: Request) -> Hashable:
        """Equal for requests that are the same. A request that cannot be compared has a key of its own each time."""
        key = self._keys.key(request)
        if key is None:
            return object()
        return key if request.transaction is None else (key, request.transaction)

    def perform(self, request: Request, key: Hashable = None) -> Answer:
        """Send the request to the store. Who has made the key of the request already may give it."""
        if self.recall is not None and (request.transaction is not None or TOKEN in request.arguments):
            raise NotRecallableError  # what comes of it depends on more than the state of the store
        at = self.machine.state, key
        try:
            answer = Answer(
                self.complete(self._send(request, key if isinstance(key, int) and self._keys is self.machine else None))
            )
        except ConfigurationError:
            raise
        except Exception as error:
            answer = Answer(error=error)
        if self.recall is None or key is None:
            return answer
        if at not in self._forms:
            self._forms[at] = comparable(answer)
        return answer._replace(form=self._forms[at])

    def perform_under(self, fault: Fault, request: Request, key: Hashable) -> Answer:
        """Send as much of the request to the store as the fault lets through."""
        if fault is Fault.STALE:
            return self._stale_answer(request) or self.perform(request, key)
        if fault is not Fault.UNPROCESSED:
            return self.perform(request, key)
        rest, left = without_last(request)
        answer = Answer() if rest is None else self.perform(rest)
        return answer if answer.error is not None else Answer(naming(request, answer.value, left))

    def failure(self, fault: Fault, request: Request) -> Exception:
        """What the driver raises when this fault befalls the request."""
        return _FAILURES[fault](self.machine.store(request.store), request)

    def faults_for(self, request: Request) -> tuple[Fault, ...]:
        """The faults that make a difference to this request because of what has happened before it."""
        found: tuple[Fault, ...] = ()
        if is_transaction(request):
            self._in_transactions.update(request.tables)
        elif is_single_write(request) and self._in_transactions.intersection(request.tables):
            found = (Fault.CONFLICT,)
        if may_be_stale(self.machine.store(request.store), request):
            self.reads_may_be_stale = True
            found = (*found, Fault.STALE) if self._stale_answer(request) is not None else found
        return found

    def _stale_answer(self, request: Request) -> Answer | None:
        """The answer before the last of the earlier writes that make a difference to it, or None if no write does."""
        present = self._answer_at(self.machine.present, request)
        for state in reversed(self.machine.earlier):
            answer = self._answer_at(state, request)
            if answer.error is None and comparable(answer) != comparable(present):
                return answer
        return None

    def _answer_at(self, state: State, request: Request) -> Answer:
        with self.machine.looking_at(state):
            return self.perform(request)

    def blockers(self, request: Request) -> frozenset[str]:
        """The names of the deliveries whose transactions must end before this request is answered."""
        if not self.machine.has_transactions:
            return frozenset()
        return self.complete(self.machine.blockers(request))  # type: ignore[no-any-return]  # `complete` returns what it is given

    def look(self, function: Callable[[Stores], Any]) -> Any:
        """What `observe` or the invariant returns. What it sends changes nothing for what follows."""
        self._asked = False
        try:
            with self.machine.unchanged(), heard_by(self._senders):
                return self.complete(function(self.stores))
        finally:
            self.looked = self.looked or self._asked

    def complete(self, value: Any) -> Any:
        """The value, awaited if it must be."""
        if not isinstance(value, Awaitable):
            return value
        return self._loop.run(_awaited(cast("Awaitable[Any]", value)), context=contextvars.copy_context())

    def begin_with(self, structure: tuple[Request, ...]) -> None:
        """Let every trial begin with these requests of the handler, which it sends once in the life of the process."""
        if structure:
            self.complete(self.machine.begin_with(structure))

    def renew(self) -> None:
        """Make a new world, and forget what the requests have answered."""
        self.machine = self._senders.machine = self.machine.anew()
        self._begin_asynchronous()
        self.stores = self.machine.stores(self._gate)

    def _begin_asynchronous(self) -> None:
        if self.machine.is_async:
            self.complete(self.machine.abegin())

    def _send(self, request: Request, key: int | None = None) -> Any:
        return self.machine.aperform(request, key) if self.machine.is_async else self.machine.perform(request, key)

    def _is_awaited(self, request: Request) -> bool:
        return is_async(self._store_of(request))

    def _store_of(self, request: Request) -> Any:
        stores: Any = self.stores
        return cast("Mapping[str, Any]", stores)[request.store] if isinstance(stores, Mapping) else stores

    def _gate(self, request: Request) -> Any:
        """The requests of the world's stores pass here."""
        return self._answer(request, awaited=self._is_awaited(request))

    def _answer(self, request: Request, *, awaited: bool) -> Any:
        """Every request passes here. Those of a delivery wait for its turn; those of `build` and `observe` are sent at once."""
        call = current_call.get()
        if call is None and threading.get_ident() == self._ident:
            self._asked = True
            return self._send_awaited(request) if awaited else self._send_now(request)
        if call is None or not call.runs_in_this_thread:
            self._refuse(_from_another_thread(request))
        answer = call.ask(request)
        return _ready(answer) if awaited else answer

    def _send_now(self, request: Request) -> Any:
        with unheard():
            if self.machine.is_async and in_an_event_loop():
                self._refuse(_in_a_coroutine(request))
            return self.complete(self._send(request))

    async def _send_awaited(self, request: Request) -> Any:
        with unheard():
            answer = self._send(request)
            return await cast("Awaitable[Any]", answer) if isinstance(answer, Awaitable) else answer

    def _refuse(self, error: ConfigurationError) -> NoReturn:
        """Raise it, and remember it: the handler may catch it."""
        self.misuse = self.misuse or error
        raise self.misuse


class Trial:
    """One run of a schedule. `progress` says how far it has come, and `steps` what has happened.

    `position` is where the machine stands.
    """

    def __init__(self, subject: Subject) -> None:
        self.progress = subject.start
        self.steps: list[TrialStep] = []
        self._subject = subject
        self._calls: dict[Delivery, Call] = {}
        self._brought: dict[Delivery, tuple[int, ...]] = {}  # the parts that an open delivery has brought
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
            self._begin(step.delivery, self.progress.brings(step.delivery.message))
        call = self._calls[step.delivery]
        request = None if starts and self._waits(step.delivery) else call.request
        faults = () if request is None else self._faults(request)
        if step.fault not in faults:
            step = Step(step.delivery)  # the fault would make no difference to this request
        key: Hashable = None
        answers: tuple[Answer, ...] = ()
        if request is not None:
            key = call.key or self._subject.key(request)
            reaches_others = reaches_others or bool(self._subject.blockers(request))  # it will end what it waits for
            answers = self._perform(call, request, key, step.fault)
        settled, again = self._sorted_out(step.delivery, call)
        reaches_others = self._ends_more(step.delivery, call, request) or reaches_others
        taken = TakenStep(step, request, key, call.ended, settled, faults, reaches_others)
        outcomes = (*call.outcomes, *outcomes_of(call.result.value)) if call.ended else ()
        end = call.result if call.ended else None
        if call.ended:
            self._release(self._calls.pop(step.delivery))
        if self._subject.misuse is not None:
            raise self._subject.misuse
        return TrialStep(taken, answers, end, outcomes=outcomes, again=again), self._subject.machine.position

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

    def _ends_more(self, delivery: Delivery, call: Call, request: Request | None) -> bool:
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
        """What the store holds; and what it held before, where a stale read may still show that."""
        shows = self._subject.reads_may_be_stale and self.progress.faults < self._subject.bounds.crashes
        held = self.position if shows else self.position[0]
        return (held, self._subject.machine.state) if self._subject.machine.has_transactions else held

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

        Parts of one event that follow each other come with one delivery. The result is None, or what the handler failed with
        last if some part is never settled.
        """
        failure: BaseException = TimeoutError("the handler never says that it is done")
        for _ in range(ROUNDS):
            missing = [part for part in order if part not in self.progress.settled]
            if not missing:
                return None
            for message, parts in self._together(missing):
                failure = self.deliver(message, parts).error or failure
        return failure

    def deliver(self, message: int, parts: tuple[int, ...]) -> Answer:
        """Deliver these parts of the message once more, from start to end, whatever the bounds say and however much later."""
        self.go_here()
        self._subject.machine.forget_tokens()
        self.position = self._subject.machine.position
        delivery = Delivery(message, self.progress.started[message])
        self._begin(delivery, parts)
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

    def _together(self, parts: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The messages that these parts belong to, each with those of its parts that follow each other."""
        owners = {part: message for message, own in enumerate(self.progress.parts) for part in own}
        first = 0
        for place in range(1, len(parts) + 1):
            before = parts[place - 1]
            if place == len(parts) or owners[parts[place]] != owners[before] or parts[place] < before:
                yield owners[before], tuple(parts[first:place])
                first = place

    def _start(self) -> None:
        self._invocation = self._subject.begin()

    def _begin(self, delivery: Delivery, parts: tuple[int, ...]) -> None:
        made, recall = self._subject.call(self._invocation, delivery, parts), self._subject.recall
        self._calls[delivery] = made if recall is None else RecordedCall(made, recall, recall.root(delivery, parts))
        self._brought[delivery] = parts

    def _release(self, call: Call) -> None:
        self._subject.threads.release(call.call if isinstance(call, RecordedCall) else cast("HandlerCall", call))

    def _places(self, delivery: Delivery, parts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(part - self.progress.parts[delivery.message][0] for part in parts)

    def _sorted_out(self, delivery: Delivery, call: Call) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """The parts that the end of this call settles, and the ids of the records that its answer names as failed."""
        if not call.ended or call.died or call.result.error is not None:
            return (), ()
        deliverable, brought = self._subject.deliverables[delivery.message], self._brought[delivery]
        places = self._places(delivery, brought)
        failed = deliverable.failed(call.result.value, places)
        settled = tuple(part for part, place in zip(brought, places, strict=True) if place not in failed)
        return settled, tuple(deliverable.ids[place] for place in failed) if isinstance(deliverable, LambdaEvent) else ()

    def _faults(self, request: Request) -> tuple[Fault, ...]:
        """What may befall the request here."""
        if self.progress.faults == self._subject.bounds.crashes:
            return ()
        return *faults_for(request), *self._subject.faults_for(request)

    def _perform(self, call: Call, request: Request, key: Hashable, fault: Fault) -> tuple[Answer, ...]:
        """Perform the request as the fault demands, and let the call go on. The result is what the store answered."""
        if fault.keeps_back:
            if fault.kills:
                call.die()
            else:
                call.resume(Answer(error=self._subject.failure(fault, request)))
            return ()
        self._subject.wrote = self._subject.wrote or request.writes
        answer = self._subject.perform_under(fault, request, key)
        if fault is Fault.RETRIED:
            is_known = request.method in TAKES_TOKEN and answer.error is None
            again = _retried(copy.deepcopy(answer) if is_known else self._subject.perform(request, key))
            call.resume(again)
            return answer, again
        if fault is Fault.CRASH_AFTER:
            call.die()
        else:
            call.resume(Answer(error=self._subject.failure(fault, request)) if fault is Fault.LOST else answer)
        return (answer,)


def name_of(names: Sequence[str], delivery: Delivery) -> str:
    """What a report calls a delivery."""
    return f"{names[delivery.message]}, delivery {delivery.number + 1}"


def _retried(answer: Answer) -> Answer:
    """The second answer as botocore returns it, with the number of retries in its metadata."""
    response: Any = answer.value if answer.error is None else getattr(answer.error, "response", None)
    if isinstance(response, dict):
        response = cast("dict[str, Any]", response)
        response["ResponseMetadata"] = {**response.get("ResponseMetadata", {}), "RetryAttempts": 1}
    return answer._replace(form=None)


def _start(deliverables: Sequence[Deliverable], bounds: Bounds) -> Progress:
    """Only `reorder="within_source"` asks for the sources: other messages may have none."""
    asked = bounds.reorder == "within_source"
    sources = [deliverable.sources() if asked else frozenset[Hashable]() for deliverable in deliverables]
    return Progress.at_start(bounds, sources, [len(deliverable.lanes) for deliverable in deliverables])


def _from_another_thread(request: Request) -> ConfigurationError:
    return ConfigurationError(
        f"{request} was sent by a thread that the handler has started, or after the handler had returned: the explorer cannot "
        f"tell when it would come. Let the handler send its requests itself while it is explored."
    )


def _in_a_coroutine(request: Request) -> ConfigurationError:
    return ConfigurationError(
        f"{request} was sent by a blocking client in a coroutine, and the stores of world() are asynchronous: let build, observe "
        "and the invariant use the stores that they are given."
    )


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _ready(answer: Any) -> Any:
    return answer
