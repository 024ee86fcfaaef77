"""Conditions of DynamoDB with what their placeholders stand for, so that a test says what is asked and not by which placeholders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from onewrite.dynamodb.values import Members


def spell_condition(request: Mapping[str, Any]) -> str:
    """Return the condition with the names and values that our placeholders stand for."""
    entries = {**request.get("ExpressionAttributeNames", {}), **request.get("ExpressionAttributeValues", {})}

    def spell_placeholder(found: re.Match[str]) -> str:
        entry = entries[found[0]]
        return str(entry) if found[0].startswith("#") else repr([*entry] if isinstance(entry, Members) else entry)

    return re.sub(r"[#:]ow_\w+", spell_placeholder, request["ConditionExpression"])
