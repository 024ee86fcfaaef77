"""What an operator does about events that are not published: lists them, skips one, restarts an entity.

Each act asks first and then leaves a record in the log: what was done, and who asked for it.
"""

from __future__ import annotations

import getpass
import logging
import os
import sys
from datetime import timedelta
from typing import Any

import typer

from onewrite.outbox import OutboxState, Relay, Waiting

_log = logging.getLogger("onewrite")

_MOST = 1000  # entities of a kind that are listed


def this_user() -> str:
    """The name of the user whose process this is. In a container there may be none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def list_stuck(relay: Relay, older_than: timedelta) -> int:
    """What has waited for longest comes first, and what cannot be read, whose age is not known, last."""
    waiting, broken = relay.waiting(older_than, most=_MOST + 1), relay.broken(most=_MOST + 1)
    for each in waiting[:_MOST]:
        typer.echo(_line(each))
    for other in broken[:_MOST]:
        typer.echo(f"cannot be read  {dict(other.entity)!r}  {other.error}")
    if max(len(waiting), len(broken)) > _MOST:
        typer.echo(f"There are more: {_MOST} of a kind are listed.")
    return 0


def skip(relay: Relay, event_id: str, *, operator: str, yes: bool) -> int:
    """Put an event of type onewrite.skipped in the place of one."""
    stopped = next((each for each in relay.waiting(most=sys.maxsize) if each.event.id == event_id), None)
    if stopped is None:
        return _refused(
            f"No entity's oldest event is {event_id}: it is published by now, or waits behind the oldest one of its entity. --stuck "
            "lists those that can be skipped."
        )
    typer.echo(_line(stopped))
    if not _may("Consumers will be shown an event of type onewrite.skipped instead. Skip it?", yes=yes):
        return 1
    skipped = relay.skip(source=stopped.event.source, id=event_id)
    if skipped is None:
        return _refused("It was published meanwhile.")
    text = f"Skipped {stopped.event.type} {event_id}, number {skipped.sequence} of {skipped.source}."
    typer.echo(f"{text}\nIts body was: {stopped.event.body}")
    # The body too: what is skipped is nowhere else any more.
    details = {
        "act": "skip",
        "type": stopped.event.type,
        "id": event_id,
        "number": skipped.sequence,
        "source": skipped.source,
    }
    record(f"{text} Its body was: {stopped.event.body}", operator, {**details, "body": stopped.event.body})
    return 0


def restart(relay: Relay, source: str, *, operator: str, yes: bool) -> int:
    """Number an entity's events from 1 again, under another source."""
    found = relay.look(source)
    if found is None:
        return _refused(f"There is no outbox of {source}: nothing was ever emitted there, or the entity is deleted.")
    typer.echo(_warning(found))
    if not _may("Are the entity's writers and relays stopped, and shall it be restarted?", yes=yes):
        return 1
    restarted = relay.restart(source=source)
    if restarted is None:
        return _refused("The entity was deleted meanwhile.")
    text = f"Restarted {found.source}, of which {found.sent} were sent. Its source is now {restarted}."
    typer.echo(text)
    details = {"act": "restart", "source": found.source, "sent": found.sent, "pending": len(found.pending)}
    record(text, operator, {**details, "restarted_as": restarted})
    return 0


def _warning(found: OutboxState) -> str:
    return (
        f"{found.source}: {found.sent} sent, {len(found.pending)} pending.\n"
        "Do this after a restore from a backup, and only then. Consumers will be shown another source, whose events begin at number 1. "
        "What is pending goes out under it, with new ids: consumers that had it before the restore take it for new."
    )


def record(text: str, operator: str, details: dict[str, Any]) -> None:
    """Leave a line in the log: what was done, and who asked for it."""
    _log.warning("%s It was asked for by %s.", text, operator, extra={"onewrite": {**details, "operator": operator}})


def _may(question: str, *, yes: bool) -> bool:
    return yes or typer.confirm(question)


def _refused(text: str) -> int:
    typer.echo(text, err=True)
    return 1


def _line(waiting: Waiting) -> str:
    event = waiting.event
    return (
        f"{age(waiting.age)}  {waiting.pending} pending  {event.type} {event.id}  number {event.sequence} of {event.source}"
    )


def age(seconds: float) -> str:
    """In hours, minutes and seconds. Below zero the clock of the writer was ahead."""
    return f"{'-' if seconds < 0 else ''}{timedelta(seconds=abs(int(seconds)))}"
