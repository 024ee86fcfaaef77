"""Checks of what a table or collection holds: the share of the ledger, and entities that lost theirs or will lose it. Pure.

They say only what the entities that were read show.
"""

from __future__ import annotations

from collections.abc import Collection as Several

from onewrite.doctor.delivery import life
from onewrite.doctor.facts import Entity, Facts, Index, Sample, Table
from onewrite.doctor.finding import Finding, Findings, NotCheckedError, known, span
from onewrite.watch import LARGE_LEDGER

_GIVER = "--table or --collection"
_FULL = 0.8  # of the bytes that an entity may have: what is fuller is close to refusing every message
_LARGE_SHARE = 0.5  # of an entity's bytes
_NAMED = 3  # entities that a finding names


def ledger_share(facts: Facts) -> Findings:
    """How much of the largest entities is ledger?"""
    sample = known(facts.sample, _GIVER)
    guarded = sorted([each for each in sample.entities if each.ledger], key=lambda each: -each.size)
    if not guarded:
        raise NotCheckedError("None of the entities that were read has a ledger.")
    found = [each for each in guarded if _is_large(each, sample.limit)]
    full = [each for each in found if each.size >= _FULL * sample.limit]
    if found:
        largest = found[0]
        yield Finding(
            "error" if full else "warning",
            f"{_some(found, 'entity', 'entities')} of {len(guarded)} with a ledger consist of it for the most part, or are almost full: "
            f"{_sizes(largest)}, of {sample.limit:,} that an entity may have.",
            "An entity that is full refuses every further message, also those that were let in before."
            if full
            else "The ledger is read and written with every message of the entity, and billed by DynamoDB each time.",
            "Shorten the retention of SeenIds, or leave out readable=True; or use a ledger of one mark a source, or an inbox: "
            "docs/guide.md compares what they cost.",
            "the sample",
        )
    return f"The largest of {len(guarded)} entities with a ledger: {_sizes(guarded[0])}."


def _is_large(entity: Entity, limit: int) -> bool:
    own = sum(entity.ledger.values())
    return own > LARGE_LEDGER and (own >= _LARGE_SHARE * entity.size or entity.size >= _FULL * limit)


def _sizes(entity: Entity) -> str:
    own = sum(entity.ledger.values())
    return f"{entity.name} has {entity.size:,} bytes, of which {own:,} ({own / entity.size:.0%}) are ledger"


def indexes(facts: Facts) -> Findings:
    """Do indexes copy the ledger?"""
    table = known(facts.table, "--table")
    if not table.indexes:
        return "The table has no secondary index."
    sample = known(facts.sample, _GIVER)
    guarded = [each for each in sample.entities if each.ledger]
    if not guarded and not _is_written_guarded(facts, table):
        raise NotCheckedError(
            "None of the entities that were read has a ledger, so that it is not known what indexes copy of it."
        )
    for index in table.indexes:
        if not guarded and index.included is None:
            yield _copies(
                f"The index {index.name} projects all attributes, and so will copy the ledger.", "the table, the module"
            )
        copied = [copy for each in guarded if (copy := _copied(index, each))]
        if copied:
            yield _copies(
                f"The index {index.name} projects {'all attributes' if index.included is None else 'attributes of the ledger'}, and so copies "
                f"{sum(copied) // len(copied):,} bytes of ledger on average for {len(copied)} of {len(guarded)} entities with one.",
                "the table, the sample",
            )
    return f"Looked at {', '.join([index.name for index in table.indexes])}."


def _is_written_guarded(facts: Facts, table: Table) -> bool:
    stores = facts.module.stores if facts.module is not None else ()
    return any(store.ledger is not None and store.place == f"the table {table.name}" for store in stores)


def _copies(what: str, rests_on: str) -> Finding:
    return Finding(
        "warning",
        what,
        "Every message changes the ledger, so that each write of such an entity writes the index as well, and is billed for it.",
        "Create the index anew with KEYS_ONLY, or with INCLUDE and the attributes that its queries read, and drop this one.",
        rests_on,
    )


def _copied(index: Index, entity: Entity) -> int:
    """How many bytes of the entity's ledger the index has. It leaves out entities without its keys."""
    if not entity.own.issuperset(index.keys):
        return 0
    return sum([size for name, size in entity.ledger.items() if index.included is None or name in index.included])


