"""The checks: of how messages are delivered, of what entities hold, and of the database itself. Pure."""

from __future__ import annotations

from collections.abc import Collection as Several
from collections.abc import Iterator
from typing import NamedTuple

from onewrite.core.label import OUTBOX, TOMBSTONE, is_ours
from onewrite.core.ledgers import HighWaterMark, InSequence, Ledger, SeenIds
from onewrite.core.ledgers.kept import LabelledLedger, kept_ledgers
from onewrite.core.ledgers.seen_ids import MAX_SQS_RETENTION
from onewrite.core.tombstone import read_tombstone
from onewrite.errors import LedgerMismatch
from onewrite.message import printable
from onewrite.operate.doctor.facts import (
    Check,
    CheckResult,
    DoctorFinding,
    EventSourceMapping,
    Fact,
    Facts,
    Findings,
    ModuleStore,
    NotCheckedError,
    Queue,
    TableIndex,
    Unread,
    if_known,
    require,
    span,
)
from onewrite.operate.image import EntityImage
from onewrite.operate.report import count_of

# What AWS recommends, so Lambda can try again where the function is throttled while it has a batch:
# https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
VISIBILITY_SHARE = 6
_ENOUGH_RECEIVES = 5
_SHORTEST_DEAD_LETTER = 86_400  # seconds: a night, and a morning in which someone looks
_NO_TOMBSTONE = "No store with tombstones was found in a module, and no tombstone in a sample."


class Guard(NamedTuple):
    """A ledger, where it was found, and the name of its class as far as that is known."""

    ledger: Ledger
    place: str
    kind: str
    rests_on: str


class Life(NamedTuple):
    """For how many seconds after a message was first sent it may be delivered, or redriven from the dead letters.

    `enough` is how long a ledger or a tombstone must last. In the dead letters of a FIFO queue a message may be older than the 14 days of
    `SeenIds()`. But it usually gets there minutes after an effect of it, and is gone 14 days later: only a redrive in the last minutes meets
    a ledger that has forgotten. Whoever has let messages wait in the queue for days must redrive sooner, and is told when.
    """

    seconds: int
    enough: int
    text: str
    dead_letters: Fact[Queue]

    def late_redrive(self, shortest: float) -> str:
        """What to heed where all that was judged lasts for so many seconds, which are enough but not all. Dead letters must be known for that."""
        if isinstance(self.dead_letters, Unread):
            require(self.dead_letters, "--queue")
        if shortest >= self.seconds:
            return ""
        return f" Redrive dead letters within {span(round(shortest))} of when they were sent: what is redriven later may take effect again."


def guards(facts: Facts) -> Iterator[Guard]:
    """The ledgers of the module's stores; without any, those whose labels stand in the sample."""
    ledgers = [(store.place, store.ledger) for store in facts.stores if store.ledger is not None]
    if ledgers:
        yield from [Guard(ledger, place, type(ledger).__name__, "the module") for place, ledger in ledgers]
        return
    if facts.module is not None and facts.sample is None:
        raise NotCheckedError(f"{facts.module.name} has no store with a ledger: name one, as in shop.stores:orders.")
    sample = require(facts.sample, "a MODULE, --table or --collection")
    labels = [label for entity in sample.entities for label in _labels(entity) if label.moved_to is None]
    if not labels:
        raise NotCheckedError(
            "None of the entities that were read has a ledger, so the ledger is not known: name a store, as in shop.stores:orders."
        )
    for label in dict.fromkeys(labels):
        kind = "HighWaterMark or InSequence" if label.layout == "marks" else type(label.ledger).__name__
        yield Guard(label.ledger, f"the sample's entities ({label.attribute})", kind, "the labels of the sample")


def _labels(entity: EntityImage) -> list[LabelledLedger]:
    """The labels of its ledgers, but for those that another version of onewrite has written."""
    return [label for label in kept_ledgers(entity.fields.items()) if label.is_known]


def _tombstone_seconds(entity: EntityImage) -> int | None:
    """For how many seconds its tombstone stays, if it is one."""
    try:
        return read_tombstone(entity.fields[TOMBSTONE]).seconds if TOMBSTONE in entity.fields else None
    except LedgerMismatch:
        return None


