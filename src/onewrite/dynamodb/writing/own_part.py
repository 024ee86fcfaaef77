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
from onewrite.errors import InvalidMessage
from onewrite.label import STEP, STEPS, TOMBSTONE, Label
from onewrite.ledgers.entry import (
    Advance,
    AdvanceShape,
    Change,
    ChangeShape,
    Number,
    NumberShape,
    Remember,
    RememberShape,
    Shape,
    Terms,
)
from onewrite.ledgers.ring import Ring

# A name of this form needs no placeholder: no reserved word has an underscore.
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*_\w*", re.ASCII)
_BEYOND = 10**38  # DynamoDB numbers have 38 digits


class Words:
    """Writes attribute names into an expression: as they are where the language allows that, else as placeholders."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        return name if _WORD.fullmatch(name) else self._placeholder(name)

    def short(self, name: str) -> str:
        """For a name that stands in the expression again and again."""
        known = [placeholder for placeholder, each in self.names.items() if each == name]
        return known[0] if known else self._placeholder(name)

    def _placeholder(self, name: str) -> str:
        placeholder = f"#ow_{len(self.names)}"
        self.names[placeholder] = name
        return placeholder


def conditions(shape: Shape, words: Words, part: Part, *, exact: bool, more: int = 0) -> list[str]:
    """What our part of a request asks of the entity, each member to be joined by AND.

    `more`: how many other messages the request writes, where it is exact; else only whether it writes any.
    """
    ledger = fits_labels(shape, words)
    if part in ("finish", "finish overtaken"):
        # The fence alone says that the effect is this worker's to record. A mark that others have moved on stays where it is.
        past = _is_in_order(shape.changes[0])
        return ["#ow_x.#ow_xf=:ow_f", *ledger, *(past if part == "finish" else ["#ow_m0>=:ow_m0"])]
    if part == "withdraw":  # a claim without which the message could still be done
        return ["#ow_x.#ow_xf=:ow_f", *ledger, *_lets_all_in(shape, words)]
    # Hardly any entity has a step open. So a write asks for its own message's, which takes a value, only where there is one.
    marks = _step_values_of(0, len(shape.terms.attributes))
    own = [f"NOT contains({STEPS},{mark})" for mark in marks] if exact else [f"attribute_not_exists({STEPS})"]
    parts = [f"attribute_not_exists({TOMBSTONE})", *own, *ledger]
    if more:
        return [*parts, *_ask_of_several(shape, words, more if exact else 0)]
    return [*parts, *_lets_all_in(shape, words)]


def _lets_all_in(shape: Shape, words: Words) -> list[str]:
    return [asked for n, change in enumerate(shape.changes) for asked in _lets_in(change, n, words)]


def _is_in_order(own: ChangeShape) -> list[str]:
    """What the finish of a step asks of the ledger."""
    match own:
        case RememberShape():
            return []
        case AdvanceShape():
            return [_is_past(own, 0)]
        case _:
            return [_fits(own, 0)]


def _lets_in(change: ChangeShape, n: int, words: Words) -> list[str]:
    match change:
        case RememberShape():
            return _lacks(change, n, words)
        case AdvanceShape():
            return [_is_past(change, n)]
        case _:
            return [_fits(change, n), *([] if change.form == "enters" else [f"NOT contains(#ow_n{n},:ow_m{n})"])]


def fits_labels(shape: Shape, words: Words) -> list[str]:
    """The ledger must be kept as this store keeps it."""
    parts: list[str] = []
    for n, label in enumerate(shape.terms.labels):
        name = words(name_of(label.slot))
        equal = [f"{name}={value}" for value in _label_values(n, label)]
        parts.append(f"({' OR '.join([f'attribute_not_exists({name})', *equal])})")
    return parts


def _lacks(change: RememberShape, n: int, words: Words) -> list[str]:
    return [f"NOT contains({words(name_of(slot))},{mark})" for slot in change.sets.live for mark in _spellings(change, n)]


def _ask_of_several(shape: Shape, words: Words, steps_of_others: int) -> list[str]:
    """What the ledger asks of several messages. One NOT for all, and short names, leave room for twice as many."""
    ledgers = len(shape.terms.attributes)
    found = [f"contains({STEPS},{mark})" for n in range(1, 1 + steps_of_others) for mark in _step_values_of(n, ledgers)]
    for n, change in enumerate(shape.changes):
        if isinstance(change, RememberShape):
            names = [words.short(name_of(slot)) for slot in change.sets.live]
            found.extend([f"contains({name},{mark})" for name in names for mark in _spellings(change, n)])
        elif isinstance(change, NumberShape):  # of a ledger in also=, which is only looked at
            found.append(f"contains(#ow_n{n},:ow_m{n})")
    past = [_is_past(change, n) for n, change in enumerate(shape.changes) if isinstance(change, AdvanceShape)]
    fits = [_fits(change, n) for n, change in enumerate(shape.changes) if isinstance(change, NumberShape)]
    return [*past, *fits, *([f"NOT ({' OR '.join(found)})"] if found else [])]


def _step_values_of(n: int, ledgers: int) -> list[str]:
    """The marks of the steps that the n-th message may have open: one for each attribute of a ledger."""
    own = f":ow_o{n or ''}"
    return [own, *[f":ow_o{n}_{other}" for other in range(1, ledgers)]]


def _spellings(change: RememberShape, n: int) -> list[str]:
    return [f":ow_m{n}", *[f":ow_m{n}_{alias}" for alias in range(change.aliases)]]


def _is_past(change: AdvanceShape, n: int) -> str:
    mark, absent = f"#ow_m{n}", f"attribute_not_exists(#ow_m{n})"
    if change.rule != "below":
        before = f"{mark}={_before(n)}"
        return before if change.rule == "next" else f"({absent} OR {before})"
    below = f"{mark}<{_first(change, n)}"
    if change.has_digits:
        below = f"(size({mark})=:ow_n{n} AND {mark}>=:ow_z AND {below})"
    return f"({absent} OR {below})"


def _before(n: int) -> str:
    """The value just before the first of a source that counts."""
    return f":ow_p{n}" if n else ":ow_p"


def _first(change: AdvanceShape, n: int) -> str:
    """The value of the first sequence of a source, where the mark moves on to the last one."""
    return f":ow_f{n}" if change.jumps else f":ow_m{n}"


_SIGNS = {"joins": "=", "enters": "<", "asks": "<=", "overtaken": ">"}


def _fits(change: NumberShape, n: int) -> str:
    """Is the slot's block as the form wants it?"""
    compared = f"#ow_m{n}{_SIGNS[change.form]}:ow_b{n}"
    return f"(attribute_not_exists(#ow_m{n}) OR {compared})" if change.form in ("joins", "asks") else compared


