"""Runs one schedule: calls the handler, and performs its requests in the order and with the faults of the schedule."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.calls import Answer, CallThreads, HandlerCall, current_call, in_an_event_loop
from onewrite.testing.explorer.schedule import Bounds, Delivery, Fault, Progress, Step, TakenStep, faults_for
from onewrite.testing.explorer.senders import Senders
from onewrite.testing.model.machine import Machine, World
from onewrite.testing.taps.everywhere import heard_by, taps, unheard
from onewrite.testing.taps.failures import answer_lost
from onewrite.testing.taps.tap import is_async
from onewrite.testing.taps.traffic import Request

Handler: TypeAlias = Callable[[Any], Any]
Stores: TypeAlias = Any

_ROUNDS = 25  # of redelivery until every message is settled: enough for a lease that ends after a few deliveries


@dataclass(frozen=True, slots=True)
class TrialStep:
    """A step that a trial has taken, with what came of it."""

    taken: TakenStep
    answers: tuple[Answer, ...]  # none if the request was not sent, two if it was sent again
    end: Answer | None  # the result of the delivery, if this was its last step
    settling: bool = False  # it belongs to a redelivery that follows the schedule's own steps
    outcomes: tuple[object, ...] = ()  # what the delivery returned, and what guarded stores returned to it


class Subject:
    """What is explored: the handler, its messages and its world. All trials of an exploration share it."""

    always_anew = False  # make a new world for every trial
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
        self.messages = tuple(messages)
        self.names = names_of(self.messages)
        self.bounds = bounds
        self.start = Progress.at_start(bounds, _sources(self.messages, bounds))
        self._build = build
        self._ident = threading.get_ident()
        self._loop = asyncio.Runner()
        self.machine = Machine(world)
        self.stores: Stores = self.machine.stores(self._gate)
        self._keys = self.machine  # it numbers the requests, also after a new machine has taken its place
        taps.extend()  # `world` may have imported a driver
        self._senders = Senders(self.machine, self._answer, self._refuse)
        self.threads = CallThreads(timeout, self._senders)

    def close(self) -> None:
        self._senders.closed = True
        self.threads.close()
        self._loop.close()

    def begin(self) -> Handler:
        """Go back to the beginning of the world, and build a handler."""
        self.tapped_late = taps.extend()
        if self.tapped_late or self.always_anew:
            self.renew()
        self.machine.reset()
        with heard_by(self._senders):
            handler = self._build(self.stores)
        if not callable(handler):
            raise ConfigurationError(f"build(store) gave {handler!r}: let it return the handler, a function of a message.")
        return handler

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
        return self._keys.key(request) or object()

    def perform(self, request: Request) -> Answer:
        """Send the request to the store."""
        try:
            return Answer(self.complete(self._send(request)))
        except ConfigurationError:
            raise
        except Exception as error:
            return Answer(error=error)

    def lost_answer(self, request: Request) -> Exception:
        """What the driver raises when the answer to this request is lost."""
        return answer_lost(self.machine.store(request.store), request)

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
        self.stores = self.machine.stores(self._gate)

    def _send(self, request: Request) -> Any:
        return self.machine.aperform(request) if self.machine.is_async else self.machine.perform(request)

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
    """One run of a schedule. `progress` says how far it has come, and `steps` what has happened."""

    def __init__(self, subject: Subject) -> None:
        self._handler = subject.begin()
        self.progress = subject.start
        self.steps: list[TrialStep] = []
        self._subject = subject
        self._calls: dict[Delivery, HandlerCall] = {}

    def take(self, step: Step) -> TakenStep:
        """Let a delivery send its next request. If it has not started, start it."""
        call = self._calls.get(step.delivery) or self._begin(step.delivery)
        request = call.request
        if step.fault not in faults_for(request):
            step = Step(step.delivery)  # the fault would make no difference to this request
        key = None if request is None else self._subject.key(request)
        answers = () if request is None else self._perform(call, request, step.fault)
        taken = TakenStep(step, request, key, call.ended, call.ended and settles(call))
        outcomes = (*call.outcomes, *outcomes_of(call.result.value)) if call.ended else ()
        self.steps.append(TrialStep(taken, answers, call.result if call.ended else None, outcomes=outcomes))
        self.progress = self.progress.after(taken)
        if call.ended:
            del self._calls[step.delivery]
            self._subject.threads.release(call)
        if self._subject.misuse is not None:
            raise self._subject.misuse
        return taken

    @property
    def state(self) -> Hashable:
        """What the store holds."""
        return self._subject.machine.state

    def pending(self) -> dict[Delivery, Hashable]:
        """The key of the request that each open delivery is about to send."""
        calls = self._calls.items()
        return {delivery: self._subject.key(call.request) for delivery, call in calls if call.request is not None}

    def finish(self) -> Iterator[TakenStep]:
        """Let the open deliveries end without faults, one after the other."""
        while self.progress.open:
            yield self.take(Step(min(self.progress.open)))

    def settle(self, order: Sequence[int]) -> BaseException | None:
        """Deliver the unsettled messages in this order, one at a time, until all are settled.

        The result is None, or what the handler failed with last if some message is never settled.
        """
        failure: BaseException = TimeoutError("the handler never says that it is done")
        for _ in range(_ROUNDS):
            missing = [message for message in order if message not in self.progress.settled]
            if not missing:
                return None
            for message in missing:
                failure = self.deliver(message).error or failure
        return failure

    def deliver(self, message: int) -> Answer:
        """Deliver the message once more, from start to end, whatever the bounds say."""
        delivery = Delivery(message, self.progress.started[message])
        while True:
            ended = self.take(Step(delivery)).ended
            self.steps[-1] = replace(self.steps[-1], settling=True)
            if ended:
                end = self.steps[-1].end
                return end or Answer()

    def abandon(self) -> None:
        """Let the calls that have not ended die."""
        for call in self._calls.values():
            self._subject.threads.release(call)
        self._calls.clear()

    def _begin(self, delivery: Delivery) -> HandlerCall:
        message = copy.deepcopy(self._subject.messages[delivery.message])
        name = name_of(self._subject.names, delivery)
        call = self._calls[delivery] = self._subject.threads.begin(self._handler, message, name)
        return call

    def _perform(self, call: HandlerCall, request: Request, fault: Fault) -> tuple[Answer, ...]:
        """Perform the request as the fault demands, and let the call go on. The result is what the store answered."""
        if fault is Fault.CRASH_BEFORE:
            call.die()
            return ()
        self._subject.wrote = self._subject.wrote or request.writes
        answer = self._subject.perform(request)
        if fault is Fault.RETRIED:
            again = _retried(self._subject.perform(request))
            call.resume(again)
            return answer, again
        if fault is Fault.CRASH_AFTER:
            call.die()
        else:
            call.resume(Answer(error=self._subject.lost_answer(request)) if fault is Fault.LOST else answer)
        return (answer,)


def names_of(messages: Sequence[Any]) -> tuple[str, ...]:
    """What a report calls the messages: their ids, or their numbers if they have no ids."""
    if not messages:
        raise ConfigurationError("messages=[] leaves nothing to deliver: give one message at least.")
    names = tuple(str(getattr(message, "id", f"#{number}")) for number, message in enumerate(messages, 1))
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"Two messages have the id {name!r}: the explorer itself delivers each more than once.")
    return names


def name_of(names: Sequence[str], delivery: Delivery) -> str:
    """What a report calls a delivery."""
    return f"{names[delivery.message]}, delivery {delivery.number + 1}"


def settles(call: HandlerCall) -> bool:
    """Does the end of this call settle its message?"""
    return not call.died and call.result.error is None and is_settled(call.result.value)


def is_settled(value: object) -> bool:
    """Would the broker be told that the message is done? Not if one of the outcomes that were returned is unsettled."""
    return all(getattr(outcome, "settled", True) is not False for outcome in outcomes_of(value))


def outcomes_of(value: object) -> Sequence[object]:
    """The outcomes that a handler has returned, which may be one or several."""
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]


def _retried(answer: Answer) -> Answer:
    """The second answer as botocore returns it, with the number of retries in its metadata."""
    response: Any = answer.value if answer.error is None else getattr(answer.error, "response", None)
    if isinstance(response, dict):
        response = cast("dict[str, Any]", response)
        response["ResponseMetadata"] = {**response.get("ResponseMetadata", {}), "RetryAttempts": 1}
    return answer


def _sources(messages: Sequence[Any], bounds: Bounds) -> list[object]:
    """The source of each message. Only `reorder="within_source"` asks for it."""
    if bounds.reorder != "within_source":
        return [None] * len(messages)
    for message in messages:
        if not hasattr(message, "source"):
            raise ConfigurationError(f'reorder="within_source" asks each message for its source, and {message!r} has none.')
    return [message.source for message in messages]


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
