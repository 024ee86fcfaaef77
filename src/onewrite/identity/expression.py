"""JMESPath expressions that read an id, a source or a sequence from a record.

There is one rule: what such an expression gives is in the record. JMESPath makes texts and numbers of fields that are not there:
`to_string(no)` is "null", `type(no)` too, `no || 'none'` is "none", `sum(lines[*].cents)` is 0. Each would be one id for every
record that lacks the field, of which the first takes effect and the others are deleted as its copies. Nor may two ids become one
by being written alike: `join('-', [a, b])` makes the same of "x-y" with "z" as of "x" with "y-z".

So an expression is checked when it is compiled. It may choose among what the record has, and may look at anything to choose by;
but no result of a literal, a comparison or a computation is an id. A key of several fields is a list, whose parts stay apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, TypeAlias, cast

from onewrite.core.extras import installed_by
from onewrite.errors import ConfigurationError
from onewrite.identity.record import OneMessage, ParseFloat, Record, decoder, kind, message, parse_body, refusal, text
from onewrite.message import Message, join_texts

_Node: TypeAlias = Mapping[str, Any]

_WHOLE = re.compile("[+-]?[0-9]{1,129}")  # as many digits as a sequence number of Kinesis may have
# What they give is one of the things that they are given, or consists of them.
_CHOOSING = frozenset(
    {"map", "max", "max_by", "merge", "min", "min_by", "not_null", "sort", "sort_by", "to_array", "values"}
)
_CONVERTING = {"id": "to_string", "source": "to_string", "sequence": "to_number"}
_LEAVES = frozenset({"current", "field", "identity", "index", "slice"})
_WHOLLY_OF_CHILDREN = frozenset(
    {
        "expref",
        "flatten",
        "index_expression",
        "key_val_pair",
        "multi_select_dict",
        "multi_select_list",
        "or_expression",
        "pipe",
        "projection",
        "subexpression",
        "value_projection",
    }
)
_COMPUTING = {
    "join": "join() makes one text of different fields, as of 'a-b' with 'c' and of 'a' with 'b-c'. Write a list of the fields.",
    "to_string": "to_string() makes texts of numbers, which sort as texts do: '10' before '9'. A whole number is a sequence as it is.",
    "to_number": "to_number() takes different texts for one number. A text is an id or a source as it is.",
}


class _UnfitError(Exception):
    """A function of an expression cannot make anything of what it was given. The message shows no content."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression, and what errors call it. `in_parts`: it is a list of fields, which are one key together."""

    subject: str
    search: Callable[[Any], Any]
    in_parts: bool

    @classmethod
    def of(cls, name: str, expression: object) -> Expression:
        if not isinstance(expression, str):
            raise ConfigurationError(f"{name}={expression!r}: give a JMESPath expression, as a str.")
        tree, search = _compile(name, expression)
        parts = _parts(tree)
        problem = _problem_of(name, tree) if parts is None else _problem_of_parts(name, tree, parts)
        if problem:
            raise ConfigurationError(
                f"{name}={expression!r}: {problem} The {name} must be in the record: name a field, as in 'orderId', or several, as in "
                "'[customerId, orderId]'. For anything else write a function: an identity is any that returns a Message."
            )
        return cls(f"the {name}, JMESPath {expression!r},", search, parts is not None)

    def text(self, record: Record, body: object) -> str:
        value = self._find(record, body)
        if not self.in_parts or value is None:
            return _text_of(record, self.subject, value)
        parts = [_text_of(record, f"part {number} of {self.subject}", part) for number, part in enumerate(value, 1)]
        return join_texts(*parts)

    def position(self, record: Record, body: object) -> int | str:
        value = self._find(record, body)
        return value if type(value) is int else text(record, self.subject, value)

    def _find(self, record: Record, body: object) -> Any:
        try:
            return self.search(body)
        except _UnfitError as error:
            problem = str(error)
        except Exception as error:
            problem = f"cannot be computed from this body ({type(error).__name__})"
        raise refusal(record, f"{self.subject} {problem}.")


