"""Runs one schedule: calls the handler, and performs its requests in the order and with the faults of the schedule."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.calls import Answer, CallThreads, HandlerCall, current_call
from onewrite.testing.explorer.schedule import Bounds, Delivery, Fault, Progress, Step, TakenStep, faults_for
from onewrite.testing.explorer.waiting import must_wait
from onewrite.testing.model.machine import Machine, World
from onewrite.testing.model.tokens import TAKES_TOKEN, TOKEN
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
        self.threads = CallThreads(timeout)
        self.always_anew = False  # make a new world for every trial
        self.misuse: ConfigurationError | None = None  # set when the handler does what cannot be explored
        self._world = world
        self._build = build
        self._ident = threading.get_ident()
        self._loop = asyncio.Runner()
        self._renew()
        self._keys = self.machine  # it numbers the requests, also after a new machine has taken its place

    def close(self) -> None:
        self.threads.close()
        self._loop.close()

    def begin(self) -> Handler:
        """Go back to the beginning of the world, and build a handler."""
        if self.always_anew:
            self._renew()
        self.machine.reset()
        handler = self._build(self.stores)
        if not callable(handler):
            raise ConfigurationError(f"build(store) gave {handler!r}: let it return the handler, a function of a message.")
        return handler

    def key(self, request: Request) -> Hashable:
        """Equal for requests that are the same. A request that cannot be compared has a key of its own each time."""
        key = self._keys.key(request)
        return object() if key is None else (key, request.transaction)

    def perform(self, request: Request) -> Answer:
        """Send the request to the store."""
        try:
            return Answer(self.complete(self._send(request)))
        except ConfigurationError:
            raise
        except Exception as error:
            return Answer(error=error)

    def blockers(self, request: Request) -> frozenset[str]:
        """The names of the deliveries whose transactions must end before this request is answered."""
        if not self.machine.has_transactions:
            return frozenset()
        return self.complete(self.machine.blockers(request))  # type: ignore[no-any-return]  # `complete` returns what it is given

    def lost_answer(self, request: Request) -> Exception:
        """What the driver raises when the answer to this request is lost."""
        return answer_lost(self._store_of(request), request)

    def complete(self, value: Any) -> Any:
        """The value, awaited if it must be."""
        return self._loop.run(_awaited(cast("Awaitable[Any]", value))) if isinstance(value, Awaitable) else value

    def _renew(self) -> None:
        self.machine = Machine(self._world)
        self.stores: Stores = self.machine.stores(self._gate)

    def _send(self, request: Request) -> Any:
        return self.machine.aperform(request) if self.machine.is_async else self.machine.perform(request)

    def _is_awaited(self, request: Request) -> bool:
        return is_async(self._store_of(request))

    def _store_of(self, request: Request) -> Any:
        stores: Any = self.stores
        return cast("Mapping[str, Any]", stores)[request.store] if isinstance(stores, Mapping) else stores

    def _gate(self, request: Request) -> Any:
        """Every request passes here. Those of a delivery wait for its turn; those of `build` and `observe` are sent at once."""
        call = current_call.get()
        if call is None and threading.get_ident() == self._ident:
            return self._send(request) if self._is_awaited(request) else self.complete(self._send(request))
        if call is None or not call.runs_in_this_thread:
            self.misuse = self.misuse or ConfigurationError(
                f"{request} was sent by a thread that the handler has started, or after the handler had returned: the "
                "explorer cannot tell when it would come. Let the handler send its requests itself while it is explored."
            )
            raise self.misuse
        answer = call.ask(request)
        return _ready(answer) if self._is_awaited(request) else answer


class Trial:
    """One run of a schedule. `progress` says how far it has come, and `steps` what has happened."""

    def __init__(self, subject: Subject) -> None:
        self._handler = subject.begin()
        self.progress = subject.start
        self.steps: list[TrialStep] = []
        self._subject = subject
        self._calls: dict[Delivery, HandlerCall] = {}
        self._tokens: dict[int, set[str]] = {}  # those that the deliveries of each message have given to DynamoDB

    def take(self, step: Step) -> TakenStep:
        """Let a delivery send its next request. If it has not started, start it."""
        starts = step.delivery not in self._calls
        reaches_others = starts and self._forget_tokens_of(step.delivery.message)
        call = self._calls.get(step.delivery) or self._begin(step.delivery)
        request = None if starts and self._waits(step.delivery) else call.request
        if step.fault not in faults_for(request):
            step = Step(step.delivery)  # the fault would make no difference to this request
        key: Hashable = None
        answers: tuple[Answer, ...] = ()
        if request is not None:
            key = self._subject.key(request)
            reaches_others = reaches_others or bool(self._subject.blockers(request))  # it will end what it waits for
            answers = self._perform(call, request, step.fault)
        taken = TakenStep(step, request, key, call.ended, call.ended and settles(call))
        self.progress = self.progress.after(taken)
        if self._ends_more(call, taken) or reaches_others:
            taken = taken._replace(reaches_others=True)
        outcomes = (*call.outcomes, *outcomes_of(call.result.value)) if call.ended else ()
        self.steps.append(TrialStep(taken, answers, call.result if call.ended else None, outcomes=outcomes))
        if call.ended:
            del self._calls[step.delivery]
            self._subject.threads.release(call)
        if self._subject.misuse is not None:
            raise self._subject.misuse
        return taken

    def _forget_tokens_of(self, message: int) -> bool:
        """Let the tokens of a message be forgotten that comes again when none of its deliveries is under way. Were there any?

        DynamoDB remembers a token for ten minutes, and a message may come again later than that.
        """
        if any(delivery.message == message for delivery in self.progress.open):
            return False
        return self._subject.machine.forget_tokens(self._tokens.pop(message, set()))

    def _ends_more(self, call: HandlerCall, taken: TakenStep) -> bool:
        """Has the end of this call ended a transaction too, or may the tokens of its message be forgotten from now on?"""
        message = taken.step.delivery.message
        if taken.request is not None and TOKEN in taken.request.arguments:
            self._tokens.setdefault(message, set()).add(str(taken.request.arguments[TOKEN]))
        if not call.ended:
            return False
        had_written = self._subject.machine.end_transactions_of(call.name)
        still_open = any(delivery.message == message for delivery in self.progress.open)
        return had_written or (message in self._tokens and not still_open)

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
            call.name: frozenset[str]() if call.request is None else self._subject.blockers(call.request)
            for call in self._calls.values()
        }
        return must_wait(self._calls[delivery].name, waited_for)

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
            yield self.take(Step(min(delivery for delivery in self.progress.open if not self._waits(delivery))))

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
        """Deliver the message once more, from start to end, whatever the bounds say and however much later."""
        self._subject.machine.forget_tokens()
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
        answer = self._subject.perform(request)
        if fault is Fault.RETRIED:
            is_known = request.method in TAKES_TOKEN and answer.error is None
            again = _retried(copy.deepcopy(answer) if is_known else self._subject.perform(request))
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


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _ready(answer: Any) -> Any:
    return answer
