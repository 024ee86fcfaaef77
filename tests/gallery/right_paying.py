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
        return here.perform_effect(message, lambda effect: here.charge(effect.key))

    return handle


def begun_and_finished(stores: Mapping[str, Any]) -> Handler:
    """The same in two calls. If the charge raises, the next delivery waits until the lease is over."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        here.clock.go_on()
        effect = here.begin_effect(message, DAY)
        if not isinstance(effect, Begun):
            return effect
        return here.remember(message, here.charge(effect.key), finishes=effect)

    return handle


def charged_and_then_written(stores: Mapping[str, Any]) -> Handler:
    """Without an effect: each delivery asks the provider, which recognises the key, and the guarded write records it once."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        return here.remember(message, here.charge(message.child("charge")))

    return handle


def looked_up(stores: Mapping[str, Any]) -> Handler:
    """The provider recognises no keys, but tells what it has charged. It is asked when nobody can have a charge under way."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        here.clock.go_on()
        effect = here.begin_effect(message, timedelta(0))
        if isinstance(effect, Uncertain):
            if here.look_up(effect.key):
                return here.remember(message, effect.key, finishes=effect)
            effect = here.begin_effect(message, timedelta(0), after=effect)
        if not isinstance(effect, Begun):
            return effect
        return here.remember(message, here.charge_without_key(effect.key), finishes=effect)

    return handle