def life(facts: Facts) -> Life:
    """How late a message of the queue may be delivered.

    In a dead-letter queue its age counts on from when it was sent, except in a FIFO one, where it starts anew. What is redriven is sent
    anew, and usually delivered at once.
    """
    queue = require(facts.queue, "--queue")
    if queue.dead_letters is None or isinstance(facts.dead_letters, Unread):
        text = f"{queue.name} keeps a message for {span(queue.retention)}: {span(queue.retention)} in all"
        return Life(queue.retention, queue.retention, text, facts.dead_letters)
    dead = require(facts.dead_letters, "--queue")
    longer = max(queue.retention, dead.retention)
    seconds = queue.retention + dead.retention if queue.fifo else longer
    enough = max(longer, min(seconds, int(MAX_SQS_RETENTION.total_seconds())))
    how = "and then" if queue.fifo else "and, counted from when it was sent,"
    text = f"{queue.name} keeps a message for {span(queue.retention)}, {how} {dead.name} for {span(dead.retention)}: {span(seconds)} in all"
    return Life(seconds, enough, text, dead)


def retention(facts: Facts) -> Findings:
    """Does the ledger remember for as long as SQS holds a message?"""
    message, retentions = life(facts), list[int]()
    for guard in guards(facts):
        if not isinstance(guard.ledger, SeenIds) or guard.ledger.retention is None:
            continue  # it never forgets
        seconds = int(guard.ledger.retention.total_seconds())
        retentions.append(seconds)
        if seconds < message.enough:
            yield DoctorFinding(
                "error",
                f"{guard.kind} of {guard.place} remembers a message for {span(seconds)}, and {message.text}.",
                "A message that is delivered after the ledger has forgotten it takes effect again.",
                f"Set the retention to {span(message.seconds)}, and name the current ledger in also=, as in "
                f"SeenIds({_timedelta(message.seconds)}, also=...); or let the queues keep messages for less long.",
                f"the queue, {guard.rests_on}",
            )
    late = message.late_redrive(min(retentions, default=message.seconds))
    return (
        f"{message.text}. What is redriven on its last day is remembered if it is delivered at once, as it usually is.{late}"
    )


def dead_letters(facts: Facts) -> Findings:
    """Does a message that fails again and again end where somebody sees it, and not too soon?"""
    queue = require(facts.queue, "--queue")
    if queue.dead_letters is None:
        yield DoctorFinding(
            "warning",
            f"{queue.name} has no dead-letter queue.",
            f"A message that can never take effect is delivered again and again, and after {span(queue.retention)} it is gone without a trace. "
            "In a FIFO queue it holds back its group for as long.",
            "Give the queue a RedrivePolicy with a dead-letter queue, a maxReceiveCount of about 5, and an alarm on the dead letters.",
            "the queue",
        )
    elif queue.receives == 1:
        yield DoctorFinding(
            "warning",
            f"{queue.name} moves a message to the dead letters after one delivery: its maxReceiveCount is 1.",
            "A deploy, a throttled request or a worker that dies once is enough. So is a message that is Deferred or Busy.",
            "Set the maxReceiveCount to about 5.",
            "the queue",
        )
    if queue.receives is None:
        return f"{queue.name} has no dead-letter queue."
    return f"{queue.name} moves a message to the dead letters after {count_of(queue.receives, 'delivery', 'deliveries')}."


def dead_letter_retention(facts: Facts) -> Findings:
    """Is a dead letter there for long enough to be seen?"""
    queue = require(facts.queue, "--queue")
    if queue.dead_letters is None:
        raise NotCheckedError(f"{queue.name} has no dead-letter queue.")
    dead = require(facts.dead_letters, "--queue")
    compared = (
        f"{queue.name} keeps a message for {span(queue.retention)}, and {dead.name} keeps it for {span(dead.retention)}"
    )
    least = _SHORTEST_DEAD_LETTER if queue.fifo else max(_SHORTEST_DEAD_LETTER, queue.retention + 1)
    if dead.retention < least:
        is_lost = not queue.fifo and dead.retention <= queue.retention
        yield DoctorFinding(
            "error" if is_lost else "warning",
            f"{compared}.",
            f"A message of a standard queue keeps its age: one that has failed for {span(dead.retention)} is deleted as soon as it is a dead letter."
            if is_lost
            else "A dead letter is gone before anyone has seen it.",
            f"Set the MessageRetentionPeriod of {dead.name} to 14 days, or at least to {span(_SHORTEST_DEAD_LETTER)}"
            f"{'' if queue.fifo else f' more than the retention of {queue.name}'}.",
            "the queue, its dead-letter queue",
        )
    return f"{compared}{'' if queue.fifo else ', counted from when it was sent'}."


