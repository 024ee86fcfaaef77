"""Native expressions, read just far enough to be merged."""

from __future__ import annotations

import re

import pytest

from onewrite import InvalidUpdate
from onewrite.dynamodb.expression import Condition, Update, check_limits, merge_update, read_condition, read_update

OURS = {"SET": "#ow_a=:ow_a", "ADD": "#ow_0 :ow_m"}


@pytest.mark.parametrize(
    ("text", "clauses", "roots"),
    [
        ("SET a = :v", [("SET", "a = :v")], "a :v"),
        ("set a = :v", [("SET", "a = :v")], "a :v"),
        ("  sEt\ta=:v \n", [("SET", "a=:v")], "a :v"),
        (
            "SET a=:a REMOVE b ADD c :c DELETE d :d",
            [("SET", "a=:a"), ("REMOVE", "b"), ("ADD", "c :c"), ("DELETE", "d :d")],
            "a :a b c :c d :d",
        ),
        (
            "DELETE d :d ADD c :c REMOVE b SET a=:a",
            [("DELETE", "d :d"), ("ADD", "c :c"), ("REMOVE", "b"), ("SET", "a=:a")],
            "d :d c :c b a :a",
        ),
        ("remove b\nset a=:a", [("REMOVE", "b"), ("SET", "a=:a")], "b a :a"),
        ("SET a=:a, b=:b", [("SET", "a=:a, b=:b")], "a :a b :b"),
        ("REMOVE a, b, #c", [("REMOVE", "a, b, #c")], "a b #c"),
        # an attribute that is called like a clause
        ("SET remove = :v", [("SET", "remove = :v")], "remove :v"),
        ("SET a = remove", [("SET", "a = remove")], "a remove"),
        ("SET set = :v REMOVE remove", [("SET", "set = :v"), ("REMOVE", "remove")], "set :v remove"),
        ("REMOVE a, add, delete", [("REMOVE", "a, add, delete")], "a add delete"),
        ("ADD add :v DELETE delete :w", [("ADD", "add :v"), ("DELETE", "delete :w")], "add :v delete :w"),
        ("SET a.set = :v REMOVE b.remove", [("SET", "a.set = :v"), ("REMOVE", "b.remove")], "a :v b"),
        ("SET a = b REMOVE c", [("SET", "a = b"), ("REMOVE", "c")], "a b c"),
        ("SET a = b[1] REMOVE c", [("SET", "a = b[1]"), ("REMOVE", "c")], "a b c"),
        ("SET a = b + set REMOVE c", [("SET", "a = b + set"), ("REMOVE", "c")], "a b set c"),
        # a placeholder never is a clause
        ("SET #set = :set REMOVE #remove", [("SET", "#set = :set"), ("REMOVE", "#remove")], "#set :set #remove"),
        # nested paths and list indices
        ("SET a.b.#c[0].d = :v", [("SET", "a.b.#c[0].d = :v")], "a :v"),
        ("SET a[12] = :v REMOVE b[0]", [("SET", "a[12] = :v"), ("REMOVE", "b[0]")], "a :v b"),
        ("REMOVE a[0], b SET c = :c", [("REMOVE", "a[0], b"), ("SET", "c = :c")], "a b c :c"),
        ("SET a . b = :v", [("SET", "a . b = :v")], "a :v"),
        # functions and arithmetic
        ("SET a = if_not_exists(b, :z) + :n", [("SET", "a = if_not_exists(b, :z) + :n")], "a b :z :n"),
        ("SET a = list_append(a, :l) REMOVE b", [("SET", "a = list_append(a, :l)"), ("REMOVE", "b")], "a :l b"),
        ("SET a = b - :n", [("SET", "a = b - :n")], "a b :n"),
        ("SET a = (b + :n) REMOVE c", [("SET", "a = (b + :n)"), ("REMOVE", "c")], "a b :n c"),
        ("SET Größe = :v", [("SET", "Größe = :v")], "Größe :v"),
    ],
)
def test_an_update_is_cut_into_its_clauses(text: str, clauses: list[tuple[str, str]], roots: str) -> None:
    assert read_update(text) == Update(tuple(clauses), tuple(roots.split()))


@pytest.mark.parametrize("text", ["a = :v", "", "   ", ", SET a = :v", "#set a = :v", ":v", "SETA = :v", "= SET a"])
def test_an_update_begins_with_a_clause(text: str) -> None:
    with pytest.raises(InvalidUpdate, match="does not begin with SET, REMOVE, ADD or DELETE"):
        read_update(text)


