"""The label by which an entity says how its ledger or its outbox is kept, and what is wrong where it says something else. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from onewrite.errors import ConfigurationError, LedgerMismatch

FORMAT = "ow1"  # the version of what is stored
_OUTBOX_LABEL = f"{FORMAT} outbox "  # how the label of an outbox begins. Its name follows
_SUFFIX = "_ledger"
DEFAULTS = ("messageIDs", "events")  # the attributes of ledgers that are given none: of ids, and of numbers
# These three are the same in every store, whatever its ledger: a store must see what another one has left there.
TOMBSTONE = "ow_tombstone"  # there in what is left of an entity that was deleted
STEPS = "ow_steps"  # which messages have begun a step and not finished it
STEP = "ow_step_"  # on DynamoDB begins the name of each such step
_SHARED = re.compile(rf"{TOMBSTONE}|{STEPS}|{STEP}[0-9a-f]{{20}}")


def is_shared(name: str) -> bool:
    """Is this one of the names that all stores keep for themselves?"""
    return name.startswith("ow_") and _SHARED.fullmatch(name) is not None


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


class OutboxNames(NamedTuple):
    """The top-level attributes or fields in which an entity's outbox is kept. They are the same in every store."""

    label: str = f"outbox{_SUFFIX}"
    events: str = "outbox_events"
    sent: str = "outbox_sent"
    incarnation: str = "outbox_incarnation"
    due: str = "outbox_due"
    shard: str = "outbox_shard"


OUTBOX = OutboxNames()
OUTBOX_ATTRIBUTE = "outbox"


def outbox_label(name: str) -> str:
    """The label of the outbox of that name."""
    return f"{_OUTBOX_LABEL}{name}"


def is_outbox_label(text: object) -> bool:
    return isinstance(text, str) and text.startswith(_OUTBOX_LABEL)


def label_slot(attribute: str) -> Slot:
    return Slot(f"{attribute}{_SUFFIX}")


def labelled_attribute(name: str, text: object) -> str | None:
    """The attribute whose ledger has its label in the field of that name, if it is a label."""
    return name.removesuffix(_SUFFIX) if name.endswith(_SUFFIX) and is_label(text) else None


class Labelled(NamedTuple):
    """What has left its label among the fields of an entity."""

    ledgers: set[str]  # the attributes of ledgers
    plain: set[str]  # names that are wholly ours: those of the ledgers that hold ids themselves, and all names of the outbox


def labelled(fields: Iterable[tuple[str, object]]) -> Labelled:
    found = {attribute: text for name, text in fields if (attribute := labelled_attribute(name, text)) is not None}
    plain = {attribute for attribute, text in found.items() if shows_plain_set(text)}
    if is_outbox_label(found.get(OUTBOX_ATTRIBUTE)):
        del found[OUTBOX_ATTRIBUTE]
        plain.update(OUTBOX)
    return Labelled({*found}, plain)


def has_pending(fields: Mapping[str, object]) -> bool:
    """Is something pending in the entity's outbox?"""
    return is_outbox_label(fields.get(OUTBOX.label)) and bool(fields.get(OUTBOX.events))


def check_outbox(label: str | None, held: Mapping[str, object], *, null_is_absent: bool = True) -> None:
    """Raise unless the outbox in an entity's fields has this label, or is absent. None: any outbox will do.

    `null_is_absent`: as the filters of MongoDB take it.
    """
    found, events = held.get(OUTBOX.label), held.get(OUTBOX.events, [])
    absent = found is None and (null_is_absent or OUTBOX.label not in held)
    if absent and OUTBOX.events not in held:
        return
    if absent or (is_outbox_label(found) and not isinstance(events, list)):
        raise LedgerMismatch(
            f"{OUTBOX.events!r} holds something else than events, and no outbox of this version put that there: another writer uses the "
            "attribute. Repair the entity."
        )
    if not is_outbox_label(found):
        raise LedgerMismatch(
            f"{OUTBOX.label!r} holds {found!r}, and no outbox of this version put that there: another writer uses the attribute. Repair "
            "the entity."
        )
    if label not in (None, found):
        raise LedgerMismatch(_other_name(str(found).removeprefix(_OUTBOX_LABEL), str(label).removeprefix(_OUTBOX_LABEL)))


def _other_name(held: str, ours: str) -> str:
    return (
        f"The outbox of this entity is Outbox({held!r}), and this one is Outbox({ours!r}): consumers know events by that name, and would "
        f"take the same event for another one. Use {held!r}. To rename an outbox, let a relay of the old name publish all that is pending "
        "while nobody emits, remove the outbox from the entities (onewrite strip --attribute outbox), and deploy the new name to writers "
        "and relays: their events are of another source then, and are counted from 1 again."
    )


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
    if span == "numbers":
        return f"SeenNumbers({text}, {attribute!r})"
    unit = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "us": "microseconds"}.get(span.lstrip("0123456789"))
    retention = "None" if unit is None else f"timedelta({unit}={span.rstrip('dhmsu')})"
    return f"SeenIds({retention}, {attribute!r}{', readable=True' if text else ''})"


_FORBIDDEN = frozenset("$\0.@")


def check_attribute(attribute: object) -> None:
    """Raise unless this can name what we keep in an entity."""
    if not isinstance(attribute, str) or not attribute or attribute == "_id" or _FORBIDDEN & set(attribute):
        raise ConfigurationError(
            f"attribute={attribute!r}: name a top-level field of the entity that nothing else uses, without any of . $ @ in it."
        )
