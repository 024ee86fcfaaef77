"""Events as they are stored, and what is refused before anything is sent."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from datetime import date
from decimal import Context, Decimal, Inexact, Overflow, localcontext
from typing import Any, cast
from uuid import UUID

import pytest

from onewrite import ConfigurationError, Event, InvalidUpdate, Message, Outbox
from onewrite.core.features.event import as_json, make_emitter
from tests.core.test_message import Kind

NOW = 1_790_000_000.123
M1 = Message("m1")
OUTBOX = Outbox("o")


def _emitted(*events: Event, message: Message = M1, outbox: Outbox = OUTBOX, call: str = "call") -> list[dict[str, str]]:
    return [*make_emitter(outbox, "ow_l").emit([message], [*events], NOW, call).events]


def _body(body: Any, outbox: Outbox = OUTBOX) -> str:
    return _emitted(Event("A", body), outbox=outbox)[0]["body"]


@dataclasses.dataclass
class Line:
    sku: str
    price: Decimal


@dataclasses.dataclass
class Counted:
    counts: dict[str, int]


class Model:
    """As pydantic's models do it."""

    def model_dump(self, *, mode: str) -> dict[str, str]:
        return {"mode": mode}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"name": "é", "none": None, "list": [1, 2.5, True]}, '{"name":"é","none":null,"list":[1,2.5,true]}'),
        (Decimal("12.50"), "12.5"),
        (Decimal("1E+2"), "100"),
        (date(2026, 11, 22), '"2026-11-22"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Line("a", Decimal("0.1")), '{"sku":"a","price":0.1}'),
        (Model(), '{"mode":"json"}'),
        (Counted(defaultdict(int, {"a": 1})), '{"counts":{"a":1}}'),
        ({1: "a", None: [(1, {True: 2})]}, '{"1":"a","null":[[1,{"true":2}]]}'),
        (Decimal(2**53 + 1), "9007199254740993"),
        ("\ufffe\uffff\0", r'"\ufffe\uffff\u0000"'),
    ],
)
def test_a_body_is_stored_as_json(body: Any, text: str) -> None:
    assert _body(body) == text


@pytest.mark.parametrize(
    "body",
    [
        float("nan"),
        Decimal("NaN"),
        Decimal("0.12345678901234567890"),
        Decimal("1E+400"),
        {("a", "b"): 1},
        {1: "a", "1": "b"},
        [({"x": {True: 1, "true": 2}},)],
        Counted(cast("Any", {None: 1, "null": 2})),
        "\ud800",
    ],
    ids=repr,
)
def test_body_without_an_exact_json_form_is_refused(body: Any) -> None:
    with pytest.raises(InvalidUpdate):
        _body({"x": body} if not isinstance(body, dict) else body)


@pytest.mark.parametrize("value", [{1}, Line, Model], ids=["set", "class", "model"])
def test_value_without_json_is_named_by_its_type(value: object) -> None:
    """A default= of the user's that calls as_json for all other types gets this error, too."""
    with pytest.raises(InvalidUpdate, match=rf"JSON has no form for a {type(value).__name__}\b"):
        as_json(value)


def test_decimal_is_exact_in_any_context() -> None:
    with localcontext(Context(prec=3, traps=[Inexact, Overflow])):
        assert _body(Decimal(10**38 - 1)) == "9" * 38
        assert _body(Decimal("1234.5678")) == "1234.5678"


def test_body_too_large_for_the_broker_is_refused_at_emit() -> None:
    outbox = Outbox("o", max_event_bytes=10)
    assert _body("é" * 4, outbox) == '"éééé"'
    with pytest.raises(InvalidUpdate, match="has 12 bytes, but this outbox accepts at most 10"):
        _body("é" * 5, outbox)
    assert _body(1, Outbox("o", max_event_bytes=1)) == "1"


def test_event_ids_are_stable_and_differ_within_a_message() -> None:
    events = [Event("A", 1), Event("A", 1), Event("B", 1), Event("A", 1, name="B"), Event("1 A", 1), Event("A", 2, name="A")]
    ids = [event["id"] for event in _emitted(*events)]
    assert len(set(ids)) == len(events)
    assert [event["id"] for event in _emitted(*events, call="another")] == ids
    assert {event["id"] for event in _emitted(*events, message=M1.part("stock"))}.isdisjoint(ids)


def test_type_can_be_an_enum_member() -> None:
    ours, plain = (
        _emitted(Event(Kind.PAID, 1), Event("B", 1, name=Kind.PAID)),
        _emitted(Event("paid", 1), Event("B", 1, name="paid")),
    )
    assert ours == plain
    assert type(ours[0]["type"]) is str


def test_event_id_does_not_depend_on_position_in_the_list() -> None:
    alone = _emitted(Event("A", 1))[0]["id"]
    assert _emitted(Event("B", 1), Event("A", 1))[1]["id"] == alone
    named = _emitted(Event("A", 1, name="x"))[0]["id"]
    assert _emitted(Event("A", 1), Event("A", 1, name="x"))[1]["id"] == named


def test_two_events_with_one_name_are_refused() -> None:
    with pytest.raises(InvalidUpdate, match="the same name"):
        _emitted(Event("A", 1, name="x"), Event("B", 1, name="x"))


def test_event_has_its_time_cause_and_nonce() -> None:
    first, second = _emitted(Event("A", 1), Event("B", 1, cause="other"))
    assert (first["time"], first["cause"], second["cause"]) == ("2026-09-21T14:13:20.123Z", "m1", "other")
    assert first["nonce"] == second["nonce"] != _emitted(Event("A", 1), call="another")[0]["nonce"]


@pytest.mark.parametrize("emit", [Event("A", 1), "A", [Event("A", 1), None]], ids=repr)
def test_invalid_list_of_events_is_refused(emit: Any) -> None:
    with pytest.raises(InvalidUpdate, match="expected a list of events"):
        make_emitter(OUTBOX, "ow_l").emit([M1], emit, NOW, "call")


@pytest.mark.parametrize("given", ["", None, "\ud800", "é\x85", "é" * 1025], ids=ascii)
def test_event_without_type_is_refused(given: Any) -> None:
    with pytest.raises(InvalidUpdate, match=r"Event\.type"):
        Event(given, None)


@pytest.mark.parametrize("name", ["name", "cause"])
def test_name_and_cause_must_be_strings(name: str) -> None:
    with pytest.raises(InvalidUpdate, match=f"Event.{name} is empty"):
        Event("A", None, **{name: ""})


@pytest.mark.parametrize(
    "arguments",
    [
        *[{"name": name} for name in ("", "a b", 1, "1:2", ":a")],
        *[{"shards": shards} for shards in (0, 1.5)],
        *[{"index": index} for index in ("", 1)],
        *[{"max_event_bytes": size} for size in (0, "100", True)],
        {"default": 5},
    ],
    ids=repr,
)
def test_invalid_outbox_is_refused(arguments: Any) -> None:
    with pytest.raises(ConfigurationError):
        Outbox(**{"name": "o", **arguments})


def test_store_refuses_an_outbox_of_another_type() -> None:
    wrong: Any = "shop/orders"
    with pytest.raises(ConfigurationError, match="expected an Outbox"):
        make_emitter(wrong, "ow_l")
