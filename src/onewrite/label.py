"""The label by which an entity says how its ledger is kept, and what is wrong where it says something else. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

FORMAT = "ow1"  # the version of what is stored
_SUFFIX = "_ledger"


class Slot(NamedTuple):
    """A place in the entity, independent of any engine: the name of a group, and a key in it ("" means the whole group)."""

    group: str
    key: str = ""


class Label(NamedTuple):
    """The text in `slot` says how an attribute's ledger is kept. It must be absent, or one of `accepts`; then it is `text`."""

    slot: Slot
    text: str
    accepts: tuple[str, ...]
    kept: str  # how this store keeps the ledger of this attribute, or kept it before


def label_slot(attribute: str) -> Slot:
    return Slot(f"{attribute}{_SUFFIX}")


def labelled_attribute(name: str, text: object) -> str | None:
    """The attribute whose ledger has its label in the field of that name, if it is a label."""
    return name.removesuffix(_SUFFIX) if name.endswith(_SUFFIX) and is_label(text) else None


def labelled(fields: Iterable[tuple[str, object]]) -> tuple[set[str], set[str]]:
    """The attributes whose ledgers have left their labels among these fields, and those of them that hold ids themselves."""
    found = {attribute: text for name, text in fields if (attribute := labelled_attribute(name, text)) is not None}
    return {*found}, {attribute for attribute, text in found.items() if shows_plain_set(text)}


def is_label(text: object) -> bool:
    return isinstance(text, str) and text.startswith(f"{FORMAT} ")


def shows_plain_set(text: object) -> bool:
    """Does this label say that the attribute itself holds the ids?"""
    return text == f"{FORMAT} all text"


def mismatch(label: Label, found: object) -> str:
    attribute = label.slot.group.removesuffix(_SUFFIX)
    if not is_label(found):
        return f"{label.slot.group!r} holds {found!r}, which no ledger put there: give the ledger another attribute."
    kept = str(found).removeprefix(f"{FORMAT} ")
    if kept.startswith("> "):
        return _moved(attribute, kept)
    return (
        f"The ledger of this entity is kept as {kept!r}, and this store keeps {label.kept.removeprefix(f'{FORMAT} ')!r}: "
        f"it would not see the messages that are there. Name the ledger that was used before in also=, as in "
        f"SeenIds(..., also={_constructor(kept, attribute)}), and keep it there while such entities may get a message."
    )


def _moved(attribute: str, kept: str) -> str:
    return (
        f"The ledger of this entity has moved from {attribute!r} to {kept[2:]!r}, and this store does not look there. Deploy the new "
        "ledger to every writer, or name it in also=."
    )


def other_kind(slot: Slot, found: object) -> str:
    attribute, kept = slot.group.removesuffix(_SUFFIX), str(found).removeprefix(f"{FORMAT} ")
    if kept.startswith("> "):
        return _moved(attribute, kept)
    return (
        f"This entity has a ledger of another kind in {attribute!r}, and this store does not look there. If that one was used "
        f"before, name it in also={_constructor(kept, attribute)}. If both are in use, as by two "
        "services, give each an attribute of its own."
    )


def _constructor(kept: str, attribute: str) -> str:
    """The call that makes the ledger which is kept so."""
    if kept == "marks":
        return f"HighWaterMark(attribute={attribute!r})"
    span, _, text = kept.partition(" ")
    unit = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "us": "microseconds"}.get(span.lstrip("0123456789"))
    retention = "None" if unit is None else f"timedelta({unit}={span.rstrip('dhmsu')})"
    return f"SeenIds({retention}, {attribute!r}{', readable=True' if text else ''})"
