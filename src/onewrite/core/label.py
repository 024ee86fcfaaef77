"""The label in an entity, which names the layout of its ledger or outbox, and the errors for a different label. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from onewrite.errors import ConfigurationError, LedgerMismatch

FORMAT = "ow1"  # the version of the storage format
OURS = "ow_"  # the prefix of every stored name, and of no name of the caller's
MOVED_LABEL = f"{FORMAT} > "  # the prefix of a label that names the ledger's new place
_OUTBOX_LABEL = f"{FORMAT} outbox "  # the prefix of an outbox's label, followed by the outbox's name
_LABEL = "l"
_OTHER_VERSION = re.compile(r"ow\d+ .*", re.DOTALL)
# The prefix of a ledger's names, with or without the ledger's own name. No source can precede the colon.
PREFIX = r"ow_(?:[A-Za-z0-9_-]{1,32}:)?"
_LABELS = re.compile(rf"{PREFIX}{_LABEL}")
_NAMES = re.compile("[A-Za-z0-9_-]{1,32}")
# The layout of a `SeenIds`: its retention, and whether it stores text.
IDS_LAYOUT = re.compile(r"(?:(?P<count>\d+)(?P<unit>d|h|m|s|us)|all)(?P<text> text)?")
USUAL_SET = "messageIDs"  # the usual attribute for a set of IDs that handlers maintain themselves
# These three names don't depend on the ledger, because every store must see the data of the others.
TOMBSTONE = "ow_tombstone"  # marks a deleted entity
EFFECTS = "ow_effects"  # the messages with an open effect
EFFECT = "ow_effect_"  # the prefix of an open effect's name on DynamoDB
TOKEN = "ow_t"  # noqa: S105  # identifies the last write, so that a call recognizes its own write after a lost response


def plain(text: str) -> str:
    """Return the text itself. An f-string could show an Enum member's name instead."""
    return str.__str__(text)


def is_ours(name: str) -> bool:
    """Whether onewrite reserves this name for itself."""
    return name.startswith(OURS)


def make_label_name(name: str) -> str:
    """Return the attribute with the label of the ledger of that name. It identifies the ledger."""
    return f"{OURS}{plain(name)}:{_LABEL}" if name else f"{OURS}{_LABEL}"


def make_name_prefix(attribute: str) -> str:
    """Return the prefix of all names that a ledger stores, given the attribute of its label.

    Given a caller's own set, which has no label, return the prefix of the names next to it.
    """
    return attribute.removesuffix(_LABEL) if is_ours(attribute) else OURS


@lru_cache(maxsize=64)
def read_ledger_name(attribute: str) -> str:
    """Return the text that distinguishes a ledger's effects and events from a different one's. It is the name, or "@" and the set."""
    return attribute[len(OURS) : -len(_LABEL)].removesuffix(":") if is_ours(attribute) else f"@{attribute}"


def make_ledger_attribute(text: str) -> str:
    """Return the attribute of the ledger with this `read_ledger_name`."""
    return text[1:] if text.startswith("@") else make_label_name(text)


class Slot(NamedTuple):
    """A place in the entity on any engine: the name of a group, and a key in it ("" for the whole group)."""

    group: str
    key: str = ""


class Label(NamedTuple):
    """The label of a ledger. A write requires `slot` to be absent or one of `accepts`, and sets it to `text`."""

    slot: Slot
    text: str
    accepts: tuple[str, ...]
    layout: str  # this ledger's layout, or an earlier ledger's


class OutboxNames(NamedTuple):
    """The top-level attributes or fields of an entity's outbox. They are the same in every store."""

    label: str = "ow_o"
    events: str = "ow_events"
    sent_count: str = "ow_sent"
    incarnation: str = "ow_life"
    due: str = "ow_due"
    shard: str = "ow_shard"


OUTBOX = OutboxNames()


def make_outbox_label(name: str) -> str:
    """Return the label of the outbox of that name."""
    return f"{_OUTBOX_LABEL}{name}"


def is_outbox_label(text: object) -> bool:
    return isinstance(text, str) and text.startswith(_OUTBOX_LABEL)


def is_label_name(name: str) -> bool:
    """Whether this name is that of a ledger's label."""
    return name.startswith(OURS) and _LABELS.fullmatch(name) is not None


def has_pending(fields: Mapping[str, object]) -> bool:
    """Whether an event is pending in the entity's outbox."""
    return is_outbox_label(fields.get(OUTBOX.label)) and bool(fields.get(OUTBOX.events))


def check_outbox(label: str | None, fields: Mapping[str, object], *, is_null_absent: bool = True) -> None:
    """Raise unless the outbox in an entity's fields has this label, or is absent. None accepts any outbox.

    `is_null_absent`: whether null counts as absent, as in MongoDB's filters.
    """
    text, events = fields.get(OUTBOX.label), fields.get(OUTBOX.events, [])
    is_absent = text is None and (is_null_absent or OUTBOX.label not in fields)
    if is_absent and OUTBOX.events not in fields:
        return
    if is_absent or (is_outbox_label(text) and not isinstance(events, list)):
        raise LedgerMismatch(
            f"{OUTBOX.events!r} of the entity doesn't contain an outbox's events, because another writer uses this attribute. Remove the attribute, and "
            "make the other writer use a different name."
        )
    if not is_outbox_label(text):
        if is_other_version(text):
            raise LedgerMismatch(describe_other_version(OUTBOX.label, text))
        raise LedgerMismatch(
            f"{OUTBOX.label!r} of the entity is {text!r}, which isn't an outbox's label. Another writer uses this attribute. Remove the "
            "attribute, and make the other writer use a different name."
        )
    if label not in (None, text):
        stored_name, store_name = [str(name).removeprefix(_OUTBOX_LABEL) for name in (text, label)]
        raise LedgerMismatch(
            f"Outbox mismatch: this entity uses Outbox({stored_name!r}), but the store or relay uses Outbox({store_name!r}). Consumers know "
            f"events by that name, and would take the same event for a different one. Use {stored_name!r}. To rename an outbox, stop all writers, wait until a "
            f"relay of the old name has published the pending events, remove {', '.join(OUTBOX)} from the entities, and deploy the new name to writers "
            "and relays. Events then have a new source, and are counted from 1 again."
        )