def mapping(facts: Facts) -> Findings:
    """Is the function fed by the queue that is named?"""
    function, feeds = require(facts.function, "--function"), require(facts.feeds, "--function")
    queue = if_known(facts.queue)
    for feed in feeds:
        if not feed.enabled:
            is_queue = queue is not None and feed.source == queue.arn
            yield DoctorFinding(
                "error" if is_queue else "warning",
                f"The event source mapping from {feed.source} to {function.name} is disabled.",
                f"Nothing is delivered{', and what waits for longer than the queue keeps it is lost' if is_queue else ' from there'}.",
                f"Enable it, or {'stop whoever sends' if is_queue else 'remove it if that is what is meant'}.",
                "the event source mappings of the function",
            )
    if queue is None:
        return f"{function.name} is fed from {', '.join([feed.source for feed in feeds if feed.enabled]) or 'nowhere'}."
    if all(feed.source != queue.arn for feed in feeds):
        sources = ", ".join([feed.source for feed in feeds])
        yield DoctorFinding(
            "error",
            f"{function.name} is not fed from {queue.name}, but {f'from {sources}' if sources else 'from no queue and no stream'}.",
            "Messages of the queue do not reach the function, or another one takes them; and all that is said here of the two together is wrong.",
            "Create the event source mapping, or name the queue that is meant.",
            "the queue, the event source mappings of the function",
        )
    return f"{function.name} is fed from {queue.name}."


def tombstones(facts: Facts) -> Findings:
    """Do tombstones stay for as long as a message may come?"""
    message = life(facts)
    times = {
        (f"A tombstone of {store.place}", int(store.tombstones.retention.total_seconds()), "the module")
        for store in facts.stores
        if store.tombstones is not None
    }
    times |= {
        ("A tombstone of the sample", seconds, "the sample")
        for entity in facts.entities
        if (seconds := _tombstone_seconds(entity)) is not None
    }
    for what, seconds, rests_on in sorted(times):
        if seconds < message.enough:
            yield DoctorFinding(
                "error",
                f"{what} stays for {span(seconds)}, and {message.text}.",
                "A message that comes after the tombstone is gone creates the deleted entity anew.",
                f"Set Tombstones({_timedelta(message.seconds)}) or longer.",
                f"the queue, {rests_on}",
            )
    if not times:
        raise NotCheckedError(_NO_TOMBSTONE)
    return f"{message.text}.{message.late_redrive(min(seconds for _, seconds, _ in times))}"


def tombstone_ttl(facts: Facts) -> Findings:
    """Does the database remove tombstones at all?"""
    expiry = require(facts.expiry, _GIVER)
    attributes = {store.tombstones.ttl_attribute for store in _stores_of_place(facts) if store.tombstones is not None}
    dead = [entity for entity in facts.entities if TOMBSTONE in entity.fields]
    if not attributes and not dead:
        raise NotCheckedError(_NO_TOMBSTONE)
    missing_attributes = sorted(attributes.difference(expiry))
    if missing_attributes or (dead and not expiry):
        yield DoctorFinding(
            "warning",
            f"Tombstones expire by {' and '.join(missing_attributes) or 'an attribute of their own'}, and the database removes nothing by it: "
            f"{'its TTL is by ' + ', '.join(expiry) if expiry else 'it has no TTL'}.",
            "What is deleted stays forever: it costs storage, and refuses every message that would create the entity anew.",
            f"Switch TTL on, by {' or '.join(missing_attributes) or 'the ttl_attribute of Tombstones'}.",
            "the TTL, the module, the sample",
        )
    return f"The database removes entities by {', '.join(expiry)}."


