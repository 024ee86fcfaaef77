"""Writes a guarded write down for DynamoDB: what each part asks in the condition and adds to the update, beside the caller's own. Pure.

Every slot of a ledger is a top-level attribute, because a nested path could not be created and written in one request. Names
that an expression takes as they are go into it as they are: each placeholder costs 5 to 10 microseconds.

Two writes of one shape differ in values, and in the name of a source, only: their text is written once, and kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder

from onewrite.core.flow import Call
from onewrite.core.label import OURS, OUTBOX, STEPS, TOKEN, TOMBSTONE, Label
from onewrite.core.ledgers.entry import Advance, Change, Entry, Remember, Terms
from onewrite.core.step import step_mark
from onewrite.core.write import Begins, Finishes, NoStep, NoStepAtAll, Withdraws, Write
from onewrite.dynamodb.expression import (
    OUR_PREFIXES,
    check_limits,
    merge_update,
    read_condition,
    read_update,
)
from onewrite.dynamodb.layout import name_of, name_of_step
from onewrite.dynamodb.values import Convert, Members, sendable
from onewrite.errors import InvalidMessage, InvalidUpdate

# A name of this form needs no placeholder: no reserved word has an underscore.
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*_\w*", re.ASCII)
_OURS = re.compile(r"[#:]ow_\w+")
_LOWEST, _HIGHEST = -(10**38), 10**38  # DynamoDB numbers have 38 digits
_WIDE_ITEM = "to create an item of so many attributes, use update_item with ConditionExpression='attribute_not_exists(...)' of its key"
LEGACY = frozenset({"AttributeUpdates", "Expected", "ConditionalOperator"})
_MOST_TEXTS = 1024  # texts: as many as the caller's source code has calls, for each moment of a ledger's ring


# --- the requests ------------------------------------------------------------------------------------------------------


def guard_update(write: Write, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """The caller's update with our parts beside it."""
    if "Item" in native:
        raise InvalidUpdate("update_item takes no Item: give it an UpdateExpression, or create with put_item.")
    native, names, values, text = _merge(write, native, convert)
    our_names, our_values = names_and_values(write)
    if text.names:
        our_names = {**text.names, **our_names}
    if text.placeholders is not None:
        # A step asks less of the ledger than a write, and DynamoDB refuses what no expression uses.
        our_names, our_values = _select(text.placeholders, our_names), _select(text.placeholders, our_values)
    kwargs: dict[str, Any] = {**native, "UpdateExpression": text.update, "ConditionExpression": text.condition}
    if names or our_names:
        kwargs["ExpressionAttributeNames"] = {**names, **our_names}
    else:  # DynamoDB refuses an empty map
        kwargs.pop("ExpressionAttributeNames", None)
    kwargs["ExpressionAttributeValues"] = {**convert({**values, **our_values}), **text.values}
    kwargs["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    if "Key" in native:  # without it, the driver says what is missing
        kwargs["Key"] = convert(checked_key(native))
    return Call("update_item", (), kwargs)


def guard_put(write: Write, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """A put that creates an item, and never replaces one."""
    item = mapping_of(native, "Item")
    if not item:
        raise InvalidUpdate("put_item needs the Item to create.")
    _check_roots(write.entry.terms, {}, item)
    native, names, values, text = _merge(write, native, convert)
    our_names, plain_values = names_and_values(write)
    keys, our_values = possible_keys(item), {**text.values, **convert(plain_values)}
    condition = " AND ".join([*[f"attribute_not_exists({key})" for key in keys], text.condition])
    check_limits("ConditionExpression", condition, _WIDE_ITEM)
    placeholders = frozenset(_OURS.findall(text.our_condition))
    kwargs = {
        **native,
        "Item": {**convert(item), **_initial(write, our_values), **convert(stored_outbox(write))},
        "ConditionExpression": condition,
        "ExpressionAttributeNames": {**names, **keys, **_select(placeholders, {**text.names, **our_names})},
        "ExpressionAttributeValues": {**convert(values), **_select(placeholders, our_values)},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    return Call("put_item", (), kwargs)


def guard_record(write: Write, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """An update of an existing item that changes nothing but its ledger."""
    return _if_there(guard_update(write, {name: native[name] for name in ("TableName", "Key") if name in native}, convert))


def guard_begin(write: Write, native: Mapping[str, Any], convert: Convert = sendable) -> Call:
    """The begin of a step, in an item that is there."""
    for name in ("UpdateExpression", "ReturnValues", "Item"):
        if name in native:
            raise InvalidUpdate(
                f"begin changes nothing but the step: leave out {name}, which is for the write that finishes it."
            )
    return _if_there(guard_update(write, native, convert))


def _if_there(call: Call) -> Call:
    keys = {f"#ow_k{n}": name for n, name in enumerate(call.kwargs.get("Key", ()))}
    key_condition = " AND ".join([f"attribute_exists({key})" for key in keys])
    names = {**call.kwargs.get("ExpressionAttributeNames", {}), **keys}
    condition = f"{key_condition} AND {call.kwargs['ConditionExpression']}"
    return call._replace(kwargs={**call.kwargs, "ConditionExpression": condition, "ExpressionAttributeNames": names})


def possible_keys(item: Mapping[str, Any]) -> dict[str, str]:
    """Placeholders for the attributes that may be the key, since the call does not say which are.

    An item that is there has its key: so the condition asks that none of these attributes is there.
    """
    keys = [name for name, value in item.items() if not isinstance(value, bool | AbstractSet | Mapping | list | None)]
    return {f"#ow_k{n}": name for n, name in enumerate(keys)}


def _select(placeholders: frozenset[str], entries: Mapping[str, Any]) -> dict[str, Any]:
    return {placeholder: value for placeholder, value in entries.items() if placeholder in placeholders}


# --- the text, which is the same for all writes of a shape ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Text:
    """The expressions of all writes of one shape. `placeholders`: ours in them, where a write's names and values are more than that."""

    update: str
    condition: str
    our_condition: str  # our part of the condition
    names: Mapping[str, str]
    values: Mapping[str, Any]
    placeholders: frozenset[str] | None


_texts: dict[Any, _Text] = {}


def _merge(
    write: Write, native: Mapping[str, Any], convert: Convert
) -> tuple[Mapping[str, Any], Mapping[str, str], Mapping[str, Any], _Text]:
    """The caller's call, its names and values, and the expressions with ours merged in."""
    only_if = native.get("ConditionExpression")
    if isinstance(only_if, ConditionBase):
        native = with_condition_text(native)
        only_if = native["ConditionExpression"]
    names, values = mapping_of(native, "ExpressionAttributeNames"), mapping_of(native, "ExpressionAttributeValues")
    update = native.get("UpdateExpression")
    step, token, emission, burial = write.step, write.token, write.emission, write.burial
    shape = (  # what decides the text: first of our parts, then of the caller's call
        write.entry.shape,
        token is None,
        None if emission is None else emission.shape,
        (type(step), type(step) is Finishes and step.overtaken),
        len(write.other_messages),
        None if burial is None else (burial.tombstone.ttl, burial.removes),
        convert,
        tuple(native),
        update,
        only_if,
        tuple(names.items()) if names else (),
        tuple(values),
    )
    try:
        text = _texts.get(shape)
    except TypeError:  # a part of the call is not hashable, which is refused below
        text = None
    if text is None:
        text = _text(write, native, names, values, convert)
        if len(_texts) >= _MOST_TEXTS:
            _texts.clear()
        _texts[shape] = text
    return native, names, values, text


def _text(
    write: Write, native: Mapping[str, Any], names: Mapping[str, str], values: Mapping[str, Any], convert: Convert
) -> _Text:
    """Refuse what would touch what is ours or cannot be merged with it, and merge the rest."""
    terms, update, only_if = write.entry.terms, native.get("UpdateExpression"), native.get("ConditionExpression")
    _check_arguments(native, names)
    _check_placeholders([*names, *values])
    user_update = None if update is None else read_update(update)
    if user_update is not None:
        _check_roots(terms, names, user_update.roots)
    parts = parts_of(write)
    our_condition = condition = " AND ".join(parts.asks)
    if only_if is not None:
        user_condition = read_condition(only_if)
        _check_roots(terms, names, user_condition.roots)
        condition = f"{our_condition} AND {user_condition.text}"
    merged_update = merge_update(user_update, parts.clauses)
    check_limits("UpdateExpression", merged_update)
    check_limits("ConditionExpression", condition)
    is_plain = isinstance(write.step, NoStep | NoStepAtAll)
    placeholders = None if is_plain else frozenset(_OURS.findall(f"{merged_update} {condition}"))
    return _Text(merged_update, condition, our_condition, parts.words.names, convert(parts.values), placeholders)


class Words:
    """Writes attribute names into an expression: as they are where the language allows that, otherwise as placeholders."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        return name if _WORD.fullmatch(name) else self._placeholder(name)

    def short(self, name: str) -> str:
        """For a name that stands in the expression again and again."""
        placeholders = [placeholder for placeholder, value in self.names.items() if value == name]
        return placeholders[0] if placeholders else self._placeholder(name)

    def _placeholder(self, name: str) -> str:
        placeholder = f"#ow_{len(self.names)}"
        self.names[placeholder] = name
        return placeholder


@dataclass(slots=True)
class Parts:
    """What all parts of a write ask of an item, each member to be joined by AND, and what they add to the clauses of the update."""

    words: Words = field(default_factory=Words)
    asks: list[str] = field(default_factory=list[str])
    sets: list[str] = field(default_factory=list[str])
    adds: list[str] = field(default_factory=list[str])
    removes: list[str] = field(default_factory=list[str])
    deletes: list[str] = field(default_factory=list[str])
    values: dict[str, Any] = field(default_factory=dict[str, Any])  # that are the same for all messages

    @property
    def clauses(self) -> dict[str, str]:
        clauses = {"SET": self.sets, "ADD": self.adds, "REMOVE": self.removes, "DELETE": self.deletes}
        return {name: ",".join(members) for name, members in clauses.items() if members}


def parts_of(write: Write) -> Parts:
    """What the parts of a write ask and add."""
    parts, entry, step, emission, burial = Parts(), write.entry, write.step, write.emission, write.burial
    parts.values |= constants(entry.terms)
    # --- what they ask
    if isinstance(step, Finishes | Withdraws):
        # The fence alone says that the effect is this worker's to record.
        parts.asks.append("#ow_x.#ow_xf=:ow_f")
    else:
        parts.asks.append(f"attribute_not_exists({TOMBSTONE})")
        if isinstance(step, NoStepAtAll):
            parts.asks.append(f"attribute_not_exists({STEPS})")
        else:
            parts.asks += [f"NOT contains({STEPS},{mark})" for mark in _step_values_of(0, len(entry.terms.attributes))]
    parts.asks += fits_labels(entry.terms, parts.words)
    if isinstance(step, Finishes):
        parts.asks += _is_in_order(entry.own, overtaken=step.overtaken)
    elif write.other_messages:
        parts.asks += _lets_several_in(entry, parts.words, 0 if isinstance(step, NoStepAtAll) else len(write.other_messages))
    else:
        parts.asks += [condition for n, change in enumerate(entry.changes) for condition in _lets_in(change, n, parts.words)]
    # --- what they add
    if isinstance(step, Withdraws):
        parts.removes.append("#ow_x")
        parts.deletes.append(f"{STEPS} :ow_xs")
        return parts
    parts.sets += [f"{parts.words(name_of(label.slot))}=:ow_l{n}" for n, label in enumerate(entry.terms.labels)]
    if isinstance(step, Begins):
        parts.sets.append("#ow_x=:ow_x")
        parts.adds.append(f"{STEPS} :ow_xs")
    else:
        _add_mark(entry, parts, overtaken=isinstance(step, Finishes) and step.overtaken)
        if isinstance(step, Finishes):
            parts.removes.append("#ow_x")
            parts.deletes.append(f"{STEPS} :ow_xs")
        parts.sets.append(f"{TOKEN}=:ow_a")
    if emission is not None and write.asks_outbox:
        _add_outbox(parts, emission.shape.label, emits=bool(emission.events))
    if burial is not None:
        parts.sets.append(f"{TOMBSTONE}=:ow_t")
        names = {"#ow_t": burial.tombstone.ttl, **{f"#ow_r{n}": name for n, name in enumerate(burial.removes)}}
        parts.removes += names
        parts.words.names |= names
    return parts


# --- the ledger: what it asks --------------------------------------------------------------------------------------------


def fits_labels(terms: Terms, words: Words) -> list[str]:
    """The ledger must be kept as this store keeps it."""
    asks: list[str] = []
    for n, label in enumerate(terms.labels):
        name = words(name_of(label.slot))
        equal = [f"{name}={value}" for value in _label_values(n, label)]
        asks.append(f"({' OR '.join([f'attribute_not_exists({name})', *equal])})")
    return asks


def _lets_in(change: Change, n: int, words: Words) -> list[str]:
    match change:
        case Remember():
            names = [words(name_of(slot)) for slot in change.sets.live]
            return [f"NOT contains({name},{mark})" for name in names for mark in _spellings(change, n)]
        case Advance():
            return [_is_past(change, n)]


def _lets_several_in(entry: Entry, words: Words, steps_of_others: int) -> list[str]:
    """What the ledger asks of several messages. One NOT for all, and short names, leave room for twice as many."""
    ledgers, changes = len(entry.terms.attributes), [*enumerate(entry.changes)]
    exclusions = [f"contains({STEPS},{mark})" for n in range(1, 1 + steps_of_others) for mark in _step_values_of(n, ledgers)]
    advances: list[str] = []
    for n, change in changes:
        if isinstance(change, Remember):
            names = [words.short(name_of(slot)) for slot in change.sets.live]
            exclusions += [f"contains({name},{mark})" for name in names for mark in _spellings(change, n)]
        else:
            advances.append(_is_past(change, n))
    return [*advances, *([f"NOT ({' OR '.join(exclusions)})"] if exclusions else [])]


def _is_in_order(change: Change, *, overtaken: bool) -> list[str]:
    """What the finish of a step asks of the ledger. A mark that others have moved on stays where it is."""
    if isinstance(change, Remember):
        return []
    return ["#ow_m0>=:ow_m0" if overtaken else _is_past(change, 0)]


def _spellings(change: Remember, n: int) -> list[str]:
    return [f":ow_m{n}", *[f":ow_m{n}_{alias}" for alias in range(len(change.aliases))]]


def _is_past(change: Advance, n: int) -> str:
    mark, absent = f"#ow_m{n}", f"attribute_not_exists(#ow_m{n})"
    if change.rule != "below":
        is_next = f"{mark}={_value_before(n)}"
        return is_next if change.rule == "next" else f"({absent} OR {is_next})"
    is_before = f"{mark}<{_first_value(change, n)}"
    if change.has_digits:
        is_before = f"(size({mark})=:ow_n{n} AND {mark}>=:ow_z AND {is_before})"
    return f"({absent} OR {is_before})"


def _value_before(n: int) -> str:
    """The value just before the first of a source that counts."""
    return f":ow_p{n}" if n else ":ow_p"


def _first_value(change: Advance, n: int) -> str:
    """The value of the first sequence of a source, where the mark moves on to the last one."""
    return f":ow_m{n}" if change.last is None else f":ow_f{n}"


def _step_values_of(n: int, ledgers: int) -> list[str]:
    """The marks of the steps that the n-th message may have open: one for each attribute of a ledger."""
    first = f":ow_o{n or ''}"
    return [first, *[f":ow_o{n}_{place}" for place in range(1, ledgers)]]


def _label_values(n: int, label: Label) -> list[str]:
    return [f":ow_l{n}", *[f":ow_l{n}_{place}" for place in range(1, len(label.accepts))]]


def constants(terms: Terms) -> dict[str, str]:
    """The values of the labels."""
    values: dict[str, str] = {}
    for n, label in enumerate(terms.labels):
        values.update(zip(_label_values(n, label), label.accepts, strict=True))
    return values


# --- the ledger and the outbox: what they add -----------------------------------------------------------------------------


def _add_mark(entry: Entry, parts: Parts, *, overtaken: bool) -> None:
    change, words = entry.own, parts.words
    if isinstance(change, Remember):
        parts.removes += [words(name_of(slot)) for slot in entry.dead]
        parts.adds.append(f"{words(name_of(change.sets.present))} :ow_s")
    elif not overtaken:
        parts.sets += [f"#ow_m{n}=:ow_m{n}" for n in range(len(entry.written_changes))]


def _add_outbox(parts: Parts, label: str, *, emits: bool) -> None:
    word = parts.words
    name, events, due, shard = word(OUTBOX.label), word(OUTBOX.events), word(OUTBOX.due), word(OUTBOX.shard)
    # The entity's outbox must be ours, or not there at all: what stands in its place would be appended to.
    parts.asks.append(f"({name}=:ow_ol OR (attribute_not_exists({name}) AND attribute_not_exists({events})))")
    parts.values[":ow_ol"] = label
    if emits:
        parts.values[":ow_on"] = []
        parts.sets += [
            f"{name}=:ow_ol",
            f"{events}=list_append(if_not_exists({events},:ow_on),:ow_oe)",
            # Both stay as the oldest event has set them: the index shows its age, and an entity stays in one partition.
            f"{due}=if_not_exists({due},:ow_od)",
            f"{shard}=if_not_exists({shard},:ow_os)",
        ]


# --- the names and values of one write -----------------------------------------------------------------------------------


def names_and_values(write: Write) -> tuple[dict[str, str], dict[str, Any]]:
    """The names that contain the source or the mark of a step, and the values, of this write, by their placeholders."""
    entry, step, emission = write.entry, write.step, write.emission
    gain = entry.own
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    if write.token is not None:
        values[":ow_a"] = write.token
    if isinstance(step, NoStep | Begins):
        for n, message in enumerate((write.message, *write.other_messages)):
            marks = [step_mark(ledger, message) for ledger in entry.terms.attributes]
            values.update(zip(_step_values_of(n, len(marks)), marks, strict=True))
    if isinstance(step, Begins | Finishes | Withdraws):
        mark = step_mark(entry.terms.attribute if isinstance(step, Begins) else step.ledger, write.message)
        names |= {"#ow_x": name_of_step(mark), "#ow_xf": "fence"}
        values[":ow_xs"] = Members((mark,))
        if isinstance(step, Begins):
            _check_digits(write.message.sequence)  # which the step keeps, also where the ledger does not look at it
        values |= {":ow_x": step.step.as_fields()} if isinstance(step, Begins) else {":ow_f": step.fence}
    if emission is not None and emission.events:
        values |= {":ow_oe": [*emission.events], ":ow_od": emission.due, ":ow_os": emission.shard}
    if write.burial is not None:
        values[":ow_t"] = write.burial.tombstone.as_fields()
    if type(gain) is not Advance:
        values[":ow_s"] = Members((gain.mark, *[change.mark for change in entry.more]) if entry.more else (gain.mark,))
    for n, change in enumerate((gain, *entry.more, *entry.also)):
        if type(change) is Remember:
            values[f":ow_m{n}"] = change.mark
            for alias, alias_mark in enumerate(change.aliases):
                values[f":ow_m{n}_{alias}"] = alias_mark
        else:
            names[f"#ow_m{n}"] = name_of(change.slot)
            values |= _values_of_mark(change, n)
    return names, values


def _values_of_mark(change: Advance, n: int) -> dict[str, str | int]:
    mark, last = change.mark, change.last
    _check_digits(mark)
    values: dict[str, str | int] = {f":ow_m{n}": mark}
    if last is not None:
        _check_digits(last)
        values[f":ow_m{n}"] = last
    if type(mark) is str and change.has_digits:
        values |= {f":ow_n{n}": len(mark), ":ow_z": "0"}
    if change.rule != "below":
        values[_value_before(n)] = before = int(mark) - 1
        _check_digits(before)
    elif last is not None:
        values[_first_value(change, n)] = mark
    return values


def check_looks(entry: Entry) -> None:
    """Refuse a message of which a write would look for a mark that cannot be stored, where this write does not look for it."""
    for change in entry.also:
        if type(change) is Advance:
            _check_digits(change.mark)


def _check_digits(mark: int | str | None) -> None:
    if type(mark) is int and not _LOWEST < mark < _HIGHEST:
        raise InvalidMessage(f"Sequence {mark} has more than the 38 digits of a DynamoDB number: use onewrite.sortable(n).")


def _initial(write: Write, our_values: Mapping[str, Any]) -> dict[str, Any]:
    """The ledger of a new entity, its values being those of the request."""
    entry, change = write.entry, write.entry.own
    ledger = {name_of(label.slot): our_values[f":ow_l{n}"] for n, label in enumerate(entry.terms.labels)}
    ledger[TOKEN] = our_values[":ow_a"]
    if isinstance(change, Remember):
        return {**ledger, name_of(change.sets.present): our_values[":ow_s"]}
    return {**ledger, name_of(change.slot): our_values[":ow_m0"]}


def stored_outbox(write: Write) -> dict[str, Any]:
    """The outbox of a new entity."""
    emission = write.emission
    if emission is None or not emission.events:
        return {}
    return {
        OUTBOX.label: emission.shape.label,
        OUTBOX.events: [*emission.events],
        OUTBOX.due: emission.due,
        OUTBOX.shard: emission.shard,
    }


# --- the caller's part ---------------------------------------------------------------------------------------------------


def with_condition_text(native: Mapping[str, Any]) -> Mapping[str, Any]:
    """The call with its condition as text, where it was made with boto3's Attr."""
    expression = ConditionExpressionBuilder().build_expression(native["ConditionExpression"])
    placeholders_of = {
        "ExpressionAttributeNames": expression.attribute_name_placeholders,
        "ExpressionAttributeValues": expression.attribute_value_placeholders,
    }
    result: dict[str, Any] = {**native, "ConditionExpression": expression.condition_expression}
    for name, placeholders in placeholders_of.items():
        user_entries = mapping_of(native, name)
        for placeholder in placeholders:
            if placeholder in user_entries:
                raise InvalidUpdate(f"boto3's Attr makes the placeholder {placeholder} for itself: give yours another name.")
        if placeholders:
            result[name] = {**user_entries, **placeholders}
    return result


def mapping_of(native: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value: Any = native.get(name)
    if not value:
        return {}
    mapping: Mapping[str, Any] = value
    if type(value) is not dict and not isinstance(value, Mapping):
        raise _type_error(name, value, "a dict")
    return mapping


def _type_error(name: str, value: object, remedy: str) -> InvalidUpdate:
    return InvalidUpdate(f"{name} is a {type(value).__name__}: give it {remedy}.")


def _check_arguments(native: Mapping[str, Any], names: Mapping[str, object]) -> None:
    for name in native:
        if name in LEGACY:
            raise InvalidUpdate(f"{name} is the old way, which DynamoDB does not mix with expressions: write expressions.")
    for expression in ("UpdateExpression", "ConditionExpression"):
        if not isinstance(native.get(expression), str | None):
            raise _type_error(expression, native[expression], "text")
    for placeholder, attribute in names.items():
        if not isinstance(attribute, str):
            raise _type_error(f"ExpressionAttributeNames[{placeholder!r}]", attribute, "an attribute's name")


def _check_placeholders(placeholders: Iterable[object]) -> None:
    for placeholder in placeholders:
        if not isinstance(placeholder, str):
            raise _type_error(repr(placeholder), placeholder, "the name of a placeholder or an attribute")
        if placeholder.startswith(OUR_PREFIXES):
            raise InvalidUpdate(f"The placeholder {placeholder} begins as the ledger's own do: give it another name.")


def checked_key(native: Mapping[str, Any]) -> Mapping[str, Any]:
    """The caller's key, which has no name of ours."""
    key = mapping_of(native, "Key")
    for name in key:
        if type(name) is str and name.startswith(OURS):
            raise touches_ours(name)
    return key


def _check_roots(terms: Terms, names: Mapping[str, str], roots: Iterable[str]) -> None:
    _check_placeholders(roots)
    for root in roots:
        name = names.get(root, root)
        if name.startswith(OURS):
            raise touches_ours(name)
        if name in terms.plain_sets:
            raise InvalidUpdate(
                f"This call touches {name!r}, in which the store's ledger keeps ids: leave it out, or give MessageIDs another attribute."
            )


def touches_ours(name: str) -> InvalidUpdate:
    return InvalidUpdate(
        f"This call touches {name!r}: every name that begins with {OURS} is onewrite's own, in every entity. Leave it out, or give yours "
        "another name."
    )
