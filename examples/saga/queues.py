"""Queues in memory, for a process that plays all services, and a record of all published events."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from onewrite.outbox import Outgoing
from onewrite.testing import sqs_event

_MOST = 10  # messages that SQS gives in one request


class Queues:
    """Standard SQS queues: they keep no order, and redeliver messages that aren't deleted."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._ids = itertools.count(1)
        self._messages: defaultdict[str, dict[str, str]] = defaultdict(dict)  # bodies by id, of each queue

    def send_message_batch(self, *, QueueUrl: str, Entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:  # noqa: N803  # as boto3's client
        for entry in Entries:
            self._messages[QueueUrl][f"message-{next(self._ids)}"] = entry["MessageBody"]
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}

    def deliver(
        self, queue_url: str, handler: Callable[[Any, Any], dict[str, Any]], acknowledges: Callable[[], bool]
    ) -> bool:
        """Pass some messages to the handler, as Lambda does, and delete the settled ones. Return whether there were any.

        An unacknowledged message stays, for example if its worker crashed.
        """
        messages = self._messages[queue_url]
        if not messages:
            return False
        ids = self._random.sample([*messages], self._random.randint(1, min(len(messages), _MOST)))
        answer = handler(sqs_event(*[messages[each] for each in ids], ids=ids), None)
        failed = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        for each in ids:
            if each not in failed and acknowledges():
                del messages[each]
        return True


class Published:
    """The events of one service, and whether the first copies of each entity's events were numbered 1, 2, 3."""

    def __init__(self) -> None:
        self.copies: Counter[str] = Counter()  # of each event, by its id
        self.events: list[Outgoing] = []
        self.out_of_order = 0
        self._numbers: Counter[str] = Counter()  # of first copies, by source

    def note(self, event: Outgoing) -> None:
        if event.id not in self.copies:
            self._numbers[event.source] += 1
            self.out_of_order += event.sequence != self._numbers[event.source]
            self.events.append(event)
        self.copies[event.id] += 1