def _stores_of_place(facts: Facts) -> list[ModuleStore]:
    """The module's stores of the table or collection that was read."""
    table = if_known(facts.table)
    places = [facts.collection, None if table is None else f"the table {table.name}"]
    return [store for store in facts.stores if store.place in places]


def outbox_index(facts: Facts) -> Findings:
    """Does a relay find what is pending without reading everything?"""
    boxes = [store.outbox for store in _stores_of_place(facts) if store.outbox]
    if facts.collection is not None:
        keys = require(facts.index_keys, _GIVER)
        if not boxes and not any(OUTBOX.label in entity.fields for entity in facts.entities):
            raise NotCheckedError("No store with an outbox was found in a module, and no outbox in a sample.")
        if all(key[:1] != (OUTBOX.due,) for key in keys):
            yield DoctorFinding(
                "warning",
                f"{facts.collection} has no index on {OUTBOX.due}.",
                "Each sweep of a relay reads the whole collection.",
                f'Create it: create_index("{OUTBOX.due}", sparse=True).',
                "the indexes, the module, the sample",
            )
        return f"{facts.collection} has an index on {OUTBOX.due}."
    table = require(facts.table, _GIVER)
    names = {box.index for box in boxes if box.index is not None}
    if not names:
        raise NotCheckedError("No store whose Outbox names an index was found in a module.")
    described = {index.name: _described(index) for index in table.indexes}
    needed = _described(TableIndex("", (OUTBOX.shard, OUTBOX.due), frozenset(), ("N", "S")))
    for name in sorted(names):
        if described.get(name) != needed:
            yield DoctorFinding(
                "error",
                f"Outbox(index={name!r}) of the module names an index that {table.name} "
                f"{f'has otherwise: {described[name]}' if name in described else 'does not have'}.",
                "No sweep of a relay works: what a lost doorbell leaves behind is never published. With keys of other types, no write that "
                "emits works either.",
                f"Create a global secondary index {name!r}: {needed}.",
                "the table, the module",
            )
    return f"{table.name} has {', '.join(sorted(names))}."


def _described(index: TableIndex) -> str:
    keys = [f"{name} ({kind})" for name, kind in zip(index.keys, index.types, strict=True)]
    projection = "ALL" if index.included is None else "INCLUDE" if index.included else "KEYS_ONLY"
    return f"the keys {' and '.join(keys)}, with the projection {projection}"


def visibility(facts: Facts) -> Findings:
    """Is a message hidden for as long as the function may work on it?"""
    queue, function = require(facts.queue, "--queue"), require(facts.function, "--function")
    window = max([feed.window for feed in _feeds_of(facts, queue)], default=0)
    minimum, advice = function.timeout + window, VISIBILITY_SHARE * function.timeout + window
    waits = f", and Lambda gathers a batch for up to {span(window)}" if window else ""
    if queue.visibility < advice:
        early = queue.visibility < minimum
        yield DoctorFinding(
            "error" if early else "warning",
            f"{queue.name} hides a message for {span(queue.visibility)}, and {function.name} may take {span(function.timeout)}{waits}.",
            "A message is redelivered while it is still processed, and each time counts for the dead-letter queue."
            if early
            else "If Lambda has no room to run the function at once, messages come again before it has tried, and each time counts "
            "for the dead-letter queue.",
            f"Set the visibility timeout to {advice} seconds or more: six times the function's timeout, as AWS recommends, and the "
            "batching window.",
            "the queue, the function, its event source mapping",
        )
    return f"{queue.name} hides a message for {span(queue.visibility)}: {VISIBILITY_SHARE} times {span(function.timeout)} or more{waits}."


