"""The typed arguments of native calls are those of the drivers: none is missing, and none is made up."""

from __future__ import annotations

import inspect
from typing import Any, Required, cast, get_origin, get_type_hints

import botocore.session
import pytest
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.collection import Collection

from onewrite.core.flow import FinalRefusals
from onewrite.dynamodb import native as dynamodb
from onewrite.mongodb import native as mongodb

REPLACED_BY_EXPRESSIONS = {"AttributeUpdates", "Expected", "ConditionalOperator", "AttributesToGet"}
SAID_BY_THE_STORE = {"TableName", "ReturnValuesOnConditionCheckFailure"}
OF_ONE_DOCUMENT = {"self", "collection", "filter", "update", "document", "limit"}


@pytest.mark.parametrize(
    ("arguments", "operation"),
    [
        (dynamodb.UpdateItemArguments, "UpdateItem"),
        (dynamodb.PutItemArguments, "PutItem"),
        (dynamodb.GetItemArguments, "GetItem"),
    ],
)
def test_native_call_of_a_table_has_botocores_arguments(arguments: Any, operation: str) -> None:
    shape = cast("Any", botocore.session.get_session().get_service_model("dynamodb").operation_model(operation).input_shape)
    hints = get_type_hints(arguments, include_extras=True)
    for name in FinalRefusals._fields:  # which are ours
        hints.pop(name, None)
    assert set(hints) == set(shape.members) - REPLACED_BY_EXPRESSIONS - SAID_BY_THE_STORE
    required = {name for name, hint in hints.items() if get_origin(hint) is Required}
    assert required == set(shape.required_members) - SAID_BY_THE_STORE


@pytest.mark.parametrize("collection", [Collection, AsyncCollection])
@pytest.mark.parametrize(
    ("arguments", "method"), [(mongodb.UpdateOneArguments, "update_one"), (mongodb.InsertOneArguments, "insert_one")]
)
def test_native_call_of_a_collection_has_pymongos_arguments(collection: Any, arguments: Any, method: str) -> None:
    assert (
        set(arguments.__annotations__) - {*FinalRefusals._fields}
        == set(inspect.signature(getattr(collection, method)).parameters) - OF_ONE_DOCUMENT
    )
