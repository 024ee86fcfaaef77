"""Requests and contents that differ only in the tokens of guarded writes.

A guarded write stores a token that names its attempt, so that two deliveries which do the same leave different items. DynamoDB never
compares tokens; only the store that reads one compares it with its own. The effect of a request is therefore known if it's known for other
tokens: these are replaced in the state after it, and in the response.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, cast

from onewrite.core.label import EFFECT, EFFECTS, TOKEN
from onewrite.testing.taps.traffic import Request, is_dynamodb, walk

Names: TypeAlias = Mapping[str, str]  # the tokens to replace, and what replaces them

ENDED_ATTEMPT = "~ended~~"  # in place of the tokens of deliveries that have ended, with the same length

_PLACEHOLDER = ":ow_token"
_EFFECT_PLACEHOLDER = ":ow_effect"
_VALUES = "ExpressionAttributeValues"


def read_token(values: Mapping[str, Any], name: str = TOKEN) -> str | None:
    """Return the token under this name, as a plain or a typed value."""
    value = values.get(name)
    return cast("Mapping[str, str]", value).get("S") if isinstance(value, Mapping) else value


def read_own_token(request: Request) -> str | None:
    """Return the token that a request writes."""
    return read_token(request.arguments.get(_VALUES) or {}, _PLACEHOLDER)


def list_own_tokens(request: Request) -> Iterator[str]:
    """Yield the tokens that a request writes or compares, in any of its parts. Only DynamoDB's entities have tokens."""
    if is_dynamodb(request):
        for name, value in walk(request.arguments):
            if name in (TOKEN, _PLACEHOLDER):
                yield str(read_token({name: value}, name))


def omit_token(request: Request) -> Request:
    """Return the request without the token that it writes."""
    values = cast("Mapping[str, Any]", request.arguments.get(_VALUES) or {})
    rest = {name: value for name, value in values.items() if name != _PLACEHOLDER}
    return replace(request, arguments={**request.arguments, _VALUES: rest})


def omit_token_of_form(form: Hashable) -> Hashable:
    """Return the canonical form of an item without its token. The form of a missing item is None."""
    if form is None:
        return None
    kind, items = cast("tuple[str, tuple[tuple[str, Hashable], ...]]", form)
    return kind, tuple([pair for pair in items if pair[0] != TOKEN])


def has_effects(request: Request, item: Mapping[str, Any]) -> bool:
    """Whether the request or the item has an effect, which is fenced by a token too."""
    return _EFFECT_PLACEHOLDER in (request.arguments.get(_VALUES) or {}) or has_effect(item)


def has_effect(item: Mapping[str, Any]) -> bool:
    """Whether the item has an effect, which is fenced by a token too."""
    return any(name.startswith((EFFECT, EFFECTS)) for name in item)


def hide_other_attempts(value: Any, own: Container[str | None]) -> Any:
    """Return a response with one token in place of those that other deliveries have stored. `own` are the delivery's own tokens."""
    if isinstance(value, list):
        return [hide_other_attempts(inner, own) for inner in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, Any]", value)
    token = read_token(members) if TOKEN in members else None
    if token is not None and token not in own and not has_effect(members):
        return rename_item(members, {token: ENDED_ATTEMPT})
    return {name: hide_other_attempts(inner, own) for name, inner in members.items()}


def rename_item(item: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Return the item with its token replaced."""
    token = read_token(item)
    if token is None or token not in names:
        return dict(item)
    return {**item, TOKEN: {"S": names[token]} if isinstance(item[TOKEN], Mapping) else names[token]}


def rename_answer(answer: Callable[[], Any], names: Names) -> Callable[[], Any]:
    """Return a repeater of the same response with other tokens, which have the same length. `make_repeater` made the first one."""
    repeater = cast("partial[Any]", answer)
    table = {old.encode(): new.encode() for old, new in names.items()}
    if not table:
        return answer
    *args, pickled = repeater.args
    pattern = re.compile(b"|".join(map(re.escape, table)))
    return partial(repeater.func, *args, pattern.sub(lambda match: table[match[0]], pickled))
