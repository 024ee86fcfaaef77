"""`onewrite forget`, `set-mark` and `clear`: they show what they would change, and write it only with --yes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Annotated, Any, TypeAlias, cast

import typer

from onewrite.core.flow import run
from onewrite.core.label import OUTBOX, is_outbox_label
from onewrite.errors import ConfigurationError
from onewrite.operate import changes
from onewrite.operate.answers import Inquiry
from onewrite.operate.changes import Repair, Wanted
from onewrite.operate.image import EntityImage, EntityStore
from onewrite.operate.options import (
    AsJson,
    Attribute,
    CollectionUrl,
    EndpointUrl,
    Given,
    Key,
    MessageId,
    Operator,
    Parts,
    Region,
    SequenceOption,
    Source,
    TableName,
    VersionOption,
    Yes,
    message_of,
)
from onewrite.operate.report import end, log_to_stderr, record, shown, tell, tell_json, told
from onewrite.operate.stores import entity_of, store_of

_DIGEST_BYTES = 6  # enough to tell what was shown from what is there now: nobody is to be kept out by it

Shown: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--shown",
        metavar="CODE",
        help="With --yes: write only what the run without it has shown, which ends with this code.",
    ),
]


def forget(
    *,
    key: Key,
    message: MessageId,
    table: TableName = None,
    collection: CollectionUrl = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    attribute: Attribute = None,
    source: Source = "",
    sequence: SequenceOption = None,
    part: Parts = None,
    yes: Yes = False,
    digest: Shown = None,
    operator: Operator = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Let one message take effect once more. It shows the request first, and writes only with --yes."""
    given = locals()
    end(
        lambda: _change(
            "forget", given, lambda image: changes.forget(image, Inquiry(message_of(given), time.time(), given["attribute"]))
        )
    )


def set_mark(
    *,
    key: Key,
    table: TableName = None,
    collection: CollectionUrl = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    attribute: Attribute = None,
    source: Source = "",
    part: Parts = None,
    sequence: Annotated[
        str | None,
        typer.Option("--sequence", metavar="N", help="The last sequence that shall count as done, as a message has it."),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the mark, as if nothing of the source had come.")] = False,
    yes: Yes = False,
    digest: Shown = None,
    operator: Operator = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Move the mark of a source back or on. It shows which sequences that lets in or drops, and writes only with --yes."""
    given = locals()

    def marked(image: EntityImage) -> Repair:
        if (given["sequence"] is None) != given["remove"]:
            raise ConfigurationError("Give --sequence, which the mark shall have, or --remove.")
        wanted = Wanted(given["source"], tuple(given["part"] or ()), given["sequence"], given["attribute"])
        return changes.set_mark(image, wanted, time.time())

    end(lambda: _change("set-mark", given, marked))


def clear(
    *,
    key: Key,
    table: TableName = None,
    collection: CollectionUrl = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
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
    end(
        lambda: _change(
            "clear", given, lambda image: changes.clear(image, given["attribute"], time.time(), tokens=given["tokens"])
        )
    )


def _change(act: str, given: Given, planned: Callable[[EntityImage], Repair]) -> int:
    """Show a change of an entity, and write it if that is asked for and the entity is still as it was shown."""
    store = store_of(given)
    image = entity_of(store, given["key"])
    repair = planned(image)
    effects = repair.effects
    if is_outbox_label(image.fields.get(OUTBOX.label)):
        effects += (
            "This entity emits events. What takes effect once more emits once more: events with new ids and numbers, which consumers apply",
        )
    requests = [store.shown(call) for call in store.calls(image, repair.edit)]
    code = blake2b(json.dumps(requests).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    if not given["as_json"]:
        changed, meant = [[f"  {shown(each)}" for each in texts] for texts in (repair.changes, effects)]
        sent = [f"  {json.dumps(_shortened(each))}" for each in requests]
        tell([f"{image.named}:", *changed, "What that means:", *meant, "The request:", *sent])
    if given["digest"] not in (None, code):
        return told("The entity is not as it was shown then, and nothing was written: look at it again, without --yes.", 1)
    result = _write(act, given["operator"], store, image, repair) if given["yes"] else None
    if given["as_json"]:
        document = {"entity": image.named, "changes": repair.changes, "effects": effects, "requests": requests}
        tell_json({**document, "shown": code, "written": result == 0})
    elif result is None:
        tell(f"\nNothing was written. To write exactly this, give the same command --yes --shown {code}\n")
    elif result == 0:
        tell("\nWritten.\n")
    return result or 0


def _shortened(value: Any, most: int = 5) -> Any:
    """A request with its long lists cut, as a person reads it."""
    match value:
        case list():
            listed = cast("list[Any]", value)
            members = [_shortened(each, most) for each in listed[:most]]
            return [*members, f"... and {len(listed) - most} more"] if len(listed) > most else members
        case dict():
            return {name: _shortened(each, most) for name, each in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _write(act: str, operator: str | None, store: EntityStore, image: EntityImage, repair: Repair) -> int:
    """Write it, and leave a record of what was done and who asked for it."""
    log_to_stderr()
    count = len(store.calls(image, repair.edit))
    done = run(store.write(image, repair.edit), store.target)
    if done:
        partly = "" if done == count else f" ({done} of {count} requests, before another writer changed it)"
        text = f"{act} of {image.named}{partly}: {'; '.join(repair.changes)}."
        details = {"act": act, "entity": image.named, "requests": done, "of": count, "changes": [*repair.changes]}
        record(text, operator, details)
    if done < count:
        kept = f"only {done} of {count} requests were made" if done else "nothing was written"
        return told(f"Another writer changed the entity meanwhile, and {kept}: look at it again, without --yes.", 1)
    return 0
