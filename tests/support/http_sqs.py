"""A quick stand-in for SQS over HTTP, in a process of its own: queues, hidden messages, and long polls.

It answers a request within some 50 microseconds of its own, so what is measured against it is the client. It checks no
signature. A queue whose name ends with `.fifo` keeps the order of its groups, and gives the same messages to a second request with
the same ReceiveRequestAttemptId; it does not know the five minutes of deduplication.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import itertools
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any

from tests.support.child import Child

_REGION_AND_ACCOUNT = "eu-west-1:123456789012"
_FILL = "Fill"  # a request of our own: many messages with one body at once
_COUNT = "Count"  # another one: how often each message was received that is gone, and how many are left


@dataclass(slots=True)
class _StoredMessage:
    id: str
    body: str
    group: str | None
    attributes: dict[str, Any]  # those of the sender, as the wire has them
    receives: int = 0
    handle: str = ""


@dataclass(slots=True)
class Queue:
    """The messages of one queue at one moment. `now` is the loop's clock."""

    now: Callable[[], float]
    visible: deque[_StoredMessage] = field(default_factory=deque)
    hidden: dict[str, _StoredMessage] = field(default_factory=dict)
    ends: list[tuple[float, str]] = field(default_factory=list)  # of the hidden, a heap; it may hold what is hidden no more
    until: dict[str, float] = field(default_factory=dict)
    deleted_receives: list[int] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def send(self, body: str, group: str | None, attributes: dict[str, Any]) -> None:
        self.visible.append(_StoredMessage(f"m-{next(self.numbers)}", body, group, attributes))

    def receive(self, most: int, visibility: float, attempt: str | None) -> list[_StoredMessage]:
        """`attempt` counts for FIFO queues only."""
        del attempt
        self.let_expire()
        return [self._give(self.visible.popleft(), visibility) for _ in range(min(most, len(self.visible)))]

    def _give(self, message: _StoredMessage, visibility: float) -> _StoredMessage:
        message.receives += 1
        message.handle = f"{message.id}-{next(self.numbers)}"
        self.hidden[message.handle] = message
        self.hide(message.handle, visibility)
        return message

    def delete(self, handle: str) -> bool:
        message = self.hidden.pop(handle, None)
        self.until.pop(handle, None)
        if message is not None:
            self.deleted_receives.append(message.receives)
        return True

    def hide(self, handle: str, seconds: float) -> bool:
        if handle not in self.hidden:
            return False
        self.until[handle] = self.now() + seconds
        heapq.heappush(self.ends, (self.until[handle], handle))
        return True

    def let_expire(self) -> None:
        while self.ends and self.ends[0][0] <= self.now():
            end, handle = heapq.heappop(self.ends)
            if self.until.get(handle) == end:
                del self.until[handle]
                self.visible.append(self.hidden.pop(handle))


@dataclass(slots=True)
class FifoQueue(Queue):
    """Nothing of a group is given while some of it is hidden."""

    attempts: dict[str, list[_StoredMessage]] = field(default_factory=dict)

    def receive(self, most: int, visibility: float, attempt: str | None) -> list[_StoredMessage]:
        self.let_expire()
        attempt_messages = [message for message in self.attempts.get(attempt or "", ()) if message.handle in self.hidden]
        if attempt_messages:
            return attempt_messages
        hidden_groups = {message.group for message in self.hidden.values()}
        self.visible = deque(sorted(self.visible, key=lambda message: int(message.id[2:])))  # as they were sent
        messages = [message for message in self.visible if message.group not in hidden_groups][:most]
        for message in messages:
            self.visible.remove(message)
            self._give(message, visibility)
        if attempt is not None:
            self.attempts[attempt] = messages
        return messages


