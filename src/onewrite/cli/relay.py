"""`onewrite relay` runs a relay, or tells and settles what it cannot publish."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Annotated, Any, TypeAlias

import typer

from onewrite.cli.logs import log_to_stderr
from onewrite.cli.names import RELAY, find, misuse
from onewrite.errors import OnewriteError
from onewrite.outbox import Relay, Swept, Waiting

Name: TypeAlias = Annotated[str, typer.Argument(metavar=RELAY, help="Where the Relay is, as in shop.relays:orders.")]
Once: TypeAlias = Annotated[bool, typer.Option("--once", help="Make one pass over all that is pending, and stop.")]
Poll: TypeAlias = Annotated[float, typer.Option(min=0.01, help="Seconds between two passes.")]
Stuck: TypeAlias = Annotated[bool, typer.Option("--stuck", help="List what has waited for longest, and stop.")]
OlderThan: TypeAlias = Annotated[float, typer.Option(min=0, help="Leave out what has waited for less than so many seconds.")]
Skip: TypeAlias = Annotated[
    str | None, typer.Option(metavar="ID", help="Skip that event, which must be its entity's oldest.")
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Do not ask before skipping.")]

_MOST = 1000  # entities that are listed, or looked through for an event


def relay(
    context: typer.Context,
    name: Name,
    *,
    once: Once = False,
    poll: Poll = 1.0,
    stuck: Stuck = False,
    older_than: OlderThan = 0,
    skip: Skip = None,
    yes: Yes = False,
) -> None:
    """Publish the events that a store's writes emit, until SIGTERM or Ctrl-C. What is under way then is finished.

    A pass that failed, or left something refused, ends --once with exit code 1.
    """
    found = find(name, RELAY)
    if not isinstance(found, Relay):
        raise misuse(f"{name!r} is a {type(found).__name__}, and not an onewrite.outbox.Relay.", RELAY)
    log_to_stderr()
    context.obj.early_signals.pass_on(found.stop)
    age = timedelta(seconds=older_than)
    try:
        code = _act(found, stuck=stuck, once=once, poll=poll, age=age, skip=skip, yes=yes)
    except OnewriteError as error:
        sys.stderr.write(f"onewrite: {error}\n")
        code = 2
    raise typer.Exit(code)


def _act(found: Relay, *, stuck: bool, once: bool, poll: float, age: timedelta, skip: str | None, yes: bool) -> int:
    if skip is not None:
        return _skip(found, skip, yes=yes)
    if stuck:
        for each in found.waiting(age, most=_MOST):
            typer.echo(_line(each))
        return 0
    if once:
        swept = found.sweep(age)
        _tell(swept)
        return int(bool(swept.error or swept.refused or swept.failed or swept.broken))
    found.run(poll=poll, older_than=age, on_pass=_tell)
    return 0


def _skip(found: Relay, event_id: str, *, yes: bool) -> int:
    stopped = next((each for each in found.waiting(most=_MOST) if each.event.id == event_id), None)
    if stopped is None:
        typer.echo(f"No entity's oldest event is {event_id}: it is published by now, or --stuck does not list it.", err=True)
        return 1
    typer.echo(_line(stopped))
    if not yes and not typer.confirm("Consumers will be shown an event of type onewrite.skipped instead. Skip it?"):
        return 1
    skipped = found.skip_oldest(stopped.event)
    if skipped is None:
        typer.echo("It was published meanwhile.", err=True)
        return 1
    typer.echo(f"Skipped {stopped.event.type} {event_id}, number {skipped.sequence} of {skipped.source}.")
    typer.echo(f"Its body was: {stopped.event.body}")
    return 0


def _line(waiting: Waiting) -> str:
    event = waiting.event
    return (
        f"{_age(waiting.age)}  {waiting.pending} pending  {event.type} {event.id}  number {event.sequence} of {event.source}"
    )


def _age(seconds: float) -> str:
    return str(timedelta(seconds=int(seconds)))


def _tell(swept: Swept) -> None:
    """A line for each pass that met something."""
    if swept.entities or swept.error is not None:
        counts: dict[str, Any] = {"published": swept.published, "pending": swept.pending, "refused": len(swept.refused)}
        counts |= {"failed": len(swept.failed), "overtaken": swept.overtaken}
        told = ", ".join([f"{count} {name}" for name, count in counts.items() if count or name == "published"])
        oldest = f", the oldest for {_age(swept.oldest)}" if swept.pending else ""
        typer.echo(f"{told}{oldest}", err=True)
