"""The label by which an entity says how its ledger or its outbox is kept, and what is wrong where it says something else. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from onewrite.errors import ConfigurationError, LedgerMismatch

FORMAT = "ow1"  # the version of what is stored
OURS = "ow_"  # begins every name that we store, and no name of the caller's
MOVED_LABEL = f"{FORMAT} > "  # how a label begins that says where the ledger is now
_OUTBOX_LABEL = f"{FORMAT} outbox "  # how the label of an outbox begins. Its name follows
_LABEL = "l"
_OTHER_VERSION = re.compile(r"ow\d+ .*", re.DOTALL)
# How the names of one ledger begin. The name that the user gave it may be there, and no source is before its colon.
PREFIX = r"ow_(?:[A-Za-z0-9_-]{1,32}:)?"
_LABELS = re.compile(rf"{PREFIX}{_LABEL}")
_NAMES = re.compile("[A-Za-z0-9_-]{1,32}")
# How the label of a `SeenIds` says for how long ids are kept, and whether as text.
IDS_LAYOUT = re.compile(r"(?:(?P<count>\d+)(?P<unit>d|h|m|s|us)|all)(?P<text> text)?")
BY_HAND = "messageIDs"  # where handlers keep a set of ids by hand, unless the user says otherwise
# These three are the same in every store, whatever its ledger: a store must see what another one has left there.
TOMBSTONE = "ow_tombstone"  # there in what is left of an entity that was deleted
STEPS = "ow_steps"  # which messages have begun a step and not finished it
STEP = "ow_step_"  # on DynamoDB begins the name of each such step
TOKEN = "ow_t"  # noqa: S105  # the call that wrote last: by it a call recognizes its own write when the response was lost


def plain(text: str) -> str:
    """Return the text itself. For a member of an Enum, an f-string may show the member's name instead."""
    return str.__str__(text)


def is_ours(name: str) -> bool:
    """Whether onewrite reserves this name for itself."""
    return name.startswith(OURS)


def make_label_name(name: str) -> str:
    """Return the name of the attribute with the label of the ledger of that name. The ledger is known by it, as a set of the caller's is by its attribute."""
    return f"{OURS}{plain(name)}:{_LABEL}" if name else f"{OURS}{_LABEL}"


def make_name_prefix(attribute: str) -> str:
    """Return the prefix of all names that a ledger stores, given its label; for a set of the caller's, of the names next to the set."""
    return attribute.removesuffix(_LABEL) if is_ours(attribute) else OURS


@lru_cache(maxsize=64)
def ledger_name(attribute: str) -> str:
    """Return the text that distinguishes a ledger's steps and events from those of another: its name, or "@" and its set."""
    return attribute[len(OURS) : -len(_LABEL)].removesuffix(":") if is_ours(attribute) else f"@{attribute}"


def ledger_attribute(text: str) -> str:
    """Return the attribute of the ledger with this `ledger_name`."""
    return text[1:] if text.startswith("@") else make_label_name(text)


class Slot(NamedTuple):
    """A place in the entity, independent of any engine: the name of a group, and a key in it ("" means the whole group)."""

    group: str
    key: str = ""


class Label(NamedTuple):
    """The text in `slot` says how a ledger is kept. It must be absent, or one of `accepts`; then it is `text`."""

    slot: Slot
    text: str
    accepts: tuple[str, ...]
    layout: str  # how this store keeps this ledger, or kept it before


class OutboxNames(NamedTuple):
    """The top-level attributes or fields in which an entity's outbox is kept. They are the same in every store."""

    label: str = "ow_o"
    events: str = "ow_events"
    sent_count: str = "ow_sent"
    incarnation: str = "ow_life"
    due: str = "ow_due"
    shard: str = "ow_shard"


OUTBOX = OutboxNames()


def outbox_label(name: str) -> str:
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


def check_outbox(label: str | None, fields: Mapping[str, object], *, null_is_absent: bool = True) -> None:
    """Raise unless the outbox in an entity's fields has this label, or is absent. None: any outbox will do.

    `null_is_absent`: as the filters of MongoDB take it.
    """
    text, events = fields.get(OUTBOX.label), fields.get(OUTBOX.events, [])
    is_absent = text is None and (null_is_absent or OUTBOX.label not in fields)
    if is_absent and OUTBOX.events not in fields:
        return
    if is_absent or (is_outbox_label(text) and not isinstance(events, list)):
        raise LedgerMismatch(
            f"{OUTBOX.events!r} holds something other than events, and no outbox of this version put that there: another writer uses the "
            "attribute. Repair the entity."
        )
    if not is_outbox_label(text):
        if is_other_version(text):
            raise LedgerMismatch(other_version(OUTBOX.label, text))
        raise LedgerMismatch(
            f"{OUTBOX.label!r} holds {text!r}, and no outbox of this version put that there: another writer uses the attribute. Repair "
            "the entity."
        )
    if label not in (None, text):
        raise LedgerMismatch(_other_name(str(text).removeprefix(_OUTBOX_LABEL), str(label).removeprefix(_OUTBOX_LABEL)))


