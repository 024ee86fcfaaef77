"""The inbox of a transaction: how it is made, and under which key a message stands there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onewrite import ConfigurationError, Inbox, Message

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"consumer": ""}, "consumer=''"),
        ({"retention": timedelta(0)}, r"^Inbox\(retention=.*outlives every redelivery"),
        ({"also": "bills"}, "also='bills'"),
        ({"also": ("bills", "")}, "also="),
        ({"key": "expiresAt"}, "expected two different names, neither of which begins with ow_"),
        ({"key": None}, "key=None, .*: expected two different names"),
        ({"key": ""}, "key='', .*: expected two different names"),
        ({"key": "ow_id"}, "expected two different names, neither of which begins with ow_"),
        ({"ttl_attribute": "ow_until"}, "'ow_until' isn't a valid attribute name"),
        ({"ttl_attribute": "_id"}, "'_id' isn't a valid attribute name"),  # where the message stands on MongoDB
    ],
)
def test_invalid_inbox_is_refused(wrong: Any, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Inbox(object(), **{"consumer": "billing", "retention": DAY, **wrong})


def test_different_messages_have_different_keys() -> None:
    def mark(consumer: str, message: Message) -> str:
        (only,) = Inbox(object(), consumer=consumer, retention=DAY).make_keys(message)
        return only

    parts = [Message("c", parts=parts) for parts in (("b",), ("", "b"))]
    long = [Message("x" * 2000), Message("x" * 2000, source="x")]
    marks = [
        *[mark("a", message) for message in (Message("c", "b"), Message("bc"), Message("1:b1:c"), *parts, *long)],
        *[mark(consumer, Message("c")) for consumer in ("ab", "a" * 3000)],
    ]
    assert len(set(marks)) == len(marks)
    assert marks[0] == "1:a1:b1:c"
    assert max(len(each) for each in marks) <= 1024


def test_message_can_be_forgotten_after_its_retention() -> None:
    assert Inbox(object(), consumer="a", retention=DAY).expiry(1000.0) == 87_400.0
