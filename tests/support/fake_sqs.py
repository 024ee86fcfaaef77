"""A standard or FIFO queue in memory, whose clock moves only when everybody waits, and whose requests fail as a test says.

Where SQS may behave in several ways, this does what is worse for a worker: an old receipt handle deletes nothing, a request
whose answer is lost had its effect, and a message is redelivered whenever a test wants it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from botocore.exceptions import ClientError, ConnectionClosedError

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders"
ARN = "arn:aws:sqs:eu-west-1:123456789012:orders"
_PATIENCE = 30.0  # real seconds for a thread to get where it will be

Hook = Callable[[str], None]
"""Called with the name of a request; it may raise."""


class _Pause:
    """What one thread waits for: a moment, a notification, or whatever comes first."""

    def __init__(self, due: float) -> None:
        self.due = due
        self.is_over = False
        self._end_lock = threading.Lock()
        self._end_lock.acquire()

    def end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._end_lock.release()

    def await_end(self) -> bool:
        return self._end_lock.acquire(timeout=0.005)


class VirtualTime:
    """A clock that moves when all threads of the worker wait: then the wait that ends first ends, at its own time.

    So however the machine schedules the threads, what takes no time here takes none on this clock.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._mutex = threading.Lock()
        self._pauses: dict[int, _Pause] = {}
        self._strangers = WeakSet(threading.enumerate())  # threads that other tests have left behind

    def __call__(self) -> float:
        _clocks[threading.current_thread()] = self
        return self.now

    def sleep(self, seconds: float) -> None:
        if _is_of_a_worker(threading.current_thread()):
            self._wait(self._enter(seconds))
        else:
            self.now += seconds

    def leave_behind(self) -> None:
        """The clock does not wait for this thread any more: it is about to block for as long as the test likes."""
        self._strangers.add(threading.current_thread())

    def come_back(self) -> None:
        self._strangers.discard(threading.current_thread())

    def let_go(self) -> None:
        """Ends what sleeps forever, which a worker that has given up has left behind."""
        with self._mutex:
            for pause in self._pauses.values():
                pause.end()

    def condition(self, lock: threading.Lock) -> Any:
        return _VirtualCondition(self, lock)

    def _counts(self, thread: threading.Thread) -> bool:
        """Whether this clock waits for the thread."""
        return _is_of_a_worker(thread) and thread not in self._strangers and _clocks.get(thread, self) is self

    def _enter(self, seconds: float) -> _Pause:
        _clocks[threading.current_thread()] = self
        with self._mutex:
            # Rounded, because a sum that is a little too small would be waited for again and again.
            due = round(self.now + max(0.0, seconds), 6)
            if seconds > 0 and due <= self.now:
                due = self.now + 1e-6
            pause = self._pauses[threading.get_ident()] = _Pause(due)
        return pause

    def _wait(self, pause: _Pause) -> None:
        """Moves the clock if this was the last thread to wait. It looks again now and then: a thread may have ended."""
        limit = time.monotonic() + _PATIENCE
        self._move()
        while not pause.await_end():
            assert time.monotonic() < limit or pause.due == inf, "the clock stands still"
            self._move()
        with self._mutex:
            del self._pauses[threading.get_ident()]

    def _move(self) -> None:
        with self._mutex:
            threads = [thread for thread in threading.enumerate() if self._counts(thread)]
            running_ids = {thread.ident for thread in threads if not _is_idle_loop(thread)}
            waiting_ids = {ident for ident, pause in self._pauses.items() if not pause.is_over}
            if running_ids <= waiting_ids:
                first = min((self._pauses[ident] for ident in waiting_ids), key=lambda pause: pause.due, default=None)
                if first is not None and first.due < inf:
                    self.now = max(self.now, first.due)
                    first.end()


# The clock that each thread has last looked at, so threads which another test has left behind do not count.
_clocks: WeakKeyDictionary[threading.Thread, VirtualTime] = WeakKeyDictionary()


def _is_of_a_worker(thread: threading.Thread) -> bool:
    return thread.name.startswith("onewrite-") and thread.name != "onewrite-health"


