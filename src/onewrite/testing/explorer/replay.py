"""A schedule as a short text, to be run again: `1.9c2f.1aA1b.77`.

The version, a sum of the messages' names, the steps, a sum of all that. A step is the message's number, a letter for its
delivery, and the letter of the fault if there is one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from zlib import crc32

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.schedule import Delivery, Fault, Step, Steps

_VERSION = "1"
_STEP = re.compile(r"([1-9][0-9]*)([a-z])([BALR]?)", re.ASCII)
_TOKEN = re.compile(r"([0-9a-f]{4})\.((?:[1-9][0-9]*[a-z][BALR]?)*)\.([0-9a-f]{4})", re.ASCII)


def encode(steps: Steps, names: Sequence[str]) -> str:
    body = f"{_VERSION}.{_sum('/'.join(names))}.{''.join(map(_encode_step, steps))}"
    return f"{body}.{_sum(body)}"


def decode(token: str, names: Sequence[str]) -> Steps:
    """The steps, or `ConfigurationError` that says what is wrong with the token."""
    messages, steps = read(token)
    if messages != _sum("/".join(names)) or any(step.delivery.message >= len(names) for step in steps):
        raise ConfigurationError(
            f"{token!r} is of a schedule of other messages than {', '.join(names)}: replay it in the test that reported it."
        )
    return steps


def read(token: str) -> tuple[str, Steps]:
    """The sum of the messages' names, and the steps; `ConfigurationError` if it is no token, whatever the messages."""
    version, _, rest = str(token).strip().partition(".")
    found = _TOKEN.fullmatch(rest)
    if not version.isdecimal() or found is None:
        raise ConfigurationError(f"{token!r} is no token of a schedule: copy it whole from the report of a counterexample.")
    if version != _VERSION:
        raise ConfigurationError(f"{token!r} was made by another version of onewrite: explore again for a new one.")
    messages, steps, check = found.groups()
    if check != _sum(f"{version}.{messages}.{steps}"):
        raise ConfigurationError(f"{token!r} is mistyped: copy it whole from the report of a counterexample.")
    return messages, tuple(_decode_step(*parts) for parts in _STEP.findall(steps))


def _encode_step(step: Step) -> str:
    (message, number), fault = step
    return f"{message + 1}{chr(ord('a') + number)}{fault.value}"


def _decode_step(message: str, letter: str, fault: str) -> Step:
    return Step(Delivery(int(message) - 1, ord(letter) - ord("a")), Fault(fault))


def _sum(text: str) -> str:
    return f"{crc32(text.encode('utf-8', 'surrogatepass')) & 0xFFFF:04x}"
