"""Checks of the database itself: its copies, its clock, its write concern and its version. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from onewrite.doctor.delivery import guards
from onewrite.doctor.facts import Facts, Members, Unread
from onewrite.doctor.finding import Finding, Findings, NotCheckedError, known, span

_GIVER = "--collection"


class Fault(NamedTuple):
    """A known fault of a server: in each series of versions, the first that is without it."""

    name: str
    mended: tuple[tuple[int, int, int], ...]
    why: str
    do: str


FAULTS = (
    Fault(
        "CVE-2025-10060",
        ((6, 0, 25), (7, 0, 22), (8, 0, 12)),
        "An upsert that is tried again within a transaction can end the server's process.",
        "The transactions of onewrite contain no upsert, but others of yours may: keep upserts out of transactions until the server is ",
    ),
)


def global_table(facts: Facts) -> Findings:
    """Can two regions both apply a message?"""
    table = known(facts.table, "--table")
    if not table.replicas:
        return f"{table.name} is in one region."
    regions = ", ".join(table.replicas)
    if not table.strong:
        yield Finding(
            "warning",
            f"{table.name} is a global table with eventual consistency (MREC), with copies in {regions}.",
            "A region does not see at once what another one has written. If consumers in two regions get the same message, both apply it, and "
            "of two writes of one entity the last one wins, with its ledger.",
            "Let the consumers of one region alone write an entity, or use a global table with strong consistency (MRSC).",
            "the table",
        )
    return f"{table.name} is a global table with strong consistency (MRSC), with copies in {regions}."


def clock(facts: Facts) -> Findings:
    """Is this machine's clock close enough to the database's?"""
    measured = known(facts.clock, "--table or --collection")
    off = abs(measured.ahead)
    bounds = [(guard, guard.ledger.skew.total_seconds()) for guard in guards(facts) if guard.ledger.skew is not None]
    for guard, skew in bounds:
        if off - measured.margin > skew:
            yield Finding(
                "error",
                f"This machine's clock is {span(off)} {'behind' if measured.ahead > 0 else 'ahead of'} the database's, and {guard.kind} of "
                f"{guard.place} bears {span(int(skew))}.",
                "A writer with such a clock makes the ledger forget messages too early, for all writers of the entity.",
                "Set the clock right, as by NTP; and run this command where the handlers run, for their clocks are the ones that count.",
                "the database's clock, this machine's clock",
            )
    least = f" The ledger bears {span(int(min([skew for _, skew in bounds])))}." if bounds else " The ledger knows no time."
    return f"This machine's clock is within {off + measured.margin:.1f} seconds of the database's.{least}"


def write_concern(facts: Facts) -> Findings:
    """Does an acknowledged write outlive a failover?"""
    stores = [store for store in (facts.module.stores if facts.module is not None else ()) if store.engine == "mongodb"]
    if facts.collection is None and not stores:
        raise NotCheckedError("It needs --collection, or a MODULE with a store of MongoDB.")
    for store in stores:
        w = store.w if store.w is not None else _default(facts)
        if w in (0, 1):
            yield _weak("error", f"The guarded store of {store.place} writes with w={w}", "the module, the server's default")
    if facts.collection is None or facts.collection.name in [store.place for store in stores]:
        return "Looked at the stores of the module, which say themselves how they write."
    w = facts.collection.w if facts.collection.w is not None else _default(facts)
    if w in (0, 1):
        whose = "as its URL says" if facts.collection.w is not None else "by the server's default"
        yield _weak(
            "error" if w == 0 else "warning",
            f"{facts.collection.name} is written with w={w}, {whose}, unless the store says otherwise as a guarded store does by default",
            "the URL, the server's default",
        )
    return f"{facts.collection.name} is written with w={w!r}."


def _default(facts: Facts) -> int | str:
    if facts.server is not None and not isinstance(facts.server, Unread) and facts.server.kind == "standalone":
        return 1
    return known(facts.default_w, _GIVER)  # type: ignore[return-value]  # mypy joins int and str to object


def _weak(severity: str, what: str, rests_on: str) -> Finding:
    why = "A failover, or a crash, can take back what the server had acknowledged: effect and mark vanish together, but the broker was told that "
    return Finding(
        "error" if severity == "error" else "warning",
        f"{what}.",
        f"{why}the message is done, so that it is lost.",
        'Write with w="majority", which a guarded store does unless it is made with durability="acknowledged"; and let native writers do the same.',
        rests_on,
    )


def standalone(facts: Facts) -> Findings:
    """Is there more than one server?"""
    server = known(facts.server, _GIVER)
    if server.kind == "standalone":
        yield Finding(
            "warning",
            "The server is a standalone, and no member of a replica set.",
            "It knows neither retryable writes nor transactions: an answer that is lost is an error, after which the message must come again, "
            "and transact is refused. When its disk is lost, every effect is.",
            "Make it a replica set, of three members where data counts.",
            "the server's hello",
        )
    return f"The server is {'a member of a replica set' if server.kind == 'replica set' else 'a mongos'}."


def arbiters(facts: Facts) -> Findings:
    """Can a majority still write when one server with data is down?"""
    server = known(facts.server, _GIVER)
    if server.kind != "replica set":
        raise NotCheckedError(
            f"The server is a {server.kind}: which members are arbiters is asked of a member of a replica set."
        )
    status = facts.members if isinstance(facts.members, Members) else None
    found = sorted({*server.arbiters, *(status.arbiters if status is not None else ())})
    if found:
        yield _has_arbiters(found)
    elif status is not None and 1 < status.writing <= status.majority:
        yield Finding(
            "warning",
            f"All {status.writing} members of the replica set that hold data must have a write before a majority has it.",
            "While one of them is down, guarded writes wait, and messages come again.",
            "Add a member that holds data.",
            "replSetGetStatus",
        )
    members = known(facts.members, _GIVER)
    return f"{members.writing} members hold data, and a majority of {members.majority} makes a write safe."


def _has_arbiters(found: Sequence[str]) -> Finding:
    return Finding(
        "warning",
        f"The replica set has {'an arbiter' if len(found) == 1 else 'arbiters'}: {', '.join(found)}.",
        "An arbiter votes but holds no data. In a set of three with one, no write reaches a majority while one of the other two is down: "
        "guarded writes wait, and messages come again. The server's default is then w:1.",
        "Replace the arbiter by a member that holds data.",
        "the server's hello, replSetGetStatus",
    )


def version(facts: Facts) -> Findings:
    """Has the server a known fault that concerns guarded writes?"""
    found = known(facts.version, _GIVER)
    for fault, mended in _faults(found):
        yield Finding(
            "warning", f"The server is {found}, which has {fault.name}.", fault.why, f"{fault.do}{mended}.", "buildInfo"
        )
    return f"The server is {found}."


def _faults(text: str) -> Iterator[tuple[Fault, str]]:
    parts = [int(part) for part in text.partition("-")[0].split(".")[:3] if part.isdigit()]
    for fault in FAULTS:
        for mended in fault.mended:
            if tuple(parts[:2]) == mended[:2] and tuple(parts) < mended:
                yield fault, ".".join(map(str, mended))
