"""`onewrite relay` runs a relay, or tells and settles what it cannot publish."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, TypeAlias

import typer

from onewrite.cli import operator_acts
from onewrite.cli.command_line import VersionOption
from onewrite.cli.logs import Level, LogFormat, log_to_stderr
from onewrite.cli.names import RELAY, find, misuse
from onewrite.cli.options import MetricsKind, global_meter, option
from onewrite.cli.store_urls import FORMS, is_url, relay_of
from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.event import Outbox
from onewrite.outbox import Relay, Swept
from onewrite.outbox.metrics import emf, opentelemetry
from onewrite.outbox.relay import OnPass, report_pass

_option = partial(option, "RELAY")
_SUMMARY = 60.0  # seconds between two lines that sum up
_OF_A_STORE = ("outbox", "index", "to")
_log = logging.getLogger("onewrite")

Name: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="RELAY",
        envvar="ONEWRITE_RELAY",
        help=f"Where the Relay is, as in shop.relays:orders; or the store: {FORMS}.",
    ),
]
OutboxName: TypeAlias = Annotated[str | None, _option("outbox", "Of a store: the name of its Outbox, as in shop/orders.")]
Index: TypeAlias = Annotated[str | None, _option("index", "Of a table: the sparse index of its Outbox.")]
To: TypeAlias = Annotated[
    str | None,
    _option("to", "Of a store: where its events go: an SQS queue's URL, the ARN of an SNS topic or of an EventBridge bus."),
]
Once: TypeAlias = Annotated[bool, _option("once", "Make one pass over all that is pending, and stop.")]
Poll: TypeAlias = Annotated[float, _option("poll", "Seconds between two passes.", min=0.01, max=86_400)]
OlderThan: TypeAlias = Annotated[
    float, _option("older-than", "Leave out what has waited for less than so many seconds.", min=0, max=1e9)
]
Metrics: TypeAlias = Annotated[
    list[MetricsKind] | None,
    _option("metrics", "emf prints CloudWatch's metrics; opentelemetry counts on the global meter."),
]
Format: TypeAlias = Annotated[LogFormat, _option("log-format", "Lines of text, or one JSON object a line.")]
LogLevel: TypeAlias = Annotated[Level, _option("log-level", "The least level that is logged.", case_sensitive=False)]
Operator: TypeAlias = Annotated[
    str | None, _option("operator", "Who asks for --skip or --restart, for the log; by default the user of this process.")
]
# An act is asked for each time that it is done, and never by the environment.
Stuck: TypeAlias = Annotated[bool, typer.Option("--stuck", help="List what has waited for longest, and stop.")]
Skip: TypeAlias = Annotated[
    str | None, typer.Option(metavar="ID", help="Skip that event, which must be its entity's oldest.")
]
Restart: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE", help="After a restore: number the events of that entity from 1 again, as another source's."
    ),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask before skipping or restarting.")]


def relay(
    context: typer.Context,
    name: Name,
    *,
    outbox: OutboxName = None,
    index: Index = None,
    to: To = None,
    once: Once = False,
    poll: Poll = 1.0,
    older_than: OlderThan = 0,
    metrics: Metrics = None,
    log_format: Format = LogFormat.TEXT,
    log_level: LogLevel = Level.INFO,
    stuck: Stuck = False,
    skip: Skip = None,
    restart: Restart = None,
    operator: Operator = None,
    yes: Yes = False,
    version: VersionOption = False,
) -> None:
    """Publish the events that a store's writes emit, until SIGTERM or Ctrl-C. What is under way then is finished.

    A pass that failed, or left something refused, ends --once with exit code 1. Each option but those of an operator's acts may
    also be given by the environment: --to as ONEWRITE_RELAY_TO.
    """
    _start(**locals())


def _start(context: typer.Context, name: str, log_format: LogFormat, log_level: Level, **options: Any) -> None:
    acts = [act for act in ("stuck", "skip", "restart") if options[act]]
    if len(acts) > 1:
        raise misuse("give one of --stuck, --skip and --restart.", RELAY)
    early = context.obj.early_signals
    if acts:
        early.pass_on(_interrupt)  # an act is one write, and nothing of it is under way while a question is open
    try:
        found = _found(name, {each: options[each] for each in _OF_A_STORE}, publishes=not acts)
        # After the import of the user's module, which may have set up logging of its own. What was done is written at any level.
        log_to_stderr(log_format, Level.INFO if acts else log_level)
        code = _act(found, options) if acts else _publish(found, early.pass_on, options)
    except OnewriteError as error:
        sys.stderr.write(f"onewrite: {error}\n")
        code = 2
    raise typer.Exit(code)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _found(name: str, given: dict[str, Any], *, publishes: bool) -> Relay:
    """The relay that a module has, or one that is made for a store."""
    if not is_url(name):
        if said := [f"--{each}" for each, value in given.items() if value is not None]:
            raise misuse(f"{said[0]} goes with {FORMS}. Here the module says it.", RELAY)
        found = find(name, RELAY)
        if not isinstance(found, Relay):
            raise misuse(f"{name!r} is a {type(found).__name__}, and not an onewrite.outbox.Relay.", RELAY)
        return found
    for each in ("outbox", "to") if publishes else ("outbox",):
        if given[each] is None:
            raise ConfigurationError(f"Give --{each}: a store alone does not say it. See onewrite relay --help.")
    return relay_of(name, Outbox(given["outbox"], index=given["index"]), given["to"])


def _act(found: Relay, options: dict[str, Any]) -> int:
    told: dict[str, Any] = {"operator": options["operator"] or operator_acts.this_user(), "yes": options["yes"]}
    try:
        if options["stuck"]:
            return operator_acts.list_stuck(found, timedelta(seconds=options["older_than"]))
        if options["skip"]:
            return operator_acts.skip(found, options["skip"], **told)
        return operator_acts.restart(found, options["restart"], **told)
    except (OnewriteError, typer.Abort):
        raise
    except Exception as error:
        return _failed(error)


def _publish(found: Relay, pass_on: Callable[[Callable[[], None]], None], options: dict[str, Any]) -> int:
    pass_on(found.stop)
    progress = PassLog(_hooks(options["metrics"] or ()))
    age, code = timedelta(seconds=options["older_than"]), 0
    if options["once"]:
        code = _once(found, age, progress)
    else:
        found.run(poll=options["poll"], older_than=age, on_pass=progress.count)
    progress.sum_up(last=True)
    _log.info("the relay has stopped")
    return code


def _once(found: Relay, age: timedelta, progress: PassLog) -> int:
    try:
        swept = found.sweep(age)
    except OnewriteError:
        raise
    except Exception as error:
        return _failed(error)
    report_pass(swept, 0, progress.count)
    return int(bool(swept.error or swept.refused or swept.failed or swept.broken))


def _failed(error: Exception) -> int:
    _log.error("The database or the network fails: %s: %s", type(error).__name__, error)
    return 1


def _hooks(kinds: Sequence[MetricsKind]) -> list[OnPass]:
    return [emf() if kind is MetricsKind.EMF else opentelemetry(global_meter()) for kind in kinds]


class PassLog:
    """A line for what was done since the last one, now and then. What was refused or failed has lines of its own, at once."""

    def __init__(self, hooks: Sequence[OnPass], clock: Callable[[], float] = time.monotonic) -> None:
        self._hooks, self._clock = hooks, clock
        self._summed_up = -_SUMMARY  # so that the first line comes at once
        self._counts: Counter[str] = Counter()
        self._last = Swept()

    def count(self, swept: Swept) -> None:
        """After each pass."""
        for hook in self._hooks:
            hook(swept)
        self._counts.update(published=swept.published, overtaken=swept.overtaken)
        self._counts.update(refused=len(swept.refused), failed=len(swept.failed))
        self._last = swept
        self.sum_up()

    def sum_up(self, *, last: bool = False) -> None:
        """Nothing is said where nothing was done."""
        now = self._clock()
        if not +self._counts or (not last and now < self._summed_up + _SUMMARY):
            return
        self._summed_up, pending = now, self._last.pending
        counts = {"published": self._counts["published"], "pending": pending, **{n: c for n, c in self._counts.items() if c}}
        told = ", ".join([f"{count} {name}" for name, count in counts.items() if count or name == "published"])
        oldest = f", the oldest for {operator_acts.age(self._last.oldest)}" if pending else ""
        _log.info("%s%s", told, oldest, extra={"onewrite": {**counts, "oldest_seconds": round(self._last.oldest, 3)}})
        self._counts.clear()