def _is_idle_loop(thread: threading.Thread) -> bool:
    """An event loop waits in a way of its own. It is idle if it waits for other threads only, and not for a moment."""
    if thread.name != "onewrite-tasks":
        return False
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None or frame.f_code.co_name != "select":
        return False
    while frame is not None and frame.f_code.co_name != "_run_once":
        frame = frame.f_back
    loop = None if frame is None else frame.f_locals["self"]
    return loop is not None and not loop._ready and not loop._scheduled


class _VirtualCondition:
    """`threading.Condition` on a virtual clock."""

    def __init__(self, virtual: VirtualTime, lock: threading.Lock) -> None:
        self._time, self._lock = virtual, lock
        self._pauses: list[_Pause] = []

    def wait(self, timeout: float = inf) -> None:
        pause = self._time._enter(timeout)
        self._pauses.append(pause)
        self._lock.release()
        try:
            self._time._wait(pause)
        finally:
            self._lock.acquire()
            if pause in self._pauses:
                self._pauses.remove(pause)

    def notify(self) -> None:
        while self._pauses:
            pause = self._pauses.pop(0)
            if not pause.is_over:
                pause.end()
                return

    def notify_all(self) -> None:
        while self._pauses:
            self.notify()


@dataclass(slots=True)
class StoredMessage:
    """A message in the queue."""

    id: str
    body: str
    attributes: dict[str, str]
    user_attributes: Mapping[str, Any]
    visible_at: float = 0.0
    receives: int = 0
    handle: str = ""


