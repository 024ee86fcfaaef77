"""What a merchant sees over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask.testing import FlaskClient

from payment import make_app
from payment.count import Counting
from payment.moments import World, die
from payment.provider import DECLINED_CARD

DINNER = {"cents": 1250, "card": "card-1"}


@pytest.fixture
def world(counting: Counting) -> World:
    return counting.world("eager")


@pytest.fixture
def client(world: World) -> FlaskClient:
    return make_app(world.payments).test_client()


def post(client: FlaskClient, world: World, payload: Any = DINNER, *, merchant: str = "acme", data: str = "") -> Any:
    headers = {"Idempotency-Key": world.payment.key, "X-Merchant": merchant}
    return client.post("/payments", data=data or json.dumps(payload), headers=headers)


def test_second_response_equals_the_first_byte_for_byte(client: FlaskClient, world: World) -> None:
    first = post(client, world)
    again = post(client, world)
    assert (first.status_code, first.json) == (
        201,
        {"paymentId": world.payment.id, "merchant": "acme", "cents": 1250, "chargeId": "ch-1"},
    )
    assert (again.status_code, again.data, again.content_type) == (201, first.data, first.content_type)
    assert len(world.provider.requests) == 1


@pytest.mark.parametrize("payload", [{**DINNER, "cents": 1251}, {**DINNER, "card": "card-2"}, {**DINNER, "note": "dinner"}])
def test_key_of_another_payment_is_refused(client: FlaskClient, world: World, payload: Any) -> None:
    post(client, world)
    assert post(client, world, payload).status_code == 422
    assert post(client, world).status_code == 201
    assert len(world.provider.requests) == 1


def test_different_payload_is_refused_during_the_first_request(client: FlaskClient, world: World) -> None:
    with world.watched():
        world.moments.plan[5] = die  # after the charge
        world.work()
    assert post(client, world, {**DINNER, "cents": 1}).status_code == 422


def test_merchants_can_choose_the_same_key(client: FlaskClient, world: World) -> None:
    assert post(client, world, {**DINNER, "cents": 1}, merchant="other").status_code == 201
    assert post(client, world).status_code == 201
    assert [charge.cents for charge in world.provider.charges] == [1, 1250]


def test_declined_card_is_settled_without_a_payment(client: FlaskClient, counting: Counting) -> None:
    world = counting.world("eager", card=DECLINED_CARD)
    client = make_app(world.payments).test_client()
    first, again = (post(client, world, {**DINNER, "card": DECLINED_CARD}) for _ in range(2))
    assert (first.status_code, first.json["error"]) == (402, "declined")
    assert (again.status_code, again.data) == (402, first.data)
    count = world.count()
    assert (count.charges, count.records, count.events) == (0, 1, 0)


def test_concurrent_request_gets_the_seconds_to_wait(client: FlaskClient, world: World) -> None:
    with world.watched():
        world.moments.plan[4] = die  # before the charge
        world.work()
    world.wait(10.5)
    reply = post(client, world)
    assert (reply.status_code, reply.headers["Retry-After"]) == (409, "20")
    world.wait(20)
    assert post(client, world).status_code == 201


@pytest.mark.parametrize("trouble", ["down", "answer lost", "slow"])
def test_failing_provider_is_retried_with_the_same_key(counting: Counting, trouble: Any) -> None:
    world = counting.world("eager", trouble)
    client = make_app(world.payments).test_client()
    reply = post(client, world)
    assert (reply.status_code, reply.headers["Retry-After"]) == (503, "1")
    world.wait(1)
    assert post(client, world).status_code == 201
    assert len(world.provider.charges) == 1


def test_uncertain_payment_stays_uncertain_until_looked_up(client: FlaskClient, world: World) -> None:
    with world.watched():
        world.moments.plan[5] = die
        world.work()
    world.wait(2 * 86_400)
    reply = post(client, world)
    assert (reply.status_code, reply.headers["Retry-After"]) == (503, "300")
    assert "looked up" in reply.json["error"]
    world.payments.look_up(world.payment.id)
    assert post(client, world).status_code == 201
    assert len(world.provider.charges) == 1


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, "{}", 400),
        ({"Idempotency-Key": "k" * 256}, "{}", 400),
        ({"Idempotency-Key": "k"}, "{}", 401),
        *[
            ({"Idempotency-Key": "k", "X-Merchant": "acme"}, body, 400)
            for body in (
                "",
                "no JSON",
                "[]",
                '"text"',
                '{"cents": 0, "card": "c"}',
                '{"cents": true, "card": "c"}',
                '{"cents": 1.5, "card": "c"}',
                '{"cents": 100000000, "card": "c"}',
                '{"cents": 1, "card": "\\ud800"}',
                '{"cents": 1}',
                "[" * 50_000,
                b"\xff",
            )
        ],
        ({"Idempotency-Key": "k", "X-Merchant": "acme"}, " " * 70_000, 413),
    ],
)
def test_invalid_payment_is_refused(client: FlaskClient, headers: dict[str, str], body: Any, status: int) -> None:
    reply = client.post("/payments", data=body, headers=headers)
    assert reply.status_code == status
