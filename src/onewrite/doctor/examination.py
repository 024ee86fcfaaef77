"""Makes all checks on the facts. Pure."""

from __future__ import annotations

from onewrite.doctor import delivery, engines, entities
from onewrite.doctor.facts import Facts
from onewrite.doctor.finding import Check, Checked, Finding, NotCheckedError

CHECKS = (
    Check("ledger-retention", "The ledger remembers a message for as long as SQS holds it", delivery.retention),
    Check("redrive-retention", "The ledger remembers a message that is redriven", delivery.redrive),
    Check("tombstone-retention", "Tombstones stay for as long as SQS holds a message", delivery.tombstones),
    Check("ttl", "TTL removes no entity while SQS holds messages for it", entities.ttl),
    Check("visibility-timeout", "A message is hidden for as long as the function works on it", delivery.visibility),
    Check("partial-failures", "Lambda reads which records failed", delivery.partial_failures),
    Check("order", "A ledger that needs order is fed in order", delivery.order),
    Check("indexes", "No index copies the ledger", entities.indexes),
    Check("ledger-share", "The ledger is a small part of the entities", entities.ledger_share),
    Check("erased-ledgers", "No other writer erases ledgers", entities.erased),
    Check("damaged-ledgers", "No part of a ledger is missing", entities.damaged),
    Check("global-table", "No two regions apply the same message", engines.global_table),
    Check("clock", "The clocks agree well enough for the ledger", engines.clock),
    Check("write-concern", "An acknowledged write outlives a failover", engines.write_concern),
    Check("standalone", "The server is a member of a replica set", engines.standalone),
    Check("arbiter", "A majority can write while a server is down", engines.arbiters),
    Check("server-version", "The server has no known fault that concerns guarded writes", engines.version),
)


def examine(facts: Facts) -> list[Checked]:
    """Every check, in the order of `CHECKS`: made, or not made and why."""
    return [_made(check, facts) for check in CHECKS]


def _made(check: Check, facts: Facts) -> Checked:
    found: list[Finding] = []
    findings = check.run(facts)
    while True:
        try:
            found.append(next(findings))
        except StopIteration as end:
            return Checked(check, "found" if found else "passed", end.value, tuple(found))
        except NotCheckedError as missing:  # what was found before a fact was missing is found all the same
            return Checked(check, "found" if found else "not checked", str(missing), tuple(found), missing.missing)
