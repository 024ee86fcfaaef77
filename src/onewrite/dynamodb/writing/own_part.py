"""Our own part of a request's expressions: what the ledger, and a step, ask of an item and add to it. Pure.

Every slot of a ledger is a top-level attribute, because a nested path could not be created and written in one request. Names
that an expression takes as they are go into it as they are: each placeholder costs 5 to 10 microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from onewrite.dynamodb.writing.attempt import Attempt, Part
from onewrite.dynamodb.writing.emit import outbox_values
from onewrite.dynamodb.writing.layout import attempts_name, name_of
from onewrite.dynamodb.writing.values import Members
from onewrite.entry import Advance, AdvanceShape, Remember, RememberShape, Shape, Terms
from onewrite.errors import InvalidMessage
from onewrite.label import STEP, STEPS, TOMBSTONE, Label
from onewrite.ring import Ring

# A name of this form needs no placeholder: no reserved word has an underscore.
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*_\w*", re.ASCII)
_BEYOND = 10**38  # DynamoDB numbers have 38 digits
# The types in which a handler may keep ids by hand.
_COLLECTIONS = {":ow_ss": "SS", ":ow_ns": "NS", ":ow_bs": "BS", ":ow_list": "L"}


class Words:
    """Writes attribute names into an expression: as they are where the language allows that, else as placeholders."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        if _WORD.fullmatch(name):
            return name
        placeholder = f"#ow_{len(self.names)}"
        self.names[placeholder] = name
        return placeholder


def conditions(shape: Shape, words: Words, part: Part, *, exact: bool) -> list[str]:
    """What our part of a request asks of the entity, each member to be joined by AND."""
    ledger = _labelled(shape, words)
    if part in ("finish", "finish overtaken"):
        # The fence alone says that the effect is this worker's to record. A mark that others have moved on stays where it is.
        past = [] if isinstance(shape.changes[0], RememberShape) else [_is_past(shape.changes[0], 0)]
        return ["#ow_x.#ow_xf=:ow_f", *ledger, *(past if part == "finish" else ["#ow_m0>=:ow_m0"])]
    # Hardly any entity has a step open. So a write asks for its own message's, which takes a value, only where there is one.
    own = f"NOT contains({STEPS},:ow_o)" if exact else f"attribute_not_exists({STEPS})"
    parts = [f"attribute_not_exists({TOMBSTONE})", own, *ledger]
    for n, change in enumerate(shape.changes):
        parts.extend(_lacks(change, n, words) if isinstance(change, RememberShape) else [_is_past(change, n)])
    return parts


def _labelled(shape: Shape, words: Words) -> list[str]:
    """The ledger must be kept as this store keeps it."""
    parts: list[str] = []
    for n, label in enumerate(shape.terms.labels):
        name = words(name_of(label.slot))
        equal = [f"{name}={value}" for value in _label_values(n, label)]
        parts.append(f"({' OR '.join([f'attribute_not_exists({name})', *equal])})")
    parts.extend([f"attribute_not_exists({words(name_of(slot))})" for slot in shape.terms.no_label])
    if shape.terms.no_set is not None:
        name = words(name_of(shape.terms.no_set))
        parts.extend([f"NOT attribute_type({name},{kind})" for kind in _COLLECTIONS])
    return parts


def _lacks(change: RememberShape, n: int, words: Words) -> list[str]:
    marks = [f":ow_m{n}", *[f":ow_m{n}_{alias}" for alias in range(change.aliases)]]
    return [f"NOT contains({words(name_of(slot))},{mark})" for slot in change.sets.live for mark in marks]


def _is_past(change: AdvanceShape, n: int) -> str:
    mark, absent = f"#ow_m{n}", f"attribute_not_exists(#ow_m{n})"
    if change.rule == "absent":
        return absent
    if change.rule == "next":
        return f"{mark}=:ow_p"
    below = f"{mark}<:ow_m{n}"
    if change.has_digits:
        below = f"(size({mark})=:ow_n{n} AND {mark}>=:ow_z AND {below})"
    return f"({absent} OR {below})"


