"""A schedule written as a short text, its replay code, so that it can be run again: `1.9c2f.1aA1b.a4be`.

A replay code has four parts: the version of this format, a checksum of the messages' names, the steps, and a checksum of
all that stands before it. A step is written as the number of its message, a letter for its delivery and, if there is one,
the letter of its fault. Where the delivery waits for several requests at once, letters between these two say which of them it
is: none for the first, `b` for the second, `z` for the 26th, `zb` for the 27th.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from zlib import crc32

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.schedule import Delivery, Fault, Step, Steps

_VERSION = "1"
_LETTERS = 25  # behind the letter a, which stands for 0
_FAULT = f"[{''.join(Fault)}]?"
_WHICH = "z*[b-z]?"
_STEP = re.compile(f"([1-9][0-9]*)([a-z])({_WHICH})({_FAULT})", re.ASCII)
_AFTER_VERSION = re.compile(rf"([0-9a-f]{{4}})\.((?:[1-9][0-9]*[a-z]{_WHICH}{_FAULT})*)\.([0-9a-f]{{4}})", re.ASCII)


def encode(steps: Steps, names: Sequence[str]) -> str:
    """The replay code of these steps; `names` are those of the messages."""
    body = f"{_VERSION}.{_checksum('/'.join(names))}.{''.join(map(_encode_step, steps))}"
    return f"{body}.{_checksum(body)}"


def decode(code: str, names: Sequence[str]) -> Steps:
    """The steps of a replay code. `ConfigurationError` if it is no replay code, or one of other messages."""
    checksum, steps = read(code)
    if checksum != _checksum("/".join(names)) or any(step.delivery.message >= len(names) for step in steps):
        raise ConfigurationError(
            f"{code!r} is the replay code of a schedule of other messages than {', '.join(names)}: use it in the test that "
            "reported it."
        )
    return steps


def read(code: str) -> tuple[str, Steps]:
    """The checksum of the messages' names, and the steps. `ConfigurationError` if it is no replay code."""
    version, _, rest = str(code).strip().partition(".")
    found = _AFTER_VERSION.fullmatch(rest)
    if not version.isdecimal() or found is None:
        raise ConfigurationError(f"{code!r} is no replay code: copy it whole from the report of a counterexample.")
    if version != _VERSION:
        raise ConfigurationError(
            f"{code!r} was made by another version of onewrite: explore again to get a new replay code."
        )
    names_checksum, steps, checksum = found.groups()
    if checksum != _checksum(f"{version}.{names_checksum}.{steps}"):
        raise ConfigurationError(f"{code!r} is mistyped: copy it whole from the report of a counterexample.")
    return names_checksum, tuple(_decode_step(*parts) for parts in _STEP.findall(steps))


def _encode_step(step: Step) -> str:
    (message, number), fault, which = step
    return f"{message + 1}{chr(ord('a') + number)}{_encode_which(which)}{fault.value}"


def _encode_which(which: int) -> str:
    rows, last = divmod(which, _LETTERS)
    return "z" * rows + (chr(ord("a") + last) if last else "")


def _decode_step(message: str, letter: str, which: str, fault: str) -> Step:
    place = sum(ord(letter) - ord("a") for letter in which)
    return Step(Delivery(int(message) - 1, ord(letter) - ord("a")), Fault(fault), place)


def _checksum(text: str) -> str:
    return f"{crc32(text.encode('utf-8', 'surrogatepass')) & 0xFFFF:04x}"