def clauses(shape: Shape, ring: Ring, words: Words, part: Part) -> dict[str, str]:
    """What our part of a request adds to the clauses of the update."""
    own = shape.changes[0]
    sets = [f"{words(name_of(label.slot))}=:ow_l{n}" for n, label in enumerate(shape.terms.labels)]
    if part == "begin":
        return {"SET": ",".join([*sets, "#ow_x=:ow_x"]), "ADD": f"{STEPS} :ow_xs"}
    if part == "withdraw":
        return {"REMOVE": "#ow_x", "DELETE": f"{STEPS} :ow_xs"}
    ends = {} if part == "write" else {"DELETE": f"{STEPS} :ow_xs"}
    adds: list[str] = []
    removes = [words(name_of(slot)) for slot in shape.dead] + ["#ow_x" for _ in ends]
    if isinstance(own, RememberShape):
        adds.append(f"{words(name_of(own.sets.present))} :ow_s")
    elif isinstance(own, NumberShape):
        sets.extend({"joins": ["#ow_m0=:ow_b0"], "enters": ["#ow_m0=:ow_b0", "#ow_n0=:ow_s"]}.get(own.form, []))
        adds.extend(["#ow_n0 :ow_s"] if own.form == "joins" else [])
    elif part != "finish overtaken":
        sets.extend([f"#ow_m{n}=:ow_m{n}" for n in range(shape.written)])
    adds.append(f"{words(attempts_name(shape.terms.attribute, ring.present))} :ow_a")
    # Nobody else empties those of a ledger in also=, once its stores are gone.
    tokens = dict.fromkeys([attempts_name(attribute, slot) for attribute in shape.terms.attributes for slot in ring.dead])
    removes.extend(map(words, tokens))
    return {"SET": ",".join(sets), "ADD": ",".join(adds), "REMOVE": ",".join(removes), **ends}


def _label_values(n: int, label: Label) -> list[str]:
    return [f":ow_l{n}", *[f":ow_l{n}_{other}" for other in range(1, len(label.accepts))]]


def constants(terms: Terms) -> dict[str, str]:
    """The values that are the same for all messages."""
    values: dict[str, str] = {}
    for n, label in enumerate(terms.labels):
        values.update(zip(_label_values(n, label), label.accepts, strict=True))
    return values


