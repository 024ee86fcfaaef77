"""The interface of all ledgers. Pure: no engine, no clock, no I/O.

`Ledger.entry(message, now)` returns the marks that the entity must lack, those that it gains, and the sets to remove. Each engine writes
the entry in its own language. If a write is refused, the engine reads the stored ledger, and `Entry.judge` returns the reason.

docs/format.md specifies the stored data. Next to its marks, each ledger stores a label that names its layout. The label refuses a
store with a different layout, which would search in the wrong place and accept a message twice.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol, cast

from onewrite.core.label import FORMAT, MOVED_LABEL, Label, Slot, is_ours
from onewrite.core.ledgers.entry import Advance, Change, Entry, Terms
from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.message import Message


class Ledger(Protocol):
    """The properties of a ledger that the engines and other ledgers use."""

    @property
    def attribute(self) -> str: ...
    @property
    def previous(self) -> Ledger | tuple[Ledger, ...]: ...
    @property
    def layout(self) -> str: ...
    @property
    def skew(self) -> timedelta | None: ...
    @property
    def terms(self) -> Terms: ...
    @property
    def remedy(self) -> str: ...
    def entry(self, message: Message, now: float) -> Entry: ...


def check_ledger(ledger: object) -> None:
    """Raise unless this is a ledger."""
    if isinstance(ledger, type):
        raise ConfigurationError(f"{ledger.__name__} is a class: expected a ledger. Write {ledger.__name__}().")
    if not isinstance(getattr(ledger, "terms", None), Terms):  # a collection of pymongo has attributes of any name
        raise ConfigurationError(
            f"{ledger!r} isn't a ledger: expected SeenIds(), HighWaterMark(), InSequence(), or IdSet('messageIDs')."
        )


# --- what all entries of a ledger have in common ----------------------------------------------------------------------


def make_terms(ledger: Ledger) -> Terms:
    """Return the terms that all entries of this ledger share."""
    by_attribute: dict[str, dict[str, Ledger]] = {}
    for member in (ledger, *list_earlier_ledgers(ledger.previous)):
        by_attribute.setdefault(member.attribute, {}).setdefault(f"{FORMAT} {member.layout}", member)
    attributes = tuple(by_attribute)
    labels = [
        _make_label(ledger.attribute, name, tuple(texts), attributes)
        for name, texts in by_attribute.items()
        if is_ours(name)
    ]
    return Terms(
        ledger.attribute,
        attributes,
        frozenset([attribute for attribute in attributes if not is_ours(attribute)]),
        labels=tuple(labels),
        earlier_entries=tuple(
            [member.entry for texts in by_attribute.values() for member in texts.values() if member is not ledger]
        ),
    )


def _make_label(present: str, attribute: str, texts: tuple[str, ...], attributes: tuple[str, ...]) -> Label:
    """Return the label for one attribute of the ledger.

    A ledger that moved leaves a label in its old place, which refuses a store that knows only that place. The new place also accepts
    such a label, so that you can roll back. A caller's own set has no label.
    """
    moved_texts = tuple([f"{MOVED_LABEL}{name}" for name in attributes if name != attribute])
    text = texts[0] if attribute == present else f"{MOVED_LABEL}{present}"
    return Label(Slot(attribute), text, tuple(dict.fromkeys([text, *texts, *moved_texts])), texts[0])


def list_earlier_ledgers(previous: object) -> list[Ledger]:
    """Return the ledgers in previous=, and those in their own previous=."""
    ledgers = cast("tuple[object, ...]", previous if isinstance(previous, tuple) else (previous,))
    for ledger in ledgers:
        check_ledger(ledger)
    members = cast("tuple[Ledger, ...]", ledgers)
    return [member for ledger in members for member in (ledger, *list_earlier_ledgers(ledger.previous))]


def make_entry(terms: Terms, own: Change, message: Message, now: float) -> Entry:
    """Return the entry with this change, which must also be new to the ledgers in previous=.

    Marks of those ledgers must only be below the message's, even if they count.
    """
    written = (own,)
    if not terms.earlier_entries:
        return Entry(terms, written, written)
    earlier = [earlier_entry(message, now).own for earlier_entry in terms.earlier_entries]
    below = [Advance(change.slot, change.mark, "below") if isinstance(change, Advance) else change for change in earlier]
    return Entry(terms, written, (own, *below))


# --- misuse -----------------------------------------------------------------------------------------------------------


def check_message(message: object) -> None:
    """Raise unless this is a Message."""
    if not isinstance(message, Message):
        raise InvalidMessage(
            f"A guarded write takes the Message first: expected a Message, got {type(message).__name__}. Pass Message(id) before the key, filter, "
            "or document. message.child() returns a key for other services. For a second write of a message to an entity, pass message.part(name)."
        )
