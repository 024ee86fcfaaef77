"""`onewrite relay` runs a relay, or lists, skips, and restarts events that it can't publish.

A skip or a restart asks first, and logs the change and its operator.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from logging import INFO, WARNING

from onewrite.core.features.event import Outbox
from onewrite.core.log import log
from onewrite.core.values import seconds
from onewrite.errors import ConfigurationError
from onewrite.operate.exits import Exit, interrupt_process, make_deadline
from onewrite.operate.modules import RELAY, find
from onewrite.operate.options import (
    Options,
    VerbParser,
    add_json,
    add_logging,
    add_store,
    get_global_meter,
    make_number_reader,
    refuse_ineffective,
)
from onewrite.operate.report import (
    NothingToDo,
    NotThere,
    confirm,
    escape,
    format_age,
    format_count,
    log_to_stderr,
    own_log,
    raise_interrupt,
    record,
    record_unknown_result,
    run_verb,
    tell,
    tell_json,
)
from onewrite.operate.stores import check_exists, format_key, is_named, make_relay
from onewrite.outbox import PendingEntity, Relay, SweepReport
from onewrite.outbox.metrics import emf, opentelemetry
from onewrite.outbox.relay import OnPass, report_pass
from onewrite.process.stopping import on_signals

_SUMMARY = 60.0  # seconds between two summary lines
_MAX_LISTED = 1000  # maximum number of listed entities of a kind
_MAX_LOGGED = 20  # maximum number of entities that --once names in the log
_STORE_OPTIONS = ("outbox", "index", "to", "table", "collection", "region", "endpoint_url")


def add_options(parser: VerbParser) -> None:
    """Add the options of `relay`. The environment can't set an operator's action."""
    name = (
        "The Relay, or a function that creates it, for example shop.relays:orders. Without it, pass --table or --collection."
    )
    parser.add_position("relay", RELAY, name, variable="ONEWRITE_RELAY")
    add_store(parser, is_required=False)
    outbox = "The name of the store's Outbox, for example shop/orders. Required with --table or --collection."
    parser.add_value("--outbox", outbox, metavar="NAME", variable=True)
    parser.add_value("--index", "The sparse index of the table's Outbox.", metavar="NAME", variable=True)
    to = (
        "The destination of the store's events: an SQS queue's URL, or the ARN of an SNS topic or EventBridge bus. "
        "Required with --table or --collection, except with --stuck, --skip, or --restart."
    )
    parser.add_value("--to", to, metavar="DESTINATION", variable=True)
    parser.add_flag("--once", "Make one pass over all pending events, and stop.", has_variable=True)
    parser.add_value(
        "--poll",
        "Seconds between two passes.",
        metavar="SECONDS",
        variable=True,
        default=1.0,
        kind=make_number_reader(float, 0.01, 86_400),
    )
    parser.add_value(
        "--older-than",
        "Skip events that have been pending for fewer seconds.",
        metavar="SECONDS",
        variable=True,
        default=0,
        kind=make_number_reader(float, 0, 1e9),
    )
    add_logging(parser)
    parser.add_flag("--stuck", "List the events that have been pending longest, and stop.")
    parser.add_value("--skip", "Skip the event with this ID, which must be its entity's oldest.", metavar="ID")
    restart = "After a restore from backup: number the events of this source from 1 again, under a new source."
    parser.add_value("--restart", restart, metavar="SOURCE")
    operator = "Your name, for the log of --skip or --restart. The default is the user of this process."
    parser.add_value("--operator", operator, metavar="NAME", variable=True)
    parser.add_flag("--yes", "Don't ask before skipping or restarting.")
    add_json(parser)


def run(options: Options) -> int:
    """Publish, or perform the only operator action among the options. Return the exit code."""
    acts = [act for act in ("stuck", "skip", "restart") if options[act]]
    if len(acts) > 1:
        raise ConfigurationError("Pass only one of --stuck, --skip, and --restart.")
    act = acts[0] if acts else None
    _check_options(options, act)

    def run_act() -> int:
        level = options["log_level"] if act is None else "INFO"  # an operator's action is always logged
        relay = _choose_relay(options, publishes=act is None)
        if options["owns_process"]:
            own_log(options["log_format"], level)
        log_to_stderr(options["log_format"], level)  # for other loggers, unless the user's module has configured logging
        if options["once"] or act is not None:
            check_exists(options)
        match act:
            case "stuck":
                return list_stuck(relay, timedelta(seconds=options["older_than"]), as_json=options["json"])
            case "skip":
                return skip_event(relay, options["skip"], operator=options["operator"], yes=options["yes"])
            case "restart":
                return restart_entity(relay, options["restart"], operator=options["operator"], yes=options["yes"])
            case _:
                return _publish(relay, options)

    return run_verb(run_act)


def _check_options(options: Options, act: str | None) -> None:
    """Raise for an option that doesn't have an effect."""
    if act != "stuck":
        refuse_ineffective(options, ["json"], "without --stuck")
    if act not in ("skip", "restart"):
        refuse_ineffective(options, ["yes", "operator"], "without --skip or --restart")
    else:
        refuse_ineffective(options, ["older_than"], f"with --{act}")
    if act is not None:
        refuse_ineffective(options, ["to", "once", "poll", "drain_seconds", "metrics", "log_level"], f"with --{act}")
    if options["once"]:
        refuse_ineffective(options, ["poll"], "with --once")


