"""The requests to pay: one DynamoDB item each, which stores the response once there is one.

    {"paymentId": "4f9c...", "request": "9b1d...", "merchant": "acme", "cents": 1250, "card": "card-1",
     "statusCode": 201, "answer": "{...}", "chargeId": "ch-1"}

A request is a message, the same whenever it is repeated. The ledger never forgets, and stays small: it holds two marks, of
the message that creates the item and of the request.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from math import ceil
from typing import TYPE_CHECKING, Any

from onewrite import (
    Applied,
    Begun,
    Busy,
    Duplicate,
    Event,
    Message,
    Outbox,
    Outcome,
    SeenIds,
    TakenOver,
    Uncertain,
)
from onewrite.dynamodb import GuardedTable
from payment.provider import Charge, NoAnswer, Provider, ProviderDown
from payment.table import INDEX, SHARDS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

# The charge and its write end within the lease. A client that repeats its request gets this as Retry-After.
LEASE = timedelta(seconds=30)
KEY_VALID_FOR = timedelta(hours=23)  # The provider knows its keys for 24 hours. One hour is a margin for the request.
_LATER = 300  # seconds until a client can ask again about a charge that must be looked up


@dataclass(frozen=True, slots=True)
class Payment:
    """A merchant's request: `key` is its Idempotency-Key, and `digest` the SHA-256 of its payload."""

    merchant: str
    key: str
    cents: int
    card: str
    digest: str

    @property
    def id(self) -> str:
        """Return the ID of the item and of the message. It combines both, because two merchants can choose the same key."""
        return Message(self.key, source=self.merchant).child("payment")

    @property
    def message(self) -> Message:
        return Message(self.id, source=self.merchant)


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response. After `retry_after` seconds, the same request can get another one."""

    status: int
    body: str
    retry_after: int | None = None


class Payments:
    def __init__(
        self,
        table: Table,
        provider: Provider,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        outbox = Outbox("shop/payments", index=INDEX, shards=SHARDS)
        self.guarded = GuardedTable(table, SeenIds(retention=None), outbox=outbox, clock=clock)
        self._provider, self._clock = provider, clock

    def take(self, payment: Payment) -> Reply:
        """Charge the card once, however often this is called, and return the same response each time."""
        known = self.open(payment)
        if known is not None:
            return known
        try:
            outcome = self.guarded.perform_effect(
                payment.message,
                "charge",
                lambda effect: self._charge(payment, effect),
                Key={"paymentId": payment.id},
                lease=LEASE,
                key_valid_for=KEY_VALID_FOR,
                then=lambda charge: recording(payment.id, payment.merchant, charge),
            )
        except (ProviderDown, NoAnswer):
            # The effect stays. The next worker takes it over, and sends the same key.
            return problem(503, "The payment provider gives no answer. Send the same request again.", retry_after=1)
        return self._reply(outcome)

    def open(self, payment: Payment) -> Reply | None:
        """Create the item. Return the response that it already has, or None if there is none."""
        # The create has its own message ID. Under the request's ID, the item would hold the request as done.
        opening = Message(payment.message.child("open"))
        item = {
            "paymentId": payment.id,
            "request": payment.digest,
            "merchant": payment.merchant,
            "cents": payment.cents,
            "card": payment.card,
        }
        match self.guarded.put_item(opening, Item=item):
            case Duplicate(entity=dict() as held) if held["request"] != payment.digest:
                return problem(422, "This Idempotency-Key was used for another payment. Take a new one for each.")
            case Duplicate(entity=dict() as held) if "answer" in held:
                return answered(held)
            case Applied() | Duplicate():
                return None
            case outcome:
                raise _unexpected(outcome)

    def look_up(self, payment_id: str) -> None:
        """Ask the provider about the unknown charges of this payment, and record the results. Call it as an operator, or once an hour."""
        key = {"paymentId": payment_id}
        for effect in self.guarded.open_effects(Key=key):
            if isinstance(effect, Busy):
                continue  # another worker performs this effect
            charge = self._provider.find(effect.key)
            if charge is None:
                self._charge_again(effect, key)
            else:
                self._record(effect.message, key, charge, finishes=effect)

    def _charge_again(self, effect: Uncertain, key: Mapping[str, str]) -> None:
        """Charge a card that the provider has no charge for. The effect begins again, because the provider might have forgotten its key."""
        begun = self.guarded.begin_effect(
            effect.message, "charge", Key=key, lease=LEASE, key_valid_for=KEY_VALID_FOR, after=effect
        )
        item = self.guarded.get_item(Key=key, ConsistentRead=True)
        if isinstance(begun, Begun) and item is not None:
            charge = self._provider.charge(
                cents=int(item["cents"]), card=item["card"], idempotency_key=begun.key, timeout=begun.time_left()
            )
            self._record(effect.message, key, charge, finishes=begun)

    def _record(self, message: Message, key: Mapping[str, str], charge: Charge, *, finishes: Begun | Uncertain) -> None:
        self.guarded.update_item(message, Key=key, finishes=finishes, **recording(key["paymentId"], message.source, charge))

    def _charge(self, payment: Payment, effect: Begun) -> Charge:
        return self._provider.charge(
            cents=payment.cents, card=payment.card, idempotency_key=effect.key, timeout=effect.time_left()
        )

    def _reply(self, outcome: Outcome) -> Reply:
        match outcome:
            case Applied(entity=dict() as item) | Duplicate(entity=dict() as item):
                return answered(item)
            case Busy(until=until):
                return under_way(ceil(until - self._clock()))
            case TakenOver():
                return under_way(1)
            case Uncertain():
                text = "Nobody knows whether the card was charged, and it is being looked up. Send the same request later."
                return problem(503, text, retry_after=_LATER)
            case _:
                raise _unexpected(outcome)


def recording(payment_id: str, merchant: str, charge: Charge) -> dict[str, Any]:
    """Return the write that stores the response, byte for byte, and emits the event."""
    paid = {"paymentId": payment_id, "merchant": merchant, "cents": charge.cents, "chargeId": charge.id}
    status, answer = (402, {"paymentId": payment_id, "error": "declined"}) if charge.declined else (201, paid)
    return {
        "UpdateExpression": "SET statusCode = :status, answer = :answer, chargeId = :charge",
        "ExpressionAttributeValues": {":status": status, ":answer": json.dumps(answer), ":charge": charge.id},
        "ReturnValues": "ALL_NEW",
        "emit": None if charge.declined else [Event("PaymentTaken", paid)],
    }


def answered(item: Mapping[str, Any]) -> Reply:
    return Reply(int(item["statusCode"]), item["answer"])


def digest_of(payload: object) -> str:
    """Return the payload's digest, in which spaces and the order of fields don't count."""
    return sha256(json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def under_way(seconds: int) -> Reply:
    return problem(409, "The first request with this Idempotency-Key is still under way.", retry_after=max(1, seconds))


def problem(status: int, text: str, *, retry_after: int | None = None) -> Reply:
    return Reply(status, json.dumps({"error": text}), retry_after)


def _unexpected(outcome: Outcome) -> RuntimeError:
    return RuntimeError(f"A payment is never deleted, and SeenIds knows no order: {outcome!r}")