def clauses(shape: Shape, ring: Ring, words: Words, part: Part) -> dict[str, str]:
    """What our part of a request adds to the clauses of the update."""
    own = shape.changes[0]
    sets = [f"{words(name_of(label.slot))}=:ow_l{n}" for n, label in enumerate(shape.terms.labels)]
    if part == "begin":
        return {"SET": ",".join([*sets, "#ow_x=:ow_x"]), "ADD": f"{STEPS} :ow_xs"}
    ends = {} if part == "write" else {"DELETE": f"{STEPS} :ow_xs"}
    adds: list[str] = []
    removes = [words(name_of(slot)) for slot in shape.dead] + ["#ow_x" for _ in ends]
    if isinstance(own, RememberShape):
        adds.append(f"{words(name_of(own.sets.present))} :ow_s")
    elif part != "finish overtaken":
        sets.append("#ow_m0=:ow_m0")
    attribute = shape.terms.attribute
    adds.append(f"{words(attempts_name(attribute, ring.present))} :ow_a")
    removes.extend([words(attempts_name(attribute, slot)) for slot in ring.dead])
    return {"SET": ",".join(sets), "ADD": ",".join(adds), "REMOVE": ",".join(removes), **ends}


def _label_values(n: int, label: Label) -> list[str]:
    return [f":ow_l{n}", *[f":ow_l{n}_{other}" for other in range(1, len(label.accepts))]]


def constants(terms: Terms) -> dict[str, str]:
    """The values that are the same for all messages."""
    values = {} if terms.no_set is None else {**_COLLECTIONS}
    for n, label in enumerate(terms.labels):
        values.update(zip(_label_values(n, label), label.accepts, strict=True))
    return values


def names_of_marks(attempt: Attempt) -> dict[str, str]:
    """The names of the attributes that hold marks, by their placeholders. They contain the source."""
    entry = attempt.entry
    if not entry.also:  # the usual case
        return {"#ow_m0": name_of(entry.own.slot)} if isinstance(entry.own, Advance) else {}
    changes = enumerate(entry.changes)
    return {f"#ow_m{n}": name_of(change.slot) for n, change in changes if isinstance(change, Advance)}


def values_of(attempt: Attempt) -> dict[str, Any]:
    """The values of this message."""
    entry = attempt.entry
    values: dict[str, Any] = {":ow_a": Members((attempt.token,))}
    if attempt.exact:
        values[":ow_o"] = attempt.step_mark
    if attempt.part != "write":
        values |= _step_values(attempt)
    if attempt.emission is not None and attempt.emission.events:
        values.update(outbox_values(attempt.emission))
    if isinstance(entry.own, Remember):
        values[":ow_s"] = Members((entry.own.mark,))
    for n, change in enumerate(entry.changes):
        values[f":ow_m{n}"] = change.mark
        if isinstance(change, Remember):
            values.update({f":ow_m{n}_{alias}": mark for alias, mark in enumerate(change.aliases)})
        else:
            values.update(_mark_values(change, n))
    return values


def _step_values(attempt: Attempt) -> dict[str, Any]:
    step = {} if attempt.step is None else {":ow_x": attempt.step.stored()}
    return {":ow_xs": Members((attempt.step_mark,)), ":ow_f": attempt.fence, **step}


def _mark_values(change: Advance, n: int) -> dict[str, str | int]:
    mark = change.mark
    if isinstance(mark, str):
        return {f":ow_n{n}": len(mark), ":ow_z": "0"} if change.has_digits else {}
    if abs(mark) >= _BEYOND:
        raise InvalidMessage(f"Sequence {mark} has more than the 38 digits of a DynamoDB number: use onewrite.sortable(n).")
    return {":ow_p": mark - 1} if change.rule == "next" else {}


def stored_ledger(attempt: Attempt, ours: Mapping[str, Any]) -> dict[str, Any]:
    """What a new entity's ledger looks like, its values being those of the request."""
    entry, own = attempt.entry, attempt.entry.own
    held = {name_of(label.slot): ours[f":ow_l{n}"] for n, label in enumerate(entry.terms.labels)}
    held[attempts_name(entry.terms.attribute, attempt.ring.present)] = ours[":ow_a"]
    if isinstance(own, Remember):
        return {**held, name_of(own.sets.present): ours[":ow_s"]}
    return {**held, name_of(own.slot): ours[":ow_m0"]}


def step_names(attempt: Attempt) -> dict[str, str]:
    """The name of the attribute that holds the message's step, by its placeholder, and those of its members."""
    return {"#ow_x": f"{STEP}{attempt.step_mark.hex()}", "#ow_xf": "fence", "#ow_xu": "until"}