def ttl(facts: Facts) -> Findings:
    """Does the database remove entities while messages for them may still come?

    An entity that was written long ago may be about to expire in any set-up. So the one counts that expires last: where even that one
    expires too early, one that is written now does too.
    """
    known(facts.expiry, _GIVER)
    sample, held = known(facts.sample, _GIVER), life(facts)
    left = [
        (each.expires - sample.now, each)
        for each in sample.entities
        if each.expires is not None and each.expires > sample.now and each.tombstone is None and each.ledger
    ]
    if not left:
        raise NotCheckedError("No entity that was read has a ledger and a time at which TTL will remove it.")
    most, latest = max(left, key=lambda each: each[0])
    if most < held.plain:
        yield Finding(
            "warning",
            f"TTL may remove entities too early: of {len(left)} that were read, {latest.name} expires last, in {span(round(most))}. "
            f"{held.told}: {span(held.plain)} in all.",
            "TTL removes the ledger with the entity. A message that is delivered again after that creates the entity anew, and takes effect "
            "again.",
            f"Let an entity expire {span(held.plain)} after its last message at the earliest, and move the time on with each message.",
            "the queue, the sample",
        )
    return f"The entity that expires last does so in {span(round(most))}. {held.told}."


def erased(facts: Facts) -> Findings:
    """Are there entities beside guarded ones that have no ledger?"""
    sample = known(facts.sample, _GIVER)
    guarded = [each for each in sample.entities if each.ledger]
    if not guarded:
        raise NotCheckedError("None of the entities that were read has a ledger.")
    bare = [each for each in sample.entities if _is_bare(each, sample) and _is_sibling(each, guarded, sample)]
    if bare:
        yield Finding(
            "warning",
            f"{_some(bare, 'entity has', 'entities have')} no ledger, while {len(guarded)} of their kind have one: {_names(bare)}.",
            "They may have had no message yet. Or another writer may replace whole entities, as by put_item, replace_one, or the save() of a "
            "mapper: that erases the ledger, and what was done takes effect again.",
            "Look for writers that replace these entities, and let them send updates, or use the guarded store. docs/guide.md says how.",
            "the sample",
        )
    return f"{len(guarded)} of {len(sample.entities)} entities that were read have a ledger."


def _is_bare(entity: Entity, sample: Sample) -> bool:
    business = entity.own.difference(sample.keys)
    return bool(business) and not (entity.ledger or entity.in_use or entity.unlabelled or entity.tombstone is not None)


def _is_sibling(entity: Entity, guarded: Several[Entity], sample: Sample) -> bool:
    """Is it of a kind with those that have a ledger? A table with a sort key often holds entities of several kinds.

    There, what is of a kind has the same attributes, or at least all that the guarded ones have in common beside their key.
    """
    if len(sample.keys) == 1:
        return True
    common = frozenset[str].intersection(*[each.own for each in guarded])
    return any(each.own == entity.own for each in guarded) or (common > frozenset(sample.keys) and entity.own >= common)


def damaged(facts: Facts) -> Findings:
    """Are there ledgers of which a part is missing?"""
    sample = known(facts.sample, _GIVER)
    without_label = [each for each in sample.entities if each.unlabelled]
    without_marks = [each for each in sample.entities if each.unmarked]
    if without_label:
        names = ", ".join(sorted({name for each in without_label for name in each.unlabelled}))
        yield Finding(
            "error",
            f"{_some(without_label, 'entity has', 'entities have')} marks but no label, in {names}: {_names(without_label)}.",
            "Every guarded write puts the label there, so that something else may have removed it. A store with another ledger is then not "
            "refused, and may let messages in twice.",
            "Look for writers that remove attributes which they do not know, or copy only some of them.",
            "the sample",
        )
    if without_marks:
        names = ", ".join(sorted({name for each in without_marks for name in each.unmarked}))
        yield Finding(
            "warning",
            f"{_some(without_marks, 'entity has', 'entities have')} the label of a ledger but no mark, in {names}: {_names(without_marks)}.",
            "Every guarded write leaves a mark, so that something else may have removed them: an operator who meant to, or a writer "
            "that erases the ledger. What was done before may take effect again.",
            "If no operator has cleared these ledgers, look for writers that remove attributes which they do not know.",
            "the sample",
        )
    return f"Looked at {_some(sample.entities, 'entity', 'entities')}."


def _some(entities: Several[Entity], one: str, several: str) -> str:
    return f"{len(entities):,} {one if len(entities) == 1 else several}"


def _names(entities: Several[Entity]) -> str:
    names = [each.name for each in entities]
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
