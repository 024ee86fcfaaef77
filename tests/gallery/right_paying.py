"""Charges done right: each is taken once, and recorded once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from onewrite import Begun, Message, Uncertain
from tests.gallery.paying import DAY, shop

Handler = Callable[[Message], Any]


def performed(stores: Mapping[str, Any]) -> Handler:
    """In one call."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        here.clock.go_on()
        return here.perform(message, lambda step: here.charge(step.key))

    return handle


def begun_and_finished(stores: Mapping[str, Any]) -> Handler:
    """The same in two calls. If the charge raises, the next delivery waits until the lease is over."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        here.clock.go_on()
        step = here.begin(message, DAY)
        if not isinstance(step, Begun):
            return step
        return here.record(message, here.charge(step.key), finishes=step)

    return handle


def charged_and_then_written(stores: Mapping[str, Any]) -> Handler:
    """Without a step: each delivery asks the provider, which recognises the key, and the guarded write records it once."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        return here.record(message, here.charge(message.child("charge")))

    return handle


def looked_up(stores: Mapping[str, Any]) -> Handler:
    """The provider recognises no keys, but tells what it has charged. It is asked when nobody can have a charge under way."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        here.clock.go_on()
        step = here.begin(message, timedelta(0))
        if isinstance(step, Uncertain):
            if here.look_up(step.key):
                return here.record(message, step.key, finishes=step)
            step = here.begin(message, timedelta(0), after=step)
        if not isinstance(step, Begun):
            return step
        return here.record(message, here.charge_without_key(step.key), finishes=step)

    return handle
