"""The subject of an exploration: the handler, its messages, its world, and the path of its requests to the store."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, NoReturn, TypeAlias, cast

from onewrite.batch.function import FunctionCall, Note, UnfinishedWrite, WrongReturn, read_return
from onewrite.batch.handler import find_handler
from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.message import Message
from onewrite.outcome import BeginOutcome, Busy
from onewrite.testing.errors import UnsupportedByStandIn
from onewrite.testing.events import lambda_context
from onewrite.testing.explorer.calls import (
    CallThreads,
    HandlerCall,
    HandlerFunction,
    Place,
    Reply,
    WaitFor,
    await_result,
    current_call,
    is_in_event_loop,
    is_own_code,
    remove_frames,
)
from onewrite.testing.explorer.deliverables import Deliverable, LambdaEvent, make_deliverables, make_titles
from onewrite.testing.explorer.modes import Deliveries, Handling, Mode, Obstacle, Processes, WrongModeError
from onewrite.testing.explorer.recall import Recall
from onewrite.testing.explorer.schedule import Bounds, Delivery, Progress
from onewrite.testing.explorer.stale_reads import StaleReads
from onewrite.testing.model.databases import World
from onewrite.testing.model.machine import (
    TOKEN,
    Machine,
    WorldState,
    make_repeater,
    reads_structure,
)
from onewrite.testing.taps import aws, mongodb
from onewrite.testing.taps.aws import add_keys, is_dynamodb_client
from onewrite.testing.taps.everywhere import heard_by, taps
from onewrite.testing.taps.fault import Fault, send_under
from onewrite.testing.taps.mongodb import start_session
from onewrite.testing.taps.tap import is_async
from onewrite.testing.taps.traffic import Request, StoreCalls, T, is_dynamodb, is_single_write, is_transaction

# --- how the handler is called ----------------------------------------------------------------------------------------
#
# A handler is called as in production: with a message, or like a Lambda function, with an event and a context.

Handler: TypeAlias = Callable[..., Any]

_A_MESSAGE, _A_CONTEXT = object(), object()


class Invocation:
    """Calls one handler, with a context if its signature accepts one."""

    def __init__(self, handler: Handler, note_unreturned: Callable[[Message, Note], None]) -> None:
        self._handler = handler
        self._note_unreturned = note_unreturned
        batch_handler = find_handler(handler)
        self._has_its_answer_read = batch_handler is not None and not batch_handler.source.raises

    def make_function(self, deliverable: Deliverable, delivery: Delivery) -> HandlerFunction:
        """Return the function to call with the message or the event. It raises if Lambda would count the invocation as failed."""
        is_event = isinstance(deliverable, LambdaEvent)
        # Lambda always passes a context. In other handlers, the second parameter can be an unrelated one with a default.
        with_context = (is_event or not self._accepts_message_alone) and self._accepts_context
        request_id = f"00000000-0000-4000-8000-{delivery.message:06}{delivery.number:06}"
        context = [replace(lambda_context(), aws_request_id=request_id)] if with_context else []
        # For Kafka, Lambda reads the response in provisioned mode only. A decorated handler knows whether it is read.
        is_read = isinstance(deliverable, LambdaEvent) and (self._has_its_answer_read or not deliverable.source.raises)

        def call(message: Any, wait_for: WaitFor) -> Any:
            answer = wait_for(self._handler(message, *context))
            return _check_answer(answer, is_read=is_read) if is_event else answer

        def deliver(message: Message, wait_for: WaitFor) -> Any:
            """Call the handler as a decorator does: each guarded call that didn't settle the message counts as returned.

            An exception that the handler caught is an exception to this. A decorator would have the message redelivered, but in a consumer
            of one's own it is lost, and the exploration shows that.
            """
            with FunctionCall([message]) as function_call:
                answer = self._handler(message, *context)
                if not inspect.isawaitable(answer):
                    return self._add_unreturned(answer, message, function_call)
            return wait_for(self._deliver_awaited(answer, message))

        return deliver if isinstance(deliverable.message, Message) else call

    @cached_property
    def _accepts_message_alone(self) -> bool:
        return _can_bind(self._handler, _A_MESSAGE)

    @cached_property
    def _accepts_context(self) -> bool:
        return _can_bind(self._handler, _A_MESSAGE, _A_CONTEXT)

    async def _deliver_awaited(self, answer: Awaitable[Any], message: Message) -> Any:
        with FunctionCall([message]) as function_call:  # in the handler's task, where it sees errors
            return self._add_unreturned(await answer, message, function_call)

    def _add_unreturned(self, answer: Any, message: Message, call: FunctionCall) -> Any:
        """Return the handler's result, with the unsettled outcomes that it didn't return. Raise for a call that was cancelled or hasn't ended."""
        try:
            [answers] = read_return(answer)
        except WrongReturn:  # a consumer of its own can understand the value, as the handler means it
            return answer
        outcomes: list[BeginOutcome] = []
        for note in call.list_unreturned(message, answers):
            if isinstance(note.outcome, UnfinishedWrite | asyncio.CancelledError):
                raise note.outcome
            if not isinstance(note.outcome, BaseException):
                outcomes.append(note.outcome)
                if all(returned.settled for returned in answers):  # otherwise, any consumer has the message redelivered
                    self._note_unreturned(message, note)
        return [*answers, *outcomes] if outcomes else answer