def _choose_relay(options: Options, *, publishes: bool) -> Relay:
    """Return a module's relay, or a new one for a store."""
    name, given = options["relay"], options["given"]
    if name is None or ("relay" not in given and {"table", "collection"} & given):  # the environment's relay has no store
        for option_name in ("outbox", "to") if publishes else ("outbox",):
            if is_named(options) and options[option_name] is None:
                raise ConfigurationError(
                    f"Pass --{option_name}, because a store alone doesn't determine it. See `onewrite relay --help`."
                )
        return make_relay(options, Outbox(options["outbox"] or "none", index=options["index"]), options["to"])
    for option_name in _STORE_OPTIONS:
        if option_name in given:
            raise ConfigurationError(
                f"Remove --{option_name.replace('_', '-')} or {name}: the module's Relay already determines it."
            )
    candidate = find(name, RELAY, quiet=options["json"])
    if not isinstance(candidate, Relay):
        raise ConfigurationError(
            f"{RELAY}: {name!r} is a {type(candidate).__name__}. Name an onewrite.outbox.Relay, or a function that "
            "returns one."
        )
    return candidate


def _publish(relay: Relay, options: Options) -> int:
    """Publish until stopped, or with --once for one pass. Return the exit code."""
    kinds = options["metrics"] or ()
    progress = PassLog([emf() if kind == "emf" else opentelemetry(get_global_meter()) for kind in kinds])
    oldest = timedelta(seconds=options["older_than"])
    code: int = Exit.DONE
    stop = _make_stop(relay, options["drain_seconds"], owns_process=options["owns_process"])
    if options["once"]:
        began = time.time()
        with on_signals(stop):
            sweep = relay.sweep(oldest)
            report_pass(sweep, progress.count)
            if sweep.error is None:
                pending = relay.pending(oldest, limit=_MAX_LISTED)
                # Leave out events that were emitted during the pass.
                remaining = [waiting for waiting in pending if not began <= seconds(waiting.event.time) <= time.time()]
                _log_remaining(remaining)
                code = Exit.FOUND if remaining or sweep.broken else Exit.DONE
        if sweep.error or sweep.failed:
            code = Exit.FAILED
    else:
        with on_signals(stop):
            relay.run(poll=options["poll"], older_than=oldest, on_pass=progress.count)
    progress.sum_up(last=True)
    log(INFO, "the relay has stopped")
    return code


def _log_remaining(remaining: Sequence[PendingEntity]) -> None:
    """Name the entities whose events the pass left pending. The relay doesn't retry a refused event in each pass."""
    for waiting in remaining[:_MAX_LOGGED]:
        log(WARNING, "Relay: still pending: %s", _format_line(waiting))
    if (more := len(remaining) - _MAX_LOGGED) > 0:
        log(WARNING, "Relay: more entities have pending events: %d. To list them, run onewrite relay --stuck", more)


def _make_stop(relay: Relay, drain_seconds: float, *, owns_process: bool) -> Callable[[], None]:
    """Return a signal handler that stops the relay within `drain_seconds`, and ends it at once at the second signal."""
    is_stopping = False
    begin_drain = make_deadline(drain_seconds) if owns_process else None

    def stop() -> None:
        nonlocal is_stopping
        if is_stopping:
            interrupt_process() if owns_process else raise_interrupt()
        is_stopping = True
        relay.stop()
        if begin_drain is not None:
            begin_drain()

    return stop


class PassLog:
    """Logs a periodic summary of the passes. Refused events and failures have log lines of their own."""

    def __init__(self, hooks: Sequence[OnPass], clock: Callable[[], float] = time.monotonic) -> None:
        self._hooks, self._clock = hooks, clock
        self._summed_up = -_SUMMARY  # makes the first summary immediate
        self._counts: Counter[str] = Counter()
        self._last = SweepReport()

    def count(self, sweep: SweepReport) -> None:
        """Count one pass."""
        for hook in self._hooks:
            hook(sweep)
        if sweep.continues:  # `report_pass` has logged it
            return
        self._counts.update(published=sweep.published, overtaken=sweep.overtaken)
        self._counts.update(refused=len(sweep.refused), failed=len(sweep.failed))
        self._last = sweep
        self.sum_up()

    def sum_up(self, *, last: bool = False) -> None:
        """Log a summary if one is due or this is the last, unless nothing was published, overtaken, refused, or failed."""
        now = self._clock()
        nonzero_counts = +self._counts
        if not nonzero_counts or (not last and now < self._summed_up + _SUMMARY):
            return
        self._summed_up, pending = now, self._last.pending
        counts = {"published": 0, "pending": pending, **nonzero_counts}
        text = ", ".join([f"{count} {name}" for name, count in counts.items() if count or name == "published"])
        oldest = f", the oldest for {format_age(self._last.oldest)}" if pending else ""
        log(INFO, "%s%s", text, oldest, details={**counts, "oldest_seconds": round(self._last.oldest, 3)})
        self._counts.clear()