def _other_name(stored_name: str, store_name: str) -> str:
    return (
        f"The outbox of this entity is Outbox({stored_name!r}), and this one is Outbox({store_name!r}): consumers know events by that name, and would "
        f"take the same event for another one. Use {stored_name!r}. To rename an outbox, let a relay of the old name publish all that is pending "
        f"while nobody emits, remove {', '.join(OUTBOX)} from the entities, and deploy the new name to writers and relays: "
        "their events are of another source then, and are counted from 1 again."
    )


def is_other_version(text: object) -> bool:
    """Whether this is a label of another version of the format."""
    return isinstance(text, str) and not text.startswith(f"{FORMAT} ") and _OTHER_VERSION.fullmatch(text) is not None


def other_version(attribute: str, text: object) -> str:
    return f"{attribute!r} is labelled {text!r}, and this version of onewrite knows {FORMAT!r} only: use the version that wrote it."


def is_label(text: object) -> bool:
    return isinstance(text, str) and text.startswith(f"{FORMAT} ")


def mismatch(label: Label, text: object) -> str:
    attribute = label.slot.group
    if not is_label(text) or str(text).startswith(MOVED_LABEL):
        return unread(attribute, text)
    layout = str(text).removeprefix(f"{FORMAT} ")
    constructor = _constructor(layout, attribute)
    if constructor is None:
        return unknown_layout(attribute, layout)
    return (
        f"The ledger in {attribute!r} of this entity is kept as {layout!r}, and this store keeps {label.layout.removeprefix(f'{FORMAT} ')!r}: "
        f"it would not see the messages that are there. If that one was used before, name it in also={constructor}, and "
        "keep it there while such entities may get a message. If both are in use, as by two services, give this one a name of its own."
    )


def unknown_layout(attribute: str, layout: str) -> str:
    """Return the message for a label whose layout this version of onewrite does not know."""
    return (
        f"The ledger in {attribute!r} is kept as {layout!r}, and this version of onewrite does not know that layout: it would not see the "
        "messages that are there. Use the version that wrote it."
    )


def unread(attribute: str, text: object) -> str:
    """Return the message for a label that does not name the layout of a ledger."""
    if is_other_version(text):
        return other_version(attribute, text)
    if not is_label(text):
        return f"{attribute!r} holds {text!r}, which no ledger of this version has put there: another writer uses the name. Repair the entity."
    return (
        f"The ledger of this entity has moved from {attribute!r} to {str(text).removeprefix(MOVED_LABEL)!r}, and this store does not look "
        "there. Deploy the new ledger to every writer, or name it in also=."
    )


def _constructor(layout: str, attribute: str) -> str | None:
    """Return the call that makes a ledger of this layout. None: this version does not know the layout."""
    name = f"name={ledger_name(attribute)!r}" if ledger_name(attribute) else ""
    if layout == "marks":
        return f"HighWaterMark({name})"
    ids = IDS_LAYOUT.fullmatch(layout)
    if ids is None:
        return None
    units = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "us": "microseconds"}
    retention = "retention=None" if ids["unit"] is None else f"timedelta({units[ids['unit']]}={ids['count']})"
    return f"SeenIds({', '.join(filter(None, [retention, name, 'readable=True' if ids['text'] else '']))})"


def check_name(name: object) -> None:
    """Raise unless a ledger may have this name, or none."""
    if not isinstance(name, str) or (name and not _NAMES.fullmatch(name)):
        raise ConfigurationError(
            f"name={name!r}: give a ledger that stands beside another one up to 32 letters, digits, '_' or '-', such as 'billing'. It is part "
            "of every name that the ledger stores."
        )


_FORBIDDEN = frozenset("$\0.")


def may_be_callers(name: str) -> bool:
    """Whether the caller may choose this name for an attribute that onewrite stores."""
    return name not in ("", "_id") and not _FORBIDDEN & set(name) and not is_ours(name)


def check_attribute(attribute: object) -> None:
    """Raise unless the caller may choose this name for an attribute that onewrite stores."""
    if not isinstance(attribute, str) or not may_be_callers(attribute):
        raise ConfigurationError(
            f"{attribute!r} cannot stand at the top of an entity: give the name of an attribute or a field without any of . $ in it, which does "
            f"not begin with {OURS}."
        )
