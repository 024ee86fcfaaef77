"""Reads native DynamoDB expressions just enough to merge onewrite's parts into them, and keeps the caller's text unchanged.

This isn't a complete parser: DynamoDB itself reports errors inside a clause.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from boto3.dynamodb.conditions import ConditionExpressionBuilder

from onewrite.core.label import OURS
from onewrite.core.ledgers.entry import Terms
from onewrite.dynamodb.values import typed_values
from onewrite.errors import InvalidUpdate

LEGACY = frozenset({"AttributeUpdates", "Expected", "ConditionalOperator"})
CLAUSES = ("SET", "REMOVE", "ADD", "DELETE")
PLACEHOLDER_PREFIXES = ("#ow_", ":ow_")  # the prefixes of onewrite's placeholders

# Limits from the AWS documentation, which stand-ins don't enforce.
MAX_EXPRESSION_BYTES = 4096  # bytes as sent, before substitution
MAX_OPERATORS = 300
USE_LESS = "use shorter placeholders, write less at once, give the ledgers shorter names, or name fewer of them in previous="

_LEXEME = re.compile(r"\s*(?:(?P<word>[#:]?\w+)|(?P<sign><>|<=|>=|[=<>+.,()\[\]-]))")
_KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN"})
_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">="})

Lexeme: TypeAlias = tuple[str, int, int]  # text, start, end


class ExpressionTooLong(InvalidUpdate):
    """An expression with more bytes or operators than DynamoDB accepts. A write of several messages is then split."""


@dataclass(frozen=True, slots=True)
class Update:
    """An update expression, split into its clauses. `roots` has the first part of each path in it."""

    clauses: Mapping[str, str]
    roots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition expression. `text` can be combined with AND without further parentheses."""

    text: str
    roots: tuple[str, ...]


def read_update(text: str) -> Update:
    """Split an update expression into its clauses. Raise if it isn't made of whole clauses, each once."""
    lexemes = _read_lexemes("UpdateExpression", text)
    starts = _find_clause_starts(lexemes)
    if not starts or starts[0] != 0:
        raise InvalidUpdate("UpdateExpression doesn't begin with SET, REMOVE, ADD, or DELETE.")
    _check_nesting("UpdateExpression", lexemes, [*starts[1:], len(lexemes)])
    clauses: dict[str, str] = {}
    for n, next_start in zip(starts, [*starts[1:], None], strict=True):
        word, _, begin = lexemes[n]
        clause = word.upper()
        end = len(text) if next_start is None else lexemes[next_start][1]
        members = text[begin:end].strip()
        if clause in clauses:
            raise InvalidUpdate(
                f"UpdateExpression has two {clause} clauses, but DynamoDB accepts one of each. Join them with a comma."
            )
        if not members:
            raise InvalidUpdate(f"UpdateExpression has an empty {clause} clause. Remove it.")
        if members.startswith(",") or members.endswith(","):
            raise InvalidUpdate(f"The {clause} clause of UpdateExpression begins or ends with a comma.")
        clauses[clause] = members
    operands = [lexeme for n, lexeme in enumerate(lexemes) if n not in starts]
    return Update(clauses, _find_roots(operands))


def read_condition(text: str) -> Condition:
    """Read a condition expression. Raise if it's empty or its parentheses don't match."""
    lexemes = _read_lexemes("ConditionExpression", text)
    if not lexemes:
        raise InvalidUpdate("ConditionExpression is empty. Omit it.")
    _check_nesting("ConditionExpression", lexemes, [len(lexemes)])
    # Keep the caller's outer parentheses and add none, because DynamoDB refuses ((x)).
    safe = text.strip() if _is_wrapped(lexemes) else f"({text.strip()})"
    return Condition(safe, _find_roots(lexemes))


def format_update(clauses: Mapping[str, Sequence[str]]) -> str:
    """Return the update expression of these clauses, by the members of each."""
    return " ".join([f"{clause} {','.join(clauses[clause])}" for clause in CLAUSES if clauses.get(clause)])


# The next two cache their results, because expressions are literals in the caller's source code, and no text contains a value.


