"""Checks of how messages are delivered: how late, how often, and in which order. Pure."""

from __future__ import annotations

from typing import NamedTuple

from onewrite.doctor.facts import Facts, Feed, Queue, Unread
from onewrite.doctor.finding import Finding, Findings, NotCheckedError, known, span
from onewrite.errors import LedgerMismatch
from onewrite.ledgers import HighWaterMark, InSequence, Ledger, SeenIds

# What AWS recommends, so that Lambda can try again where the function is throttled while it has a batch:
# https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
VISIBILITY_SHARE = 6


class Guard(NamedTuple):
    """A ledger, where it was found, and the name of its class as far as that is known."""

    ledger: Ledger
    place: str
    kind: str
    rests_on: str


class Life(NamedTuple):
    """For how many seconds after a message was first sent it may be delivered: `plain`, and `redriven` once from the dead letters."""

    plain: int
    redriven: int
    told: str


def guards(facts: Facts) -> list[Guard]:
    """The ledgers of the module's stores; without any, those whose labels stand in the sample."""
    if facts.module is not None:
        stores = [(store, store.ledger) for store in facts.module.stores]
        found = [
            Guard(ledger, store.place, type(ledger).__name__, "the module") for store, ledger in stores if ledger is not None
        ]
        if found:
            return found
        if facts.sample is None:
            raise NotCheckedError(f"No store with a ledger was found in {facts.module.name}.")
    sample = known(facts.sample, "a MODULE, --table or --collection")
    kept = dict.fromkeys([kept for entity in sample.entities for kept in entity.kept if kept.moved_to is None])
    labelled = list[Guard]()
    for each in kept:
        try:
            ledger = each.ledger
        except LedgerMismatch:
            continue  # a later version of onewrite has written it
        kind = "HighWaterMark or InSequence" if each.layout == "marks" else type(ledger).__name__
        labelled.append(Guard(ledger, f"the sample's entities ({each.attribute})", kind, "the labels of the sample"))
    if not labelled:
        raise NotCheckedError(
            "None of the entities that were read has a ledger, so that the ledger is not known: give a MODULE."
        )
    return labelled


def life(facts: Facts) -> Life:
    """How late a message of the queue may be delivered.

    In a dead-letter queue its age counts on from when it was sent, except in a FIFO one, where it starts anew. A redrive sends it
    anew in both.
    """
    queue = known(facts.queue, "--queue")
    if queue.dead_letters is None:
        return Life(queue.retention, queue.retention, f"{queue.name} keeps a message for {span(queue.retention)}")
    dead = known(facts.dead_letters, "--queue")
    plain = queue.retention + dead.retention if queue.fifo else max(queue.retention, dead.retention)
    how = "and then" if queue.fifo else "and, counted from when it was sent,"
    told = f"{queue.name} keeps a message for {span(queue.retention)}, {how} {dead.name} for {span(dead.retention)}"
    return Life(plain, plain + queue.retention, told)


def retention(facts: Facts) -> Findings:
    """Does the ledger remember for as long as SQS holds a message?"""
    held = _life_at_least(facts)
    for guard in guards(facts):
        kept = _retention(guard.ledger)
        if kept is not None and kept < held.plain:
            yield Finding(
                "error",
                f"{guard.kind} of {guard.place} remembers a message for {span(kept)}, and {held.told}: {span(held.plain)} in all.",
                "A message that is delivered after the ledger has forgotten it takes effect again.",
                f"Set the retention to {span(held.redriven)}{_if_redriven(held)}, and name the ledger of now in also=, as in "
                f"SeenIds({_timedelta(held.redriven)}, also=...); or let the queues keep messages for less long.",
                f"the queue, {guard.rests_on}",
            )
    _insist_on_dead_letters(facts)
    return f"{held.told}: {span(held.plain)} in all."


