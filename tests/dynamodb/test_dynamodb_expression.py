"""Native expressions, read just far enough to be merged."""

from __future__ import annotations

import re

import pytest

from onewrite import InvalidUpdate
from onewrite.dynamodb.expression import Condition, check_limits, read_condition, read_update


@pytest.mark.parametrize("text", ["a = :v", " ", ", SET a = :v", "#set a = :v", "SETA = :v"])
def test_an_update_begins_with_a_clause(text: str) -> None:
    with pytest.raises(InvalidUpdate, match="doesn't begin with SET, REMOVE, ADD, or DELETE"):
        read_update(text)


@pytest.mark.parametrize("text", ["SET", "SET a=:a REMOVE "])
def test_empty_clause_is_refused(text: str) -> None:
    with pytest.raises(InvalidUpdate, match=r"has an empty (SET|REMOVE) clause\. Remove it"):
        read_update(text)


@pytest.mark.parametrize("clause", ["SET a=:a", "REMOVE a", "ADD a :a", "DELETE a :a"])
def test_two_clauses_of_a_kind_are_refused(clause: str) -> None:
    with pytest.raises(InvalidUpdate, match=f"has two {clause.split(maxsplit=1)[0]} clauses"):
        read_update(f"{clause} {clause.lower()}")


def test_clause_begins_after_a_function_or_an_index() -> None:
    clauses = (("SET", "remove = f(b, :c)"), ("REMOVE", "d[0]"), ("ADD", "e :e"))
    assert read_update(" ".join(map(" ".join, clauses))).clauses == dict(clauses)


@pytest.mark.parametrize("sign", ["'", ";", "- - ?"])
def test_invalid_character_is_refused_and_named(sign: str) -> None:
    with pytest.raises(InvalidUpdate, match=r"^UpdateExpression .* in a place where no expression can have it") as raised:
        read_update(f"SET a = {sign} b")
    assert f"has {sign[-1]!r} at character" in str(raised.value)
    with pytest.raises(InvalidUpdate, match=r"^ConditionExpression .* in a place where no expression can have it"):
        read_condition(f"a = :a {sign}")


@pytest.mark.parametrize(
    ("text", "safe", "roots"),
    [
        ("a = :v", "(a = :v)", "a :v"),
        # DynamoDB refuses ((a = :v))
        ("(a = :v)", "(a = :v)", "a :v"),
        ("(a = :v OR (b = :w))", "(a = :v OR (b = :w))", "a :v b :w"),
        ("(a = :v) OR (b = :w)", "((a = :v) OR (b = :w))", "a :v b :w"),
        ("NOT (a = :v)", "(NOT (a = :v))", "a :v"),
        ("size (a) > :n", "(size (a) > :n)", "a :n"),
        ("a in(:x)", "(a in(:x))", "a :x"),
        ("a between b.c and #d[0]", "(a between b.c and #d[0])", "a b #d"),
        ("not a <> :v and b <= c or d >= e", "(not a <> :v and b <= c or d >= e)", "a :v b c d e"),
        ("begins_with(#a.b, :v)", "(begins_with(#a.b, :v))", "#a :v"),
        ("a=b AND a=c", "(a=b AND a=c)", "a b c"),
        # what is wrong inside is left for DynamoDB to say
        ("= OR a", "(= OR a)", "a"),
    ],
)
def test_condition_is_made_safe_for_joining_with_and(text: str, safe: str, roots: str) -> None:
    assert read_condition(text) == Condition(safe, tuple(roots.split()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(a = :v", "leaves a '(' open"),
        ("a = :v) OR (b = :v", "closes a ')' that it doesn't open"),
        ("a[0 = :v", "leaves a '[' open"),
        ("(a[0) = :v]", "closes a ')' that it doesn't open"),
        ("size(a]) > :v", "closes a ']' that it doesn't open"),
    ],
)
def test_condition_that_closes_foreign_parentheses_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidUpdate, match=re.escape(said)):
        read_condition(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SET a = (:v", "leaves a '(' open"),
        ("SET a = f(:v REMOVE b)", "leaves a '(' open"),  # each clause is on its own
        ("REMOVE a[0 ADD c :c", "leaves a '[' open"),
        ("SET a = f(b] REMOVE c", "closes a ']' that it doesn't open"),
        ("SET , a = :v", "begins or ends with a comma"),
        ("SET a = :v REMOVE b, ", "begins or ends with a comma"),
    ],
)
def test_an_update_with_a_broken_clause_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidUpdate, match=re.escape(said)):
        read_update(text)


@pytest.mark.parametrize("name", ["UpdateExpression", "ConditionExpression"])
@pytest.mark.parametrize("letter", ["a", "é"])  # bytes count, not letters
def test_expression_has_at_most_4096_bytes(name: str, letter: str) -> None:
    full = "SET a=" + letter * ((4096 - 6) // len(letter.encode()))
    assert len(full.encode()) == 4096
    check_limits(name, full)
    with pytest.raises(InvalidUpdate, match=f"The {name} has 4097 bytes.*at most 4096"):
        check_limits(name, full + " ")


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("UpdateExpression", "SET a=b" + "-b" * 150 + ",a=f(b)" * 150),
        ("ConditionExpression", "a=b" + " AND a<b" * 149 + " OR"),
    ],
)
def test_expression_has_at_most_300_operators(name: str, full: str) -> None:
    check_limits(name, full)
    with pytest.raises(InvalidUpdate, match=f"The {name} has 301 operators and functions.*at most 300"):
        check_limits(name, full + (" OR" if name == "ConditionExpression" else "+b"))


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("UpdateExpression", "SET a=:v, b=if_not_exists(b,:z)+:n-:m, c=list_append(c,:l)", 4),
        ("UpdateExpression", "REMOVE a, b ADD c :c DELETE d :d", 0),
        ("ConditionExpression", "a<>b AND a<=b OR a>=b", 5),
        ("ConditionExpression", "a between :x and :y and b=c", 3),
        ("ConditionExpression", "NOT a IN (:x,:y)", 2),
        ("ConditionExpression", "NOT (attribute_exists(a) AND size(b)>:n)", 5),
    ],
)
def test_operators_are_counted_as_documented(monkeypatch: pytest.MonkeyPatch, name: str, text: str, count: int) -> None:
    monkeypatch.setattr("onewrite.dynamodb.expression.MAX_OPERATORS", count)
    check_limits(name, text)
    monkeypatch.setattr("onewrite.dynamodb.expression.MAX_OPERATORS", count - 1)
    with pytest.raises(InvalidUpdate, match=f"has {count} operators"):
        check_limits(name, text)


def test_long_row_of_clause_words_is_refused() -> None:
    with pytest.raises(InvalidUpdate):
        read_update("SET " * 1500)