class Server:
    """All queues; they are made when they are first named."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}

    async def answer(self, target: str, request: dict[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        name = request["QueueUrl"].rsplit("/", 1)[-1]
        queue = self.queues.setdefault(name, (FifoQueue if name.endswith(".fifo") else Queue)(loop.time))
        match target:
            case "ReceiveMessage":
                return await self._receive(queue, request)
            case "DeleteMessageBatch":
                return _do_entries(request, lambda entry: queue.delete(entry["ReceiptHandle"]))
            case "ChangeMessageVisibilityBatch":
                return _do_entries(request, lambda entry: queue.hide(entry["ReceiptHandle"], entry["VisibilityTimeout"]))
            case "DeleteMessage":
                queue.delete(request["ReceiptHandle"])
                return {}
            case "GetQueueAttributes":
                return {"Attributes": {"QueueArn": f"arn:aws:sqs:{_REGION_AND_ACCOUNT}:{name}", "VisibilityTimeout": "30"}}
            case _:
                return _our_own(target, queue, request)

    async def _receive(self, queue: Queue, request: dict[str, Any]) -> dict[str, Any]:
        end = queue.now() + request.get("WaitTimeSeconds", 0)
        attempt = request.get("ReceiveRequestAttemptId")
        while True:
            messages = queue.receive(request.get("MaxNumberOfMessages", 1), request.get("VisibilityTimeout", 30), attempt)
            if messages or queue.now() >= end:
                return {"Messages": [_as_received(message, request) for message in messages]} if messages else {}
            await asyncio.sleep(0.01)  # between two looks


def _our_own(target: str, queue: Queue, request: dict[str, Any]) -> dict[str, Any]:
    if target == _FILL:
        for number, body in enumerate(request["Bodies"]):
            groups = request["Groups"]
            queue.send(body, f"g-{number % groups}" if groups else None, request["Attributes"])
        return {}
    if target == _COUNT:
        queue.let_expire()
        return {"Gone": queue.deleted_receives, "Left": len(queue.visible) + len(queue.hidden), "Hidden": len(queue.hidden)}
    raise NotImplementedError(target)


def _do_entries(request: dict[str, Any], act: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    successes, failures = [], []
    for entry in request["Entries"]:
        if act(entry):
            successes.append({"Id": entry["Id"]})
        else:
            failures.append({"Id": entry["Id"], "SenderFault": True, "Code": "MessageNotInflight"})
    return {"Successful": successes, "Failed": failures}


def _as_received(message: _StoredMessage, request: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "MessageId": message.id,
        "ReceiptHandle": message.handle,
        "Body": message.body,
        "MD5OfBody": hashlib.md5(message.body.encode(), usedforsecurity=False).hexdigest(),
    }
    if request.get("MessageSystemAttributeNames") or request.get("AttributeNames"):
        moments = dict.fromkeys(("SentTimestamp", "ApproximateFirstReceiveTimestamp"), "1767225600000")
        answer["Attributes"] = {**moments, "SenderId": "AIDA", "ApproximateReceiveCount": str(message.receives)}
        if message.group is not None:
            number = message.id[2:].rjust(20, "0")
            answer["Attributes"] |= {
                "MessageGroupId": message.group,
                "SequenceNumber": number,
                "MessageDeduplicationId": number,
            }
    if message.attributes and request.get("MessageAttributeNames"):
        answer |= {"MessageAttributes": message.attributes, "MD5OfMessageAttributes": "0" * 32}
    return answer


class _Connection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self._server = server
        self._buffer = b""
        self._tasks: set[asyncio.Task[None]] = set()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in head.split(b"\r\n"))
        }
        length = int(headers.get(b"content-length", b"0"))
        if not end or len(body) < length:
            return
        self._buffer = b""  # no client sends the next request before it has the answer
        target = headers.get(b"x-amz-target", b"").decode().rpartition(".")[2]
        task = asyncio.get_running_loop().create_task(self._respond(target, json.loads(body or b"{}")))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _respond(self, target: str, request: dict[str, Any]) -> None:
        body = json.dumps(await self._server.answer(target, request)).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


class HttpSqs(Child):
    """The server as a process, for a `with` block."""

    def __init__(self) -> None:
        super().__init__("tests.support.http_sqs")
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def url(self, name: str) -> str:
        return f"{self.endpoint}/123456789012/{name}"

    def fill(self, name: str, bodies: list[str], groups: int = 0, attributes: dict[str, Any] | None = None) -> None:
        """`groups`: of a FIFO queue; the messages belong to them in turns. `attributes`: of each message, as the wire has them."""
        self._ask(_FILL, name, Bodies=bodies, Groups=groups, Attributes=attributes or {})

    def counts(self, name: str) -> dict[str, Any]:
        return self._ask(_COUNT, name)

    def _ask(self, target: str, name: str, **fields: Any) -> dict[str, Any]:
        data = json.dumps({"QueueUrl": self.url(name), **fields}).encode()
        connection = HTTPConnection(self.endpoint.removeprefix("http://"))
        connection.request("POST", "/", data, {"X-Amz-Target": f"Ours.{target}"})
        answer: dict[str, Any] = json.load(connection.getresponse())
        connection.close()
        return answer


async def _serve() -> None:
    server = Server()
    listener = await asyncio.get_running_loop().create_server(lambda: _Connection(server), "127.0.0.1", 0)
    print(listener.sockets[0].getsockname()[1], flush=True)
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
