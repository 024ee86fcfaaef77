"""The checks: of how messages are delivered, of what entities hold, and of the database itself. Pure."""

from __future__ import annotations

from collections.abc import Collection as Several
from collections.abc import Iterator
from typing import NamedTuple

from onewrite.core.label import OUTBOX
from onewrite.core.ledgers import HighWaterMark, InSequence, Ledger, SeenIds
from onewrite.core.ledgers.seen_ids import LONGEST_SQS_RETENTION
from onewrite.operate.doctor.facts import (
    Check,
    CheckResult,
    DoctorFinding,
    Entity,
    EntitySample,
    EventSourceMapping,
    Fact,
    Facts,
    Findings,
    Module,
    ModuleStore,
    NotCheckedError,
    Queue,
    TableIndex,
    Unread,
    if_known,
    require,
    span,
)
from onewrite.operate.report import count_of

# What AWS recommends, so Lambda can try again where the function is throttled while it has a batch:
# https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
VISIBILITY_SHARE = 6
_ENOUGH_RECEIVES = 5
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
    """The ledgers of the module's stores; without any, those whose labels stand in the sample. It raises at last where there may be others."""
    ledgers = [(store.place, store.ledger) for store in facts.stores if store.ledger is not None]
    if ledgers:
        yield from [Guard(ledger, place, type(ledger).__name__, "the module") for place, ledger in ledgers]
        if facts.module is not None and facts.module.unfound is not None:
            raise _no_ledger(facts.module)
        return
    if facts.module is not None and facts.sample is None:
        raise _no_ledger(facts.module)
    sample = require(facts.sample, "a MODULE, --table or --collection")
    is_known = False
    for label in dict.fromkeys([label for entity in sample.entities for label in entity.labels if label.moved_to is None]):
        kind = "HighWaterMark or InSequence" if label.layout == "marks" else type(label.ledger).__name__
        yield Guard(label.ledger, f"the sample's entities ({label.attribute})", kind, "the labels of the sample")
        is_known = True
    if not is_known:
        if facts.module is not None:
            raise _no_ledger(facts.module)
        raise NotCheckedError("None of the entities that were read has a ledger, so the ledger is not known: give a MODULE.")


def _no_ledger(module: Module) -> NotCheckedError:
    unfound = module.unfound
    if unfound is None:
        return NotCheckedError(f"No store with a ledger was found in {module.name}.")
    return NotCheckedError(f"It needs {unfound.what}, and {unfound.reason}. {unfound.error}", unfound)


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
    enough = max(longer, min(seconds, int(LONGEST_SQS_RETENTION.total_seconds())))
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
        ("A tombstone of the sample", entity.tombstone, "the sample")
        for entity in facts.entities
        if entity.tombstone is not None
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
    dead = [entity for entity in facts.entities if entity.tombstone is not None]
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
    place = facts.collection.name if facts.collection is not None else "" if table is None else f"the table {table.name}"
    return [store for store in facts.stores if store.place == place]


def outbox_index(facts: Facts) -> Findings:
    """Does a relay find what is pending without reading everything?"""
    boxes = [store.outbox for store in _stores_of_place(facts) if store.outbox]
    if facts.collection is not None:
        keys = require(facts.index_keys, _GIVER)
        if not boxes and not any(entity.outbox for entity in facts.entities):
            raise NotCheckedError("No store with an outbox was found in a module, and no outbox in a sample.")
        if all(key[:1] != (OUTBOX.due,) for key in keys):
            yield DoctorFinding(
                "warning",
                f"{facts.collection.name} has no index on {OUTBOX.due}.",
                "Each sweep of a relay reads the whole collection.",
                f'Create it: create_index("{OUTBOX.due}", sparse=True).',
                "the indexes, the module, the sample",
            )
        return f"{facts.collection.name} has an index on {OUTBOX.due}."
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


