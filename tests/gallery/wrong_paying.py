"""Charges that look right, and are taken twice, recorded twice or never recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onewrite import Applied, Begun, Message, Superseded
from tests.gallery.paying import DAY, shop

Handler = Callable[[Message], Any]


def done_before_it_is_charged(stores: Mapping[str, Any]) -> Handler:
    """It writes its mark with a guard, and then charges. If it dies in between, the message is a duplicate, and nobody charges."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        outcome = here.record(message, message.child("charge"))
        if isinstance(outcome, Applied):
            here.charge(message.child("charge"))
        return outcome

    return handle


def charged_by_the_fence(stores: Mapping[str, Any]) -> Handler:
    """It gives the provider the step's fence for a key. The worker that takes the step over has another fence."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        here.clock.go_on()
        step = here.begin(message, DAY)
        if not isinstance(step, Begun):
            return step
        here.charge(step.fence)
        return here.record(message, message.id, finishes=step)

    return handle


def superseded_taken_for_done(stores: Mapping[str, Any]) -> Handler:
    """It is satisfied that another worker has taken the step over. That one may die before it records the charge."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        here.clock.go_on()
        step = here.begin(message, DAY)
        if not isinstance(step, Begun):
            return step
        outcome = here.record(message, here.charge(step.key), finishes=step)
        return Applied(message) if isinstance(outcome, Superseded) else outcome

    return handle
