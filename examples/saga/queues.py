"""Queues in memory, for a process that plays everybody, and a note of all that was ever published."""

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
    """Standard queues of SQS: they keep no order, and what is not deleted is redelivered."""

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
        """What Lambda does: some messages go to the handler, and those that it has settled are deleted. Were there any?

        A message that is not acknowledged stays, as one does whose worker has died.
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
    """The events of one service, and whether the first copies of each entity's were 1, 2, 3."""

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
