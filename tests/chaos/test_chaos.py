"""The count must be right, and the report must say what was counted, before a run says anything."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.chaos import __main__ as command
from tests.chaos.report import table, verdict
from tests.chaos.rounds import WRONG, Result
from tests.chaos.setups import ControlSetup
from tests.chaos.soak import Sample, growth
from tests.chaos.traffic import KINDS, SOURCES, Delivery, Source, Traffic, damage, twin
from tests.chaos.witness import Copy, Witness, bodies_of

CHOICE = random.Random(1)
each_ledger = pytest.mark.parametrize("ledger", ["SeenIds", "HighWaterMark", "InSequence"])


def deliver(ledger: str, count: int = 3, *, settled: bool = True) -> tuple[Traffic, Source, list[str]]:
    """Traffic whose first source has issued `count` messages, that source, and the ids of them."""
    traffic = Traffic("t", [ledger], largest=count)
    source = next(iter(traffic.sources.values()))
    deliveries = [source.issue() for _ in range(count)]
    if settled:
        for delivery in deliveries:
            traffic.settle(delivery)
    return traffic, source, [delivery.message.id for delivery in deliveries]


# ---------------------------------------------------------------- traffic


@each_ledger
def test_an_entity_that_has_each_effect_once_is_undamaged(ledger: str) -> None:
    _, source, ids = deliver(ledger)
    assert damage(source.entity, [source], 3, ids) == ([], [], [])


@each_ledger
def test_a_settled_message_without_an_effect_is_lost(ledger: str) -> None:
    _, source, ids = deliver(ledger)
    assert damage(source.entity, [source], 2, [ids[0], ids[2]]).losses == [ids[1]]


@each_ledger
def test_a_message_that_was_never_settled_is_not_lost(ledger: str) -> None:
    traffic, source, ids = deliver(ledger, settled=False)
    assert damage(source.entity, [source], 0, []).losses == []
    assert traffic.unsettled_count == len(ids)


@each_ledger
def test_a_message_with_two_effects_is_doubled(ledger: str) -> None:
    _, source, ids = deliver(ledger)
    assert damage(source.entity, [source], 4, [*ids, ids[2]]).doubles == [ids[2]]


@pytest.mark.parametrize(("n", "lost", "doubled"), [(2, 1, 0), (4, 0, 1)])
def test_a_counter_that_disagrees_with_the_list_is_a_loss_or_a_double(n: int, lost: int, doubled: int) -> None:
    _, source, ids = deliver("SeenIds")
    harm = damage(source.entity, [source], n, ids)
    assert (len(harm.losses), len(harm.doubles)) == (lost, doubled)


@pytest.mark.parametrize(("ledger", "late"), [("SeenIds", 0), ("HighWaterMark", 1), ("InSequence", 1)])
def test_an_effect_after_a_later_one_is_out_of_order_where_the_ledger_keeps_an_order(ledger: str, late: int) -> None:
    _, source, ids = deliver(ledger)
    assert len(damage(source.entity, [source], 3, [ids[0], ids[2], ids[1]]).misplacements) == late


def test_a_message_has_no_effect_on_another_entity() -> None:
    traffic, source, ids = deliver("SeenIds")
    other, sources = next(pair for pair in traffic.entities().items() if pair[0] != source.entity)
    assert damage(other, sources, 0, []) == ([], [], [])
    assert damage(source.entity, [source], 0, []).losses == ids


def test_a_source_that_must_be_in_order_hands_out_its_next_message_when_the_one_before_is_settled() -> None:
    traffic = Traffic("t", ["HighWaterMark"], largest=9)
    first = fresh_deliveries(traffic)
    assert len(first) == 3 * SOURCES
    assert {delivery.message.sequence for delivery in first} == {1}
    traffic.settle(first[0])
    (following,) = fresh_deliveries(traffic)
    assert (following.message.source, following.message.sequence) == (first[0].message.source, 2)


@each_ledger
def test_no_source_has_more_messages_than_it_may(ledger: str) -> None:
    traffic = Traffic("t", [ledger], largest=5)
    while deliveries := fresh_deliveries(traffic):
        for delivery in deliveries:
            traffic.settle(delivery)
    assert traffic.messages == len({delivery.message.id for delivery in traffic.all_deliveries()}) == 5 * 3 * SOURCES


def test_a_transaction_is_expected_in_both_entities() -> None:
    traffic, source, ids = deliver("transaction")
    for entity in (source.entity, twin(source.entity)):
        assert traffic.entities()[entity] == [source, traffic.sources["transaction", f"{source.entity}.1"]]
        assert damage(entity, [source], 2, ids[:2]).losses == [ids[2]]


def test_the_last_message_to_an_entity_that_is_deleted_deletes_it_and_the_next_goes_to_another() -> None:
    _, source, _ = deliver("delete", 6)
    deliveries = [*source.deliveries()]
    assert [delivery.deletes for delivery in deliveries] == [False] * 4 + [True, False]
    assert [delivery.entity for delivery in deliveries] == [f"{source.entity}.0"] * 5 + [f"{source.entity}.1"]
    assert [*source.entities()] == [f"{source.entity}.0", f"{source.entity}.1"]


def test_a_message_that_two_services_get_has_an_effect_of_each_on_one_entity() -> None:
    traffic = Traffic("t", ["first service", "second service"], largest=1, entities=1)
    deliveries = fresh_deliveries(traffic)
    ((entity, sources),) = traffic.entities().items()
    assert len({delivery.message.id for delivery in deliveries}) == SOURCES
    for delivery in deliveries:
        traffic.settle(delivery)
    effects = [delivery.effect for delivery in deliveries]
    assert damage(entity, sources, 2 * SOURCES, effects) == ([], [], [])
    assert damage(entity, sources, 2 * SOURCES - 1, effects[1:]).losses == effects[:1]


def test_a_fold_takes_earlier_messages_of_its_source_along() -> None:
    _, source, ids = deliver("fold", 5)
    assert [[message.id for message in delivery.messages] for delivery in source.deliveries()] == [
        ids[:1], ids[:2], ids[:3], ids[:4], ids[1:],
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.in_order])
def test_order_is_looked_at_for_every_kind_whose_ledger_keeps_it(kind: str) -> None:
    _, source, _ = deliver(kind)
    effects = [delivery.effect for delivery in source.deliveries()]
    assert damage(source.entity, [source], 3, [effects[1], effects[0], effects[2]]).misplacements == [effects[0]]


def fresh_deliveries(traffic: Traffic) -> list[Delivery]:
    return list(iter(lambda: traffic.fresh(CHOICE), None))


# ---------------------------------------------------------------- events

EFFECTS = [f"m-{number}" for number in (8, 1, 16)]  # of one event, two, and one


def witness_of(*numbers: int, source: str = "chaos/id=S:e/life") -> Witness:
    """A witness of the events of `EFFECTS` with these numbers, as they come."""
    bodies = [f'"{body}"' for effect in EFFECTS for body in bodies_of(effect)]
    witness = Witness()
    for number in numbers:
        witness.take([Copy(source, number, f"id{number}", bodies[number - 1])])
    return witness


def test_events_that_are_told_in_order_are_right_and_a_copy_is_counted() -> None:
    witness = witness_of(1, 2, 1, 2, 3, 4, 2)
    assert witness.harm("e", EFFECTS) == ([], [], [])
    assert (witness.events, witness.copies) == (4, 3)


def test_an_event_that_is_not_told_is_lost() -> None:
    assert witness_of(1, 2, 3).harm("e", EFFECTS).losses == ['"m-16/0"']


def test_a_first_copy_before_the_one_before_it_is_out_of_order() -> None:
    harm = witness_of(1, 3, 2, 4).harm("e", EFFECTS)
    assert (harm.losses, harm.inventions, len(harm.misplacements)) == ([], [], 3)


def test_an_event_of_a_message_without_an_effect_is_invented() -> None:
    assert witness_of(1, 2, 3, 4).harm("e", EFFECTS[:2]).inventions == ['"m-16/0"']


def test_an_entity_that_has_two_sources_has_an_invented_one() -> None:
    witness = witness_of(1, 2, 3, 4)
    witness.take([Copy("chaos/id=S:e/other", 1, "other", '"m-8/0"')])
    assert "source chaos/id=S:e/other" in witness.harm("e", EFFECTS).inventions


def test_the_events_of_an_entity_tell_its_effects_in_order() -> None:
    assert witness_of(1, 2, 3, 2, 4).effects("e") == EFFECTS
    assert witness_of(1, 2, 3, 4).effects("another") == []


def test_two_events_of_one_number_are_out_of_order() -> None:
    witness = witness_of(1, 2, 3, 4)
    witness.take([Copy("chaos/id=S:e/life", 2, "another id", '"m-1/0"')])
    assert len(witness.harm("e", EFFECTS).misplacements) == 1


def test_events_in_another_order_than_the_effects_are_out_of_order() -> None:
    assert len(witness_of(1, 2, 3, 4).harm("e", ["m-1", "m-8", "m-16"]).misplacements) == 1


def test_an_entity_is_not_blamed_for_the_events_of_another() -> None:
    assert witness_of(1, 2, source="chaos/id=S:other/life").harm("e", []) == ([], [], [])


# ---------------------------------------------------------------- report


def result(*, must_lose: bool = False, **counts: int) -> Result:
    names = {name.replace("_", " "): count for name, count in counts.items()}
    return Result("a setup", must_lose, Counter({"rounds": 1, "messages": 9, **names}), ["an example"])


def test_the_table_has_a_column_for_each_stage_and_ends_with_what_must_be_nothing() -> None:
    lines = table([result(lost=3), result(doubled=12)]).splitlines()
    assert lines[0].split() == ["a", "setup"] * 2
    assert [line.rsplit(maxsplit=2)[0] for line in lines[-len(WRONG) :]] == [*WRONG]
    assert [line.split()[-2:] for line in lines[-len(WRONG) :][:2]] == [["3", "0"], ["0", "12"]]
    assert len({len(line) for line in lines}) == 1


def test_a_run_without_damage_ends_well() -> None:
    assert verdict([result(), result(must_lose=True, lost=4)]) == (
        [
            "a setup: each message took effect once, and each event was told once and in order.",
            "a setup: lost 4 messages, as it must: a loss would have been seen.",
        ],
        0,
    )


@pytest.mark.parametrize("wrong", WRONG)
def test_whatever_is_wrong_makes_the_run_fail_and_is_named(wrong: str) -> None:
    counts: dict[str, Any] = {wrong.replace(" ", "_"): 2}
    lines, code = verdict([result(**counts), result()])
    assert code == 1
    assert lines == [
        f"a setup: 2 {wrong}.",
        "  an example",
        "a setup: each message took effect once, and each event was told once and in order.",
    ]


def test_a_control_that_loses_nothing_makes_the_run_fail() -> None:
    (line,), code = verdict([result(must_lose=True)])
    assert code == 1
    assert "could not have seen a loss" in line


# ---------------------------------------------------------------- what a process has in use


def test_what_grows_between_the_second_and_the_last_tenth_is_named() -> None:
    start = [Sample(10, 3, 2)] * 10  # everything is imported
    assert growth([*start, *[Sample(100, 20, 5)] * 90]) == []
    assert growth([*start, *[Sample(100 + n, 20, 5) for n in range(90)]]) == ["memory grew from 104 to 184"]
    assert growth([*start, *[Sample(100, 20, 5)] * 80, *[Sample(104, 23, 6)] * 10]) == [
        "files grew from 20 to 23",
        "threads grew from 5 to 6",
    ]


# ---------------------------------------------------------------- rounds of the control


@pytest.mark.parametrize(("loses_in", "rounds"), [(1, 1), (3, 3), (99, command.CONTROL_ROUNDS)])
def test_the_control_goes_on_until_it_has_lost_something_or_has_failed_to_for_too_long(
    monkeypatch: pytest.MonkeyPatch, loses_in: int, rounds: int
) -> None:
    @contextmanager
    def setup() -> Iterator[None]:
        yield

    def play_round(*_: Any) -> Result:
        rounds_so_far.append(None)
        return result(must_lose=True, lost=int(len(rounds_so_far) == loses_in), messages=1)

    rounds_so_far: list[None] = []
    monkeypatch.setattr(command, "play_round", play_round)
    monkeypatch.setattr(ControlSetup, "__enter__", lambda self: None)
    monkeypatch.setattr(ControlSetup, "__exit__", lambda self, *_: None)
    assert command.run("control", 0.0, 1, lambda _: None).ok == (loses_in <= command.CONTROL_ROUNDS)
    assert len(rounds_so_far) == rounds


@pytest.mark.parametrize("arguments", [["--minutes", "0"], ["--only", "oracle"], ["--seed", "x"]])
def test_a_wrong_option_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command._options(arguments)
    assert arguments[0] in capsys.readouterr().err