def partial_failures(facts: Facts) -> Findings:
    """Does Lambda read which records failed?"""
    feeds = _feeds_of(facts, if_known(facts.queue))
    answers = None if facts.module is None else facts.module.kafka_answers
    unjudged_sources = list[str]()
    for feed in feeds:
        if feed.reports_failures and (feed.provisioned or not feed.kafka):
            continue
        if feed.kafka and answers is None:
            unjudged_sources.append(feed.source)
        elif feed.kafka and answers:
            lacks = "ReportBatchItemFailures" if feed.provisioned else "provisioned mode"
            yield DoctorFinding(
                "error",
                f"The event source mapping from {feed.source} lacks {lacks}, and kafka_handler(provisioned_mode=True) is in the module.",
                "That handler names the records that failed in its answer. For Kafka, Lambda reads it only in provisioned mode with "
                "ReportBatchItemFailures. Otherwise the offset moves on, and those records are lost.",
                "Leave out provisioned_mode=True, so the handler raises and the whole batch is redelivered; or set ProvisionedPollerConfig "
                "of the mapping, and FunctionResponseTypes to [ReportBatchItemFailures].",
                "the event source mappings of the function, the module",
            )
        elif not feed.kafka:
            yield DoctorFinding(
                "error",
                f"The event source mapping from {feed.source} lacks ReportBatchItemFailures.",
                "A handler of onewrite names the records that failed in its answer. Without this setting Lambda does not read the answer, "
                "and takes a batch for done with all that failed in it: those messages are lost.",
                "Set FunctionResponseTypes of the mapping to [ReportBatchItemFailures].",
                "the event source mappings of the function",
            )
    if unjudged_sources:
        raise NotCheckedError(
            f"Lambda reads no answer of the mapping from {unjudged_sources[0]}. That is right for kafka_handler, which raises; it is not with "
            "provisioned_mode=True, nor for a handler that answers batchItemFailures itself. Give a MODULE to find out."
        )
    return f"Looked at {count_of(len(feeds), 'event source mapping')}."


def order(facts: Facts) -> Findings:
    """Is a ledger that needs order fed in order?"""
    queue, kinds = require(facts.queue, "--queue"), list[str]()
    for guard in guards(facts):
        kinds.append(guard.kind)
        if queue.fifo:
            continue
        # With as many deliveries as our own infrastructure gives, a gap of the usual length is waited for.
        if isinstance(guard.ledger, InSequence) and queue.receives is not None and queue.receives < _ENOUGH_RECEIVES:
            yield DoctorFinding(
                "warning",
                f"{guard.kind} of {guard.place} waits for the message before, and {queue.name} is a standard queue, which keeps no order, "
                f"with a maxReceiveCount of {queue.receives}.",
                "A message that comes too early is Deferred and delivered again. Each time counts for the dead-letter queue, and whatever "
                "ends there holds back all that follow it.",
                "Use a FIFO queue, or SeenIds(); or a maxReceiveCount that is high enough for the gaps that you have.",
                f"the queue, {guard.rests_on}",
            )
        elif isinstance(guard.ledger, HighWaterMark):
            yield DoctorFinding(
                "error",
                f"{guard.kind} of {guard.place} needs messages in order, and {queue.name} is a standard queue, which keeps none.",
                "HighWaterMark takes a message that was overtaken by a newer one of its source for an old copy: it is Stale, settled, and "
                "lost. That is right only if each message has the whole state of its source.",
                "Use a FIFO queue, whose groups are the sources; or SeenIds() with also=.",
                f"the queue, {guard.rests_on}",
            )
    return (
        f"{queue.name} is {'a FIFO' if queue.fifo else 'a standard'} queue; the ledger is {', '.join(dict.fromkeys(kinds))}."
    )


def _feeds_of(facts: Facts, queue: Queue | None) -> list[EventSourceMapping]:
    feeds = [
        feed for feed in require(facts.feeds, "--function") if feed.enabled and (queue is None or feed.source == queue.arn)
    ]
    if not feeds:
        source = "a queue or a stream" if queue is None else queue.name
        raise NotCheckedError(f"The function has no event source mapping from {source} that is enabled.")
    return feeds


def _timedelta(seconds: int) -> str:
    return f"timedelta(days={seconds // 86_400})" if seconds % 86_400 == 0 else f"timedelta(seconds={seconds})"


# --- Checks of what a table or collection holds: indexes that copy the ledger, and entities that lost theirs or will lose it


def validator(facts: Facts) -> Findings:
    """Does the collection's validator refuse what a guarded write adds?"""
    if require(facts.refuses_ours, "--collection"):
        yield DoctorFinding(
            "warning",
            f"The validator of {facts.collection} refuses names that it doesn't list, and so those that begin with ow_.",
            "Each guarded write of this collection fails with error 121, and no message takes effect.",
            'Add "patternProperties": {"^ow_": {}} to its $jsonSchema, by the command collMod.',
            "the collection",
        )
    return f"No validator of {facts.collection} refuses names that begin with ow_."