def later_format(facts: Facts) -> Findings:
    """Has a later version of onewrite written some of the entities?"""
    sample = require(facts.sample, _GIVER)
    entities = [entity for entity in sample.entities if entity.later]
    if entities:
        labels = ", ".join(sorted({label for entity in entities for label in entity.later})[:_MOST_NAMES])
        yield DoctorFinding(
            "warning",
            f"{count_of(len(entities), 'entity has', 'entities have')} what another version of onewrite has written ({labels}): {_names(entities)}.",
            "This version does not know that format, and has judged nothing in it. Its stores refuse these entities, and their messages wait.",
            "Deploy the version that wrote it to all consumers, and run this command with it.",
            "the sample",
        )
    return (
        f"Looked at {count_of(len(sample.entities), 'entity', 'entities')} for what another version of onewrite has written."
    )


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


# --- Checks of what a table or collection holds: the share of the ledger, and entities that lost theirs or will lose it


_GIVER = "--table or --collection"
_FULL = 0.8  # of the bytes that an entity may have: what is fuller is close to refusing every message
_LARGE_LEDGER = 10 * 1024  # bytes: ten DynamoDB write units in every write of the entity
_LARGE_SHARE = 0.5  # of an entity's bytes
_MOST_NAMES = 3  # entities that a finding names


def ledger_share(facts: Facts) -> Findings:
    """How much of the largest entities is ledger?"""
    sample = require(facts.sample, _GIVER)
    guarded_entities = sorted([entity for entity in sample.entities if entity.ledger], key=lambda entity: -entity.size)
    if not guarded_entities:
        raise NotCheckedError("None of the entities that were read has a ledger.")
    large = [
        entity
        for entity in guarded_entities
        if (own := sum(entity.ledger.values())) > _LARGE_LEDGER
        and (own >= _LARGE_SHARE * entity.size or entity.size >= _FULL * sample.limit)
    ]
    full = [entity for entity in large if entity.size >= _FULL * sample.limit]
    if large:
        largest = large[0]
        yield DoctorFinding(
            "error" if full else "warning",
            f"In {len(large)} of {count_of(len(guarded_entities), 'entity', 'entities')} with a ledger, it takes at least half of the bytes, or the "
            f"entity is almost full: {_sizes(largest)}, and an entity may have {sample.limit:,}.",
            "An entity that is full refuses every further message, also those that were let in before."
            if full
            else "The ledger is read and written with every message of the entity, and billed by DynamoDB each time.",
            "Shorten the retention of SeenIds, or leave out readable=True; or use a ledger of one mark a source, or an inbox: "
            "docs/ledgers.md compares what they cost.",
            "the sample",
        )
    return f"The largest of {count_of(len(guarded_entities), 'entity', 'entities')} with a ledger: {_sizes(guarded_entities[0])}."


def _sizes(entity: Entity) -> str:
    own = sum(entity.ledger.values())
    return f"{entity.name} has {entity.size:,} bytes, of which {own:,} ({own / entity.size:.0%}) are ledger"


def indexes(facts: Facts) -> Findings:
    """Do indexes copy the ledger?"""
    table = require(facts.table, "--table")
    if not table.indexes:
        return "The table has no secondary index."
    sample = require(facts.sample, _GIVER)
    guarded_entities = [entity for entity in sample.entities if entity.ledger]
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


def _copied_bytes(index: TableIndex, entity: Entity) -> int:
    """How many bytes of the entity's ledger the index has. It leaves out entities without its keys."""
    if not entity.own.issuperset(index.keys):
        return 0
    return sum([size for name, size in entity.ledger.items() if index.included is None or name in index.included])


