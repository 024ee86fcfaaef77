"""Charges that look right, and are taken twice, recorded twice or never recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onewrite import Applied, Begun, Message, TakenOver
from tests.gallery.paying import BETWEEN, DAY, Shop, shop

Handler = Callable[[Message], Any]


def lease_without_fence(stores: Mapping[str, Any]) -> Handler:
    """It claims the payment for half a minute. A worker that is slow records it even so, after another has claimed and recorded it."""
    here = shop(stores)

    def handle(message: Message) -> None:
        now, payment = int(here.clock.go_on()), here.payment()
        if payment.get("phase") == "done":
            return
        until = payment.get("leaseUntil")
        free = until is None or until < now
        if not free or not here.swap({"leaseUntil": until}, {"leaseUntil": now + int(BETWEEN / 2)}):
            raise TimeoutError("another worker has it: come again")
        charge = here.charge(message.child("charge"))
        here.swap({}, {"phase": "done", "leaseUntil": None}, charge)

    return handle


def done_before_it_is_recorded(stores: Mapping[str, Any]) -> Handler:
    """It charges, marks the payment as done, and then records the charge. If it dies in between, nobody records it."""
    here = shop(stores)

    def handle(message: Message) -> None:
        if here.payment().get("phase") != "done":
            charge = here.charge(message.child("charge"))
            if here.swap({"phase": None}, {"phase": "done"}):
                here.swap({}, {}, charge)

    return handle


def done_before_it_is_charged(stores: Mapping[str, Any]) -> Handler:
    """It writes its mark with a guard, and then charges. If it dies in between, the message is a duplicate, and nobody charges."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        outcome = here.remember(message, message.child("charge"))
        if isinstance(outcome, Applied):
            here.charge(message.child("charge"))
        return outcome

    return handle


def foreign_claim_released(stores: Mapping[str, Any]) -> Handler:
    """It lets its claim go whatever happens. A second delivery that is refused lets the claim of the first one go."""
    here = shop(stores)

    def handle(message: Message) -> None:
        if here.payment().get("phase") == "done":
            return
        try:
            _claim_and_charge(here, message)
        finally:
            here.swap({}, {"claimedBy": None})

    return handle


def charged_by_the_fence(stores: Mapping[str, Any]) -> Handler:
    """It gives the provider the effect's fence for a key. The worker that takes the effect over has another fence."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        here.clock.go_on()
        effect = here.begin_effect(message, DAY)
        if not isinstance(effect, Begun):
            return effect
        here.charge(effect.fence)
        return here.remember(message, message.id, finishes=effect)

    return handle


def takeover_taken_for_done(stores: Mapping[str, Any]) -> Handler:
    """It is satisfied that another worker has taken the effect over. That one may die before it records the charge."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        here.clock.go_on()
        effect = here.begin_effect(message, DAY)
        if not isinstance(effect, Begun):
            return effect
        outcome = here.remember(message, here.charge(effect.key), finishes=effect)
        return Applied(message) if isinstance(outcome, TakenOver) else outcome

    return handle


def _claim_and_charge(here: Shop, message: Message) -> None:
    if not here.swap({"claimedBy": None, "phase": None}, {"claimedBy": message.id}):
        raise TimeoutError("another worker has it: come again")
    here.swap({}, {"phase": "done"}, here.charge_without_key(message.id))