@lru_cache(maxsize=512)
def join_updates(user_text: str | None, our_clauses: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the update expression with the caller's part of each clause before onewrite's, and the first names of the caller's paths.

    `our_clauses`: onewrite's part of each clause, in the order of `CLAUSES`.
    """
    user_update = Update({}, ()) if user_text is None else read_update(user_text)
    clauses: list[str] = []
    for clause, ours in zip(CLAUSES, our_clauses, strict=True):
        members = [text for text in (user_update.clauses.get(clause), ours) if text]
        if members:
            clauses.append(f"{clause} {', '.join(members)}")
    text = " ".join(clauses)
    check_limits("UpdateExpression", text)
    return text, user_update.roots


@lru_cache(maxsize=512)
def join_conditions(ours: str, user_text: str | None, remedy: str) -> tuple[str, tuple[str, ...]]:
    """Return onewrite's condition together with the caller's, and the first names of the paths in the caller's.

    `remedy` says how to shorten the text.
    """
    user_condition = Condition("", ()) if user_text is None else read_condition(user_text)
    text = " AND ".join(filter(None, (ours, user_condition.text)))
    check_limits("ConditionExpression", text, remedy)
    return text, user_condition.roots


def check_limits(name: str, text: str, remedy: str = USE_LESS) -> None:
    """Raise if an expression is longer than DynamoDB accepts. `remedy` says how to shorten it."""
    size = len(text.encode())
    if size > MAX_EXPRESSION_BYTES:
        raise ExpressionTooLong(
            f"The {name} has {size} bytes, including the ledger's part, but DynamoDB accepts at most {MAX_EXPRESSION_BYTES}. To shorten "
            f"it, {remedy}."
        )
    count = _count_operators(name, _read_lexemes(name, text))
    if count > MAX_OPERATORS:
        raise ExpressionTooLong(
            f"The {name} has {count} operators and functions, including the ledger's part, but DynamoDB accepts at most "
            f"{MAX_OPERATORS}. To shorten it, {remedy}."
        )


_PAIRS = {")": "(", "]": "["}


def _check_nesting(name: str, lexemes: list[Lexeme], ends: list[int]) -> None:
    """Raise if the parentheses and brackets of a part, up to one of the `ends`, don't match.

    Otherwise, the caller's text could reach beyond its own part and change the meaning of onewrite's part.
    """
    open_signs: list[str] = []
    for n, (sign, _, _) in enumerate(lexemes):
        if n in ends and open_signs:
            break
        if sign in "([":
            open_signs.append(sign)
        elif sign in _PAIRS and (not open_signs or open_signs.pop() != _PAIRS[sign]):
            raise InvalidUpdate(f"{name} closes a {sign!r} that it doesn't open. Correct the expression.")
    if open_signs:
        raise InvalidUpdate(f"{name} leaves a {open_signs[-1]!r} open. Correct the expression.")


def _read_lexemes(name: str, text: str) -> list[Lexeme]:
    """Split an expression into words and signs. Raise for a character that no expression has. `name` is the argument's name."""
    lexemes: list[Lexeme] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _LEXEME.match(text, at)
        if match is None:
            sign = text[at:].strip()[:1]
            raise InvalidUpdate(
                f"{name} has {sign!r} at character {text.index(sign, at) + 1}, in a place where no expression can have it. Pass values by placeholders."
            )
        kind = match.lastgroup or ""
        lexemes.append((match[kind], match.start(kind), match.end(kind)))
        at = match.end()
    return lexemes


def _find_clause_starts(lexemes: list[Lexeme]) -> list[int]:
    """Return the indexes of the clause keywords.

    A clause keyword is the first word or follows a complete operand. Anywhere else, a word such as `remove` is an attribute name.
    """
    starts: list[int] = []
    expects_operand = False
    for n, (text, _, _) in enumerate(lexemes):
        if text.upper() in CLAUSES and not expects_operand:
            starts.append(n)
            expects_operand = True
        else:
            expects_operand = not _is_word(text) and text not in {")", "]"}
    return starts


def _find_roots(lexemes: list[Lexeme]) -> tuple[str, ...]:
    """Return the first names of all paths: words that aren't keywords, functions, or indexes, and don't follow a dot."""
    roots: dict[str, None] = {}
    for n, (text, _, _) in enumerate(lexemes):
        before = lexemes[n - 1][0] if n else ""
        after = lexemes[n + 1][0] if n + 1 < len(lexemes) else ""
        starts_path = _is_word(text) and before not in {".", "["} and after != "("
        if starts_path and text.upper() not in _KEYWORDS:
            roots[text] = None
    return tuple(roots)


def _is_word(text: str) -> bool:
    return text[0] in "#:_" or text[0].isalnum()


def _is_wrapped(lexemes: list[Lexeme]) -> bool:
    """Whether one pair of parentheses encloses the whole expression."""
    depths = accumulate([(text == "(") - (text == ")") for text, _, _ in lexemes])
    end = next(n for n, depth in enumerate(depths) if depth <= 0)  # always found, because the parentheses match
    return 0 < end == len(lexemes) - 1


def _count_operators(name: str, lexemes: list[Lexeme]) -> int:
    """Return the number of operators and functions, as AWS's documentation counts them: in an update, `=` isn't an operator."""
    words = [text.upper() for text, _, _ in lexemes]
    functions = sum(after == "(" and _is_word(word) and word not in _KEYWORDS for word, after in pairwise(words))
    if name == "UpdateExpression":
        return functions + words.count("+") + words.count("-")
    between = words.count("BETWEEN")  # BETWEEN and its AND count once
    return functions + sum(word in _KEYWORDS or word in _COMPARISONS for word in words) - between


# --- the caller's arguments ----------------------------------------------------------------------------------------


def format_condition(native: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the call with its condition converted from a boto3 `Attr` condition to an expression string."""
    expression = ConditionExpressionBuilder().build_expression(native["ConditionExpression"])
    placeholders_by_argument = {
        "ExpressionAttributeNames": expression.attribute_name_placeholders,
        "ExpressionAttributeValues": expression.attribute_value_placeholders,
    }
    arguments: dict[str, Any] = {**native, "ConditionExpression": expression.condition_expression}
    for name, placeholders in placeholders_by_argument.items():
        user_entries = read_mapping(native, name)
        for placeholder in placeholders:
            if placeholder in user_entries:
                raise InvalidUpdate(f"boto3's Attr uses the placeholder {placeholder} itself. Rename yours.")
        if placeholders:
            arguments[name] = {**user_entries, **placeholders}
    return arguments


def read_mapping(native: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an argument that must be a mapping, or an empty mapping if it's missing."""
    value: Any = native.get(name)
    if not value:
        return {}
    mapping: Mapping[str, Any] = value
    if type(value) is not dict and not isinstance(value, Mapping):
        raise _make_type_error(name, value, "a dict")
    return mapping


def _make_type_error(name: str, value: object, remedy: str) -> InvalidUpdate:
    return InvalidUpdate(f"{name} is a {type(value).__name__}: expected {remedy}.")


def read_placeholders(native: Mapping[str, Any]) -> tuple[Mapping[str, str], Mapping[str, Any]]:
    """Return the caller's names and values.

    Raise for an argument that guarded writes don't accept, or that has a wrong type, or if a placeholder is one of onewrite's.
    """
    if "TableName" in native:
        raise make_table_error()
    if not LEGACY.isdisjoint(native):
        name = next(name for name in native if name in LEGACY)
        raise InvalidUpdate(
            f"{name} is a legacy argument, which DynamoDB doesn't accept together with expressions. Use expressions."
        )
    for expression in ("UpdateExpression", "ConditionExpression"):
        text = native.get(expression)
        if text is not None and not isinstance(text, str):
            raise _make_type_error(expression, text, "text")
    names, values = read_mapping(native, "ExpressionAttributeNames"), read_mapping(native, "ExpressionAttributeValues")
    for placeholder, attribute in names.items():
        if not isinstance(attribute, str):
            raise _make_type_error(f"ExpressionAttributeNames[{placeholder!r}]", attribute, "an attribute's name")
    check_placeholders(names)
    check_placeholders(values)
    return names, values


def make_table_error() -> InvalidUpdate:
    return InvalidUpdate("A call always goes to its store's table. Omit TableName, and create one store for each table.")


def check_placeholders(placeholders: Iterable[object]) -> None:
    """Raise if a placeholder, or the first name of a path, isn't a string, or begins like onewrite's own placeholders."""
    for placeholder in placeholders:
        if not isinstance(placeholder, str):
            raise _make_type_error(repr(placeholder), placeholder, "the name of a placeholder or an attribute")
        if placeholder.startswith(PLACEHOLDER_PREFIXES):
            raise InvalidUpdate(f"The placeholder {placeholder} begins like those of the ledger. Rename it.")


def check_names(names: Iterable[object]) -> None:
    """Raise if the caller's key, or the attributes to read, contain one of onewrite's names."""
    for name in names:
        if isinstance(name, str) and name.startswith(OURS):
            raise _make_name_error(name)


def check_roots(terms: Terms, names: Mapping[str, str], roots: Iterable[str]) -> None:
    """Raise if a path begins with one of onewrite's names, written out or as a placeholder in `names`."""
    check_placeholders(roots)
    for root in roots:
        name = names.get(root, root)
        if name.startswith(OURS):
            raise _make_name_error(name)
        if name in terms.plain_sets:
            raise InvalidUpdate(
                f"This call touches {name!r}, in which the store's ledger keeps IDs. Omit it, or pass a different attribute to IdSet."
            )


def _make_name_error(name: str) -> InvalidUpdate:
    return InvalidUpdate(
        f"This call touches {name!r}: names that begin with {OURS} are reserved for onewrite. Omit it, or rename your attribute."
    )


# --- onewrite's own expressions ------------------------------------------------------------------------------------

# A name of this form doesn't need a placeholder, because no reserved word has an underscore. Each placeholder costs 5 to 10
# microseconds. An effect's name gets one, so that writes of all messages have the same text.
_WORD = re.compile(r"(?!ow_effect_)[A-Za-z][A-Za-z0-9]*_\w*", re.ASCII)
_MAX_REPEATED = 6  # the longest name, in characters, that a write of several messages repeats without a placeholder


def is_plain_word(name: str) -> bool:
    """Whether an expression can contain the attribute's name itself."""
    return _WORD.fullmatch(name) is not None


class Placeholders:
    """Collects the names and values of onewrite's own expressions. Pass `repeats=True` if names occur many times. Long names then get placeholders."""

    def __init__(self, *, repeats: bool = False) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.repeats = repeats
        self._known_names: dict[str, str] = {}
        self._known_values: dict[object, str] = {}

    def name(self, name: str) -> str:
        """Return the attribute's name, or its placeholder if an expression can't contain the name."""
        if is_plain_word(name) and not (self.repeats and len(name) > _MAX_REPEATED):
            return name
        placeholder = self._known_names.get(name)
        if placeholder is None:
            placeholder = self._known_names[name] = f"#ow_{len(self.names)}"
            self.names[placeholder] = name
        return placeholder

    def value(self, value: Any, placeholder: str = "") -> str:
        """Return the value's placeholder. Equal strings, numbers, or bytes share one."""
        is_simple = type(value) in _SIMPLE
        if is_simple and not placeholder and value in self._known_values:
            return self._known_values[value]
        placeholder = placeholder or f":ow_{len(self.values)}"
        self.values[placeholder] = value
        if is_simple:
            self._known_values[value] = placeholder
        return placeholder

    def arguments(self, *, typed: bool) -> dict[str, Any]:
        """Return the names and values as arguments of a request. Empty maps are left out, because DynamoDB refuses them."""
        values = typed_values(self.values) if typed else self.values
        placeholders = {"ExpressionAttributeNames": self.names, "ExpressionAttributeValues": values}
        return {name: members for name, members in placeholders.items() if members}


_SIMPLE = frozenset({str, int, bytes})
