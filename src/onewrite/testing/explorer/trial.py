"""One schedule as it is run: calls of the handler, requests to the machine, and the faults between the two."""

from __future__ import annotations

import asyncio
import copy
import sys
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.calls import Answer, Call, Crew, current
from onewrite.testing.explorer.schedule import Board, Bounds, Delivery, Fault, Step, Taken, faults_for
from onewrite.testing.model.machine import Machine
from onewrite.testing.taps.failures import answer_lost
from onewrite.testing.taps.tap import is_async
from onewrite.testing.taps.traffic import Request

Handler: TypeAlias = Callable[[Any], Any]
Stores: TypeAlias = Any

_ROUNDS = 25  # of redelivery until all is settled: a lease that some deliveries must wait for has run out by then


@dataclass(frozen=True, slots=True)
class Happening:
    """A step as it went."""

    taken: Taken
    answers: tuple[Answer, ...]  # none if it was not sent, two if it was sent again
    end: Answer | None  # what the delivery came to, if that was its last step
    settling: bool = False  # of a redelivery after the schedule's own steps
    outcomes: tuple[object, ...] = ()  # what it returned, and what guarded stores gave it and it may have kept to itself


class Subject:
    """What is explored, and what all its trials share."""

    def __init__(
        self,
        build: Callable[[Stores], Handler],
        messages: Sequence[Any],
        world: Callable[[], Stores],
        bounds: Bounds,
        timeout: float,
    ) -> None:
        self.messages = tuple(messages)
        self.names = names_of(self.messages)
        self.bounds = bounds
        self.start = Board.of(bounds, _sources(self.messages, bounds))
        self.crew = Crew(timeout)
        self.always_anew = False  # make a new world for every trial
        self.misuse: ConfigurationError | None = None  # what a handler has done that cannot be explored
        self._world = world
        self._build = build
        self._ident = threading.get_ident()
        self._loop = asyncio.Runner()
        self._renew()
        self._keys = self.machine

    def close(self) -> None:
        self.crew.close()
        self._loop.close()

    def begin(self) -> Handler:
        """Be at the start of a schedule."""
        if self.always_anew:
            self._renew()
        self.machine.reset()
        handler = self._build(self.stores)
        if not callable(handler):
            raise ConfigurationError(f"build(store) gave {handler!r}: let it return the handler, a function of a message.")
        return handler

    def key(self, request: Request) -> Hashable:
        """Equal for requests that are the same; one that has no spelling equals no other."""
        return self._keys.key(request) or object()

    def perform(self, request: Request) -> Answer:
        try:
            return Answer(self.complete(self._send(request)))
        except ConfigurationError:
            raise
        except Exception as error:
            return Answer(error=error)

    def lost_answer(self, request: Request) -> Exception:
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
        """Where a request comes out: of a delivery, which then stands still, or of `build` and `observe`, which do not."""
        call = current.get()
        if call is None and threading.get_ident() == self._ident:
            return self._send(request) if self._is_awaited(request) else self.complete(self._send(request))
        if call is None or not call.is_here:
            self.misuse = self.misuse or ConfigurationError(
                f"{request} was sent by a thread that the handler has started, or after the handler had returned: the explorer "
                "cannot tell when it would come. Let the handler send its requests itself while it is explored."
            )
            raise self.misuse
        answer = call.ask(request)
        return _ready(answer) if self._is_awaited(request) else answer


