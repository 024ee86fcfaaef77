"""POST /payments as a Flask app, which any WSGI server runs.

The gateway in front authenticates the merchant, and sets the header X-Merchant.
"""

from __future__ import annotations

import json

from flask import Flask, Response, request

from payment.payments import Payment, Payments, Reply, digest_of, problem

_LONGEST_KEY = 255
_LARGEST_BODY = 65_536  # bytes; a payment has about a hundred
_MOST_CENTS = 99_999_999


def make_app(payments: Payments) -> Flask:
    app = Flask("payment")
    app.config["MAX_CONTENT_LENGTH"] = _LARGEST_BODY

    @app.post("/payments")
    def take() -> Response:
        merchant, key = (request.headers.get(name, "") for name in ("X-Merchant", "Idempotency-Key"))
        payment = payment_of(merchant, key, request.get_data())
        reply = payment if isinstance(payment, Reply) else payments.take(payment)
        headers = {} if reply.retry_after is None else {"Retry-After": str(reply.retry_after)}
        return Response(reply.body, reply.status, headers, mimetype="application/json")

    return app


def payment_of(merchant: str, key: str, body: bytes) -> Payment | Reply:
    """Return the requested payment, or the reply that refuses it."""
    if not 1 <= len(key) <= _LONGEST_KEY:
        return problem(400, f"Send an Idempotency-Key of at most {_LONGEST_KEY} characters, and a new one for each payment.")
    if not merchant:
        return problem(401, "The gateway has named no merchant.")
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        return problem(400, "The body is not JSON.")
    match payload:
        case {"cents": int() as cents, "card": str() as card} if _is_fine(cents, card):
            return Payment(merchant, key, cents, card, digest_of(payload))
        case _:
            return problem(400, f'Send {{"cents": 1250, "card": "..."}}, with 1 to {_MOST_CENTS} cents and a card in ASCII.')


def _is_fine(cents: int, card: str) -> bool:
    return not isinstance(cents, bool) and 1 <= cents <= _MOST_CENTS and card.isascii()
