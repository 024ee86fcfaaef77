"""The checks of the doctor, each on facts just below, at and just above where it finds something."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from onewrite import HighWaterMark, InSequence, Outbox, SeenIds, Tombstones
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb.values import typed_values
from onewrite.operate.doctor.checks import CHECKS, examine
from onewrite.operate.doctor.facts import (
    CheckResult,
    EntitySample,
    EventSourceMapping,
    Facts,
    Module,
    ModuleStore,
    Queue,
    TableDescription,
    TableIndex,
    Unread,
)
from onewrite.operate.dynamodb import make_image
from onewrite.operate.image import EntityImage

DAY = 86_400
NOW = 1_790_000_000.0
ARN = "arn:aws:sqs:eu-west-1:1:orders"
QUEUE = Queue("orders", ARN, fifo=False, retention=4 * DAY)
WITH_DEAD = replace(QUEUE, dead_letters=f"{ARN}-dead")
DEAD = Queue("orders-dead", f"{ARN}-dead", fifo=False, retention=10 * DAY)
LONG_DEAD = replace(DEAD, retention=14 * DAY)
FEED = EventSourceMapping(ARN, reports_failures=True)
TABLE = TableDescription("orders", ("id",))
DENIED = Unread("the thing", "no", "service:Action")


def bare(name: str = "b", own: str = "total", *, keys: tuple[str, ...] = ("id",), **fields: Any) -> EntityImage:
    """An item without a ledger."""
    item = {**dict.fromkeys(own.split(), "text"), **dict.fromkeys(keys, name), **fields}
    return make_image(typed_values(item), keys)


def entity(name: str = "e", own: str = "total", *, keys: tuple[str, ...] = ("id",), **fields: Any) -> EntityImage:
    """One with the ledger of SeenIds(), unless the fields say otherwise."""
    return bare(name, own, keys=keys, **{"ow_l": "ow1 14d", "ow_r0": {"x" * 11}, **fields})


def buried(seconds: int) -> EntityImage:
    """A tombstone that stays for so many seconds."""
    tombstone = {"at": "2026-11-22T08:00:00.000Z", "ttl": "expiresAt", "seconds": seconds, "by": "m", "key": ["id"]}
    return entity("dead", ow_tombstone=tombstone)


def sample(*entities: EntityImage) -> EntitySample:
    return EntitySample(entities, NOW)


def module(ledger: Ledger, place: str = "the table orders", **more: Any) -> Module:
    return Module("shop.handlers", (ModuleStore(place, ledger, **more),))


def checked(code: str, facts: Facts) -> CheckResult:
    return next(each for each in examine(facts) if each.check.code == code)


def state(code: str, facts: Facts) -> str:
    """What the check says: the severity of what it finds, or its state."""
    found = checked(code, facts)
    severities = {finding.severity for finding in found.findings}
    return "error" if "error" in severities else min(severities, default=found.state)


def days(count: float) -> SeenIds:
    return SeenIds(timedelta(days=count))


HOUR_LESS = 1 / 24


@pytest.mark.parametrize(
    ("code", "queue", "dead", "ledger", "expected"),
    [
        # Without dead letters, the queue alone counts.
        ("ledger-retention", QUEUE, None, days(4 - HOUR_LESS), "error"),
        ("ledger-retention", QUEUE, None, days(4), "passed"),
        # A standard queue's message keeps its age, so the longer of both retentions counts.
        ("ledger-retention", WITH_DEAD, DEAD, days(10 - HOUR_LESS), "error"),
        ("ledger-retention", WITH_DEAD, DEAD, days(10), "passed"),
        # In a FIFO dead-letter queue the age begins anew, so the sum counts.
        ("ledger-retention", replace(WITH_DEAD, fifo=True), DEAD, days(14 - HOUR_LESS), "error"),
        ("ledger-retention", replace(WITH_DEAD, fifo=True), DEAD, days(14), "passed"),
        # Of more than 14 days, 14 are enough, which are those of SeenIds() and of our own infrastructure.
        ("ledger-retention", replace(WITH_DEAD, fifo=True), LONG_DEAD, SeenIds(), "passed"),
        # What forgets nothing remembers for long enough.
        ("ledger-retention", QUEUE, None, SeenIds(None), "passed"),
        # What is too short for the queue alone is too short, whatever its dead letters are.
        ("ledger-retention", WITH_DEAD, DENIED, days(3), "error"),
        ("ledger-retention", WITH_DEAD, DENIED, days(4), "not checked"),
        # The order of a standard queue.
        ("order", QUEUE, None, HighWaterMark(), "error"),
        ("order", QUEUE, None, InSequence(), "passed"),
        ("order", replace(QUEUE, receives=4), None, InSequence(), "warning"),
        ("order", QUEUE, None, SeenIds(), "passed"),
        ("order", replace(QUEUE, fifo=True), None, HighWaterMark(), "passed"),
    ],
)
def test_ledger_must_match_its_queue(code: str, queue: Any, dead: Any, ledger: Ledger, expected: str) -> None:
    assert state(code, Facts(queue=queue, dead_letters=dead, module=module(ledger))) == expected


@pytest.mark.parametrize(("tombstones", "expected"), [(4 - HOUR_LESS, "error"), (4, "passed"), (None, "not checked")])
def test_tombstones_must_outlast_the_last_delivery(tombstones: float | None, expected: str) -> None:
    kept = None if tombstones is None else Tombstones(timedelta(days=tombstones))
    assert state("tombstone-retention", Facts(queue=QUEUE, module=module(SeenIds(), tombstones=kept))) == expected
    found = entity() if tombstones is None else buried(int(tombstones * DAY))
    assert state("tombstone-retention", Facts(queue=QUEUE, sample=sample(found))) == expected


def test_doctor_states_the_redrive_deadline_of_fifo_dead_letters() -> None:
    facts = Facts(queue=replace(WITH_DEAD, fifo=True), dead_letters=LONG_DEAD)
    late = "Redrive dead letters within {} of the time they were sent. A later redrive can take effect again."
    default = replace(facts, module=module(SeenIds(), tombstones=Tombstones(timedelta(days=15))))
    assert late.format("14 days") in checked("ledger-retention", default).text
    assert "18 days in total" in checked("ledger-retention", default).text
    assert late.format("15 days") in checked("tombstone-retention", default).text
    longer = replace(facts, module=module(days(18), tombstones=Tombstones(timedelta(days=18))))
    assert "Redrive" not in checked("ledger-retention", longer).text + checked("tombstone-retention", longer).text


def test_text_of_a_failed_check_is_its_findings() -> None:
    facts = Facts(queue=QUEUE, module=module(days(1), tombstones=Tombstones(timedelta(days=1))))
    for code in ("ledger-retention", "tombstone-retention"):
        result = checked(code, facts)
        assert result.text == " ".join([finding.what for finding in result.findings]) != ""


@pytest.mark.parametrize(("reports", "expected"), [(True, "passed"), (False, "error")])
def test_mapping_must_report_failed_records(reports: bool, expected: str) -> None:
    feeds = (FEED, replace(FEED, reports_failures=reports))
    assert state("partial-failures", Facts(queue=QUEUE, feeds=feeds)) == expected
    assert state("partial-failures", Facts(queue=DENIED, feeds=feeds)) == expected


MSK = EventSourceMapping("arn:aws:kafka:eu-west-1:1:cluster/k", reports_failures=False, kafka=True)


@pytest.mark.parametrize(
    ("provisioned", "reports", "answering", "unknown"),
    [(True, True, "passed", "passed"), (True, False, "error", "not checked"), (False, True, "error", "not checked")],
)
def test_kafka_response_requires_provisioned_mode(provisioned: bool, reports: bool, answering: str, unknown: str) -> None:
    feeds = (replace(MSK, provisioned=provisioned, reports_failures=reports), FEED)
    facts = Facts(feeds=feeds)
    for answers, expected in ((False, "passed"), (True, answering), (None, unknown)):
        handlers = replace(module(SeenIds()), kafka_answers=answers)
        assert state("partial-failures", replace(facts, module=handlers)) == expected
    assert state("partial-failures", facts) == unknown


def test_sample_labels_name_ledgers_without_a_module() -> None:
    moved: dict[str, Any] = {"ow_old:l": "ow1 > ow_l"}
    marks = entity(ow_l="ow1 marks", **moved)
    for facts in (Facts(sample=sample(marks, bare(**moved))), Facts(module=Module("shop", ()), sample=sample(marks))):
        assert "Pass a MODULE" in checked("order", replace(facts, queue=QUEUE)).text  # a label is the same for both ledgers
        assert state("order", replace(facts, queue=replace(QUEUE, fifo=True))) == "passed"
    only_moved = Facts(queue=QUEUE, sample=sample(bare(**moved)))
    assert state("order", only_moved) == "not checked"
    unknown = Facts(queue=QUEUE, sample=sample(entity(ow_l="ow2 14d")))
    assert state("order", unknown) == "not checked"
    assert state("ledger-retention", Facts(queue=replace(QUEUE, retention=14 * DAY + 1), sample=sample(entity()))) == "error"


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (bare(), "notice"),
        (bare(own=""), "passed"),  # nothing but its key
        (buried(9), "passed"),
        (bare(ow_l="ow2 14d"), "passed"),
        (bare(ow_t="x", messageIDs={"m"}), "passed"),  # as IdSet leaves it
    ],
)
def test_entity_without_a_ledger_among_guarded_entities_gets_a_notice(other: EntityImage, expected: str) -> None:
    assert state("erased-ledgers", Facts(sample=sample(entity(), other))) == expected
    assert state("erased-ledgers", Facts(sample=sample(bare()))) == "not checked"


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("total", "notice"),  # the very same attributes
        ("total note", "notice"),  # all that those with a ledger have in common, and more
        ("name", "passed"),  # another kind of entity in the same table
    ],
)
def test_other_entity_kind_in_a_table_needs_no_ledger(own: str, expected: str) -> None:
    keys = ("pk", "sk")
    guarded = entity(own="total", keys=keys), entity(own="total paid", keys=keys)
    assert state("erased-ledgers", Facts(sample=sample(*guarded, bare(own=own, keys=keys)))) == expected


def test_each_check_names_its_missing_fact() -> None:
    found = examine(Facts())
    assert [each.check.code for each in found] == [check.code for check in CHECKS]
    assert {each.state for each in found} == {"not checked"}
    assert all("needs" in each.text for each in found)


@pytest.mark.parametrize(
    ("expiry", "ttl", "dead", "expected"),
    [
        (("expiresAt",), "expiresAt", False, "passed"),
        ((), "expiresAt", False, "warning"),
        ((), None, True, "warning"),
        ((), None, False, "not checked"),
        (DENIED, "expiresAt", False, "not checked"),
    ],
)
def test_tombstones_need_a_ttl(expiry: Any, ttl: str | None, dead: bool, expected: str) -> None:
    tombstones = None if ttl is None else Tombstones(timedelta(days=30), ttl_attribute=ttl)
    facts = Facts(table=TABLE, expiry=expiry, module=module(SeenIds(), tombstones=tombstones))
    assert state("tombstone-ttl", replace(facts, sample=sample(buried(1) if dead else entity()))) == expected
    elsewhere = replace(facts, module=module(SeenIds(), place="the table stock", tombstones=tombstones))
    assert state("tombstone-ttl", elsewhere) == "not checked"


PENDING = TableIndex("pending", ("ow_shard", "ow_due"), frozenset(), ("N", "S"))


@pytest.mark.parametrize(
    ("index", "found", "expected"),
    [
        ("pending", PENDING, "passed"),
        ("pending", replace(PENDING, name="other"), "error"),
        ("pending", replace(PENDING, types=("S", "N")), "error"),
        ("pending", replace(PENDING, included=None), "error"),
        (None, PENDING, "warning"),
    ],
)
def test_outbox_index_must_exist_if_configured(index: str | None, found: TableIndex, expected: str) -> None:
    facts = Facts(table=replace(TABLE, indexes=(found,)), module=module(SeenIds(), outbox=Outbox("o", index=index)))
    assert state("outbox-index", facts) == expected
    assert state("outbox-index", replace(facts, module=None)) == "not checked"
    without_module = replace(facts, module=None, sample=sample(entity(ow_o="ow1 outbox o")))
    assert state("outbox-index", without_module) == (
        "passed" if (found.types, found.included) == (("N", "S"), frozenset()) else "warning"
    )


@pytest.mark.parametrize(
    ("keys", "boxes", "expected"),
    [
        ((("_id",), ("ow_due",)), True, "passed"),
        ((("_id",),), True, "warning"),
        ((("_id",),), False, "not checked"),
        (DENIED, True, "not checked"),
    ],
)
def test_outbox_collection_needs_an_index_on_due_time(keys: Any, boxes: bool, expected: str) -> None:
    place = "the collection orders"
    facts = Facts(collection=place, index_keys=keys)
    found = entity(ow_o="ow1 outbox o") if boxes else entity()
    assert state("outbox-index", replace(facts, sample=sample(found))) == expected
    outbox = Outbox("o") if boxes else None
    assert state("outbox-index", replace(facts, module=module(SeenIds(), place=place, outbox=outbox))) == expected


SHORT = timedelta(days=3)


@pytest.mark.parametrize(
    ("ledger", "fields", "expected", "remedy"),
    [
        (SeenIds(SHORT), {"ow_l": "ow1 3d"}, "passed", ""),
        (SeenIds(SHORT), {}, "error", "previous=SeenIds(timedelta(days=14))"),
        (SeenIds(SHORT, previous=SeenIds()), {}, "passed", ""),
        (InSequence(), {}, "error", "HighWaterMark(previous=SeenIds(timedelta(days=14)))"),
        (InSequence(), {"ow_l": "ow1 marks"}, "passed", ""),
        (SeenIds(), {"ow_l": "ow1 > ow_billing:l"}, "error", "has moved from 'ow_l' to 'ow_billing:l'"),
        (SeenIds(), {"ow_l": "ow2 14d"}, "error", "this version of onewrite only knows 'ow1'"),
        (SeenIds(), {"ow_l": "hello"}, "error", "isn't a ledger's label"),
        (SeenIds(name="billing"), {}, "warning", "previous=SeenIds(timedelta(days=14))"),
        (SeenIds(name="billing"), {"ow_billing:l": "ow1 14d"}, "passed", ""),
        (SeenIds(name="billing", previous=SeenIds()), {}, "passed", ""),
        (SeenIds(), {"ow_o": "ow1 outbox other", "ow_events": []}, "error", "Use 'other'"),
        (SeenIds(), {"ow_o": "ow1 outbox o", "ow_events": []}, "passed", ""),
    ],
)
def test_layout_check_names_the_previous_ledger(ledger: Ledger, fields: dict[str, Any], expected: str, remedy: str) -> None:
    facts = Facts(table=TABLE, module=module(ledger, outbox=Outbox("o")), sample=sample(entity(**fields), buried(9)))
    assert state("layout", facts) == expected
    assert all(remedy in finding.do for finding in checked("layout", facts).findings)
    assert state("layout", replace(facts, module=module(ledger, "the table stock"))) == "not checked"


@pytest.mark.parametrize(("ids", "expected"), [(10_000, "passed"), (10_400, "warning")])
def test_large_ledger_is_found_with_its_entity(ids: int, expected: str) -> None:
    facts = Facts(sample=sample(entity("hot", ow_r0={b"x" * (ids - 7)}), entity()))
    assert state("ledger-size", facts) == expected
    assert 'ow_l of {"id": "hot"}' in checked("ledger-size", facts).text


@pytest.mark.parametrize(
    ("ledgers", "expected"),
    [((HighWaterMark(),), "error"), ((InSequence(),), "error"), ((HighWaterMark(), SeenIds()), "passed"), ((), "passed")],
)
def test_sqs_message_id_has_no_source_for_marks(ledgers: tuple[Ledger, ...], expected: str) -> None:
    stores = tuple([ModuleStore("the table orders", ledger) for ledger in ledgers])
    assert state("identity", Facts(module=Module("shop", stores, bare_handlers=("ship",)))) == expected
    assert state("identity", Facts(module=Module("shop", stores))) == "not checked"
