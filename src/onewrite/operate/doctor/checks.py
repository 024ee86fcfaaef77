"""The checks of the delivery of messages, of entities, and of the database. Pure."""

from __future__ import annotations

from collections.abc import Collection as Several
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from onewrite.core.features.tombstone import read_tombstone
from onewrite.core.label import (
    FORMAT,
    OUTBOX,
    TOMBSTONE,
    check_outbox,
    describe_mismatch,
    describe_remedy,
    is_ours,
    is_outbox_label,
    make_outbox_label,
    write_constructor,
)
from onewrite.core.ledgers import HighWaterMark, InSequence, Ledger, SeenIds
from onewrite.core.ledgers.entry import ABSENT
from onewrite.core.ledgers.seen_ids import MAX_SQS_RETENTION
from onewrite.core.watch import MAX_LEDGER_BYTES
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
    format_span,
    get_known,
    require,
)
from onewrite.operate.image import EntityImage, LabelledLedger, find_labels, find_ledgers
from onewrite.operate.report import format_count

_ENOUGH_RECEIVES = 5
_ANY_MARKS = "HighWaterMark or InSequence"  # a label doesn't show which
_NO_TOMBSTONE = "The module has no store with tombstones, and the sample has no tombstone."


class Guard(NamedTuple):
    """A ledger, its place, and its class name as far as known."""

    ledger: Ledger
    place: str
    kind: str
    rests_on: str


class Life(NamedTuple):
    """How long after its send time a message can be delivered or redriven.

    A message in a FIFO queue's dead letters can be older than the 14 days of `SeenIds()`. But it usually gets there minutes
    after its effect, and is deleted 14 days later. Only a redrive in the last minutes then finds that the ledger has forgotten
    it. Messages that waited for days in the queue must be redriven sooner, and the report names the deadline.
    """

    seconds: int
    enough: int  # the minimum seconds that a ledger or tombstone must last
    text: str
    dead_letters: Fact[Queue]

    def advise_redrive(self, shortest: float) -> str:
        """Return the deadline of a redrive, or "" if `shortest`, the shortest lifetime judged, outlasts every message.

        Raise `NotCheckedError` if the dead-letter queue couldn't be read, because the longest delay is then unknown.
        """
        if isinstance(self.dead_letters, Unread):
            require(self.dead_letters, "--queue")
        if shortest >= self.seconds:
            return ""
        return (
            f" Redrive dead letters within {format_span(round(shortest))} of the time they were sent. A later redrive can take "
            "effect again."
        )


def list_guards(facts: Facts) -> Iterator[Guard]:
    """Yield the ledgers of the module's stores. If there are none, yield the ledgers of the sample's labels."""
    if facts.stores:
        yield from [Guard(store.ledger, store.place, type(store.ledger).__name__, "the module") for store in facts.stores]
        return
    if facts.module is not None and facts.sample is None:
        raise NotCheckedError(f"{facts.module.name} has no store. Name one, for example shop.stores:orders.")
    sample = require(facts.sample, "a MODULE, --table or --collection")
    labels = [label for entity in sample.entities for label in _list_labels(entity) if label.moved_to is None]
    if not labels:
        raise NotCheckedError(
            "The ledger is unknown, because no sampled entity has one. Name a store, for example shop.stores:orders."
        )
    for label in dict.fromkeys(labels):
        kind = _ANY_MARKS if label.layout == "marks" else type(label.ledger).__name__
        yield Guard(label.ledger, f"the sample's entities ({label.attribute})", kind, "the labels of the sample")


def _list_labels(entity: EntityImage) -> list[LabelledLedger]:
    """Return the labels of an entity's ledgers, except for those of another onewrite version."""
    return [label for label in find_labels(entity.fields.items()) if label.is_known]


def find_message_life(facts: Facts) -> Life:
    """Return how late the queue can deliver a message.

    In a dead-letter queue, the age counts from the send time, but in a FIFO one from the arrival. A redrive sends the message
    again and usually delivers it at once.
    """
    queue = require(facts.queue, "--queue")
    if queue.dead_letters is None or isinstance(facts.dead_letters, Unread):
        text = f"{queue.name} keeps a message for {format_span(queue.retention)}: {format_span(queue.retention)} in total"
        return Life(queue.retention, queue.retention, text, facts.dead_letters)
    dead = require(facts.dead_letters, "--queue")
    longer = max(queue.retention, dead.retention)
    seconds = queue.retention + dead.retention if queue.fifo else longer
    enough = max(longer, min(seconds, int(MAX_SQS_RETENTION.total_seconds())))
    how = "and then" if queue.fifo else "and, from its send time on,"
    text = (
        f"{queue.name} keeps a message for {format_span(queue.retention)}, {how} {dead.name} for {format_span(dead.retention)}: "
        f"{format_span(seconds)} in total"
    )
    return Life(seconds, enough, text, dead)