@pytest.mark.parametrize("clause", ["SET a=:a", "REMOVE a", "ADD a :a", "DELETE a :a"])
def test_two_clauses_of_a_kind_are_refused(clause: str) -> None:
    with pytest.raises(InvalidUpdate, match=f"has two {clause.split(maxsplit=1)[0]} clauses"):
        read_update(f"{clause} {clause.lower()}")


@pytest.mark.parametrize("sign", ["'", '"', ";", "*", "/", "{", "$", "!", "@", "%", "&", "\0", "- - ?"])
def test_a_character_that_no_expression_has_is_refused_and_named(sign: str) -> None:
    with pytest.raises(InvalidUpdate, match=r"^UpdateExpression .* where no expression has it") as raised:
        read_update(f"SET a = {sign} b")
    assert f"has {sign[-1]!r} where" in str(raised.value)
    with pytest.raises(InvalidUpdate, match=r"^ConditionExpression .* where no expression has it"):
        read_condition(f"a = :a {sign}")


@pytest.mark.parametrize(
    ("text", "safe", "roots"),
    [
        ("a = :v", "(a = :v)", "a :v"),
        ("  a = :v \n", "(a = :v)", "a :v"),
        # DynamoDB refuses ((a = :v))
        ("(a = :v)", "(a = :v)", "a :v"),
        (" (a = :v) ", "(a = :v)", "a :v"),
        ("(a = :v OR (b = :w))", "(a = :v OR (b = :w))", "a :v b :w"),
        ("(a = :v) OR (b = :w)", "((a = :v) OR (b = :w))", "a :v b :w"),
        ("((a = :v) OR (b = :w))", "((a = :v) OR (b = :w))", "a :v b :w"),
        ("NOT (a = :v)", "(NOT (a = :v))", "a :v"),
        ("attribute_exists(a)", "(attribute_exists(a))", "a"),
        ("(attribute_exists(a))", "(attribute_exists(a))", "a"),
        ("size(a) > :n", "(size(a) > :n)", "a :n"),
        ("size (a) > :n", "(size (a) > :n)", "a :n"),
        ("a IN (:x, :y)", "(a IN (:x, :y))", "a :x :y"),
        ("a in(:x)", "(a in(:x))", "a :x"),
        ("a BETWEEN :x AND :y", "(a BETWEEN :x AND :y)", "a :x :y"),
        ("a between b.c and #d[0]", "(a between b.c and #d[0])", "a b #d"),
        ("not a <> :v and b <= c or d >= e", "(not a <> :v and b <= c or d >= e)", "a :v b c d e"),
        ("contains(a.messageIDs[1], :v)", "(contains(a.messageIDs[1], :v))", "a :v"),
        (
            "begins_with(#a.b, :v) AND attribute_type(c, :t)",
            "(begins_with(#a.b, :v) AND attribute_type(c, :t))",
            "#a :v c :t",
        ),
        ("a=b AND a=c", "(a=b AND a=c)", "a b c"),
        # what is wrong inside is left for DynamoDB to say
        ("a", "(a)", "a"),
        ("= OR a", "(= OR a)", "a"),
    ],
)
def test_a_condition_is_made_safe_beside_an_and(text: str, safe: str, roots: str) -> None:
    assert read_condition(text) == Condition(safe, tuple(roots.split()))


UNBALANCED = [
    ("(a = :v", "leaves a '(' open"),
    ("a = :v)", "closes a ')' that it does not open"),
    (")", "closes a ')' that it does not open"),
    ("a = :v) OR (b = :v", "closes a ')' that it does not open"),
    ("a[0 = :v", "leaves a '[' open"),
    ("(a[0) = :v]", "closes a ')' that it does not open"),
    ("size(a]) > :v", "closes a ']' that it does not open"),
    ("((a = :v)", "leaves a '(' open"),
]


@pytest.mark.parametrize(("text", "said"), UNBALANCED)
def test_a_condition_that_reaches_out_of_its_own_parentheses_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidUpdate, match=re.escape(said)) as raised:
        read_condition(text)
    assert str(raised.value).startswith(f"ConditionExpression {text!r}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SET a = (:v", "leaves a '(' open"),
        ("SET a = :v)", "closes a ')' that it does not open"),
        ("SET a = f(:v REMOVE b)", "leaves a '(' open"),  # each clause is on its own
        ("SET a = (:v REMOVE b", "leaves a '(' open"),
        ("REMOVE a[0 ADD c :c", "leaves a '[' open"),
        ("REMOVE a[0)", "closes a ')' that it does not open"),
        ("SET a = f(b] REMOVE c", "closes a ']' that it does not open"),
    ],
)
def test_an_update_that_leaves_parentheses_open_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidUpdate, match=re.escape(said)) as raised:
        read_update(text)
    assert str(raised.value).startswith(f"UpdateExpression {text!r}")


