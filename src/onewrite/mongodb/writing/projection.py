"""What a caller's projection may show, and how a look reads what it shows together with what the verdict needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from onewrite.errors import InvalidUpdate
from onewrite.label import OUTBOX, STEPS, TOMBSTONE
from onewrite.ledgers.entry import Entry, Number, Remember, Terms
from onewrite.mongodb.writing.expression import check_path, paths_read, root
from onewrite.mongodb.writing.layout import Document

_OF_A_FIELD = frozenset({"$slice", "$elemMatch", "$meta"})  # what a projection may ask of the field that it names


def check_projection(terms: Terms, projection: object) -> None:
    """Raise if a projection computes something from what onewrite keeps: under a name of the caller's nothing would hide it."""
    for value in _leaves(projection):
        if isinstance(value, str) or (isinstance(value, Mapping) and not _OF_A_FIELD.intersection(cast("Document", value))):
            for path in paths_read(cast("str | Document", value)):
                check_path(terms, tuple(OUTBOX), path)


def looked_at(projection: object, entry: Entry) -> dict[str, Any] | None:
    """What to read in order to judge a message, and to show the entity as find_one_and_update does with this projection."""
    ours = _judged_by(entry)
    named = _as_mapping(projection)
    # A path with a "$" names what the filter has matched in an array, and a look has no such filter. What is ours is read as a whole.
    theirs = {path: value for path, value in named.items() if root(path) not in ours and "$" not in path.split(".")}
    if not any(_includes(path, value) for path, value in named.items()):
        return theirs or None  # to find_one, an empty one is another than none
    return {**theirs, **dict.fromkeys(ours, 1)}


def _judged_by(entry: Entry) -> list[str]:
    """The fields of a document on which a verdict rests."""
    fields = [label.slot.group for label in entry.terms.labels] + [slot.group for slot in entry.terms.no_label]
    fields += [] if entry.terms.no_set is None else [entry.terms.no_set.group]
    for change in entry.changes:
        match change:
            case Remember():
                fields += [slot.group for slot in change.sets.live]
            case Number():
                fields.append(change.tag.group)
            case _:
                fields.append(change.slot.group)
    return [*dict.fromkeys([*fields, STEPS, TOMBSTONE, OUTBOX.label, OUTBOX.events])]


def _as_mapping(projection: object) -> Mapping[str, Any]:
    """A list of names shows these."""
    if isinstance(projection, Mapping):
        return cast("Document", projection)
    if isinstance(projection, str) or not isinstance(projection, Iterable):
        raise InvalidUpdate(f"The projection is a {type(projection).__name__}: give a dict, or a list of names.")
    return dict.fromkeys(cast("Iterable[str]", projection), 1)


def _leaves(projection: object) -> Iterable[Any]:
    for value in _as_mapping(projection).values():
        if isinstance(value, Mapping) and not any(str(name).startswith("$") for name in cast("Document", value)):
            yield from _leaves(cast("Document", value))
        else:
            yield value


def _includes(path: str, value: object) -> bool:
    """Does this make a projection one that shows what it names, and not all but that?"""
    if isinstance(value, Mapping):
        held = cast("Document", value)
        if held.keys() & {"$slice", "$meta"}:
            return False
        is_nested = held and not any(name.startswith("$") for name in held)
        return any(_includes(f"{path}.{name}", each) for name, each in held.items()) if is_nested else True
    return bool(value)