def check_ledger_retention(facts: Facts) -> Findings:
    """Check that the ledger remembers a message as long as SQS can deliver it."""
    lifetime, retentions = find_message_life(facts), list[int]()
    for guard in list_guards(facts):
        if not isinstance(guard.ledger, SeenIds) or guard.ledger.retention is None:
            continue  # it never forgets
        seconds = int(guard.ledger.retention.total_seconds())
        retentions.append(seconds)
        if seconds < lifetime.enough:
            yield DoctorFinding(
                "error",
                f"{guard.kind} of {guard.place} remembers a message for {format_span(seconds)}, and {lifetime.text}.",
                "If a message is delivered after the ledger has forgotten it, it takes effect again.",
                f"Set the retention to {format_span(lifetime.seconds)}, and pass the current ledger as previous=, for example "
                f"SeenIds({_format_timedelta(lifetime.seconds)}, previous=...). Or shorten the queues' retention.",
                f"the queue, {guard.rests_on}",
            )
    late = lifetime.advise_redrive(min(retentions, default=lifetime.seconds))
    return f"{lifetime.text}. The ledger remembers a message that is redriven on its last day and delivered at once.{late}"


def check_tombstone_retention(facts: Facts) -> Findings:
    """Check that a tombstone is kept as long as a message can arrive."""
    lifetime = find_message_life(facts)
    times = {
        (f"A tombstone of {store.place}", int(store.tombstones.retention.total_seconds()), "the module")
        for store in facts.stores
        if store.tombstones is not None
    }
    for entity in facts.entities:
        if TOMBSTONE in entity.fields:
            with suppress(LedgerMismatch):  # `inspect` reports other content in its place
                times.add(("A tombstone of the sample", read_tombstone(entity.fields[TOMBSTONE]).seconds, "the sample"))
    for what, seconds, rests_on in sorted(times):
        if seconds < lifetime.enough:
            yield DoctorFinding(
                "error",
                f"{what} stays for {format_span(seconds)}, and {lifetime.text}.",
                "A message that arrives after the tombstone has expired re-creates the deleted entity.",
                f"Set Tombstones({_format_timedelta(lifetime.seconds)}) or longer.",
                f"the queue, {rests_on}",
            )
    if not times:
        raise NotCheckedError(_NO_TOMBSTONE)
    return f"{lifetime.text}.{lifetime.advise_redrive(min(seconds for _, seconds, _ in times))}"


def check_tombstone_ttl(facts: Facts) -> Findings:
    """Check that the database removes tombstones."""
    expiry = require(facts.expiry, _STORE_OPTIONS)
    attributes = {store.tombstones.ttl_attribute for store in _find_local_stores(facts) if store.tombstones is not None}
    dead = [entity for entity in facts.entities if TOMBSTONE in entity.fields]
    if not attributes and not dead:
        raise NotCheckedError(_NO_TOMBSTONE)
    missing_attributes = sorted(attributes.difference(expiry))
    if missing_attributes or (dead and not expiry):
        yield DoctorFinding(
            "warning",
            f"Tombstones expire by {' and '.join(missing_attributes) or 'an attribute of their own'}, but the database "
            f"doesn't remove items by it: {'its TTL uses ' + ', '.join(expiry) if expiry else 'it has no TTL'}.",
            "Tombstones stay forever. They cost storage and refuse every message that would re-create the entity.",
            f"Enable TTL on {' or '.join(missing_attributes) or 'the ttl_attribute of Tombstones'}.",
            "the TTL, the module, the sample",
        )
    return f"The database removes entities by {', '.join(expiry)}."


def _find_local_stores(facts: Facts) -> list[ModuleStore]:
    """Return the module's stores of the table or collection that was read."""
    table = get_known(facts.table)
    places = [facts.collection, None if table is None else f"the table {table.name}"]
    return [store for store in facts.stores if store.place in places]


