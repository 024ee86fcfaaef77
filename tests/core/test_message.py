"""What a message must be, and what it derives."""

from __future__ import annotations

import dataclasses
import enum
import sys
import uuid
from typing import Any

import pytest

from onewrite import InvalidMessage, Message, sortable
from onewrite.message import full_name


def test_message_is_frozen_and_slotted() -> None:
    message: Any = Message("m1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.id = "m2"
    assert not hasattr(message, "__dict__")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"id": ""}, "Message.id is empty"),
        ({"id": None}, "Message.id: expected a str, got a NoneType"),
        ({"id": 1}, "Message.id: expected a str, got a int"),
        ({"source": None}, "Message.source: expected a str"),
        ({"sequence": True}, "Message.sequence: .*got a bool.*sortable"),
        ({"sequence": 1.0}, "Message.sequence: .*got a float.*sortable"),
        ({"sequence": 10**640}, "Message.sequence must have fewer than 640 digits.*sortable"),
        ({"sequence": -(10**5000)}, "Message.sequence must have fewer than 640 digits.*sortable"),
        ({"parts": "stock"}, "Message.parts: expected a tuple"),
        ({"parts": ("a", b"b")}, "Message.part: expected a str, got a bytes"),
    ],
)
def test_field_of_wrong_type_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidMessage, match=said):
        Message(**{"id": "m1", **fields})


@pytest.mark.parametrize("name", ["id", "source", "sequence"])
def test_lone_surrogate_is_refused(name: str) -> None:
    fields: dict[str, Any] = {"id": "m1", name: "a\ud800"}
    with pytest.raises(InvalidMessage, match=rf"Message\.{name} contains a lone surrogate"):
        Message(**fields)
    with pytest.raises(InvalidMessage, match=r"Message\.part contains a lone surrogate"):
        Message("m1").part("a\ud800")


def test_a_childs_key_never_changes_between_versions() -> None:
    # A payment API may still hold keys that an older version handed out.
    assert Message("evt-1").child("charge") == "3e6726b9-86e8-50eb-9064-a04250e8e9f9"
    namespace = uuid.UUID("6b1d2f0e-5f0a-4c5e-9d53-0f6f6e657772")
    assert Message("é").child("") == str(uuid.uuid5(namespace, "1:é"))
    assert Message("m1", source="é").child("charge") == str(uuid.uuid5(namespace, "of 2:m11:é charge"))
    part = Message("m1", source="s").part("stock").part("log")
    assert part.child("charge") == str(uuid.uuid5(namespace, "of 2:m11:s5:stock3:log charge"))
    assert Message("m1").part("stock").child("charge") == str(uuid.uuid5(namespace, "of 2:m10:5:stock charge"))


class Kind(str, enum.Enum):  # noqa: UP042  # a StrEnum's text is its value
    """Its text in an f-string is the member's name, in some versions of Python."""

    PAID = "paid"


def test_enum_member_is_accepted_as_its_value() -> None:
    named, plain = Message(Kind.PAID, source=Kind.PAID, sequence=Kind.PAID), Message("paid", source="paid", sequence="paid")
    assert {type(text) for text in (named.id, named.source, named.sequence)} == {str}
    assert named.part(Kind.PAID).child(Kind.PAID) == plain.part("paid").child("paid")


# --- parts ------------------------------------------------------------------------------------------------------------


def test_part_differs_from_its_message_only_in_parts() -> None:
    message = Message("m1", source="s", sequence=3, body={"n": 1}, attributes={"a": "b"})
    assert message.part("stock") == dataclasses.replace(message, parts=("stock",))
    assert message.parts == ()


# --- sortable ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "found"), [(-1, "a negative number"), ("1", "a str"), (True, "a bool")])
def test_only_ints_from_zero_have_a_sortable_text(value: Any, found: str) -> None:
    with pytest.raises(InvalidMessage, match=rf"sortable\(n\): n is {found}\. Pass an int"):
        sortable(value)


@pytest.mark.parametrize("limit", [640, 0])
def test_longest_sequence_fits_into_a_log_line(limit: int) -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(limit)
    try:
        assert full_name(Message("m", sequence=-(10**639))).startswith("message m, sequence -1000")
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize(
    ("n", "text"), [(0, "#110"), (9, "#119"), (10, "#1210"), (10**9, "#2101000000000"), (10**99, "#3100" + str(10**99))]
)
def test_sortable_text_never_changes_between_versions(n: int, text: str) -> None:
    assert sortable(n) == text


@pytest.mark.parametrize("name", ["id", "source", "sequence"])
@pytest.mark.parametrize("letter", ["x", "é", "€"])
def test_ledger_strings_have_a_maximum_length(name: str, letter: str) -> None:
    most = 2048 // len(letter.encode())
    longest: dict[str, Any] = {"id": "m", name: letter * most}
    assert Message(**longest)
    longer: dict[str, Any] = {"id": "m", name: letter * (most + 1)}
    with pytest.raises(InvalidMessage, match=rf"Message\.{name} must have at most 2048 bytes, got .*digest"):
        Message(**longer)
    with pytest.raises(InvalidMessage, match=r"Message\.part must have"):
        Message("m").part(letter * (most + 1))