def list_stuck(relay: Relay, older_than: timedelta, *, as_json: bool) -> int:
    """List the entities with the longest-pending events first, and unreadable outboxes, whose age is unknown, last.

    Return FOUND if it lists anything.
    """
    # One more than is listed shows whether there are more.
    waiting, broken = relay.pending(older_than, limit=_MAX_LISTED + 1), relay.broken(limit=_MAX_LISTED + 1)
    more = max(len(waiting), len(broken)) > _MAX_LISTED
    if as_json:
        stuck = [
            {
                "age": round(entity.age, 3),
                "pending": entity.pending,
                "type": entity.event.type,
                "id": entity.event.id,
                "number": entity.event.sequence,
                "source": entity.event.source,
                "entity": format_key(relay, entity.event.entity),
            }
            for entity in waiting[:_MAX_LISTED]
        ]
        unread = [{"entity": format_key(relay, fault.entity), "why": str(fault.error)} for fault in broken[:_MAX_LISTED]]
        tell_json({"stuck": stuck, "unread": unread, "more": more})
    else:
        tell([_format_line(entity) for entity in waiting[:_MAX_LISTED]])
        tell(
            [
                f"unreadable  {escape(format_key(relay, fault.entity))}  {escape(str(fault.error))}"
                for fault in broken[:_MAX_LISTED]
            ]
        )
        if more:
            tell([f"There are more. Only {_MAX_LISTED} of each kind are listed."])
    return Exit.FOUND if waiting or broken else Exit.DONE


def skip_event(relay: Relay, event_id: str, *, operator: str | None, yes: bool) -> int:
    """Replace an event with one of type onewrite.skipped, after a question unless `yes`."""
    stuck = next((entity for entity in relay.pending(limit=sys.maxsize) if entity.event.id == event_id), None)
    if stuck is None:
        raise NotThere(
            f"No entity's oldest event is {event_id}. It has been published, or an older event of its entity is pending. To list "
            "the events that can be skipped, use --stuck."
        )
    tell([_format_line(stuck)])
    if not (yes or confirm("Consumers will receive an event of type onewrite.skipped instead. Skip it?")):
        tell("Nothing was skipped.\n")
        return Exit.DONE
    known = {"act": "skip", "type": stuck.event.type, "id": event_id, "source": stuck.event.source}
    with record_unknown_result(f"skip of {stuck.event.type} {event_id} of {stuck.event.source}", operator, known):
        replacement = relay.skip(source=stuck.event.source, id=event_id)
    if replacement is None:
        raise NothingToDo("The event was published in the meantime. Nothing was skipped.")
    text = f"Skipped {stuck.event.type} {event_id}, number {replacement.sequence} of {replacement.source}."
    record(text, operator, {**known, "number": replacement.sequence, "source": replacement.source})
    tell(f"{text}\nIts body was: {stuck.event.body}\n")  # not in the log, which can be less confidential than the store
    return Exit.DONE


def restart_entity(relay: Relay, source: str, *, operator: str | None, yes: bool) -> int:
    """Number an entity's events from 1 again, under a new source, after a question unless `yes`."""
    outbox = relay.peek(source)
    if outbox is None:
        raise NotThere(
            f"The outbox of {source} doesn't exist. Either nothing was emitted there, or the entity was deleted. Check the "
            "source's spelling."
        )
    tell(
        f"{outbox.source}: {outbox.sent} sent, {len(outbox.pending)} pending.\n"
        "Do this only after a restore from a backup. Consumers will see a new source, whose events begin at number 1. Pending "
        "events get new IDs. If consumers received them before the restore, they apply them again.\n"
    )
    if not (yes or confirm("Are the entity's writers and relays stopped? Restart it?")):
        tell("Nothing was restarted.\n")
        return Exit.DONE
    details = {"act": "restart", "source": outbox.source, "sent": outbox.sent, "pending": len(outbox.pending)}
    with record_unknown_result(f"restart of {outbox.source}", operator, details):
        new_source = relay.restart(source=source)
    if new_source is None:
        raise NotThere("The entity was deleted in the meantime. Nothing was restarted.")
    text = f"Restarted {outbox.source} after {format_count(outbox.sent, 'sent event')}. Its source is now {new_source}."
    tell([text])
    record(text, operator, {**details, "restarted_as": new_source})
    return Exit.DONE


def _format_line(waiting: PendingEntity) -> str:
    event = waiting.event
    return f"{format_age(waiting.age)}  {waiting.pending} pending  {event.type} {event.id}  number {event.sequence} of {event.source}"