def check_outbox_index(facts: Facts) -> Findings:
    """Check that a relay finds pending events without reading everything."""
    table = None if facts.collection is not None else require(facts.table, _STORE_OPTIONS)
    keys = require(facts.index_keys, _STORE_OPTIONS) if table is None else ()
    boxes = [store.outbox for store in _find_local_stores(facts) if store.outbox]
    if not boxes and not any(is_outbox_label(entity.fields.get(OUTBOX.label)) for entity in facts.entities):
        raise NotCheckedError("The module has no store with an outbox, and the sample has no outbox.")
    if table is None:
        if all(key[:1] != (OUTBOX.due,) for key in keys):
            yield DoctorFinding(
                "warning",
                f"{facts.collection} has no index on {OUTBOX.due}.",
                "Each sweep of a relay reads the whole collection.",
                f'Create it: create_index("{OUTBOX.due}", sparse=True).',
                "the indexes, the module, the sample",
            )
        return f"{facts.collection} has an index on {OUTBOX.due}."
    described = {index.name: _describe(index) for index in table.indexes}
    needed = _describe(TableIndex("", (OUTBOX.shard, OUTBOX.due), frozenset(), ("N", "S")))
    if any(box.index is None for box in boxes) or (not boxes and needed not in described.values()):
        yield DoctorFinding(
            "warning",
            f"Outbox(...) of {table.name} doesn't name an index." if boxes else f"{table.name} has no index for outboxes.",
            "Each sweep of a relay reads the whole table, and you are billed for it.",
            f"Create a global secondary index: {needed}. Then name it in every store and relay: Outbox(..., index=...).",
            "the table, the module, the sample",
        )
    names = {box.index for box in boxes if box.index is not None}
    for name in sorted(names):
        if described.get(name) != needed:
            yield DoctorFinding(
                "error",
                f"The index of Outbox(index={name!r}) {f'is wrong in {table.name}: it has {described[name]}' if name in described else f'does not exist in {table.name}'}.",
                "Every sweep of a relay fails, and events whose notification was lost are never published. If the keys have "
                "other types, every write that emits fails too.",
                f"Create a global secondary index {name!r}: {needed}.",
                "the table, the module",
            )
    return f"{table.name} has {', '.join(sorted(names)) or 'an index for outboxes'}."


def _describe(index: TableIndex) -> str:
    keys = [f"{name} ({kind})" for name, kind in zip(index.keys, index.types, strict=True)]
    projection = "ALL"
    if index.included is not None:
        projection = "INCLUDE" if index.included else "KEYS_ONLY"
    return f"the keys {' and '.join(keys)}, with the projection {projection}"


def check_partial_failures(facts: Facts) -> Findings:
    """Check that Lambda reads which records failed."""
    feeds = _find_feeds(facts, get_known(facts.queue))
    kafka_answers = None if facts.module is None else facts.module.kafka_answers
    unjudged_sources = list[str]()
    for feed in feeds:
        if feed.reports_failures and (feed.provisioned or not feed.kafka):
            continue
        if feed.kafka and kafka_answers is None:
            unjudged_sources.append(feed.source)
        elif feed.kafka and kafka_answers:
            lacks = "ReportBatchItemFailures" if feed.provisioned else "provisioned mode"
            yield DoctorFinding(
                "error",
                f"The event source mapping from {feed.source} lacks {lacks}, but the module has a kafka_handler(provisioned_mode=True).",
                "That handler names the failed records in its response, which Lambda reads only in provisioned mode with "
                "ReportBatchItemFailures. Otherwise the offset moves on, and the failed records are lost.",
                "Remove provisioned_mode=True. The handler then raises, and the whole batch is redelivered. Or set the mapping's "
                "ProvisionedPollerConfig, and its FunctionResponseTypes to [ReportBatchItemFailures].",
                "the event source mappings of the function, the module",
            )
        elif not feed.kafka:
            yield DoctorFinding(
                "error",
                f"The event source mapping from {feed.source} lacks ReportBatchItemFailures.",
                "onewrite's handlers name the failed records in their response. Without this setting, Lambda doesn't read it. It "
                "takes the batch for done, and the failed messages are lost.",
                "Set FunctionResponseTypes of the mapping to [ReportBatchItemFailures].",
                "the event source mappings of the function",
            )
    if unjudged_sources:
        raise NotCheckedError(
            f"Lambda doesn't read the response for the mapping from {unjudged_sources[0]}. That is right for a kafka_handler, "
            "which raises, but wrong with provisioned_mode=True, or for your own handler that returns batchItemFailures. Pass a MODULE."
        )
    return f"Checked {format_count(len(feeds), 'event source mapping')}."