def _can_bind(handler: Handler, *arguments: object) -> bool:
    """Whether the handler's signature accepts this number of positional arguments."""
    try:
        # A decorated function shows the original function's signature. A callable object has its own signature.
        signature = inspect.signature(handler, follow_wrapped=inspect.isroutine(handler))
        signature.bind(*arguments)
    except (TypeError, ValueError):  # ValueError: some functions written in C have no signature
        return False
    return True


def _check_answer(answer: Any, *, is_read: bool) -> Any:
    """Return the handler's response, or None if Lambda doesn't read it. Raise if Lambda can't convert it to JSON."""
    try:
        json.dumps(answer, default=_convert_to_float)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"Lambda can't convert the handler's result to JSON: {error}. Return None, or a dict with batchItemFailures."
        ) from error
    return answer if is_read else None


def _convert_to_float(value: object) -> float:
    """Convert a Decimal, the only type beyond JSON's own that Lambda's runtime accepts. Raise for other types."""
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"{type(cast('Any', value)).__name__} is not JSON serializable")


# --- the handler's requests -------------------------------------------------------------------------------------------


class Senders:
    """The listener of an exploration. It receives each request that a client or collection sends while a handler runs."""

    def __init__(self, subject: Subject) -> None:
        self.closed = False
        self._subject = subject
        self._taps: dict[tuple[str, bool], Any] = {}  # on collections, by store and `awaited`

    def running(self, loop: Any) -> AbstractContextManager[None]:
        """Return a context manager in which an event loop must run."""
        call = current_call.get()
        return nullcontext() if call is None or not call.runs_in_this_thread else call.running(loop)

    def note(self, result: object) -> None:
        call = current_call.get()
        if call is not None:
            call.outcomes.append(result)
            if isinstance(result, Busy) and self._subject.mode.deliveries is not Deliveries.LATER:
                call.stop_exploring(WrongModeError(Obstacle.LEASE))

    def note_hash(self, place: Place) -> None:
        if self._subject.traits.hashes_at is None and current_call.get() is not None and is_own_code(place[0]):
            self._subject.traits.hashes_at = place

    def note_effect(self, name: str) -> None:
        call = current_call.get()
        if call is not None:
            call.effect_name = name

    def note_failure(self, error: BaseException) -> None:
        call = current_call.get()
        if call is not None:
            call.note_failure(error)

    def pass_time(self, seconds: float) -> bool:
        call = current_call.get()
        if call is None or not call.runs_in_this_thread:
            return False
        call.now += seconds
        return True

    def call(self, owner: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            if hasattr(cast("type[Any]", type(owner)), "_make_api_call"):
                function: Callable[..., Any] = partial(self._api_call, owner)
            elif method == "start_session":
                function = partial(self._start_session, owner)
            else:
                function = getattr(self._proxy(owner), method)
            return function(*args, **kwargs)
        except ConfigurationError as error:
            return self._subject.refuse(error)

    def _api_call(self, client: Any, operation_name: str, api_params: Any) -> Any:
        awaited = is_async(client)
        machine = self._subject.machine
        store = machine.databases.adopt_client(client)
        if is_dynamodb_client(client):
            request = aws.make_request(store, operation_name, api_params, machine.list_key_names(store))
        else:
            request = aws.make_service_request(store, operation_name, api_params)
        if awaited:
            return aws.awaited_from(client, partial(self._subject.answer, request, awaited=True))
        with aws.raised_by(client):
            return self._subject.answer(request, awaited=False)

    def _start_session(self, client: Any, *args: Any, **kwargs: Any) -> Any:
        machine = self._subject.machine
        # A stand-in has one client for both kinds of collections. Its sessions are of the kind that the world uses.
        awaited = inspect.iscoroutinefunction(client.close) if mongodb.is_pymongo_client(client) else machine.is_async
        store = machine.databases.make_server_store(client)
        return start_session(client, partial(self._gate, awaited=awaited), store, *args, awaited=awaited, **kwargs)

    def _proxy(self, owner: Any) -> Any:
        """Return a proxy of a collection or a database. The machine's own store performs its requests."""
        databases, kind = self._subject.machine.databases, cast("type[Any]", type(owner))
        database = owner.database if hasattr(kind, "update_one") else owner
        awaited = inspect.iscoroutinefunction(database.list_collection_names)
        store = databases.adopt_database(database)
        if (store, awaited) not in self._taps:
            gate = partial(self._gate, awaited=awaited)
            self._taps[store, awaited] = mongodb.tap_for(databases.stores[store], gate, store, kind, awaited=awaited)
        return self._taps[store, awaited].proxy(owner)

    def _gate(self, request: Request, *, awaited: bool) -> Any:
        if request.arguments.get("session") is not None:
            raise ConfigurationError(
                f"{request} was sent in a session that began before the exploration, which wouldn't see its commit. Start the session "
                "in the handler."
            )
        return self._subject.answer(request, awaited=awaited)


# --- the subject ------------------------------------------------------------------------------------------------------

Stores: TypeAlias = Any


@dataclass(slots=True)
class Traits:
    """Facts about the handler that the exploration learns while the handler runs."""

    has_written: bool = False  # it has sent a write
    has_upserts: bool = False  # it has sent an upsert to MongoDB
    has_recovery: bool = (
        False  # `build` reads data from the store, or changes it, so a handler must be built when it takes over
    )
    hashes_at: Place | None = None  # where it calls hash() on a string
    unreturned: tuple[Message, Note] | None = None  # a guarded call without a settled outcome, which it didn't return either
    variants: set[Fault] = field(default_factory=set[Fault])  # variants to which it reacts differently than to their fault
    misuse: OnewriteError | None = None  # set if it does something that can't be explored


class Subject:
    """The handler, its messages, and its world. All trials of an exploration share them."""

    def __init__(
        self,
        build: Callable[[Stores], Handler],
        messages: Sequence[Any],
        world: World,
        bounds: Bounds,
        timeout: float,
        *,
        redelivered_after: timedelta = timedelta(minutes=2),
    ) -> None:
        self._redelivered_after = redelivered_after
        self.deliverables = make_deliverables(messages)
        self.names = tuple(deliverable.name for deliverable in self.deliverables)
        self.titles = make_titles(self.deliverables)
        self.bounds = bounds
        # Only `reorder="within_source"` needs sources. Otherwise, messages without a source are allowed.
        needs_sources = bounds.reorder == "within_source"
        sources = [deliverable.sources() if needs_sources else frozenset[Hashable]() for deliverable in self.deliverables]
        if needs_sources and not any(sources):
            raise ConfigurationError(
                f'reorder="within_source": {self.names[0]} comes from a source that keeps no order, such as a standard queue. Pass reorder=True, '
                "or records of a FIFO queue, a stream, or a partition."
            )
        self.start = Progress.at_start(bounds, sources, [len(deliverable.lanes) for deliverable in self.deliverables])
        self.traits = Traits()
        self.stale_reads = StaleReads(self.perform)
        self.recall: Recall | None = None  # the recorded behavior, if the mode records it
        self.tapped_late = False  # since the last trial, a driver was imported, so requests might have been missed
        self.look_requests: list[Request] = []  # the requests of the last call of `observe` or the invariant
        self._is_looking = False  # `observe` or the invariant is being called
        self._unused: list[Invocation] = []  # built handlers that were never called
        self._in_transactions: set[str] = set()  # tables used in transactions
        self._lasting_answers: dict[Hashable, Callable[[], Any]] = {}  # repeat a store's responses about its structure
        self._build = build
        self._ident = threading.get_ident()
        self._loop = asyncio.Runner()
        self._explore_on(Machine(world))
        # Lambda passes one event at a time to each process.
        is_lambda = all(isinstance(deliverable, LambdaEvent) for deliverable in self.deliverables)
        self.switch(Mode(processes=Processes.IN_TURN if is_lambda else Processes.SHARED))
        self._keys = self.machine  # numbers the requests, even after a new machine replaces this one
        taps.extend()  # `world` might have imported a driver
        self._senders = Senders(self)
        self.threads = CallThreads(timeout, self._senders)
        self._epoch = time.time()

    @property
    def can_tell_deliveries_apart(self) -> bool:
        """Whether a handler can distinguish the deliveries of its message, such as by Lambda's request IDs or SQS's receipts."""
        return any(isinstance(deliverable, LambdaEvent) for deliverable in self.deliverables)

    def close(self) -> None:
        self._senders.closed = True
        self._release_paused()
        self.threads.close()
        self._loop.close()

    def renew_loop(self) -> None:
        """Use a new event loop, because a forked child must not use its parent's."""
        self._loop = asyncio.Runner()

    def begin(self) -> Invocation:
        """Reset the world, and build a handler."""
        return self.begin_processes(1)[0]

    def begin_processes(self, count: int) -> list[Invocation]:
        """Reset the world, and return `count` handlers. The first one is built last, because `observe` might use the last one built."""
        if self.start.bounds.concurrency == 1:
            self._release_paused()  # a paused call can hold a lock
        self.tapped_late = taps.extend()
        if self.tapped_late or self.mode.has_new_worlds:
            self.renew()
        self.machine.reset()
        spares = [self._unused.pop() if self._unused else self.build() for _ in range(count - 1)]
        return [self.build(), *spares]

    def keep_unused(self, spares: Sequence[Invocation]) -> None:
        """Keep the processes that a trial hasn't needed for the next trial, because `build` can take long."""
        self._unused += spares

    @property
    def spare_processes(self) -> int:
        """Return the number of processes that might be needed after the first. They are started before the schedule.

        A process that reads data from the store at its start is started only when it takes over, so the number is then 0.
        """
        if self.traits.has_recovery:
            return 0
        of_deliveries = len(self.deliverables) * self.bounds.deliveries + sum(map(len, self.start.parts))
        return self.bounds.faults + (of_deliveries if self.mode.has_own_processes else 0)

    def build(self) -> Invocation:
        with heard_by(self._senders):
            handler = self._build(self.stores)
        if not callable(handler):
            raise ConfigurationError(f"build(store) returned {handler!r}: expected the handler, a function of a message.")
        return Invocation(handler, self._note_unreturned)

    def _note_unreturned(self, message: Message, note: Note) -> None:
        self.traits.unreturned = message, note

    def switch(self, mode: Mode) -> None:
        """Continue in this mode. What was recorded before is forgotten."""
        self.mode = mode
        concurrency = 1 if mode.processes is Processes.IN_TURN else self.bounds.concurrency
        self.start = self.start._replace(bounds=replace(self.bounds, concurrency=concurrency))
        self._release_paused()
        self.recall = Recall(self.key, self._are_deliveries_numbered, self.threads.release) if mode.is_recording else None

    def _release_paused(self) -> None:
        """Release the calls that were kept to continue them later."""
        if self.recall is not None:
            self.recall.release_paused()

    def _are_deliveries_numbered(self) -> bool:
        """Whether two deliveries of one message can send different requests. Transactions and tokens contain the delivery's name."""
        is_compared = self.mode.handling is Handling.COMPARED
        return is_compared or self.mode.deliveries is not Deliveries.ALIKE or self.threads.names_used

    def call(
        self, invocation: Invocation, delivery: Delivery, parts: Sequence[int], answers: Sequence[tuple[int, Reply]] = ()
    ) -> HandlerCall:
        """Begin a call of the handler with these parts of its message. Its first requests get these responses."""
        deliverable, first = self.deliverables[delivery.message], self.start.parts[delivery.message][0]
        message = deliverable.copy_parts(tuple(part - first for part in parts), delivery.number)
        seconds_between = self._redelivered_after.total_seconds() if self.mode.deliveries is Deliveries.LATER else 0
        now = self._epoch + delivery.number * seconds_between
        return self.threads.begin(
            invocation.make_function(deliverable, delivery), message, format_delivery(self.names, delivery), answers, now=now
        )

    def check(self) -> None:
        """Raise if the exploration couldn't test anything."""
        if self.traits.misuse is not None or not self.traits.has_written:
            raise self.traits.misuse or ConfigurationError(
                "Nothing was tested, because no call of the handler sent a write. Pass messages that the handler acts on. The explorer sees "
                "the requests of boto3 and aiobotocore clients, and of pymongo and mongomock collections, that the handler sends "
                "itself, but not in a process or a thread that existed before, and not by a different driver."
            )

    def key(self, request: Request) -> Hashable:
        """Return a key that is equal for equal requests. A request that can't be compared gets a new key each time."""
        key = self._keys.key(request)
        if key is None:
            return object()
        return key if request.transaction is None else (key, request.transaction)

    def perform(self, request: Request, key: Hashable = None) -> Reply:
        """Send the request to the store. Pass its key if it has already been computed."""
        self._check(request)
        machine_key = key if isinstance(key, int) and self._keys is self.machine else None
        answer = self._make_reply(self.machine.answer(request, machine_key))
        self._note_lasting(request, answer)
        return answer

    def _check(self, request: Request) -> None:
        """Raise if the exploration can't perform the request, or can't perform it in its mode."""
        if request.writes and not is_dynamodb(request) and not self._is_acknowledged(request):
            self.refuse(
                ConfigurationError(
                    f"{request} was sent with WriteConcern(w=0). MongoDB doesn't confirm such a write, which can be lost without the "
                    'handler noticing. Omit w=0, or use WriteConcern(w="majority").'
                )
            )
        if self.mode.is_recalling and names_its_delivery(request):
            raise WrongModeError(Obstacle.NAMED_DELIVERY)

    def _make_reply(self, calls: StoreCalls[Any]) -> Reply:
        """Make the calls, and return their result or the store's error."""
        try:
            return Reply(self._make(calls))
        except ConfigurationError:  # the test's own misuse, which isn't a response
            raise
        except UnsupportedByStandIn as error:
            self.refuse(error)
        except Exception as error:
            remove_frames(error)
            return Reply(error=error)

    def _make(self, calls: StoreCalls[T]) -> T:
        return cast("T", self.complete(self.machine.make(calls)))

    def _is_acknowledged(self, request: Request) -> bool:
        concern = request.options.get(
            "write_concern", getattr(self.machine.databases.stores[request.store], "write_concern", None)
        )
        return bool(getattr(concern, "acknowledged", True))

    def perform_under(self, fault: Fault, request: Request, key: Hashable) -> Reply:
        """Send the part of the request that the fault doesn't block, and return the response."""
        if fault is Fault.STALE and (stale_reply := self.stale_reads.find(request, self.machine)) is not None:
            return stale_reply
        if fault not in (Fault.CUT_SHORT, Fault.CUT_EARLY) and not fault.is_partial:
            return self.perform(request, key)
        self._check(request)
        return self._make_reply(send_under(fault, request, self.machine.answer))

    def has_added(self, before: WorldState, request: Request | None, after: WorldState) -> bool:
        """Whether a MongoDB request added a document between these two states."""
        if request is None or request.transaction is not None or not request.writes or is_dynamodb(request):
            return False
        return any(not old for old, _ in self.machine.changes(before, request, after))

    def may_race(self, before: WorldState, request: Request) -> bool:
        """Whether an upsert has a different effect if it looked for its document in the state `before`."""
        return self._make(self.machine.may_race(before, request))

    def race(self, before: WorldState, request: Request) -> Reply:
        """Perform an upsert that looked for its document in the state `before` and inserts it now. Return the response."""
        return self._make_reply(self.machine.race(before, request))

    def make_error(self, fault: Fault, request: Request) -> Exception:
        """Return the error that the driver raises for this fault."""
        return fault.make_error(self.machine.databases.stores[request.store], request)

    def list_dependent_faults(self, request: Request) -> tuple[Fault, ...]:
        """Return the faults that make a difference to this request because of earlier requests.

        Record which tables are in transactions, for later requests.
        """
        faults: tuple[Fault, ...] = ()
        if is_transaction(request):
            self._in_transactions.update(request.tables)
        elif is_single_write(request) and self._in_transactions.intersection(request.tables):
            faults = (Fault.CONFLICT,)
        return faults if self.stale_reads.find(request, self.machine) is None else (*faults, Fault.STALE)

    def add_entities(self, request: Request) -> Request:
        """Return the request with the entities that it touches. They depend on the key names of the table."""
        if not is_dynamodb(request) or request.keys is not None:
            return request
        return add_keys(request, self.machine.list_key_names(request.store))

    def look(self, function: Callable[[Stores], Any]) -> Any:
        """Return the result of `observe` or the invariant. Its requests don't affect later requests."""
        self.look_requests, self._is_looking = [], True
        try:
            with self.machine.looking_at(self.machine.present), heard_by(self._senders):
                return self.complete(function(self.stores))
        finally:
            self._is_looking = False

    def complete(self, value: Any) -> Any:
        """Return the value, or the result of awaiting it if it is awaitable."""
        if not isinstance(value, Awaitable):
            return value
        return self._loop.run(await_result(cast("Awaitable[Any]", value)), context=contextvars.copy_context())

    def begin_with(self, structure: tuple[Request, ...]) -> None:
        """Start every trial after these requests, which the handler sends only once per process."""
        if structure:
            self._make(self.machine.begin_with(structure))

    def renew(self) -> None:
        """Make a new world, and forget the responses of the old one, and the handlers that were built for it."""
        self._unused.clear()
        self._explore_on(self.machine.without_memory())

    def _explore_on(self, machine: Machine) -> None:
        self.machine = machine
        if machine.is_async:
            self._make(machine.begin())
        self.stores: Stores = machine.stores(self._gate)

    def _gate(self, request: Request) -> Any:
        """Respond to a request of the world's stores."""
        return self.answer(request, awaited=self.machine.is_async)

    def answer(self, request: Request, *, awaited: bool) -> Any:
        """Respond to any request. A delivery's request waits for its turn. Requests from `build` and `observe` are sent immediately."""
        call = current_call.get()
        if call is None and threading.get_ident() == self._ident:
            self.look_requests.append(request)
            # In `build`, a request that only reads a table's structure, such as its indexes, has the same response in every process.
            if not self._is_looking and self.machine.databases.list_places(request) and not reads_structure(request):
                self.traits.has_recovery = True
            return self._send_awaited(request) if awaited else self._send_now(request)
        if call is None or not call.runs_in_this_thread:
            self.refuse(
                ConfigurationError(
                    f"{request} was sent by a thread that the handler started, or after the handler returned. The explorer can't "
                    "control when it arrives. In the exploration, send requests in the handler itself."
                )
            )
        # A store can send a lasting request, such as a request for the table's indexes, once and cache the response. The time of
        # that request makes no difference. If the handler does depend on the response, its behavior differs from the recorded
        # behavior, and it runs for every schedule.
        if self.mode.is_recording and self.machine.is_lasting(request):
            known_answer = self._lasting_answers.get(self.key(request))
            if known_answer is not None:
                return _awaited(known_answer()) if awaited else known_answer()
            if not self.machine.is_async:
                return self._send_awaited(request) if awaited else self._send_now(request)
        return call.aask(request) if awaited else call.ask(request)

    def _note_lasting(self, request: Request, answer: Reply) -> None:
        """Remember a response about the store's structure, which stays the same."""
        if answer.error is None and self.machine.is_lasting(request):
            repeater = make_repeater(answer.value)
            if repeater is not None:
                self._lasting_answers[self.key(request)] = repeater

    def _send_now(self, request: Request) -> Any:
        with heard_by(None):
            if self.machine.is_async and is_in_event_loop():
                self.refuse(
                    ConfigurationError(
                        f"{request} was sent by a blocking client in a coroutine, but the stores of world() are asynchronous. In build, "
                        "observe, and the invariant, use the stores that are passed."
                    )
                )
            return self.complete(self.machine.perform(request))

    async def _send_awaited(self, request: Request) -> Any:
        with heard_by(None):
            answer = self.machine.perform(request)
            return await cast("Awaitable[Any]", answer) if isinstance(answer, Awaitable) else answer

    def refuse(self, error: OnewriteError) -> NoReturn:
        """Raise the error, and remember it, because the handler might catch it."""
        self.traits.misuse = self.traits.misuse or error
        raise self.traits.misuse


async def _awaited(value: Any) -> Any:
    return value


def names_its_delivery(request: Request) -> bool:
    """Whether the response depends on more than the store's contents, because the request has its delivery's transaction or token."""
    return request.transaction is not None or TOKEN in request.arguments


def format_delivery(names: Sequence[str], delivery: Delivery) -> str:
    """Return the name of a delivery in a report."""
    return f"{names[delivery.message]}, delivery {delivery.number + 1}"