_GIVER = "--table or --collection"
_MOST_NAMES = 3  # entities that a finding names


def indexes(facts: Facts) -> Findings:
    """Do indexes copy the ledger?"""
    table = require(facts.table, "--table")
    if not table.indexes:
        return "The table has no secondary index."
    sample = require(facts.sample, _GIVER)
    guarded_entities = [entity for entity in sample.entities if _labels(entity)]
    if not guarded_entities and all(store.ledger is None for store in _stores_of_place(facts)):
        raise NotCheckedError(
            "None of the entities that were read has a ledger, so it is not known what indexes copy of it."
        )
    for index in table.indexes:
        if not guarded_entities and index.included is None:
            yield _copies(
                f"The index {index.name} projects all attributes, and so will copy the ledger.", "the table, the module"
            )
        copies = [copy for entity in guarded_entities if (copy := _copied_bytes(index, entity))]
        if copies:
            yield _copies(
                f"The index {index.name} projects {'all attributes' if index.included is None else 'attributes of the ledger'}, and so copies "
                f"{sum(copies) // len(copies):,} bytes of ledger on average for {len(copies)} of {count_of(len(guarded_entities), 'entity', 'entities')} with one.",
                "the table, the sample",
            )
    return f"Looked at {', '.join([index.name for index in table.indexes])}."


def _copies(what: str, rests_on: str) -> DoctorFinding:
    return DoctorFinding(
        "warning",
        what,
        "Every message changes the ledger, so each write of such an entity writes the index as well, and is billed for it.",
        "Create the index anew with KEYS_ONLY, or with INCLUDE and the attributes that its queries read, and drop this one.",
        rests_on,
    )


def _copied_bytes(index: TableIndex, entity: EntityImage) -> int:
    """How many bytes of the entity's ledger the index has. It leaves out entities without its keys."""
    if not entity.fields.keys() >= {*index.keys}:
        return 0
    names = {name for label in _labels(entity) for name in entity.fields_of(label.attribute)}
    return sum([entity.sizes[name] for name in names if index.included is None or name in index.included])


def ttl(facts: Facts) -> Findings:
    """Does the database remove entities while messages for them may still come?

    An entity that was written long ago may be about to expire in any set-up. So the one counts that expires last: where even that one
    expires too early, one that is written now does too.
    """
    require(facts.expiry, _GIVER)
    sample, message = require(facts.sample, _GIVER), life(facts)
    lifetimes = [
        (sample.expires[entity.name] - sample.now, entity)
        for entity in sample.entities
        if sample.expires.get(entity.name, 0) > sample.now and TOMBSTONE not in entity.fields and _labels(entity)
    ]
    if not lifetimes:
        raise NotCheckedError("No entity that was read has a ledger and a time at which TTL will remove it.")
    most, latest = max(lifetimes, key=lambda pair: pair[0])
    if most < message.enough:
        yield DoctorFinding(
            "error",
            f"TTL removes entities too early: of {len(lifetimes)} with a ledger and a TTL, {printable(latest.name)} expires last, in {span(round(most))}. "
            f"{message.text}.",
            "TTL removes the ledger with the entity. A message that is delivered again after that creates the entity anew, and takes effect "
            "again.",
            f"Let an entity expire {span(message.seconds)} after its last message at the earliest, and move the time on with each message.",
            "the queue, the sample",
        )
    return f"The entity that expires last does so in {span(round(most))}. {message.text}.{message.late_redrive(most)}"


def erased_ledgers(facts: Facts) -> Findings:
    """Are there entities of the kind of guarded ones in which nothing of onewrite is left?"""
    sample = require(facts.sample, _GIVER)
    guarded_entities = [entity for entity in sample.entities if _labels(entity)]
    if not guarded_entities:
        raise NotCheckedError("None of the entities that were read has a ledger.")
    bare = [
        entity
        for entity in sample.entities
        if not entity.our_fields and _own_fields(entity).difference(entity.key) and _is_sibling(entity, guarded_entities)
    ]
    if bare:
        yield DoctorFinding(
            "notice",
            f"{count_of(len(bare), 'entity has', 'entities have')} no ledger, while {count_of(len(guarded_entities), 'of their kind has', 'of their kind have')} one: {_names(bare)}.",
            "They may have had no message yet. Or another writer may replace whole entities, as by put_item, replace_one, or the save() of a "
            "mapper: that erases the ledger, and what was done takes effect again.",
            "Look for writers that replace these entities, and let them send updates, or use the guarded store. See https://github.com/onewrite/onewrite/blob/main/docs/models.md.",
            "the sample",
        )
    return f"Looked at {count_of(len(sample.entities), 'entity', 'entities')}, {len(guarded_entities)} with a ledger."


