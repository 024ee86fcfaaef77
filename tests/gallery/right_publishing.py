"""Work that publishes, done right: events are emitted with the write, and relays publish them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onewrite import Event, Message
from tests.gallery.publishing import CLOSE, RELAY, shop

Handler = Callable[[Message], Any]


def emitted(stores: Mapping[str, Any]) -> Handler:
    """A relay is told of the account, as by a stream."""
    here = shop(stores)
    relay = here.relay()

    def handle(message: Message) -> Any:
        if message.id.startswith(RELAY):
            here.flush(relay)
            return None
        if message.id == CLOSE:
            here.close()
            return None
        return here.pay(message, emit=[Event("Paid", message.body["amount"])])

    return handle


def swept(stores: Mapping[str, Any]) -> Handler:
    """A relay finds the account by the index of what is pending, which on DynamoDB is behind the table.

    Each pass has a relay of its own, as one that is started by a timer has. A relay that lives on remembers which entities it could not read.
    """
    here = shop(stores)

    def handle(message: Message) -> Any:
        if not message.id.startswith(RELAY):
            return here.pay(message, emit=[Event("Paid", message.body["amount"])])
        error = here.relay().sweep().error
        if error is not None:
            raise error
        return None

    return handle


def several_emitted(stores: Mapping[str, Any]) -> Handler:
    """Each payment has two events."""
    here = shop(stores)
    relay = here.relay()

    def handle(message: Message) -> Any:
        if message.id.startswith(RELAY):
            here.flush(relay)
            return None
        amount = message.body["amount"]
        return here.pay(message, emit=[Event("Paid", amount), Event("Thanked", -amount)])

    return handle


def flushed_by_the_handler(stores: Mapping[str, Any]) -> Handler:
    """The handler publishes itself, straight after its write. A relay is there for what a crash leaves behind."""
    here = shop(stores)
    relay = here.relay()

    def handle(message: Message) -> Any:
        outcome = here.pay(message, emit=[Event("Paid", message.body["amount"])])
        here.flush(relay)
        return outcome

    return handle
