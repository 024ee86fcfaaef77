"""What is found in an entity, as lines for a person who is looked at by nobody and in a hurry. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from onewrite.message import printable

_MOST = 20  # members of one set that a person is shown; --json has all of them
_LONGEST = 4096  # characters of an id: an operator needs all of it

Found = Mapping[str, Any]


def inspected(found: Found, message: str | None) -> Iterator[str]:
    """The lines of `onewrite inspect`."""
    yield f"{found['entity']}: {found['bytes']} bytes, {_share(found['ours'], found['bytes'])} of them onewrite's"
    for ledger in found["ledgers"]:
        yield ""
        yield from _ledger(ledger, found["bytes"])
    for outbox in found["outboxes"]:
        yield ""
        yield from _outbox(outbox, found["bytes"])
    yield from _steps(found)
    yield from _tombstone(found["tombstone"])
    if not any([found["ledgers"], found["outboxes"], found["steps"], found["tombstone"]]):
        yield "There is nothing of onewrite in it."
    if message is not None:
        yield ""
        yield from _answers(found["answers"], message)
        yield from [shown(hint) for hint in found["hints"]]


def _ledger(ledger: Found, total: int) -> Iterator[str]:
    yield f"Ledger {shown(ledger['attribute'])}, {_kept(ledger)}: {_share(ledger['bytes'], total)}"
    for each in ledger["sets"]:
        yield from _set(each)
    if any(each["since"] for each in ledger["sets"]):
        yield "  Some ids may be older than that, if the entity was not written to for long."
    for each in ledger["marks"]:
        yield f"  {_source(each)}: {each['mark']!r}, {each['bytes']} bytes in {shown(each['place'])}"
    for each in ledger["numbers"]:
        numbers = _listed([str(number) for number in each["numbers"]])
        yield f"  {_source(each)}: {numbers}, of {each['first']} to {each['last']}, {each['bytes']} bytes in {shown(each['place'])}"
    for each in ledger["foreign"]:
        yield f"  {shown(each['place'])} holds a {each['kind']}, which no ledger has put there"
    if ledger["tokens"]["count"]:
        yield f"  {_count(ledger['tokens']['count'], 'token')} of recent attempts, {ledger['tokens']['bytes']} bytes"


def _kept(ledger: Found) -> str:
    if ledger["moved_to"]:
        return f"which has moved to {shown(ledger['moved_to'])}; what is left here counts for stores that name it in also="
    if ledger["other_version"]:
        return f"written by another version of onewrite, as {shown(ledger['other_version'])!r}"
    return (
        "without a label: maybe ids that are kept by hand"
        if ledger["kept"] is None
        else f"kept as {shown(ledger['kept'])!r}"
    )


def _set(each: Found) -> Iterator[str]:
    when = "never forgotten"
    if each["since"]:
        when = f"written between {each['since']} and {each['until']}"
        when += "" if each["live"] else ": no store looks here any more, and the next write removes it"
    by_hand = ", kept by hand" if each["by_hand"] else ""
    yield f"  {shown(each['place'])}: {_count(len(each['ids']), 'id')}{by_hand}, {each['bytes']} bytes, {when}"
    for found in each["ids"][:_MOST]:
        yield f"    {found['hash'] if 'hash' in found else _readable(found)}"
    if (more := len(each["ids"]) - _MOST) > 0:
        yield f"    and {more} more, which --json shows"


def _readable(found: Found) -> str:
    of = f" of {_source(found)}" if found["source"] or found["parts"] else ""
    return f"{shown(found['id'])}{of}"


def _source(found: Found) -> str:
    hashed = " (a hash)" if found.get("source_is_hashed") else ""
    source = f"source {shown(found['source'])}{hashed}" if found["source"] else "no source"
    return source + "".join([f", part {shown(part)}" for part in found["parts"]])


def _outbox(outbox: Found, total: int) -> Iterator[str]:
    head = f"Outbox {shown(outbox['attribute'])}"
    if "damaged" in outbox:
        yield f"{head}: {outbox['damaged']}"
        return
    pending = _count(len(outbox["events"]), "event")
    due = f", due at {shown(outbox['due'])}" if outbox["due"] else ""
    yield f"{head}: {pending} pending{due}, {outbox['sent']} sent before: {_share(outbox['bytes'], total)}"
    for event in outbox["events"][:_MOST]:
        yield f"  number {event['number']}: {shown(event['type'])}, emitted at {shown(event['time'])} because of {shown(event['cause'])}"
    if (more := len(outbox["events"]) - _MOST) > 0:
        yield f"  and {more} more, which --json shows"


def _steps(found: Found) -> Iterator[str]:
    if not found["steps"]:
        return
    yield ""
    yield f"{_count(len(found['steps']), 'step')} under way: {_share(found['step_bytes'], found['bytes'])}"
    for step in found["steps"]:
        if "damaged" in step:
            yield f"  {step['damaged']}"
            continue
        of = f" of {_source(step)}" if step["source"] or step["parts"] else ""
        lease = f"begun at {step['begun']}, with a lease until {step['until']}"
        lease += ": nobody knows whether its effect happened" if step["lease_is_over"] else ""
        yield f"  message {shown(step['message'])}{of}: {lease}, key {shown(step['key'])}, for the ledger {shown(step['ledger'])}"


def _tombstone(found: Found | None) -> Iterator[str]:
    if found is None:
        return
    yield ""
    if "damaged" in found:
        yield found["damaged"]
        return
    when = "by its TTL" if found["expires"] else "once its last event is published"
    yield f"A tombstone: the entity was deleted at {shown(found['at'])}. The database removes it {when}, by {shown(found['ttl'])}."


def _answers(answers: list[Found], message: str) -> Iterator[str]:
    if not answers:
        yield "No ledger is here yet, so that a delivery would be Applied if your own condition holds."
        return
    yield f"A delivery of message {shown(message)} would get:"
    for answer in answers:
        by = (
            f" from {answer['ledger']} in {shown(answer['attribute'])}"
            if answer["ledger"]
            else f" in {shown(answer['attribute'])}"
        )
        yield f"  {answer['outcome']}{by}: {shown(answer['why'].removesuffix('.'))}."


def shown(text: str) -> str:
    """A text that somebody else has chosen, safe for a terminal."""
    return printable(text, _LONGEST)


def _listed(members: list[str]) -> str:
    more = f" and {len(members) - _MOST} more" if len(members) > _MOST else ""
    return ", ".join(members[:_MOST]) + more if members else "no number"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _share(part: int, total: int) -> str:
    return f"{part} bytes ({100 * part / total:.0f} %)" if total else f"{part} bytes"


def shortened(value: Any, most: int = 5) -> Any:
    """A request with its long lists cut, as a person reads it."""
    match value:
        case list():
            listed = cast("list[Any]", value)
            members = [shortened(each, most) for each in listed[:most]]
            return [*members, f"... and {len(listed) - most} more"] if len(listed) > most else members
        case dict():
            return {name: shortened(each, most) for name, each in cast("dict[str, Any]", value).items()}
        case _:
            return value
