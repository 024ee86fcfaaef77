"""The requests to pay: a DynamoDB item each, in which the answer to the request stands once there is one.

    {"paymentId": "4f9c...", "request": "9b1d...", "merchant": "acme", "cents": 1250, "card": "card-1",
     "statusCode": 201, "answer": "{...}", "chargeId": "ch-1"}

A request is a message, the same whenever it is sent again. The ledger never forgets, and stays small: it holds two marks, that of
the message that opens the item and that of the request.
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
    Superseded,
    Uncertain,
)
from onewrite.dynamodb import GuardedTable
from payment.provider import Charge, NoAnswer, Provider, ProviderDown
from payment.table import INDEX, SHARDS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

# In which the charge and the write after it are over. Who asks again meanwhile is told to wait for as long.
LEASE = timedelta(seconds=30)
SAFE_FOR = timedelta(hours=23)  # The provider knows its keys for 24: an hour is left for the way to it.
_LATER = 300  # seconds after which to ask again about a charge that somebody must look up


@dataclass(frozen=True, slots=True)
class Payment:
    """What a merchant asks for: `key` is its Idempotency-Key, and `digest` the SHA-256 of what it has sent with it."""

    merchant: str
    key: str
    cents: int
    card: str
    digest: str

    @property
    def id(self) -> str:
        """Of the item, and of the message. It is made of both, because two merchants may choose the same key."""
        return Message(self.key, source=self.merchant).child("payment")

    @property
    def message(self) -> Message:
        return Message(self.id, source=self.merchant)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer over HTTP. `retry_after`: seconds after which the same request may have another one."""

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
        """Charge the card once, however often this is called, and give the same answer each time."""
        known = self.open(payment)
        if known is not None:
            return known
        try:
            outcome = self.guarded.perform(
                payment.message,
                "charge",
                lambda step: self._charge(payment, step),
                Key={"paymentId": payment.id},
                lease=LEASE,
                safe_for=SAFE_FOR,
                then=lambda charge: recording(payment.id, payment.merchant, charge),
            )
        except (ProviderDown, NoAnswer):
            # The step is kept. Whoever comes next takes it over, and asks the provider with the same key.
            return problem(503, "The payment provider gives no answer. Send the same request again.", retry_after=1)
        return self._reply(outcome)

    def open(self, payment: Payment) -> Reply | None:
        """Write down what is asked for. None: it has no answer yet."""
        # A message of its own: under the request's id the item would hold the request as done.
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
        """Bring to an end what is uncertain, by what the provider's books say. For an operator, or for a job once an hour."""
        key = {"paymentId": payment_id}
        for step in self.guarded.open_steps(Key=key):
            if isinstance(step, Busy):
                continue  # somebody is at it
            charge = self._provider.find(step.key)
            if charge is None:
                self._charge_again(step, key)
            else:
                self._record(step.message, key, charge, finishes=step)

    def _charge_again(self, step: Uncertain, key: Mapping[str, str]) -> None:
        """The provider has no such charge. The step is begun again, because its key may be new to the provider by now."""
        begun = self.guarded.begin(step.message, "charge", Key=key, lease=LEASE, safe_for=SAFE_FOR, after=step)
        item = self.guarded.get_item(Key=key, ConsistentRead=True)
        if isinstance(begun, Begun) and item is not None:
            charge = self._provider.charge(
                cents=int(item["cents"]), card=item["card"], idempotency_key=begun.key, timeout=begun.left()
            )
            self._record(step.message, key, charge, finishes=begun)

    def _record(self, message: Message, key: Mapping[str, str], charge: Charge, *, finishes: Begun | Uncertain) -> None:
        self.guarded.update_item(message, Key=key, finishes=finishes, **recording(key["paymentId"], message.source, charge))

    def _charge(self, payment: Payment, step: Begun) -> Charge:
        return self._provider.charge(cents=payment.cents, card=payment.card, idempotency_key=step.key, timeout=step.left())

    def _reply(self, outcome: Outcome) -> Reply:
        match outcome:
            case Applied(entity=dict() as item) | Duplicate(entity=dict() as item):
                return answered(item)
            case Busy(until=until):
                return under_way(ceil(until - self._clock()))
            case Superseded():
                return under_way(1)
            case Uncertain():
                text = "Nobody knows whether the card was charged, and it is being looked up. Send the same request later."
                return problem(503, text, retry_after=_LATER)
            case _:
                raise _unexpected(outcome)


def recording(payment_id: str, merchant: str, charge: Charge) -> dict[str, Any]:
    """The write that answers the request: the answer as it is sent, byte for byte, and the event that tells others."""
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
    """Of the payload as such: spaces and the order of its fields do not count."""
    return sha256(json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def under_way(seconds: int) -> Reply:
    return problem(409, "The first request with this Idempotency-Key is still under way.", retry_after=max(1, seconds))


def problem(status: int, text: str, *, retry_after: int | None = None) -> Reply:
    return Reply(status, json.dumps({"error": text}), retry_after)


def _unexpected(outcome: Outcome) -> RuntimeError:
    return RuntimeError(f"A payment is never deleted, and SeenIds knows no order: {outcome!r}")