@pytest.mark.parametrize("text", ["SET ,a = :v", "SET a = :v,", "REMOVE a,", "SET a = :v REMOVE ,b"])
def test_a_clause_that_begins_or_ends_with_a_comma_is_refused(text: str) -> None:
    with pytest.raises(InvalidUpdate, match=r"The (SET|REMOVE) clause of UpdateExpression .* begins or ends with a comma"):
        read_update(text)


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_condition_is_refused(text: str) -> None:
    with pytest.raises(InvalidUpdate, match="ConditionExpression is empty: leave it out"):
        read_condition(text)


@pytest.mark.parametrize(
    ("user", "merged"),
    [
        (None, "SET #ow_a=:ow_a ADD #ow_0 :ow_m"),
        ("SET a=:a", "SET a=:a, #ow_a=:ow_a ADD #ow_0 :ow_m"),
        ("add n :n", "SET #ow_a=:ow_a ADD n :n, #ow_0 :ow_m"),
        ("REMOVE b", "SET #ow_a=:ow_a REMOVE b ADD #ow_0 :ow_m"),
        ("DELETE d :d REMOVE b SET a=:a", "SET a=:a, #ow_a=:ow_a REMOVE b ADD #ow_0 :ow_m DELETE d :d"),
    ],
)
def test_our_part_follows_the_callers_in_each_clause(user: str | None, merged: str) -> None:
    assert merge_update(read_update(user) if user else None, OURS) == merged


def test_a_merged_update_is_an_update_again() -> None:
    merged = merge_update(read_update("DELETE d :d REMOVE b, c SET a=:a"), OURS)
    again = read_update(merged)
    assert merge_update(again, {}) == merged
    assert again.roots == ("a", ":a", "#ow_a", ":ow_a", "b", "c", "#ow_0", ":ow_m", "d", ":d")


@pytest.mark.parametrize("name", ["UpdateExpression", "ConditionExpression"])
@pytest.mark.parametrize("letter", ["a", "é"])  # bytes count, not letters
def test_an_expression_may_have_4096_bytes_and_not_one_more(name: str, letter: str) -> None:
    full = "SET a=" + letter * ((4096 - 6) // len(letter.encode()))
    assert len(full.encode()) == 4096
    check_limits(name, full)
    with pytest.raises(InvalidUpdate, match=f"The {name} has 4097 bytes.*takes 4096"):
        check_limits(name, full + " ")


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("UpdateExpression", "SET a=b" + "+b" * 300),
        ("UpdateExpression", "SET a=b" + "-b" * 150 + ",a=f(b)" * 150),
        ("ConditionExpression", "a=b" + " AND a<b" * 149 + " OR"),
    ],
)
def test_an_expression_may_have_300_operators_and_not_one_more(name: str, full: str) -> None:
    check_limits(name, full)
    with pytest.raises(InvalidUpdate, match=f"The {name} has 301 operators and functions.*takes 300"):
        check_limits(name, full + (" OR" if name == "ConditionExpression" else "+b"))


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("UpdateExpression", "SET a=:v, b=if_not_exists(b,:z)+:n-:m, c=list_append(c,:l)", 4),
        ("UpdateExpression", "REMOVE a, b ADD c :c DELETE d :d", 0),
        ("ConditionExpression", "a=b", 1),
        ("ConditionExpression", "a<>b AND a<=b OR a>=b", 5),
        ("ConditionExpression", "a BETWEEN :x AND :y", 1),
        ("ConditionExpression", "a between :x and :y and b=c", 3),
        ("ConditionExpression", "NOT a IN (:x,:y)", 2),
        ("ConditionExpression", "NOT (attribute_exists(a) AND size(b)>:n)", 5),
    ],
)
def test_operators_are_counted_as_the_documentation_does(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, count: int
) -> None:
    monkeypatch.setattr("onewrite.dynamodb.expression.MOST_OPERATORS", count)
    check_limits(name, text)
    monkeypatch.setattr("onewrite.dynamodb.expression.MOST_OPERATORS", count - 1)
    with pytest.raises(InvalidUpdate, match=f"has {count} operators"):
        check_limits(name, text)


def test_a_long_row_of_clause_words_is_refused_and_not_a_crash() -> None:
    with pytest.raises(InvalidUpdate):
        read_update("SET " * 1500)


@pytest.mark.parametrize("text", ["SET", "REMOVE a SET ", "SET a=:a ADD"])
def test_a_clause_without_an_action_is_refused_as_dynamodb_does(text: str) -> None:
    with pytest.raises(InvalidUpdate):
        read_update(text)
