"""What an entity remembers about messages. Pure: no engine, no clock, no I/O.

A ledger answers `entry(message, now)`: what must the entity lack, what does it gain, what may go? The engines write that in
their own language. Where a write is refused they look up what is stored, and `Entry.judge` says what that means.

What is stored is fixed by docs/format.md. Each ledger puts a label into the entity beside its marks, which says how the marks
are kept: a store that is set up otherwise would look in the wrong place and let a message in twice, so it is refused.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn, Protocol, cast

from onewrite.core.label import FORMAT, MOVED_LABEL, Label, Slot, is_ours
from onewrite.core.ledgers.entry import Advance, Change, Entry, Remember, Sets, Terms
from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.message import Message


class Ledger(Protocol):
    """What the engines, and other ledgers, need to know of a ledger."""

    @property
    def attribute(self) -> str: ...
    @property
    def also(self) -> Ledger | tuple[Ledger, ...]: ...
    @property
    def layout(self) -> str: ...
    @property
    def skew(self) -> timedelta | None: ...
    @property
    def terms(self) -> Terms: ...
    @property
    def remedy(self) -> str: ...
    def entry(self, message: Message, now: float) -> Entry: ...


class _NoLedger:
    """Stands where a store has none. Nothing is guarded there, so whatever would be is refused."""

    attribute = layout = remedy = ""
    also = ()
    skew = None
    terms = Terms("", (), frozenset(), (), ())

    def entry(self, message: Message, now: float) -> NoReturn:  # noqa: ARG002  # as every ledger has it
        raise ConfigurationError(
            "This store has no ledger, so nothing would tell a redelivery from a fresh message: give it one, or write to it "
            "in transact(message, [store.updating(...), ...], inbox=Inbox(...))."
        )


NO_LEDGER = _NoLedger()
# What a write asks and gains that takes part in a transaction without a ledger of its own: nothing.
UNGUARDED = Entry(NO_LEDGER.terms, Remember(Sets(Slot(""), (), (), bytes), b""))


def check_ledger(ledger: object) -> None:
    """Raise unless this is a ledger that a store may use."""
    if isinstance(ledger, type):
        raise ConfigurationError(f"{ledger.__name__} is the class, and a store needs a ledger: write {ledger.__name__}().")
    if not isinstance(getattr(ledger, "terms", None), Terms):  # a collection of pymongo has attributes of any name
        raise ConfigurationError(f"{ledger!r} is no ledger: give SeenIds(), HighWaterMark(), InSequence() or MessageIds().")


# --- what all entries of a ledger have in common ----------------------------------------------------------------------


def make_terms(ledger: Ledger) -> Terms:
    """Return what all writes under this ledger ask, whatever their message."""
    by_attribute: dict[str, dict[str, Ledger]] = {}
    for member in (ledger, *list_earlier_ledgers(ledger.also)):
        by_attribute.setdefault(member.attribute, {}).setdefault(f"{FORMAT} {member.layout}", member)
    attributes = tuple(by_attribute)
    labels = [
        _label(ledger.attribute, name, tuple(texts), attributes) for name, texts in by_attribute.items() if is_ours(name)
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


def _label(present: str, attribute: str, texts: tuple[str, ...], attributes: tuple[str, ...]) -> Label:
    """A ledger that moved leaves a label where it was, so a store that knows no other is refused.

    It is accepted where the ledger is now as well, so a deployment can be taken back. A set of the caller's has no label.
    """
    moved_texts = tuple([f"{MOVED_LABEL}{name}" for name in attributes if name != attribute])
    text = texts[0] if attribute == present else f"{MOVED_LABEL}{present}"
    return Label(Slot(attribute), text, tuple(dict.fromkeys([text, *texts, *moved_texts])), texts[0])


def list_earlier_ledgers(also: object) -> list[Ledger]:
    """Return the ledgers before this one, and those before them."""
    ledgers = cast("tuple[object, ...]", also if isinstance(also, tuple) else (also,))
    for ledger in ledgers:
        check_ledger(ledger)
    members = cast("tuple[Ledger, ...]", ledgers)
    return [member for ledger in members for member in (ledger, *list_earlier_ledgers(ledger.also))]


def make_looks(terms: Terms, message: Message, now: float) -> tuple[Change, ...]:
    """Return what the ledgers in also= must lack. A mark of theirs must only be below the message's, whatever they count."""
    owns = [earlier_entry(message, now).own for earlier_entry in terms.earlier_entries]
    return tuple([Advance(own.slot, own.mark, "below") if isinstance(own, Advance) else own for own in owns])


# --- misuse -----------------------------------------------------------------------------------------------------------


def check_message(message: object) -> None:
    if not isinstance(message, Message):
        raise InvalidMessage(
            f"A guarded write takes the Message first, and got a {type(message).__name__}: write Message(id), with the key, filter or document "
            "behind it. message.child() is a key for others; for a second write of one message to one entity give it message.part(name)."
        )