class Trial:
    """One schedule under way. `board` is where it stands, `happenings` what has been."""

    def __init__(self, subject: Subject) -> None:
        self._handler = subject.begin()
        self.board = subject.start
        self.happenings: list[Happening] = []
        self._subject = subject
        self._calls: dict[Delivery, Call] = {}

    def take(self, step: Step) -> Taken:
        """Let one delivery send its next request, which it starts for if it must."""
        call = self._calls.get(step.delivery) or self._begin(step.delivery)
        request = call.request
        if step.fault not in faults_for(request):
            step = Step(step.delivery)  # there is nothing that the fault could befall
        key = None if request is None else self._subject.key(request)
        answers = () if request is None else self._perform(call, request, step.fault)
        taken = Taken(step, request, key, call.ended, call.ended and settles(call))
        outcomes = (*call.outcomes, *outcomes_of(call.result.value)) if call.ended else ()
        self.happenings.append(Happening(taken, answers, call.result if call.ended else None, outcomes=outcomes))
        self.board = self.board.after(taken)
        if call.ended:
            del self._calls[step.delivery]
            self._subject.crew.release(call)
        if self._subject.misuse is not None:
            raise self._subject.misuse
        return taken

    @property
    def state(self) -> Hashable:
        """What the store holds."""
        return self._subject.machine.state

    def pending(self) -> dict[Delivery, Hashable]:
        """What each open delivery is about to send."""
        calls = self._calls.items()
        return {delivery: self._subject.key(call.request) for delivery, call in calls if call.request is not None}

    def finish(self) -> Iterator[Taken]:
        """Let what is open end undisturbed."""
        while self.board.open:
            yield self.take(Step(min(self.board.open)))

    def settle(self, order: Sequence[int]) -> BaseException | None:
        """Deliver what is not settled, one at a time and in this order, until it is. What it fails with if it never is."""
        failure: BaseException = TimeoutError("the handler never says that it is done")
        for _ in range(_ROUNDS):
            missing = [message for message in order if message not in self.board.settled]
            if not missing:
                return None
            for message in missing:
                failure = self.deliver(message).error or failure
        return failure

    def deliver(self, message: int) -> Answer:
        """One more delivery, from its start to its end, whatever the bounds."""
        delivery = Delivery(message, self.board.started[message])
        while True:
            ended = self.take(Step(delivery)).ended
            self.happenings[-1] = replace(self.happenings[-1], settling=True)
            if ended:
                end = self.happenings[-1].end
                return end or Answer()

    def abandon(self) -> None:
        for call in self._calls.values():
            self._subject.crew.release(call)
        self._calls.clear()

    def _begin(self, delivery: Delivery) -> Call:
        message = self._subject.messages[delivery.message]
        name = name_of(self._subject.names, delivery)
        handler = _with_counted_attempts(self._handler, f"{delivery.message}.{delivery.number}.")
        call = self._calls[delivery] = self._subject.crew.begin(handler, copy.deepcopy(message), name)
        return call

    def _perform(self, call: Call, request: Request, fault: Fault) -> tuple[Answer, ...]:
        if fault is Fault.CRASH_BEFORE:
            call.die()
            return ()
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
    """What a report calls the messages: their ids, or their numbers if they have none."""
    if not messages:
        raise ConfigurationError("messages=[] leaves nothing to deliver: give one message at least.")
    names = tuple(str(getattr(message, "id", f"#{number}")) for number, message in enumerate(messages, 1))
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"Two messages have the id {name!r}: the explorer itself delivers each more than once.")
    return names


def name_of(names: Sequence[str], delivery: Delivery) -> str:
    return f"{names[delivery.message]}, delivery {delivery.number + 1}"


def settles(call: Call) -> bool:
    return not call.died and call.result.error is None and is_settled(call.result.value)


def is_settled(value: object) -> bool:
    """As the broker would be told: not if the handler says so of any outcome."""
    return all(getattr(outcome, "settled", True) is not False for outcome in outcomes_of(value))


def outcomes_of(value: object) -> Sequence[object]:
    """What a handler has returned: one outcome, or several."""
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]


def _retried(answer: Answer) -> Answer:
    """The second answer, as botocore hands it on."""
    response: Any = answer.value if answer.error is None else getattr(answer.error, "response", None)
    if isinstance(response, dict):
        response = cast("dict[str, Any]", response)
        response["ResponseMetadata"] = {**response.get("ResponseMetadata", {}), "RetryAttempts": 1}
    return answer


def _sources(messages: Sequence[Any], bounds: Bounds) -> list[object]:
    if bounds.reorder != "within_source":
        return [None] * len(messages)
    for message in messages:
        if not hasattr(message, "source"):
            raise ConfigurationError(f'reorder="within_source" asks each message for its source, and {message!r} has none.')
    return [message.source for message in messages]


def _with_counted_attempts(handler: Handler, prefix: str) -> Handler:
    """onewrite's own attempt tokens, counted instead of drawn: a schedule sends the same requests each time it is run."""

    def call(message: Any) -> Any:
        # Not imported here: who tests on MongoDB may lack boto3, and then nobody has imported it.
        flows = sys.modules.get("onewrite.dynamodb.flows")
        if flows is not None:
            numbers = count()
            flows.minting.set(lambda: f"{prefix}{next(numbers)}")
        return handler(message)

    return call


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _ready(answer: Any) -> Any:
    return answer
