"""What MongoDB's errors mean for a guarded write. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo.errors import DuplicateKeyError, ExecutionTimeout, OperationFailure, WriteConcernError

LARGEST_DOCUMENT = 16 * 1024 * 1024  # bytes of BSON, the server's limit
# BSONObjectTooLarge, the same for an upsert, and what the result of a pipeline raises.
_TOO_LARGE = frozenset({10334, 17419, 17420})
# Unauthorized, AuthenticationFailed, and rate limits of MongoDB and of compatible services: they say nothing about the document.
_UNWILLING = frozenset({13, 18, 462, 16500})
# BadValue, TypeMismatch, PathNotViable, and $concatArrays on something else: the cause may be the caller's update, or a broken ledger.
_CONTENT = frozenset({2, 14, 28, 28664})


def says_nothing_was_done(error: Exception) -> bool:
    """Is it certain that the write had no effect? Not where only its durability failed, or its time was up."""
    if not isinstance(error, OperationFailure) or isinstance(error, WriteConcernError | ExecutionTimeout):
        return False
    return error.code not in _UNWILLING


def is_of_entity(error: Exception, entity: Mapping[str, Any]) -> bool:
    """Is this a duplicate key, and the entity's own? A unique index of the caller's is the caller's business."""
    if not isinstance(error, DuplicateKeyError):
        return False
    pattern = (error.details or {}).get("keyPattern")
    # Servers before MongoDB 4.2, and Amazon DocumentDB, do not say which index refused: then the entity itself must tell.
    return pattern is None or set(pattern) <= set(entity)


def is_too_large(error: Exception) -> bool:
    return isinstance(error, OperationFailure) and error.code in _TOO_LARGE


def may_be_ledger(error: Exception) -> bool:
    return isinstance(error, OperationFailure) and error.code in _CONTENT