def check_order(facts: Facts) -> Findings:
    """Check that a ledger that needs order gets messages in order."""
    queue = require(facts.queue, "--queue")
    kinds: list[str] = []
    for guard in list_guards(facts):
        kinds.append(guard.kind)
        if queue.fifo:
            continue
        # Five deliveries, as in infra/function.yaml, bridge the usual gaps.
        if isinstance(guard.ledger, InSequence) and queue.receives is not None and queue.receives < _ENOUGH_RECEIVES:
            yield DoctorFinding(
                "warning",
                f"{guard.kind} of {guard.place} waits for each predecessor, but {queue.name} is a standard queue, which doesn't keep "
                f"the order, with a maxReceiveCount of {queue.receives}.",
                "An early message is Deferred and redelivered. After too many deliveries it is a dead letter, which blocks all "
                "later messages of its source.",
                "Use a FIFO queue or SeenIds(), or raise the maxReceiveCount enough for your gaps.",
                f"the queue, {guard.rests_on}",
            )
        elif guard.kind == _ANY_MARKS:
            raise NotCheckedError(
                f"{queue.name} doesn't keep the order. InSequence waits for earlier messages, but HighWaterMark would lose them, and "
                "the labels of the sample are the same for both. Pass a MODULE."
            )
        elif isinstance(guard.ledger, HighWaterMark):
            yield DoctorFinding(
                "error",
                f"{guard.kind} of {guard.place} needs messages in order, but {queue.name} is a standard queue, which doesn't keep the "
                "order.",
                "HighWaterMark takes an overtaken message for an old copy. It is Stale, settled, and lost. That is right only if "
                "each message has its source's whole state.",
                "Use a FIFO queue whose groups are the sources, or SeenIds() with previous=.",
                f"the queue, {guard.rests_on}",
            )
    return (
        f"{queue.name} is a {'FIFO' if queue.fifo else 'standard'} queue. The ledger is {', '.join(dict.fromkeys(kinds))}."
    )


def _find_feeds(facts: Facts, queue: Queue | None) -> list[EventSourceMapping]:
    """Return the function's enabled mappings, or only those from the queue. Raise NotCheckedError if there are none."""
    feeds = [
        feed for feed in require(facts.feeds, "--function") if feed.enabled and (queue is None or feed.source == queue.arn)
    ]
    if not feeds:
        source = "a queue or a stream" if queue is None else queue.name
        raise NotCheckedError(f"The function has no enabled event source mapping from {source}.")
    return feeds


def _format_timedelta(seconds: int) -> str:
    return f"timedelta(days={seconds // 86_400})" if seconds % 86_400 == 0 else f"timedelta(seconds={seconds})"


_STORE_OPTIONS = "--table or --collection"
_MAX_NAMES = 3  # entities that a finding names


def check_erased_ledgers(facts: Facts) -> Findings:
    """Check that no entity of a guarded kind has lost its ledger."""
    sample = require(facts.sample, _STORE_OPTIONS)
    guarded_entities = [entity for entity in sample.entities if _list_labels(entity)]
    if not guarded_entities:
        raise NotCheckedError("No sampled entity has a ledger.")
    bare = [
        entity
        for entity in sample.entities
        if not entity.our_fields
        and _list_own_fields(entity).difference(entity.key)
        and _is_sibling(entity, guarded_entities)
    ]
    if bare:
        yield DoctorFinding(
            "notice",
            f"{format_count(len(bare), 'entity has', 'entities have')} no ledger, while {format_count(len(guarded_entities), 'of their kind has', 'of their kind have')} one: {_name_some(bare)}.",
            "Perhaps they haven't had a message yet. Or a writer replaces whole entities, for example with put_item, "
            "replace_one, or a mapper's save(). That erases the ledger, and earlier messages take effect again if they are "
            "redelivered.",
            "Look for writers that replace these entities. Change them to updates, or to the guarded store. See "
            "https://github.com/onewrite/onewrite/blob/main/docs/models.md.",
            "the sample",
        )
    return f"Checked {format_count(len(sample.entities), 'entity', 'entities')}, {len(guarded_entities)} with a ledger."