def _text_of(record: Record, subject: str, value: object) -> str:
    """A text as it is, and a whole number in decimal digits: 7 and "7" are the same id."""
    if isinstance(value, str) and value:
        return str.__str__(value)
    if type(value) is int:
        with suppress(ValueError):  # Python refuses to write more than some thousand digits
            return str(value)
    raise refusal(record, f"{subject} is {_kind(value)}, but a text that is not empty or a whole number is needed.")


def _kind(value: object) -> str:
    return "a number with a fraction or an exponent" if isinstance(value, float | Decimal) else kind(value)


def _compile(name: str, expression: str) -> tuple[_Node, Callable[[Any], Any]]:
    with installed_by("aws", "json_body"):
        # Imported here, because the other identities do without it. It has no types.
        import jmespath  # type: ignore[import-untyped]  # noqa: PLC0415
        from jmespath.exceptions import JMESPathError, JMESPathTypeError  # type: ignore[import-untyped]  # noqa: PLC0415
    visit, functions = _interpreter()
    invalid = f"{name}={expression!r} is not a valid JMESPath expression: "
    try:
        tree = cast("_Node", jmespath.compile(expression).parsed)
    except JMESPathError as error:
        raise ConfigurationError(f"{invalid}{error}") from error
    for node in _all_of(tree):  # A function may stand where it is called with some records only.
        if node["type"] == "function_expression" and node["value"] not in functions:
            raise ConfigurationError(f"{invalid}there is no function {node['value']}().")
    try:
        visit(tree, None)
    except Exception as error:  # There is no body yet, but a wrong number of arguments is found now.
        if isinstance(error, JMESPathError) and not isinstance(error, JMESPathTypeError):
            raise ConfigurationError(f"{invalid}{error}") from error
    return tree, lambda body: visit(tree, body)


@cache
def _interpreter() -> tuple[Callable[[_Node, Any], Any], frozenset[str]]:
    """What evaluates an expression, and the names of the functions that it knows."""
    from jmespath import Options  # noqa: PLC0415  # as above
    from jmespath.functions import Functions, signature  # type: ignore[import-untyped]  # noqa: PLC0415
    from jmespath.visitor import TreeInterpreter  # type: ignore[import-untyped]  # noqa: PLC0415

    class Strict(Functions):  # type: ignore[misc]  # it has no types
        """JMESPath's functions, of which those that convert refuse what they could only make something up for."""

        @signature({"types": []})  # type: ignore[untyped-decorator]  # as above
        def _func_to_string(self, value: object) -> str:
            if isinstance(value, str):
                return value
            if type(value) is int:
                return str(value)
            raise _UnfitError(f"makes a text of what is {_kind(value)}")

        @signature({"types": []})  # type: ignore[untyped-decorator]  # as above
        def _func_to_number(self, value: object) -> int:
            if type(value) is int:
                return value
            if isinstance(value, str) and _WHOLE.fullmatch(value):
                return int(value)
            kind_of_value = "a text of anything but a whole number" if isinstance(value, str) and value else _kind(value)
            raise _UnfitError(f"makes a number of what is {kind_of_value}")

    visit = cast("Callable[[_Node, Any], Any]", TreeInterpreter(Options(custom_functions=Strict())).visit)
    return visit, frozenset(Strict.FUNCTION_TABLE)


def _all_of(node: _Node) -> Iterator[_Node]:
    yield node
    for child in _children(node):
        yield from _all_of(child)


def _children(node: _Node) -> list[_Node]:
    return [] if node["type"] in _LEAVES else node["children"]


def _problem_of(name: str, node: _Node) -> str | None:
    """Why what this gives need not be in the record. None: whatever it gives is, or is an empty value, which no key may be."""
    match node["type"]:
        case "literal":
            return f"{node['value']!r} would stand for every record that lacks the field."
        case "comparator" | "not_expression":
            return "Whether something is so is the same for many records."
        case "and_expression":  # the left side is what it goes by
            relevant = node["children"][1:]
        case "filter_projection":  # so is the third one
            relevant = node["children"][:2]
        case "function_expression":
            function = node["value"]
            if function not in _CHOOSING and function != _CONVERTING[name]:
                return _COMPUTING.get(function, f"{function}() gives the same for records that have nothing in common.")
            # A function that another one sorts or chooses by is what it goes by; `map` gives what its function does.
            relevant = [child for child in node["children"] if function == "map" or child["type"] != "expref"]
        case kind_of_node if kind_of_node in _WHOLLY_OF_CHILDREN or kind_of_node in _LEAVES:
            relevant = _children(node)
        case unknown_kind:
            return f"onewrite does not know this kind of expression ({unknown_kind})."
    return next((problem for child in relevant if (problem := _problem_of(name, child))), None)


