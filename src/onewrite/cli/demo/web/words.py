"""What the page says: what has happened, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType

from onewrite.cli.demo.comparison import CLAIM, ONEWRITE, PLAIN
from onewrite.cli.demo.simulation import Turn
from onewrite.cli.demo.web.watched import Answer
from onewrite.message import Message

ABOUT = MappingProxyType(
    {
        PLAIN: "Adds each payment that comes to its order.",
        CLAIM: "Stores the id in a table of seen ids, then adds the payment.",
        ONEWRITE: "Adds payment and id in one request, if the order lacks the id.",
    }
)


class What(Enum):
    SENT_TWICE = auto()
    DROPPED = auto()
    DOUBLED = auto()
    LOST = auto()
    DIED_EARLY = auto()
    DIED_CLAIMED = auto()
    DIED_WRITTEN = auto()
    DIED_KNOWN = auto()


@dataclass(frozen=True, slots=True)
class Remark:
    """One line of the page's log. `lane` is empty where it is about the sender."""

    lane: str
    mood: str
    text: str
    why: str


_MOODS = MappingProxyType({What.DOUBLED: "bad", What.LOST: "bad", What.DROPPED: "good"})
_TEXTS = MappingProxyType(
    {
        What.SENT_TWICE: "Payment {n} is sent twice.",
        What.DROPPED: "Payment {n} comes again, and is dropped.",
        What.DOUBLED: "Payment {n} is added once more: {amount} too much.",
        What.LOST: "Payment {n} is dropped, and was never added: {amount} are lost.",
        What.DIED_EARLY: "The worker dies before its first request for payment {n}.",
        What.DIED_CLAIMED: "The worker dies between the two requests for payment {n}.",
        What.DIED_WRITTEN: "The worker dies after it has added payment {n}, before it acknowledges the message.",
        What.DIED_KNOWN: "The worker dies before it acknowledges payment {n}, which it was going to drop.",
    }
)
_WHYS = MappingProxyType(
    {
        What.SENT_TWICE: "The sender did not hear that its message had arrived, and sent it again. Both copies have the same id.",
        What.DOUBLED: "The write adds to whatever the order says. Nothing in the order tells that this payment is in it already.",
        What.LOST: "An earlier worker stored the id and died before it added the payment. To everyone after it, the payment looks done.",
        What.DIED_EARLY: "Nothing was written. The queue delivers the message again, and no handler is harmed.",
        What.DIED_CLAIMED: "The id is stored, and the payment is not added. When the queue delivers the message again, it will look like a duplicate.",
        What.DIED_KNOWN: "The queue delivers it once more, and it will be dropped once more.",
    }
)
_WHYS_OF_A_LANE = MappingProxyType(
    {
        (
            PLAIN,
            What.DIED_WRITTEN,
        ): "The queue has heard nothing, and will deliver the message again. The handler will not notice.",
        (
            CLAIM,
            What.DIED_WRITTEN,
        ): "The queue will deliver the message again. Its id is stored and its payment is added, so dropping it will be right.",
        (
            ONEWRITE,
            What.DIED_WRITTEN,
        ): "The queue will deliver the message again. The order got the id together with the payment, and will refuse it.",
        (
            CLAIM,
            What.DROPPED,
        ): "Its id is in the table of seen ids. That table costs one more request for every message that is new.",
        (
            ONEWRITE,
            What.DROPPED,
        ): "The order itself holds the id, so the condition of the write fails. There is no second table to ask.",
    }
)
_DOING = MappingProxyType(
    {
        Answer.WRITTEN: "payment {n} is added",
        Answer.CLAIMED: "the id of payment {n} is stored",
        Answer.KNOWN: "payment {n} is known: drop it",
    }
)


def remark(lane: str, what: What, message: Message) -> Remark:
    body = message.body
    text = _TEXTS[what].format(n=body["number"], amount=f"€{body['amount'] // 100}")
    why = _WHYS_OF_A_LANE.get((lane, what)) or _WHYS[what]
    return Remark(lane, _MOODS.get(what, ""), text, why)


def doing(turn: Turn, answer: Answer | None, number: int | None, *, dead: bool) -> str:
    """What a worker has just done."""
    if dead:
        return "dead, another one is coming"
    if turn is Turn.WENT_ON and answer:
        return _DOING[answer].format(n=number)
    if turn is Turn.ENDED:
        return f"payment {number} is acknowledged"
    return f"payment {number} is received" if turn is Turn.RECEIVED else "waits for a message"
