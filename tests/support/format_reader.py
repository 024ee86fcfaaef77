"""Reads entities by docs/format.md alone: whoever changes what is stored has to change that page, and then this."""

import base64
import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

CHILDREN = uuid.UUID("6b1d2f0e-5f0a-4c5e-9d53-0f6f6e657772")
PUBLISHED = uuid.UUID("c0f4a1de-7a3b-4f58-9f0e-6f6e65777274")


@dataclass(frozen=True)
class MessageName:
    """A message, as its reader needs it."""

    id: str
    source: str = ""
    parts: tuple[str, ...] = ()
    sequence: int | str | None = None


def join_texts(*texts: str) -> str:
    return "".join(f"{len(text)}:{text}" for text in texts)


def blake(text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def mark(message: MessageName) -> str:
    return blake(join_texts(message.source, *message.parts, message.id))


def readable(message: MessageName) -> str:
    if not message.source and not message.parts and not message.id.startswith("@"):
        return message.id
    texts = [quote_only(text, "%/+") for text in (message.source, *message.parts)]
    return "@" + "+".join(texts) + "/" + message.id


def quote_only(text: str, characters: str) -> str:
    return "".join(f"%{ord(character):02X}" if character in characters else character for character in text)


def child(message: MessageName, name: str) -> str:
    if message.source or message.parts:
        return str(uuid.uuid5(CHILDREN, f"of {join_texts(message.id, message.source, *message.parts)} {name}"))
    return str(uuid.uuid5(CHILDREN, join_texts(message.id) + name))


def source_name(message: MessageName) -> str:
    return "%+".join([quote_only(text, "%.$\0") for text in (message.source, *message.parts)])


def flat(entity: Mapping[str, Any]) -> dict[str, Any]:
    """The entity with the names that it has on DynamoDB, whichever engine has stored it."""
    names: dict[str, Any] = {}
    for name, value in entity.items():
        if re.fullmatch(r"ow_(.+:)?(\w+_)?r", name):
            names |= {name + slot[1:]: marks for slot, marks in value.items()}
        elif re.fullmatch(r"ow_(.+:)?@", name) and isinstance(value, Mapping):
            names |= {name + source: mark for source, mark in value.items()}
        elif name == "ow_effects" and isinstance(value, Mapping):
            names |= {f"ow_effect_{effect}": part_value for effect, part_value in value.items()}
        else:
            names[name] = value
    return names


def remembers(entity: Mapping[str, Any], ledger: str, message: MessageName) -> bool:
    """Is the message in the ledger? One named '@attribute' is the set of IdSet in that attribute."""
    if ledger.startswith("@"):
        plain_ids = set() if message.parts else {message.id}
        return bool({readable(message), *plain_ids} & set(entity.get(ledger[1:], ())))
    flat_entity, prefix = flat(entity), f"ow_{ledger}:" if ledger else "ow_"
    for name, marks in flat_entity.items():
        if not name.startswith(prefix):
            continue
        if match := re.fullmatch(r"(?:\d+[a-z]+?(t?)_)?r\d|all(t?)", name.removeprefix(prefix)):
            if (readable(message) in marks) if match[1] or match[2] else (mark(message) in marks):
                return True
        elif name == f"{prefix}@{source_name(message)}" and marks >= message.sequence:
            return True
    return False


def pending(entity: Mapping[str, Any], key: Mapping[str, tuple[str, str]]) -> list[dict[str, Any]]:
    """The events that wait to be published; `key` has the type and the text of each attribute of the key."""
    events = entity.get("ow_events", [])
    if not events:
        return []
    outbox = entity["ow_o"].removeprefix("ow1 outbox ")
    key_text = "&".join(
        f"{quote(name, safe='')}={kind}:{quote(text, safe='')}" for name, (kind, text) in sorted(key.items())
    )
    source = f"{outbox}/{key_text}/{entity.get('ow_life', events[0]['nonce'])}"
    first_number = int(entity.get("ow_sent", 0)) + 1
    return [
        dict(event, source=source, number=n, published=str(uuid.uuid5(PUBLISHED, f"{join_texts(source)}{n}:{event['id']}")))
        for n, event in enumerate(events, first_number)
    ]


def event_id(message: MessageName, of: str, name: str | None, place: int, ledger: str = "") -> str:
    """The id of an event; `place` is its place among the events of its type in the write."""
    key = f"event named {name}" if name is not None else f"event {place} {of}"
    return child(message, (f"in {join_texts(ledger)} " if ledger else "") + key)


def effects(entity: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The open effects by their marks."""
    return {
        name.removeprefix("ow_effect_"): effect for name, effect in flat(entity).items() if name.startswith("ow_effect_")
    }


def effect_mark(message: MessageName, ledger: str = "") -> str:
    return blake((f"in {join_texts(ledger)}" if ledger else "") + join_texts(message.source, *message.parts, message.id))


def tombstone(entity: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is left of a deleted entity, and when the database may remove it."""
    if (label := entity.get("ow_tombstone")) is None:
        return None
    return {**label, "expires": entity.get(label["ttl"])}
