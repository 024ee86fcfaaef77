"""A payment provider in memory that behaves like real ones.

It recognizes an idempotency key for 24 hours, and responds to a second request with the first charge. After that, the key is
new. The provider can be down, can respond too late, and can charge a card although its response is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, TypeAlias

KNOWS_KEYS_FOR = timedelta(hours=24)
DECLINED_CARD = "card-declined"

Trouble: TypeAlias = Literal["none", "down", "slow", "answer lost"]


class ProviderDown(Exception):
    """The request didn't reach the provider."""


class NoAnswer(Exception):
    """No response arrived in time. The card might have been charged."""


@dataclass(frozen=True, slots=True)
class Charge:
    """The result of a request. `id` is the provider's. A declined card was not charged."""

    id: str
    cents: int
    card: str
    key: str | None
    at: float
    declined: bool = False


class Provider:
    """A provider whose requests meet the `troubles` in turn. `sleep` waits in the time that `clock` shows."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        troubles: Iterable[Trouble] = (),
    ) -> None:
        self._clock, self._sleep, self._troubles = clock, sleep, iter(troubles)
        self.requests: list[Charge] = []
        self.charges: list[Charge] = []

    def charge(self, *, cents: int, card: str, timeout: float, idempotency_key: str | None = None) -> Charge:
        """Charge the card. The key has no default, because no default would be right: without a key, each request is another charge."""
        trouble = next(self._troubles, "none")
        if timeout <= 0:
            raise ProviderDown("There is no time left for this request, so it was not sent.")
        if trouble == "down":
            raise ProviderDown("The connection was refused.")
        charge = self._known(idempotency_key) or self._new(cents, card, idempotency_key)
        if (charge.cents, charge.card) != (cents, card):
            raise ValueError(f"The key {idempotency_key} was used for another charge.")
        if trouble == "slow":
            self._sleep(timeout)
        if trouble in ("slow", "answer lost"):
            raise NoAnswer(f"No answer within {timeout:g} seconds.")
        return charge

    def find(self, key: str) -> Charge | None:
        """Look up the result of a request by its key. The books are kept for longer than the keys."""
        return next((charge for charge in self.requests if charge.key == key), None)

    def _known(self, key: str | None) -> Charge | None:
        since = self._clock() - KNOWS_KEYS_FOR.total_seconds()
        return next(
            (charge for charge in self.requests if key is not None and charge.key == key and charge.at > since), None
        )

    def _new(self, cents: int, card: str, key: str | None) -> Charge:
        declined = card == DECLINED_CARD
        charge = Charge(f"ch-{len(self.requests) + 1}", cents, card, key, self._clock(), declined)
        self.requests.append(charge)
        if not declined:
            self.charges.append(charge)
        return charge