def redrive(facts: Facts) -> Findings:
    """Does it remember as well for as long as a redrive prolongs that?"""
    held, found = life(facts), guards(facts)
    for guard in found:
        kept = _retention(guard.ledger)
        if kept is not None and held.plain <= kept < held.redriven:
            yield Finding(
                "warning",
                f"{guard.kind} of {guard.place} remembers a message for {span(kept)}. {held.told}; a redrive sends it anew, so "
                f"that it may come up to {span(held.redriven)} after it was first sent.",
                "A message that took effect, was moved to the dead-letter queue and is redriven that late takes effect again.",
                f"Set the retention to {span(held.redriven)}, or redrive no message that is older than {span(kept)}.",
                f"the queue, {guard.rests_on}",
            )
    if any((_retention(guard.ledger) or held.plain) < held.plain for guard in found):
        raise NotCheckedError("The ledger remembers for too short a time without a redrive as well: see ledger-retention.")
    return f"With a redrive a message may come up to {span(held.redriven)} after it was first sent."


def tombstones(facts: Facts) -> Findings:
    """Do tombstones stay for as long as a message may come?"""
    held = _life_at_least(facts)
    found = {
        (f"A tombstone of {store.place}", int(store.tombstones.retention.total_seconds()), "the module")
        for store in (facts.module.stores if facts.module is not None else ())
        if store.tombstones is not None
    }
    sample = None if facts.sample is None or isinstance(facts.sample, Unread) else facts.sample
    for entity in sample.entities if sample is not None else ():
        if entity.tombstone is not None:
            found.add(("A tombstone of the sample", entity.tombstone, "the sample"))
    for what, seconds, rests_on in sorted(found):
        if seconds < held.plain:
            yield Finding(
                "error",
                f"{what} stays for {span(seconds)}, and {held.told}: {span(held.plain)} in all.",
                "A message that comes after the tombstone is gone creates the deleted entity anew.",
                f"Set Tombstones({_timedelta(held.plain)}) or longer.",
                f"the queue, {rests_on}",
            )
    _insist_on_dead_letters(facts)
    if not found:
        raise NotCheckedError("No store with tombstones was found in a module, and no tombstone in a sample.")
    return f"{held.told}: {span(held.plain)} in all."


def visibility(facts: Facts) -> Findings:
    """Is a message hidden for as long as the function may work on it?"""
    queue, function = known(facts.queue, "--queue"), known(facts.function, "--function")
    window = max([feed.window for feed in _feeds_of(facts, queue)])
    least, advised = function.timeout + window, VISIBILITY_SHARE * function.timeout + window
    waits = f", and Lambda gathers a batch for up to {span(window)}" if window else ""
    if queue.visibility < advised:
        early = queue.visibility < least
        yield Finding(
            "error" if early else "warning",
            f"{queue.name} hides a message for {span(queue.visibility)}, and {function.name} may take {span(function.timeout)}{waits}.",
            "A message comes again while it is still processed, and each time counts for the dead-letter queue."
            if early
            else "Where Lambda has no room to run the function at once, messages come again before it has tried, and each time counts "
            "for the dead-letter queue.",
            f"Set the visibility timeout to {advised} seconds or more: six times the function's timeout, as AWS recommends, and the "
            "batching window.",
            "the queue, the function, its event source mapping",
        )
    return f"{span(queue.visibility)} are enough for {VISIBILITY_SHARE} times {span(function.timeout)}{waits}."


def partial_failures(facts: Facts) -> Findings:
    """Does Lambda read which records failed?"""
    queue = None if facts.queue is None or isinstance(facts.queue, Unread) else facts.queue
    feeds = _feeds_of(facts, queue)
    untold = list[Feed]()
    for feed in feeds:
        if feed.kafka:
            answers = None if facts.module is None else facts.module.kafka_answers
            if answers is None and not (feed.provisioned and feed.reports_failures):
                untold.append(feed)
            elif answers and not (feed.provisioned and feed.reports_failures):
                yield _unread_by_kafka(feed)
        elif not feed.reports_failures:
            yield Finding(
                "error",
                f"The event source mapping from {feed.source} lacks ReportBatchItemFailures.",
                "A handler of onewrite names the records that failed in its answer. Without this setting Lambda does not read the answer, "
                "and takes a batch for done with all that failed in it: those messages are lost.",
                "Set FunctionResponseTypes of the mapping to [ReportBatchItemFailures].",
                "the event source mappings of the function",
            )
    if untold:
        raise NotCheckedError(
            f"Lambda reads no answer of the mapping from {untold[0].source}. That is right for kafka_handler, which raises; it is not with "
            "provisioned_mode=True, nor for a handler that answers batchItemFailures itself. Give a MODULE to tell."
        )
    return f"Looked at {len(feeds)} event source mapping{'s' if len(feeds) > 1 else ''}."