def _own_fields(entity: EntityImage) -> frozenset[str]:
    """The names of what is the user's own."""
    return frozenset([name for name in entity.fields if not is_ours(name)])


def _is_sibling(entity: EntityImage, peers: Several[EntityImage]) -> bool:
    """Is it of a kind with those that have a ledger? A table with a sort key often holds entities of several kinds.

    There, what is of a kind has the same attributes, or at least all that the guarded ones have in common beside their key.
    """
    if len(entity.key) == 1:
        return True
    own, fields_of_peers = _own_fields(entity), [_own_fields(peer) for peer in peers]
    common = frozenset[str].intersection(*fields_of_peers)
    return own in fields_of_peers or (common > frozenset(entity.key) and own >= common)


def _names(entities: Several[EntityImage]) -> str:
    names = [printable(entity.name) for entity in entities]
    return ", ".join(names[:_MOST_NAMES]) + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")


def global_table(facts: Facts) -> Findings:
    """Can two regions both apply a message?"""
    table = require(facts.table, "--table")
    if not table.replicas:
        return f"{table.name} is in one region."
    regions = ", ".join(table.replicas)
    if not table.strong:
        yield DoctorFinding(
            "warning",
            f"{table.name} is a global table with eventual consistency (MREC), with copies in {regions}.",
            "A region does not see at once what another one has written. If consumers in two regions get the same message, both apply it, and "
            "of two writes of one entity the last one wins, with its ledger.",
            "Let the consumers of one region alone write an entity, or use a global table with strong consistency (MRSC).",
            "the table",
        )
    return f"{table.name} is a global table with strong consistency (MRSC), with copies in {regions}."


# --- Makes all checks on the facts. Pure ----------------------------------------------------------------------------------


CHECKS = (
    Check("ledger-retention", "The ledger remembers a message for as long as SQS holds it", retention),
    Check("tombstone-retention", "Tombstones stay for as long as SQS holds a message", tombstones),
    Check("tombstone-ttl", "The database removes tombstones", tombstone_ttl),
    Check("ttl", "TTL removes no entity while SQS holds messages for it", ttl),
    Check("dead-letters", "What fails again and again ends where somebody sees it", dead_letters),
    Check("dead-letter-retention", "A dead letter stays until somebody has seen it", dead_letter_retention),
    Check("mapping", "The function is fed from the queue that is named", mapping),
    Check("visibility-timeout", "A message is hidden for as long as the function works on it", visibility),
    Check("partial-failures", "Lambda reads which records failed", partial_failures),
    Check("order", "A ledger that needs order is fed in order", order),
    Check("indexes", "No index copies the ledger", indexes),
    Check("erased-ledgers", "No other writer erases ledgers", erased_ledgers),
    Check("validator", "The collection's validator tolerates a ledger", validator),
    Check("outbox-index", "A relay finds what is pending by an index", outbox_index),
    Check("global-table", "No two regions apply the same message", global_table),
)


def examine(facts: Facts) -> list[CheckResult]:
    """Every check, in the order of `CHECKS`: made, or not made and why."""
    return [_result_of(check, facts) for check in CHECKS]


def _result_of(check: Check, facts: Facts) -> CheckResult:
    findings: list[DoctorFinding] = []
    steps = check.run(facts)
    while True:
        try:
            findings.append(next(steps))
        except StopIteration as end:
            return CheckResult(check, "found" if findings else "passed", end.value, tuple(findings))
        except NotCheckedError as error:  # what was found before a fact was missing is found all the same
            return CheckResult(check, "found" if findings else "not checked", str(error), tuple(findings), error.missing)