def ttl(facts: Facts) -> Findings:
    """Does the database remove entities while messages for them may still come?

    An entity that was written long ago may be about to expire in any set-up. So the one counts that expires last: where even that one
    expires too early, one that is written now does too.
    """
    require(facts.expiry, _GIVER)
    sample, message = require(facts.sample, _GIVER), life(facts)
    lifetimes = [
        (entity.expires - sample.now, entity)
        for entity in sample.entities
        if entity.expires is not None and entity.expires > sample.now and entity.tombstone is None and entity.ledger
    ]
    if not lifetimes:
        raise NotCheckedError("No entity that was read has a ledger and a time at which TTL will remove it.")
    most, latest = max(lifetimes, key=lambda pair: pair[0])
    if most < message.enough:
        yield DoctorFinding(
            "error",
            f"TTL removes entities too early: of {len(lifetimes)} with a ledger and a TTL, {latest.name} expires last, in {span(round(most))}. "
            f"{message.text}.",
            "TTL removes the ledger with the entity. A message that is delivered again after that creates the entity anew, and takes effect "
            "again.",
            f"Let an entity expire {span(message.seconds)} after its last message at the earliest, and move the time on with each message.",
            "the queue, the sample",
        )
    return f"The entity that expires last does so in {span(round(most))}. {message.text}.{message.late_redrive(most)}"


def erased_ledgers(facts: Facts) -> Findings:
    """Are there entities beside guarded ones that have no ledger?"""
    sample = require(facts.sample, _GIVER)
    guarded_entities = [entity for entity in sample.entities if entity.ledger]
    if not guarded_entities:
        raise NotCheckedError("None of the entities that were read has a ledger.")
    bare = [
        entity
        for entity in sample.entities
        if entity.own.difference(sample.keys)
        and not (entity.ledger or entity.in_use or entity.unlabelled or entity.overwritten or entity.tombstone is not None)
        and _is_sibling(entity, guarded_entities, sample)
    ]
    if bare:
        yield DoctorFinding(
            "warning",
            f"{count_of(len(bare), 'entity has', 'entities have')} no ledger, while {count_of(len(guarded_entities), 'of their kind has', 'of their kind have')} one: {_names(bare)}.",
            "They may have had no message yet. Or another writer may replace whole entities, as by put_item, replace_one, or the save() of a "
            "mapper: that erases the ledger, and what was done takes effect again.",
            "Look for writers that replace these entities, and let them send updates, or use the guarded store. docs/guide.md says how.",
            "the sample",
        )
    return f"Looked at {count_of(len(sample.entities), 'entity', 'entities')}, {len(guarded_entities)} with a ledger."


def _is_sibling(entity: Entity, peers: Several[Entity], sample: EntitySample) -> bool:
    """Is it of a kind with those that have a ledger? A table with a sort key often holds entities of several kinds.

    There, what is of a kind has the same attributes, or at least all that the guarded ones have in common beside their key.
    """
    if len(sample.keys) == 1:
        return True
    common = frozenset[str].intersection(*[peer.own for peer in peers])
    return any(peer.own == entity.own for peer in peers) or (common > frozenset(sample.keys) and entity.own >= common)


def damaged_ledgers(facts: Facts) -> Findings:
    """Are there ledgers of which a part is missing, or something else?"""
    sample = require(facts.sample, _GIVER)
    overwritten = [entity for entity in sample.entities if entity.overwritten]
    without_label = [entity for entity in sample.entities if entity.unlabelled]
    without_marks = [entity for entity in sample.entities if entity.unmarked]
    if overwritten:
        names = ", ".join(sorted({name for entity in overwritten for name in entity.overwritten})[:_MOST_NAMES])
        yield DoctorFinding(
            "error",
            f"{count_of(len(overwritten), 'entity has', 'entities have')} what no version of onewrite has put there, in {names}: {_names(overwritten)}.",
            "Something else writes under names of onewrite. A store refuses the messages of such an entity, or lets them in twice.",
            "Look for the writer, and repair the entities: onewrite inspect shows what they hold.",
            "the sample",
        )
    if without_label:
        names = ", ".join(sorted({name for entity in without_label for name in entity.unlabelled}))
        yield DoctorFinding(
            "error",
            f"{count_of(len(without_label), 'entity has', 'entities have')} marks but no label, in {names}: {_names(without_label)}.",
            "Every guarded write puts the label there, so something else may have removed it. A store with another ledger is then not "
            "refused, and may let messages in twice.",
            "Look for writers that remove attributes which they do not know, or copy only some of them.",
            "the sample",
        )
    if without_marks:
        names = ", ".join(sorted({name for entity in without_marks for name in entity.unmarked}))
        yield DoctorFinding(
            "warning",
            f"{count_of(len(without_marks), 'entity has', 'entities have')} the label of a ledger but no mark, in {names}: {_names(without_marks)}.",
            "Every guarded write leaves a mark, so something else may have removed them: an operator who meant to, or a writer "
            "that erases the ledger. What was done before may take effect again.",
            "If no operator has cleared these ledgers, look for writers that remove attributes which they do not know.",
            "the sample",
        )
    return f"Looked at {count_of(len(sample.entities), 'entity', 'entities')}."