def names_of_marks(attempt: Attempt) -> dict[str, str]:
    """The names of the attributes that hold marks, by their placeholders. They contain the source."""
    entry = attempt.entry
    if not entry.also and not entry.more:  # the usual case
        return {} if isinstance(entry.own, Remember) else _names_of(entry.own, 0)
    return {
        placeholder: name for n, change in enumerate(entry.changes) for placeholder, name in _names_of(change, n).items()
    }


def _names_of(change: Change, n: int) -> dict[str, str]:
    match change:
        case Remember():
            return {}
        case Advance():
            return {f"#ow_m{n}": name_of(change.slot)}
        case _:
            tag = {f"#ow_m{n}": name_of(change.tag)}
            return tag if change.form == "overtaken" else {**tag, f"#ow_n{n}": name_of(change.numbers)}


def values_of(attempt: Attempt) -> dict[str, Any]:
    """The values of this message."""
    entry = attempt.entry
    values: dict[str, Any] = {":ow_a": Members((attempt.token,))}
    if attempt.exact:
        for n, marks in enumerate(attempt.step_marks):
            values.update(zip(_step_values_of(n, len(marks)), marks, strict=True))
    if attempt.part != "write":
        values |= _step_values(attempt)
    if attempt.emission is not None and attempt.emission.events:
        values.update(outbox_values(attempt.emission))
    if isinstance(entry.own, Remember | Number):
        values[":ow_s"] = Members([change.mark for change in entry.written] if entry.more else (entry.own.mark,))
    for n, change in enumerate(entry.changes):
        match change:
            case Remember():
                values[f":ow_m{n}"] = change.mark
                for alias, mark in enumerate(change.aliases):
                    values[f":ow_m{n}_{alias}"] = mark
            case Advance():
                values[f":ow_m{n}"] = change.mark
                values.update(_mark_values(change, n))
                values.update({} if change.last is None else _jump_values(change, n))
            case _:
                values.update(_number_values(change, n))
    return values


def _step_values(attempt: Attempt) -> dict[str, Any]:
    step = {} if attempt.step is None else {":ow_x": attempt.step.stored()}
    return {":ow_xs": Members((attempt.step_mark,)), ":ow_f": attempt.fence, **step}


def _mark_values(change: Advance, n: int) -> dict[str, str | int]:
    mark = change.mark
    if isinstance(mark, str):
        return {f":ow_n{n}": len(mark), ":ow_z": "0"} if change.has_digits else {}
    if abs(mark) >= _BEYOND:
        raise _too_many_digits(mark)
    return {} if change.rule == "below" else {_before(n): mark - 1}


def _jump_values(change: Advance, n: int) -> dict[str, str | int]:
    """The values of a mark that moves over several sequences: where it goes, and what it has to be below."""
    if isinstance(change.reaches, int) and abs(change.reaches) >= _BEYOND:
        raise _too_many_digits(change.reaches)
    first = {_first(change.shape, n): change.mark} if change.rule == "below" else {}
    return {f":ow_m{n}": change.reaches, **first}


def _too_many_digits(mark: int) -> InvalidMessage:
    return InvalidMessage(f"Sequence {mark} has more than the 38 digits of a DynamoDB number: use onewrite.sortable(n).")


def _number_values(change: Number, n: int) -> dict[str, int]:
    if change.mark >= _BEYOND:
        raise InvalidMessage(
            f"Sequence {change.mark} has more than the 38 digits of a DynamoDB number, and SeenNumbers keeps nothing else: use SeenIds."
        )
    # DynamoDB refuses a value that no expression uses: a block is entered whatever the slot holds.
    return {f":ow_b{n}": change.block, **({} if change.form == "enters" else {f":ow_m{n}": change.mark})}


def stored_ledger(attempt: Attempt, ours: Mapping[str, Any]) -> dict[str, Any]:
    """What a new entity's ledger looks like, its values being those of the request."""
    entry, own = attempt.entry, attempt.entry.own
    held = {name_of(label.slot): ours[f":ow_l{n}"] for n, label in enumerate(entry.terms.labels)}
    held[attempts_name(entry.terms.attribute, attempt.ring.present)] = ours[":ow_a"]
    if isinstance(own, Remember):
        return {**held, name_of(own.sets.present): ours[":ow_s"]}
    if isinstance(own, Number):
        return {**held, name_of(own.tag): ours[":ow_b0"], name_of(own.numbers): ours[":ow_s"]}
    return {**held, name_of(own.slot): ours[":ow_m0"]}


def step_names(attempt: Attempt) -> dict[str, str]:
    """The name of the attribute that holds the message's step, by its placeholder, and those of its members."""
    return {"#ow_x": f"{STEP}{attempt.step_mark.hex()}", "#ow_xf": "fence", "#ow_xu": "until"}
