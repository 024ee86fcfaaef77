"""What a caller's projection may show, and how a look reads what it shows together with what the verdict needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from onewrite.errors import InvalidUpdate
from onewrite.label import OUTBOX, STEPS, TOMBSTONE
from onewrite.ledgers.entry import Entry, Number, Remember, Terms
from onewrite.mongodb.expression import check_path, paths_read, root
from onewrite.mongodb.layout import Document


def check_projection(terms: Terms, projection: object) -> None:
    """Raise if a projection names what onewrite keeps, or computes something from it: under a name of the caller's nothing would
    hide it.
    """
    for path, value in _as_mapping(projection).items():
        check_path(terms, path)
        _check_value(terms, value)


def _check_value(terms: Terms, value: object) -> None:
    held: Document = cast("Document", value) if isinstance(value, Mapping) else {}
    if held and not any(str(name).startswith("$") for name in held):
        for each in held.values():
            _check_value(terms, each)  # a document of paths
    elif "$meta" in held:
        if held["$meta"] not in ("textScore", "recordId", "geoNearDistance", "geoNearPoint"):
            raise InvalidUpdate(
                f"The projection asks for {held['$meta']!r}, which may come to be what onewrite keeps: leave it out."
            )
    elif "$elemMatch" not in held and not (
        "$slice" in held and _is_of_numbers(held["$slice"])
    ):  # these show the field itself
        for path in paths_read(cast("object", value)):
            check_path(terms, path)


def _is_of_numbers(slices: object) -> bool:
    each = cast("Sequence[object]", slices) if isinstance(slices, list | tuple) else [slices]
    return all(isinstance(number, int | float) for number in each)


def looked_at(projection: object, entry: Entry) -> dict[str, Any] | None:
    """What to read in order to judge a message and to show the entity with this projection. None: that takes two reads.

    It is one read only where it is plain whether the projection names what it shows or what it leaves out.
    """
    ours, named = judged_by(entry), _as_mapping(projection)
    # What is ours is read as a whole. A path with a "$" names what the filter has matched in an array, and a look has no such filter.
    theirs = {path: value for path, value in named.items() if root(path) not in ours and "$" not in path.split(".")}
    if any("$" in path.split(".") for path in named):  # only what names what it shows may have one
        return {**theirs, **dict.fromkeys(ours, 1)}
    if any(type(value) not in (bool, int, float) or value != value or "$" in path for path, value in named.items()):  # noqa: PLR0124  # NaN
        return None
    if any(value for path, value in named.items() if path != "_id" or len(named) == 1):
        return {**theirs, **dict.fromkeys(ours, 1)}
    return theirs


def judged_by(entry: Entry) -> list[str]:
    """The fields of a document on which a verdict rests."""
    fields = [label.slot.group for label in entry.terms.labels]
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