def is_other_version(text: object) -> bool:
    """Whether this is a label of a different version of the format."""
    return isinstance(text, str) and not text.startswith(f"{FORMAT} ") and _OTHER_VERSION.fullmatch(text) is not None


def describe_other_version(attribute: str, text: object) -> str:
    """Return the error's text for a label of a different version of the format."""
    return f"{attribute!r} is labelled {text!r}, but this version of onewrite only knows {FORMAT!r}. Use the version that wrote it."


def is_label(text: object) -> bool:
    """Whether this is a label of this version of the format."""
    return isinstance(text, str) and text.startswith(f"{FORMAT} ")


def describe_mismatch(label: Label, text: object, *, has_previous: bool = True) -> str:
    """Return the error's text for an entity whose label isn't the ledger's, with the remedy if the other layout is known.

    Pass `has_previous=False` for an `InSequence`, which can only follow a `HighWaterMark`.
    """
    attribute = label.slot.group
    if not is_label(text) or str(text).startswith(MOVED_LABEL):
        return describe_unread_label(attribute, text, has_previous=has_previous)
    layout = str(text).removeprefix(f"{FORMAT} ")
    remedy = describe_remedy(attribute, layout, has_previous=has_previous)
    if remedy is None:
        return describe_unknown_layout(attribute, layout)
    return (
        f"Ledger mismatch in {attribute!r}: this entity uses layout {layout!r}, but the store uses {label.layout.removeprefix(f'{FORMAT} ')!r}. "
        f"Nothing was written, because the store can't tell which messages the entity has already seen. {remedy}"
    )


def describe_remedy(attribute: str, layout: str, *, has_previous: bool) -> str | None:
    """Return what to do about an entity whose ledger has this layout, or None if this version doesn't know the layout."""
    constructor = write_constructor(layout, attribute)
    if constructor is None:
        return None
    if has_previous:
        remedy = f"pass the old one as previous={constructor} until no entity with the old layout can receive a message"
    else:
        name = read_ledger_name(attribute)
        marks = f"HighWaterMark({f'name={name!r}, ' if name else ''}previous={constructor})"
        remedy = (
            f"use {marks} until every source has a mark and no older message can be redelivered, and InSequence after that"
        )
    return f"If you changed the ledger, {remedy}. If two services write to this entity, give each ledger its own name=."


def describe_unknown_layout(attribute: str, layout: str) -> str:
    """Return the error's text for a label whose layout this version of onewrite doesn't know."""
    return (
        f"Ledger mismatch in {attribute!r}: this entity uses layout {layout!r}, and this version of onewrite doesn't know it. Nothing was "
        "written. Use the version that wrote the entity."
    )


def describe_unread_label(attribute: str, text: object, *, has_previous: bool = True) -> str:
    """Return the error's text for a label that doesn't name the layout of a ledger."""
    if is_other_version(text):
        return describe_other_version(attribute, text)
    if not is_label(text):
        return (
            f"{attribute!r} of the entity is {text!r}, which isn't a ledger's label. Another writer uses this attribute. Remove the attribute, "
            "and make the other writer use a different name."
        )
    return (
        f"Ledger mismatch: the ledger of this entity has moved from {attribute!r} to {str(text).removeprefix(MOVED_LABEL)!r}, which this store "
        f"doesn't read. Nothing was written. Deploy the new ledger to every writer{', or pass it as previous=' if has_previous else ''}."
    )


def write_constructor(layout: str, attribute: str) -> str | None:
    """Return the code that creates a ledger of this layout, or None if this version doesn't know the layout."""
    ledger_name = read_ledger_name(attribute)
    name = f"name={ledger_name!r}" if ledger_name else ""
    if layout == "marks":  # HighWaterMark reads the marks of InSequence too
        return f"HighWaterMark({name})"
    ids = IDS_LAYOUT.fullmatch(layout)
    if ids is None:
        return None
    units = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "us": "microseconds"}
    retention = "retention=None" if ids["unit"] is None else f"timedelta({units[ids['unit']]}={ids['count']})"
    return f"SeenIds({', '.join(filter(None, [retention, name, 'readable=True' if ids['text'] else '']))})"


def check_name(name: object) -> None:
    """Raise unless this is a valid name of a ledger, or empty."""
    if not isinstance(name, str) or (name and not _NAMES.fullmatch(name)):
        raise ConfigurationError(
            f"name={name!r}: expected up to 32 letters, digits, '_' or '-', for example 'billing'. The name is part of every attribute that the "
            "ledger stores."
        )


_FORBIDDEN = frozenset("$\0.")


def is_caller_name(name: str) -> bool:
    """Whether the caller may choose this name for an attribute that onewrite stores."""
    return name not in ("", "_id") and not _FORBIDDEN & set(name) and not is_ours(name)


def check_attribute(attribute: object) -> None:
    """Raise unless the caller may choose this name for an attribute that onewrite stores."""
    if not isinstance(attribute, str) or not is_caller_name(attribute):
        raise ConfigurationError(
            f"{attribute!r} isn't a valid attribute name here: expected a top-level name without '.' and '$' that doesn't begin with {OURS}."
        )
