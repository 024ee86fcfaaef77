"""Three ways to take a payment, which differ in what they do before and after the charge. The README's table compares them.

- naive: check whether it was done; if not, charge and record it. Most services begin like this.
- lazy: the same with a key that the provider recognizes, and with a guarded write.
- eager: begin an effect, charge with its key, and finish the effect with the write. This is `Payments.take`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from onewrite import Applied, Duplicate
from payment.payments import LEASE, Payment, Payments, Reply, answered, recording
from payment.provider import Charge, Provider

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

Way: TypeAlias = Literal["naive", "lazy", "eager"]
_TIMEOUT = LEASE.total_seconds()


@dataclass(frozen=True, slots=True)
class Ways:
    table: Table
    provider: Provider
    payments: Payments

    def take(self, way: Way, payment: Payment) -> Reply:
        match way:
            case "naive":
                return self._naive(payment)
            case "lazy":
                return self._lazy(payment)
            case "eager":
                return self.payments.take(payment)

    def _naive(self, payment: Payment) -> Reply:
        """Take a payment without a key or a guard. Changes between the check, the charge, and the write go unnoticed."""
        if held := self.table.get_item(Key={"paymentId": payment.id}, ConsistentRead=True).get("Item"):
            return answered(held)
        item = _item(payment, self.provider.charge(cents=payment.cents, card=payment.card, timeout=_TIMEOUT))
        self.table.put_item(Item=item)
        return answered(item)

    def _lazy(self, payment: Payment) -> Reply:
        """Take a payment with a constant key and a guarded write, which records one charge and doesn't know of others."""
        if held := self.payments.guarded.get_item(Key={"paymentId": payment.id}, ConsistentRead=True):
            return answered(held)
        charge = self.provider.charge(
            cents=payment.cents,
            card=payment.card,
            timeout=_TIMEOUT,
            idempotency_key=payment.message.child("charge"),
        )
        item = _item(payment, charge)
        emit = recording(payment.id, payment.merchant, charge)["emit"]
        match self.payments.guarded.put_item(payment.message, Item=item, emit=emit):
            case Applied():
                return answered(item)
            case Duplicate(entity=dict() as held):
                return answered(held)
            case outcome:
                raise RuntimeError(f"A payment is never deleted: {outcome!r}")


def _item(payment: Payment, charge: Charge) -> dict[str, Any]:
    values = recording(payment.id, payment.merchant, charge)["ExpressionAttributeValues"]
    answer = {"statusCode": values[":status"], "answer": values[":answer"], "chargeId": charge.id}
    return {"paymentId": payment.id, "request": payment.digest, **answer}
