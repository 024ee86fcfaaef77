"""Commands of the order service. `id` is the message's ID, the same on every delivery."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReserveCredit:
    id: str
    customer_id: str
    order_id: str
    cents: int

    def __post_init__(self) -> None:
        _check_amount(self.cents)


@dataclass(frozen=True, slots=True)
class ReleaseCredit:
    id: str
    customer_id: str
    order_id: str
    cents: int

    def __post_init__(self) -> None:
        _check_amount(self.cents)


def _check_amount(cents: int) -> None:
    if cents <= 0:
        raise ValueError(f"{cents} cents: to reserve less than nothing would raise the credit.")