def _unread_by_kafka(feed: Feed) -> Finding:
    lacks = "ReportBatchItemFailures" if feed.provisioned else "provisioned mode"
    return Finding(
        "error",
        f"The event source mapping from {feed.source} lacks {lacks}, and kafka_handler(provisioned_mode=True) is in the module.",
        "That handler names the records that failed in its answer. Of Kafka, Lambda reads it in provisioned mode only, and with "
        "ReportBatchItemFailures only. Elsewhere the offset moves on, and those records are lost.",
        "Leave out provisioned_mode=True, so that the handler raises and the whole batch comes again; or set ProvisionedPollerConfig of "
        "the mapping, and FunctionResponseTypes to [ReportBatchItemFailures].",
        "the event source mappings of the function, the module",
    )


def order(facts: Facts) -> Findings:
    """Is a ledger that needs order fed in order?"""
    queue = known(facts.queue, "--queue")
    found = guards(facts)
    for guard in found:
        if queue.fifo or not isinstance(guard.ledger, HighWaterMark | InSequence):
            continue
        if isinstance(guard.ledger, InSequence):
            yield _waits(queue, guard)
        else:
            yield _drops(queue, guard)
    kinds = ", ".join(dict.fromkeys([guard.kind for guard in found]))
    return f"{queue.name} is {'a FIFO' if queue.fifo else 'a standard'} queue; the ledger is {kinds}."


def _drops(queue: Queue, guard: Guard) -> Finding:
    return Finding(
        "error",
        f"{guard.kind} of {guard.place} needs messages in order, and {queue.name} is a standard queue, which keeps none.",
        "HighWaterMark takes a message that was overtaken by a newer one of its source for an old copy: it is Stale, settled, and lost. "
        "That is right only where each message has the whole state of its source.",
        "Use a FIFO queue, whose groups are the sources; or SeenNumbers() for messages that are numbered by ints, or SeenIds(), each with also=.",
        f"the queue, {guard.rests_on}",
    )


def _waits(queue: Queue, guard: Guard) -> Finding:
    return Finding(
        "warning",
        f"{guard.kind} of {guard.place} waits for the message before, and {queue.name} is a standard queue, which keeps no order.",
        "A message that comes too early is Deferred and delivered again. Each time counts for the dead-letter queue, and whatever ends "
        "there holds back all that follow it.",
        "Use a FIFO queue, or SeenNumbers(); or a maxReceiveCount that is high enough for the gaps that you have.",
        f"the queue, {guard.rests_on}",
    )


def _feeds_of(facts: Facts, queue: Queue | None) -> list[Feed]:
    feeds = known(facts.feeds, "--function")
    if queue is None:
        if not feeds:
            raise NotCheckedError("The function has no event source mapping from a queue or a stream.")
        return list(feeds)
    found = [feed for feed in feeds if feed.source == queue.arn]
    if not found:
        raise NotCheckedError(f"The function has no event source mapping from {queue.name}.")
    return found


def _retention(ledger: Ledger) -> int | None:
    """For how many seconds it remembers; None if it never forgets."""
    if not isinstance(ledger, SeenIds) or ledger.retention is None:
        return None
    return int(ledger.retention.total_seconds())


def _life_at_least(facts: Facts) -> Life:
    """`life`, or that of the queue alone where its dead letters cannot be read: what is too short for that is too short."""
    queue = known(facts.queue, "--queue")
    if isinstance(facts.dead_letters, Unread):
        return Life(queue.retention, queue.retention, f"{queue.name} keeps a message for {span(queue.retention)}")
    return life(facts)


def _insist_on_dead_letters(facts: Facts) -> None:
    if isinstance(facts.dead_letters, Unread):
        known(facts.dead_letters, "--queue")


def _if_redriven(held: Life) -> str:
    return f", of which {span(held.redriven - held.plain)} are for a redrive" if held.redriven > held.plain else ""


def _timedelta(seconds: int) -> str:
    return f"timedelta(days={seconds // 86_400})" if seconds % 86_400 == 0 else f"timedelta(seconds={seconds})"
