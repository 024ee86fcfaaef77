"""What the options of a table leave of an expression's length: a store whose own part takes it all would fail at each call."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, cast

from onewrite.dynamodb.expression import LONGEST_EXPRESSION, ExpressionTooLong, leaves_room
from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.explaining import explained
from onewrite.message import Message

_ANY_TIME = 1.79e9
_ROOM, _OPERATORS = 512, 20  # what a usual update and a usual condition of the caller take


def check_room(store: Any, flows: Any, ledger: object) -> None:
    """Raise unless a usual call of this store fits beside what it asks and writes itself."""
    message = Message("any", source="any", sequence=getattr(ledger, "first", 1))
    fixed = copy(flows)
    fixed.clock, fixed.attempts = lambda: _ANY_TIME, lambda: "any"  # the caller's clock has no part in this
    try:
        request = cast("Mapping[str, Any]", explained(store, fixed, lambda each: each.record(message, Key={"any": ""})))[
            "update_item"
        ]
    except InvalidMessage:  # a ledger of the caller's own may want messages of another kind
        return
    except ExpressionTooLong as error:
        raise _no_room() from error
    is_long = len(request.get("UpdateExpression", "").encode()) + _ROOM > LONGEST_EXPRESSION
    if is_long or not leaves_room(request.get("ConditionExpression", ""), size=_ROOM, operators=_OPERATORS):
        raise _no_room()


def _no_room() -> ConfigurationError:
    return ConfigurationError(
        f"This ledger and those in its also= leave no room for a call of your own in the {LONGEST_EXPRESSION} bytes of an expression of "
        "DynamoDB: give them shorter names, or name fewer of them in also=."
    )