@dataclass(slots=True)
class FakeSqs:
    """The client. `before` may raise instead of the request, and `after` instead of its answer."""

    time: VirtualTime
    fifo: bool = False
    visibility: int = 30
    most_receives: int | None = None  # after which a message goes to the dead-letter queue
    before: Hook = lambda _method: None
    after: Hook = lambda _method: None
    refuse: Callable[[str, Mapping[str, Any]], bool | None] = lambda _method, _entry: None
    """Asked for each entry of a batch request. None accepts it; True refuses it as the sender's fault, False as SQS's."""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    messages: list[StoredMessage] = field(default_factory=list)
    dead: list[StoredMessage] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _attempts: dict[str | None, list[StoredMessage]] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.Lock)
    _change: Any = field(init=False)

    def __post_init__(self) -> None:
        self._change = self.time.condition(self._lock)

    @property
    def arn(self) -> str:
        return ARN + ".fifo" * self.fifo

    def send(self, body: str, *, group: str | None = None, **user_attributes: Any) -> StoredMessage:
        number = next(self._numbers)
        attributes = {"SentTimestamp": str(1_767_225_600_000 + int(self.time.now * 1000)), "SenderId": "AIDA"}
        if group is not None:
            attributes["MessageGroupId"] = group
        if self.fifo:
            attributes["SequenceNumber"] = f"{18_849_496_460_467_696_128 + number}"
        message = StoredMessage(f"message-{number}", body, attributes, user_attributes)
        self.messages.append(message)
        return message

    def requests_of(self, method: str) -> list[dict[str, Any]]:
        return [request for name, request in self.requests if name == method]

    # ------------------------------------------------------------ what a worker asks

    def get_queue_attributes(self, **request: Any) -> dict[str, Any]:
        attributes = {"QueueArn": self.arn, "VisibilityTimeout": str(self.visibility)}
        if self.most_receives is not None:
            policy = {"deadLetterTargetArn": f"{ARN}-dead", "maxReceiveCount": self.most_receives}
            attributes["RedrivePolicy"] = json.dumps(policy)
        return self._request("get_queue_attributes", request, lambda: {"Attributes": attributes})

    def receive_message(self, **request: Any) -> dict[str, Any]:
        return self._request("receive_message", request, lambda: self._receive(request))

    def delete_message_batch(self, **request: Any) -> dict[str, Any]:
        return self._request("delete_message_batch", request, lambda: self._do_entries("delete", request, self._delete))

    def change_message_visibility_batch(self, **request: Any) -> dict[str, Any]:
        return self._request(
            "change_message_visibility_batch", request, lambda: self._do_entries("hide", request, self._hide)
        )

    # ------------------------------------------------------------ what it does

    def _request(self, method: str, request: dict[str, Any], act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        with self._lock:
            self.requests.append((method, request))
        self.before(method)
        with self._lock:
            answer = act()
            self._change.notify_all()
        self.after(method)
        return {**answer, "ResponseMetadata": {"RequestId": "r-1"}}

    def _receive(self, request: Mapping[str, Any]) -> dict[str, Any]:
        attempt = request.get("ReceiveRequestAttemptId")
        attempt_messages = self._attempts.get(attempt, [])
        until = self.time.now + request["WaitTimeSeconds"]
        while not (messages := [message for message in attempt_messages if message in self.messages] or self._visible()):
            if self.time.now >= until:
                break
            changes = [message.visible_at for message in self.messages if message.visible_at > self.time.now]
            self._change.wait(min([until, *changes]) - self.time.now)
        given_messages = messages[: request["MaxNumberOfMessages"]]
        for message in given_messages:
            message.visible_at = self.time.now + request["VisibilityTimeout"]
            if message not in attempt_messages:
                message.receives += 1
                message.handle = f"handle-{next(self._numbers)}"
        if attempt is not None:
            self._attempts[attempt] = given_messages
        return {"Messages": [_as_received(message) for message in given_messages]} if given_messages else {}

    def _visible(self) -> list[StoredMessage]:
        """The messages that may be received. Of a group of a FIFO queue none may while one of them is hidden."""
        now = self.time.now
        if self.most_receives is not None:
            self.dead += [
                message for message in self.messages if message.visible_at <= now and message.receives >= self.most_receives
            ]
            self.messages = [message for message in self.messages if message not in self.dead]
        hidden_groups = {message.attributes.get("MessageGroupId") for message in self.messages if message.visible_at > now}
        return [
            message
            for message in self.messages
            if message.visible_at <= now and not (self.fifo and message.attributes.get("MessageGroupId") in hidden_groups)
        ]

    def _do_entries(self, kind: str, request: Mapping[str, Any], act: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
        entries: Sequence[Mapping[str, Any]] = request["Entries"]
        assert 1 <= len(entries) <= 10
        assert len({entry["Id"] for entry in entries}) == len(entries)
        failures = []
        for entry in entries:
            refusal = self.refuse(kind, entry)
            if refusal is None and not act(entry):
                refusal = True
            if refusal is not None:
                failures.append({"Id": entry["Id"], "SenderFault": refusal, "Code": "Refused"})
        failed_ids = {failure["Id"] for failure in failures}
        successes = [{"Id": entry["Id"]} for entry in entries if entry["Id"] not in failed_ids]
        return {"Successful": successes, "Failed": failures} if failures else {"Successful": successes}

    def _delete(self, entry: Mapping[str, Any]) -> bool:
        message = self._message_of(entry)
        if message is not None:
            self.messages.remove(message)
        return message is not None or not self.fifo

    def _hide(self, entry: Mapping[str, Any]) -> bool:
        message = self._message_of(entry)
        if message is None or message.visible_at <= self.time.now:
            return False
        assert 0 <= entry["VisibilityTimeout"] <= 43_200
        message.visible_at = self.time.now + entry["VisibilityTimeout"]
        return True

    def _message_of(self, entry: Mapping[str, Any]) -> StoredMessage | None:
        """The message whose last receipt handle this is."""
        return next((message for message in self.messages if message.handle == entry["ReceiptHandle"]), None)


def client_error(code: str, status: int = 400) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "Any")


def lost_connection() -> ConnectionClosedError:
    return ConnectionClosedError(endpoint_url=URL)


def _as_received(message: StoredMessage) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "MessageId": message.id,
        "ReceiptHandle": message.handle,
        "Body": message.body,
        "MD5OfBody": hashlib.md5(message.body.encode(), usedforsecurity=False).hexdigest(),
        "Attributes": {**message.attributes, "ApproximateReceiveCount": str(message.receives)},
    }
    return answer | ({"MessageAttributes": message.user_attributes} if message.user_attributes else {})
