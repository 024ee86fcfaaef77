"""Take payments over HTTP: an Idempotency-Key, a provider that charges cards, and workers that can crash between any two requests."""

from payment.app import make_app
from payment.payments import Payment, Payments
from payment.provider import Provider
from payment.table import create_table

__all__ = ["Payment", "Payments", "Provider", "create_table", "make_app"]