def _list_own_fields(entity: EntityImage) -> frozenset[str]:
    """Return the names of the user's own fields."""
    return frozenset([name for name in entity.fields if not is_ours(name)])


def _is_sibling(entity: EntityImage, peers: Several[EntityImage]) -> bool:
    """Whether the entity is of the same kind as its guarded peers. A table with a sort key often holds several kinds.

    In such a table, entities of a kind have the same attributes, or at least all that their guarded peers share outside the
    key.
    """
    if len(entity.key) == 1:
        return True
    own, fields_of_peers = _list_own_fields(entity), [_list_own_fields(peer) for peer in peers]
    common = frozenset[str].intersection(*fields_of_peers)
    return own in fields_of_peers or (common > frozenset(entity.key) and own >= common)


def check_layouts(facts: Facts) -> Findings:
    """Check that the module's stores know the ledgers and outboxes of the sample: the check before a deploy."""
    sample = require(facts.sample, _STORE_OPTIONS)
    if facts.module is None:
        raise NotCheckedError("It needs a MODULE.", option="a MODULE")
    stores = _find_local_stores(facts)
    if not stores:
        raise NotCheckedError(f"{facts.module.name} has no store of this table or collection.")
    entities = [entity for entity in sample.entities if TOMBSTONE not in entity.fields]
    read_attributes = {attribute for store in stores for attribute in store.ledger.terms.attributes}
    for store in stores:
        kind = type(store.ledger).__name__
        mismatches = dict[str, list[EntityImage]]()
        for entity in entities:
            if (error := _find_mismatch(entity, store)) is not None:
                mismatches.setdefault(error, []).append(entity)
        for error, unreadable in mismatches.items():
            yield DoctorFinding(
                "error",
                f"{kind} of {store.place} raises LedgerMismatch for {len(unreadable)} of "
                f"{format_count(len(entities), 'sampled entity', 'sampled entities')}: {_name_some(unreadable)}.",
                "After a deploy, every message for such an entity fails, and finally goes to the dead-letter queue.",
                error,
                "the module, the sample",
            )
        unread = [
            (label, entity)
            for entity in entities
            for label in _list_labels(entity)
            if label.attribute not in read_attributes and label.moved_to is None
        ]
        if unread and not any(store.ledger.attribute in entity.fields for entity in entities):
            label = unread[0][0]
            yield DoctorFinding(
                "warning",
                f"{kind} of {store.place} uses {store.ledger.attribute}, which no sampled entity has. No store of the module reads "
                f"the ledger {label.attribute}, which {format_count(len(unread), 'entity has', 'entities have')}: "
                f"{_name_some([entity for _, entity in unread])}.",
                "The store doesn't know the messages in that ledger. If one is redelivered, it takes effect again.",
                f"If you renamed the ledger, pass the old one as previous={write_constructor(label.layout, label.attribute)}. If another "
                "service writes that ledger, ignore this.",
                "the module, the sample",
            )
    return f"The stores of {facts.module.name} know the ledgers of {format_count(len(entities), 'entity', 'entities')}."


def _find_mismatch(entity: EntityImage, store: ModuleStore) -> str | None:
    """Return the remedy if a write of the store would raise LedgerMismatch."""
    for label in store.ledger.terms.labels:
        text = entity.lookup(label.slot)
        if text is not ABSENT and text not in label.accepts:
            has_previous, attribute = not isinstance(store.ledger, InSequence), label.slot.group
            found = next((found for found in find_labels(entity.fields.items()) if found.attribute == attribute), None)
            remedy = None if found is None else describe_remedy(attribute, found.layout, has_previous=has_previous)
            if found is None or remedy is None:
                return describe_mismatch(label, text, has_previous=has_previous)
            own_layout = label.text.removeprefix(f"{FORMAT} ")
            return f"{attribute} has the layout {found.layout!r} there, but the store's is {own_layout!r}. {remedy}"
    try:
        if store.outbox is not None:
            check_outbox(make_outbox_label(store.outbox.name), entity.fields)
    except LedgerMismatch as error:
        return str(error)
    return None


