"""A cache for the requests of usual writes. Pure. Without it, requests are the same, but take longer to build.

Usual writes differ only by the values of their message and call. A `Form` is their common part. It contains no value of a message, and is the
key of the cache. For each form, an engine builds the request of one sample with its plain code, and `cut` makes a template of it. `fill` then
puts a write's own values in the place of the sample's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from onewrite.core.label import FORMAT, Slot
from onewrite.core.ledgers.entry import Advance, Entry, Remember, Rule, Sets, Terms
from onewrite.core.ledgers.seen_ids import hash_message
from onewrite.core.write import NO_EFFECT, Emission, Write
from onewrite.message import Message


class MarkKind(NamedTuple):
    """The part of an `Advance` that is in a request's text: the group of its slot, its rule, and the spelling of its mark."""

    group: str
    rule: Rule
    is_number: bool
    floor: str | None


class Form(NamedTuple):
    """The common part of usual writes.

    - `place`: the sets that gain the mark, or the kind of mark that advances
    - `outbox`: the label of the outbox that gains events, and whether there are several
    """

    terms: Terms
    place: Sets | MarkKind
    outbox: tuple[str, bool] | None
    has_token: bool


def read_form(write: Write) -> Form | None:
    """Return the form of the write, or None if the write isn't usual."""
    entry, emission = write.entry, write.emission
    if (
        not len(write.messages) == len(entry.checked) == len(entry.terms.attributes) == 1
        or write.effect is not NO_EFFECT
        or write.burial is not None
    ):
        return None
    own = entry.checked[0]
    outbox: tuple[str, bool] | None = None
    is_text = type(own.mark) is str
    if emission is not None and emission.events:
        outbox = emission.label, len(emission.events) > 1
        shared = {emission.due, emission.shard}  # equal values share a place in the request
        if own.mark in shared or (isinstance(own.mark, int) and own.mark - 1 in shared):
            return None
    if is_text and str(own.mark).startswith(FORMAT):  # the mark can be equal to a label
        return None
    if type(own) is Remember:
        if own.aliases:
            return None
        return Form(entry.terms, own.sets, outbox, write.token is not None)
    if own.is_numeral:  # its length is in the request
        return None
    kind = MarkKind(own.slot.group, own.rule, not is_text, own.floor if is_text else None)
    return Form(entry.terms, kind, outbox, write.token is not None)


_SAMPLE = Message("sample")
_SAMPLE_EVENT = {"id": "sample event"}
_SAMPLE_NUMBER = -(2**62)  # which every engine can store


def make_sample(form: Form) -> Write:
    """Return a write of this form. Its values are unique in its request."""
    place = form.place
    if isinstance(place, Sets):
        own: Remember | Advance = Remember(place, hash_message(_SAMPLE) if place.has_hashes else "sample mark")
    else:
        own = Advance(
            Slot(place.group, "sample"), _SAMPLE_NUMBER if place.is_number else f"{place.floor or ''}mark", place.rule
        )
    emission = None
    if form.outbox is not None:
        label, has_several = form.outbox
        emission = Emission(label, [_SAMPLE_EVENT] * (1 + has_several), due="sample due", shard=-1)
    token = "sample token" if form.has_token else None
    return Write((_SAMPLE,), {}, 0.0, Entry(form.terms, (own,), (own,)), NO_EFFECT, emission, token)


def list_values(write: Write) -> list[Any]:
    """Return the values of a usual write that come from its message or its call, in an order that depends only on the form.

    The first two are the hash of the message's effect, and the mark.
    """
    mark, emission = write.entry.checked[0].mark, write.emission
    values: list[Any] = [*write.hash_effects(*write.messages), mark]
    if type(mark) is int:
        values.append(mark - 1)
    if write.token is not None:
        values.append(write.token)
    if emission is not None and emission.events:
        values += (emission.due, emission.shard, emission.events, emission.events[0])
    return values


class Blank(NamedTuple):
    """The place of a value in a template: its place in the list of values."""

    place: int


class OpenDict(NamedTuple):
    """A dict of a template. `blanks`: the members that have a blank. `members` are the others, in the order of all."""

    members: dict[Any, Any]
    blanks: Sequence[tuple[Any, Any]]


class OpenList(NamedTuple):
    """A list of a template, which has a blank."""

    members: Sequence[Any]


def cut(node: Any, values: Sequence[Any]) -> Any:
    """Return a template: the node of a request with a blank in the place of each of these values. A part without them stays the same."""
    if node in values:
        return Blank(values.index(node))
    if isinstance(node, dict):
        pairs = [(cut(name, values), cut(member, values)) for name, member in cast("dict[Any, Any]", node).items()]
        members = {name: member for name, member in pairs if not isinstance(name, Blank)}
        blanks = [(name, member) for name, member in pairs if isinstance(name, Blank) or has_blank(member)]
        return OpenDict(members, blanks) if blanks else members
    if isinstance(node, list):
        parts = [cut(part, values) for part in cast("list[Any]", node)]
        return OpenList(parts) if any(map(has_blank, parts)) else parts
    return node


def has_blank(template: Any) -> bool:
    """Whether the template has a blank."""
    return isinstance(template, Blank | OpenDict | OpenList)


def fill(template: Any, values: Sequence[Any]) -> Any:
    """Return the template with these values in its blanks."""
    if isinstance(template, Blank):
        return values[template.place]
    if isinstance(template, OpenDict):
        filled = template.members.copy()
        for name, member in template.blanks:
            value = (
                values[member.place] if isinstance(member, Blank) else fill(member, values)
            )  # without a call, in most cases
            filled[values[name.place] if isinstance(name, Blank) else name] = value
        return filled
    return [fill(part, values) for part in template.members] if isinstance(template, OpenList) else template