def _parts(node: _Node) -> list[_Node] | None:
    """The expressions of a list that the expression ends in, as [a, b] or order.[a, b] does. None: it ends in no such list."""
    if node["type"] in ("pipe", "subexpression"):
        return _parts(node["children"][-1])
    return node["children"] if node["type"] == "multi_select_list" else None


def _problem_of_parts(name: str, node: _Node, parts: list[_Node]) -> str | None:
    if name == "sequence":
        return "A list has no place in an order."
    parent = node
    while parent["type"] in ("pipe", "subexpression"):  # what the list is read from
        if problem := next(
            (child_problem for child in parent["children"][:-1] if (child_problem := _problem_of(name, child))), None
        ):
            return problem
        parent = parent["children"][-1]
    of_record = [part for part in parts if not _is_wording(part)]
    if not of_record:
        return "No part of the list is of the record."
    return next((problem for part in of_record if (problem := _problem_of(name, part))), None)


def _is_wording(node: _Node) -> bool:
    """Is it a literal in any case, whatever decides which one? As a part of a list it stands beside what is of the record."""
    match node["type"]:
        case "literal":
            return (isinstance(node["value"], str) and node["value"] != "") or type(node["value"]) is int
        case "and_expression":
            return _is_wording(node["children"][1])
        case "or_expression":
            return all(map(_is_wording, node["children"]))
        case _:
            return False


# --- ids in a body of JSON -------------------------------------------------------------------------------------------
#
# Keys that the producer put into the body.


def json_body(
    *, id: str, source: str | None = None, sequence: str | None = None, parse_float: ParseFloat = Decimal
) -> OneMessage:
    """The key is in the JSON body, where JMESPath expressions find it.

    Stable: as stable as what the producer puts there. An order's number stays the same in a redelivery, in a second message
    from a producer that sends twice, after a redrive from a dead-letter queue, and through SNS and EventBridge. Not stable:
    what the producer makes anew each time that it sends, such as the time, or a UUID that it makes for each retry.

    `id` and `source` must find a text that is not empty or a whole number, of which 7 and "7" are the same; `sequence` an int or
    such a text. A list is a key of several fields, each of which must be there and which stay apart: `[customerId, orderId]`. If an
    expression finds nothing or something else, the record fails.

    An expression may choose among fields, as `deliveryId || orderId` does, but not make up a value for a record that lacks them:
    a literal, `join`, `length` and the like are a ConfigurationError, and `to_string` of what is missing fails the record. A number with
    a fraction or an exponent is no key, unless `parse_float` makes a text or an int of it. JMESPath can neither compare nor add
    Decimals: an expression that does either needs `parse_float=float`.

    On a DynamoDB stream the body is the change, as in "NewImage.orderId.S". The key of an envelope can be read too:
    `json_body(id="id")` takes EventBridge's own id, which stays the same however often EventBridge delivers the event.

    >>> record = {"messageId": "b1", "body": '{"order": {"no": "o-7"}, "version": 3}'}
    >>> message = json_body(id="order.no", sequence="version")(record)
    >>> message.id, message.sequence, message.body
    ('o-7', 3, {'order': {'no': 'o-7'}, 'version': 3})
    """
    decode = decoder(parse_float)
    the_id = Expression.of("id", id)
    the_source = None if source is None else Expression.of("source", source)
    the_sequence = None if sequence is None else Expression.of("sequence", sequence)

    def identify(record: Record) -> Message:
        body = parse_body(record, decode)
        return message(
            record,
            the_id.text(record, body),
            source="" if the_source is None else the_source.text(record, body),
            sequence=None if the_sequence is None else the_sequence.position(record, body),
            body=body,
        )

    return identify
