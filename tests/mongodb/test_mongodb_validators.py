"""A validator that refuses names it doesn't list is recognized before a write, and named after one."""

from __future__ import annotations

import pytest
from pymongo.errors import OperationFailure, WriteError

from onewrite import ConfigurationError
from onewrite.mongodb.settings import check_refusal


def failure(code: int, *names: str) -> OperationFailure:
    rules = [{"operatorName": "additionalProperties", "additionalProperties": [*names]}]
    return WriteError(
        "no", code, {"errInfo": {"details": {"operatorName": "$jsonSchema", "schemaRulesNotSatisfied": rules}}}
    )


def test_error_names_reserved_names_refused_by_a_schema() -> None:
    with pytest.raises(ConfigurationError, match=r"refuses ow_l, ow_t.*patternProperties"):
        check_refusal(failure(121, "ow_t", "note", "ow_l"))


@pytest.mark.parametrize("error", [failure(121, "note"), failure(11000, "ow_l"), WriteError("no", 121), ValueError()])
def test_other_refusals_keep_the_driver_error(error: Exception) -> None:
    check_refusal(error)
