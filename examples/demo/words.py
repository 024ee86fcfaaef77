"""The lines of the page's log: what happened, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from demo.handlers import CLAIM, ONEWRITE, PLAIN, Result
from onewrite import Message


class Incident(Enum):
    """An event that is worth a line in the log."""

    SENT_TWICE = auto()
    DROPPED = auto()
    DOUBLED = auto()
    LOST = auto()
    DIED_EARLY = auto()
    DIED_CLAIMED = auto()
    DIED_WRITTEN = auto()
    DIED_KNOWN = auto()


DEATHS = {
    None: Incident.DIED_EARLY,
    Result.CLAIMED: Incident.DIED_CLAIMED,
    Result.WRITTEN: Incident.DIED_WRITTEN,
    Result.KNOWN: Incident.DIED_KNOWN,
}
ABOUT = {
    PLAIN: "Adds each payment that arrives to its order.",
    CLAIM: "Stores the id in a table of seen ids, then adds the payment.",
    ONEWRITE: "Adds payment and id in one request, if the order lacks the id.",
}
DOING = {
    Result.WRITTEN: "payment {n} is added",
    Result.CLAIMED: "the id of payment {n} is stored",
    Result.KNOWN: "payment {n} is known: drop it",
}
_MOODS = {Incident.DOUBLED: "bad", Incident.LOST: "bad", Incident.DROPPED: "good"}
_TEXTS = {
    Incident.SENT_TWICE: "Payment {n} is sent twice.",
    Incident.DROPPED: "Payment {n} arrives again, and is dropped.",
    Incident.DOUBLED: "Payment {n} is added once more: {amount} too much.",
    Incident.LOST: "Payment {n} is dropped, and was never added: {amount} are lost.",
    Incident.DIED_EARLY: "The worker dies before its first request for payment {n}.",
    Incident.DIED_CLAIMED: "The worker dies between the two requests for payment {n}.",
    Incident.DIED_WRITTEN: "The worker dies after it has added payment {n}, before it acknowledges the message.",
    Incident.DIED_KNOWN: "The worker dies before it acknowledges payment {n}, which it was going to drop.",
}
_WHYS = {
    Incident.SENT_TWICE: "The sender got no confirmation, and sent the message again. Both copies have the same id.",
    Incident.DOUBLED: "The write adds to the amount of the order. Nothing in the order shows that this payment is in it already.",
    Incident.LOST: "An earlier worker stored the id and died before it added the payment. Since then the payment looks done.",
    Incident.DIED_EARLY: "Nothing was written. The queue delivers the message again, and no handler is harmed.",
    Incident.DIED_CLAIMED: "The id is stored, and the payment is not added. The next delivery of the message will look like a duplicate.",
    Incident.DIED_KNOWN: "The queue delivers the message again, and the next worker drops it again.",
}
_WHYS_OF_A_LANE = {
    (PLAIN, Incident.DIED_WRITTEN): "The queue will deliver the message again, and the handler will not notice.",
    (
        CLAIM,
        Incident.DIED_WRITTEN,
    ): "The queue will deliver the message again. Its id is stored and its payment is added, so the "
    "next worker is right to drop it.",
    (
        ONEWRITE,
        Incident.DIED_WRITTEN,
    ): "The queue will deliver the message again. The order got the id together with the payment, and will refuse it.",
    (
        CLAIM,
        Incident.DROPPED,
    ): "Its id is in the table of seen ids. That table costs one more request for every new message.",
    (
        ONEWRITE,
        Incident.DROPPED,
    ): "The order itself holds the id, so the condition of the write fails. There is no second table.",
}


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the log. `lane` is empty if the line is about the sender."""

    number: int
    lane: str
    mood: str
    text: str
    why: str


def log_line(number: int, lane: str, incident: Incident, message: Message) -> LogLine:
    text = _TEXTS[incident].format(n=message.body["number"], amount=f"€{message.body['amount'] // 100}")
    why = _WHYS_OF_A_LANE.get((lane, incident)) or _WHYS[incident]
    return LogLine(number, lane, _MOODS.get(incident, ""), text, why)