def _names(entities: Several[Entity]) -> str:
    names = [entity.name for entity in entities]
    return ", ".join(names[:_MOST_NAMES]) + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")


# --- Checks of the database itself: its copies, its clock, its write concern and its version. Pure ------------------------


_COLLECTION = "--collection"


class ServerFault(NamedTuple):
    """A known fault of a server: in each series of versions, the first that is without it."""

    name: str
    fixes: tuple[tuple[int, int, int], ...]
    why: str
    do: str


FAULTS = (
    ServerFault(
        "CVE-2025-10060",
        ((6, 0, 25), (7, 0, 22), (8, 0, 12)),
        "An upsert that is tried again within a transaction can end the server's process.",
        "The transactions of onewrite contain no upsert, but others of yours may: keep upserts out of transactions until the server is ",
    ),
)


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


def clock(facts: Facts) -> Findings:
    """Is this machine's clock close enough to the database's?"""
    offset = require(facts.clock, "--table or --collection")
    off = abs(offset.ahead)
    skews = list[float]()
    for guard in guards(facts):
        if guard.ledger.skew is None:
            continue
        skews.append(skew := guard.ledger.skew.total_seconds())
        if off - offset.margin > skew:
            yield DoctorFinding(
                "error",
                f"This machine's clock is {span(off)} {'behind' if offset.ahead > 0 else 'ahead of'} the database's, and {guard.kind} of "
                f"{guard.place} tolerates {span(int(skew))}.",
                "A writer with such a clock makes the ledger forget messages too early, for all writers of the entity.",
                "Set the clock right, as by NTP; and run this command on the machines that run the handlers: their clocks are the ones that count.",
                "the database's clock, this machine's clock",
            )
    least = f" The ledger tolerates {span(int(min(skews)))}." if skews else " The ledger does not depend on time."
    return f"This machine's clock is within {off + offset.margin:.1f} seconds of the database's.{least}"


def write_concern(facts: Facts) -> Findings:
    """Does an acknowledged write outlive a failover?"""
    stores = [store for store in facts.stores if store.engine == "mongodb"]
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
        origin = "as its URL says" if facts.collection.w is not None else "by the server's default"
        yield _weak(
            "error" if w == 0 else "warning",
            f"{facts.collection.name} is written with w={w}, {origin}, unless the store says otherwise as a guarded store does by default",
            "the URL, the server's default",
        )
    return f"{facts.collection.name} is written with w={w!r}."


def _default(facts: Facts) -> int | str:
    server = if_known(facts.server)
    if server is not None and server.kind == "standalone":
        return 1
    return require(facts.default_w, _COLLECTION)  # type: ignore[return-value]  # mypy joins int and str to object


def _weak(severity: str, what: str, rests_on: str) -> DoctorFinding:
    why = "A failover, or a crash, can take back what the server had acknowledged: effect and mark vanish together, but the broker was told that "
    return DoctorFinding(
        "error" if severity == "error" else "warning",
        f"{what}.",
        f"{why}the message is done, so it is lost.",
        'Write with w="majority", which a guarded store does unless it is made with durability="acknowledged"; and let native writers do the same.',
        rests_on,
    )


