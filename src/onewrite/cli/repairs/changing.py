"""`onewrite forget`, `set-mark` and `clear`: they show what they would change, and write it only with --yes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Annotated, Any, TypeAlias

import typer

from onewrite.cli import operator_acts
from onewrite.cli.command_line import AsJson, VersionOption
from onewrite.cli.exits import told
from onewrite.cli.logs import log_to_stderr
from onewrite.cli.repairs.options import (
    Attribute,
    Key,
    Operator,
    Parts,
    Repairs,
    Sequence,
    Source,
    Yes,
    end,
    entity_of,
    message_of,
    repairs_of,
)
from onewrite.cli.repairs.text import shortened, shown
from onewrite.cli.stores import CollectionUrl, TableName
from onewrite.errors import ConfigurationError
from onewrite.flow import run
from onewrite.label import OUTBOX, is_outbox_label
from onewrite.repair.answers import Asked
from onewrite.repair.changes import Repair, Wanted
from onewrite.repair.changes import clear as cleared
from onewrite.repair.changes import forget as forgotten
from onewrite.repair.changes import set_mark as marked
from onewrite.repair.image import Image

_DIGEST_BYTES = 6  # enough to tell what was shown from what is there now: nobody is to be kept out by it

Shown: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--shown",
        metavar="CODE",
        help="With --yes: write only what the run without it has shown, which ends with this code.",
    ),
]


Given: TypeAlias = dict[str, Any]  # what the command line says, by the names of the verb's arguments


def forget(
    message: Annotated[str, typer.Argument(metavar="ID", help="The id of the message.")],
    *,
    key: Key,
    table: TableName = None,
    collection: CollectionUrl = None,
    attribute: Attribute = None,
    source: Source = "",
    sequence: Sequence = None,
    part: Parts = None,
    yes: Yes = False,
    digest: Shown = None,
    operator: Operator = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Let one message take effect once more. It shows the request first, and writes only with --yes."""
    given = locals()
    end(lambda: _change("forget", _forgotten, given))


def _forgotten(image: Image, given: Given) -> Repair:
    return forgotten(image, Asked(message_of(given), time.time(), given["attribute"]))


def set_mark(
    value: Annotated[str | None, typer.Argument(metavar="[SEQUENCE]", help="The last sequence that counts as done.")] = None,
    *,
    key: Key,
    table: TableName = None,
    collection: CollectionUrl = None,
    attribute: Attribute = None,
    source: Source = "",
    part: Parts = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the mark, as if nothing of the source had come.")] = False,
    yes: Yes = False,
    digest: Shown = None,
    operator: Operator = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Move the mark of a source back or on. It shows which sequences that lets in or drops, and writes only with --yes."""
    given = locals()
    end(lambda: _change("set-mark", _marked, given))


def _marked(image: Image, given: Given) -> Repair:
    if (given["value"] is None) != given["remove"]:
        raise ConfigurationError("Give the sequence that the mark shall have, or --remove.")
    wanted = Wanted(given["source"], tuple(given["part"] or ()), given["value"], given["attribute"])
    return marked(image, wanted, time.time())


def clear(
    *,
    key: Key,
    table: TableName = None,
    collection: CollectionUrl = None,
    attribute: Attribute = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Only the tokens of recent attempts, which no message needs.")
    ] = False,
    yes: Yes = False,
    digest: Shown = None,
    operator: Operator = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Empty a ledger of an entity. It shows what would take effect again, and writes only with --yes."""
    given = locals()
    end(lambda: _change("clear", _cleared, given))


def _cleared(image: Image, given: Given) -> Repair:
    return cleared(image, given["attribute"], time.time(), tokens=given["tokens"])


def _change(act: str, planned: Callable[[Image, Given], Repair], given: Given) -> int:
    """Show a change of an entity, and write it if that is asked for and the entity is still as it was shown."""
    repairs = repairs_of(given["table"], given["collection"])
    image = entity_of(repairs, given["key"])
    repair = planned(image, given)
    requests = [repairs.shown(call) for call in repairs.calls(image, repair.plan)]
    code = blake2b(json.dumps(requests).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    if not given["as_json"]:
        sys.stdout.writelines(_lines(image, repair, requests))
    if given["digest"] not in (None, code):
        return told("The entity is not as it was shown then, and nothing was written: look at it again, without --yes.", 1)
    result = _write(act, given["operator"] or operator_acts.this_user(), repairs, image, repair) if given["yes"] else None
    if given["as_json"]:
        told_of = {
            "entity": image.named,
            "changes": repair.changes,
            "effects": _effects(image, repair),
            "requests": requests,
        }
        sys.stdout.write(json.dumps({**told_of, "shown": code, "written": result == 0}, indent=2) + "\n")
    elif result is None:
        sys.stdout.write(f"\nNothing was written. To write exactly this, give the same command --yes --shown {code}\n")
    elif result == 0:
        sys.stdout.write("\nWritten.\n")
    return result or 0


def _effects(image: Image, repair: Repair) -> tuple[str, ...]:
    """What the change means. Consumers cannot tell the second events of a message from news."""
    if not is_outbox_label(image.fields.get(OUTBOX.label)):
        return repair.effects
    told_again = "This entity emits events. What takes effect once more emits once more: events with new ids and numbers, which consumers apply"
    return (*repair.effects, told_again)


def _lines(image: Image, repair: Repair, requests: list[Any]) -> list[str]:
    changes, effects = [[f"  {shown(each)}" for each in texts] for texts in (repair.changes, _effects(image, repair))]
    asked = [f"  {json.dumps(shortened(each))}" for each in requests]
    lines = [f"{image.named}:", *changes, "What that means:", *effects, "The request:", *asked]
    return [f"{line}\n" for line in lines]


def _write(act: str, operator: str, repairs: Repairs, image: Image, repair: Repair) -> int:
    """Write it, and leave a record of what was done and who asked for it."""
    log_to_stderr()
    count = len(repairs.calls(image, repair.plan))
    done = run(repairs.write(image, repair.plan), repairs.target)
    if done:
        partly = "" if done == count else f" ({done} of {count} requests, before another writer changed it)"
        text = f"{act} of {image.named}{partly}: {'; '.join(repair.changes)}."
        details = {"act": act, "entity": image.named, "requests": done, "of": count, "changes": [*repair.changes]}
        operator_acts.record(text, operator, details)
    if done < count:
        kept = f"only {done} of {count} requests were made" if done else "nothing was written"
        return told(f"Another writer changed the entity meanwhile, and {kept}: look at it again, without --yes.", 1)
    return 0