def _name_some(entities: Several[EntityImage]) -> str:
    names = [printable(entity.name) for entity in entities]
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def check_ledger_size(facts: Facts) -> Findings:
    """Check that no entity of the sample has a large ledger, because every write of the entity pays for it."""
    sample = require(facts.sample, _STORE_OPTIONS)
    ledgers = [
        (ledger.size, ledger.attribute, entity)
        for entity in sample.entities
        for ledger in find_ledgers(entity, sample.now)
        if ledger.size
    ]
    if not ledgers:
        raise NotCheckedError("No sampled entity has a ledger.")
    size, attribute, largest = max(ledgers, key=lambda ledger: ledger[0])
    largest_text = f"The largest ledger in the sample has {size:,} bytes: {attribute} of {printable(largest.name)}."
    if size > MAX_LEDGER_BYTES:
        count = len([size for size, _, _ in ledgers if size > MAX_LEDGER_BYTES])
        yield DoctorFinding(
            "warning",
            f"{largest_text} {format_count(count, 'ledger has', 'ledgers have')} more than {MAX_LEDGER_BYTES:,} bytes.",
            "Every write of such an entity carries its ledger: on DynamoDB, one write unit per 1,024 bytes. At 400 KB, or 16 MB on "
            "MongoDB, writes fail.",
            "If its messages arrive in order, use HighWaterMark or InSequence. Otherwise shorten the retention to the queue's, or "
            'drop readable=True. Or record the entity\'s messages in a table, as in "A table of processed messages" in '
            "https://github.com/onewrite/onewrite/blob/main/docs/several.md.",
            "the sample",
        )
    return largest_text


def check_identities(facts: Facts) -> Findings:
    """Check that the handlers name the source that the ledgers need."""
    if facts.module is None:
        raise NotCheckedError("It needs a MODULE.", option="a MODULE")
    kinds = sorted({type(store.ledger).__name__ for store in facts.stores})
    if not facts.module.bare_handlers:
        raise NotCheckedError(f"No handler of {facts.module.name} uses sqs_message_id().")
    needs_source = [isinstance(store.ledger, HighWaterMark | InSequence) for store in facts.stores]
    if needs_source and all(needs_source):
        yield DoctorFinding(
            "error",
            f"{', '.join(facts.module.bare_handlers)} of {facts.module.name} uses sqs_message_id(), but every store's ledger is "
            f"{' or '.join(kinds)}.",
            "These ledgers need each message's source and sequence. sqs_message_id() has neither, and every write raises "
            "InvalidMessage.",
            "Use fifo_sequence() on a FIFO queue, or json_body(id=..., source=..., sequence=...). Or use SeenIds().",
            "the module",
        )
    return f"The ledgers are {', '.join(kinds) or 'unknown'}."


CHECKS = (
    Check("layout", "The module's stores know the ledgers of the entities", check_layouts),
    Check("identity", "The handlers name the source that the ledgers need", check_identities),
    Check("ledger-size", "No entity has a large ledger", check_ledger_size),
    Check("ledger-retention", "The ledger remembers a message as long as SQS can deliver it", check_ledger_retention),
    Check("tombstone-retention", "Tombstones are kept as long as SQS can deliver a message", check_tombstone_retention),
    Check("tombstone-ttl", "The database removes tombstones", check_tombstone_ttl),
    Check("partial-failures", "Lambda reads which records failed", check_partial_failures),
    Check("order", "A ledger that needs order gets messages in order", check_order),
    Check("erased-ledgers", "No other writer erases ledgers", check_erased_ledgers),
    Check("outbox-index", "A relay finds pending events with an index", check_outbox_index),
)


def examine(facts: Facts) -> list[CheckResult]:
    """Return the result of every check, in the order of `CHECKS`."""
    return [_read_result(check, facts) for check in CHECKS]


def _read_result(check: Check, facts: Facts) -> CheckResult:
    findings: list[DoctorFinding] = []
    effects = check.run(facts)
    while True:
        try:
            findings.append(next(effects))
        except StopIteration as end:
            if not findings:
                return CheckResult(check, "passed", end.value)
            # The check's own sentence holds only if nothing was found.
            return CheckResult(check, "found", " ".join([finding.what for finding in findings]), tuple(findings))
        except NotCheckedError as error:  # keep the findings from before the missing fact
            return CheckResult(
                check, "found" if findings else "not checked", str(error), tuple(findings), error.missing, error.option
            )