def standalone(facts: Facts) -> Findings:
    """Is there more than one server?"""
    server = require(facts.server, _COLLECTION)
    if server.kind == "standalone":
        yield DoctorFinding(
            "warning",
            "The server is a standalone, and no member of a replica set.",
            "It knows neither retryable writes nor transactions: an answer that is lost is an error, after which the message must be redelivered, "
            "and transact is refused. When its disk is lost, every effect is.",
            "Make it a replica set, of three members if the data matters.",
            "the server's hello",
        )
    return f"The server is {'a member of a replica set' if server.kind == 'replica set' else 'a mongos'}."


def arbiters(facts: Facts) -> Findings:
    """Can a majority still write when one server with data is down?"""
    server = require(facts.server, _COLLECTION)
    if server.kind != "replica set":
        raise NotCheckedError(
            f"The server is a {server.kind}: which members are arbiters is asked of a member of a replica set."
        )
    status = if_known(facts.members)
    names = sorted({*server.arbiters, *(status.arbiters if status is not None else ())})
    if names:
        yield DoctorFinding(
            "warning",
            f"The replica set has {'an arbiter' if len(names) == 1 else 'arbiters'}: {', '.join(names)}.",
            "An arbiter votes but holds no data. In a set of three with one, no write reaches a majority while one of the other two is down: "
            "guarded writes wait, and messages come again. The server's default is then w:1.",
            "Replace the arbiter by a member that holds data.",
            "the server's hello, replSetGetStatus",
        )
    elif status is not None and 1 < status.writing <= status.majority:
        yield DoctorFinding(
            "warning",
            f"All {status.writing} members of the replica set that hold data must have a write before a majority has it.",
            "While one of them is down, guarded writes wait, and messages come again.",
            "Add a member that holds data.",
            "replSetGetStatus",
        )
    members = require(facts.members, _COLLECTION)
    return f"{count_of(members.writing, 'member holds', 'members hold')} data, and a majority of {members.majority} makes a write safe."


def version(facts: Facts) -> Findings:
    """Has the server a known fault that concerns guarded writes?"""
    name = require(facts.version, _COLLECTION)
    numbers = tuple([int(part) for part in name.partition("-")[0].split(".")[:3] if part.isdigit()])
    for fault in FAULTS:
        for fix in fault.fixes:
            if numbers[:2] == fix[:2] and numbers < fix:
                do = f"{fault.do}{'.'.join(map(str, fix))}."
                yield DoctorFinding("warning", f"The server is {name}, which has {fault.name}.", fault.why, do, "buildInfo")
    return f"The server is {name}."


# --- Makes all checks on the facts. Pure ----------------------------------------------------------------------------------


CHECKS = (
    Check("ledger-retention", "The ledger remembers a message for as long as SQS holds it", retention),
    Check("tombstone-retention", "Tombstones stay for as long as SQS holds a message", tombstones),
    Check("tombstone-ttl", "The database removes tombstones", tombstone_ttl),
    Check("ttl", "TTL removes no entity while SQS holds messages for it", ttl),
    Check("dead-letters", "What fails again and again ends where somebody sees it", dead_letters),
    Check("mapping", "The function is fed from the queue that is named", mapping),
    Check("visibility-timeout", "A message is hidden for as long as the function works on it", visibility),
    Check("partial-failures", "Lambda reads which records failed", partial_failures),
    Check("order", "A ledger that needs order is fed in order", order),
    Check("indexes", "No index copies the ledger", indexes),
    Check("ledger-share", "The ledger is a small part of the entities", ledger_share),
    Check("erased-ledgers", "No other writer erases ledgers", erased_ledgers),
    Check("damaged-ledgers", "No part of a ledger is missing or overwritten", damaged_ledgers),
    Check("later-format", "All that was read is of a format that this version knows", later_format),
    Check("outbox-index", "A relay finds what is pending by an index", outbox_index),
    Check("global-table", "No two regions apply the same message", global_table),
    Check("clock", "The clocks agree well enough for the ledger", clock),
    Check("write-concern", "An acknowledged write outlives a failover", write_concern),
    Check("standalone", "The server is a member of a replica set", standalone),
    Check("arbiter", "A majority can write while a server is down", arbiters),
    Check("server-version", "The server has no known fault that concerns guarded writes", version),
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
