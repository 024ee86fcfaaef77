"""The arguments of DynamoDB's own calls, by name and type, for type checkers and editors.

Legacy arguments that expressions have replaced, such as `Expected` and `AttributeUpdates`, are left out. So are the arguments
that a guarded table sets itself: `TableName` and `ReturnValuesOnConditionCheckFailure`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, Required, TypedDict

from boto3.dynamodb.conditions import ConditionBase


class Table(Protocol):
    """A boto3 or aioboto3 Table, which has a name."""

    @property
    def name(self) -> str: ...
    @property
    def update_item(self) -> Callable[..., Any]: ...


class Client(Protocol):
    """A low-level client, which can access every table."""

    @property
    def update_item(self) -> Callable[..., Any]: ...


class _EveryRequest(TypedDict, total=False):
    """The arguments of every request. `Applied.response` contains the consumed capacity."""

    ReturnConsumedCapacity: Literal["INDEXES", "TOTAL", "NONE"]


class _EveryCondition(TypedDict, total=False):
    """The arguments of every write. With onewrite's own `rejected_ok`, a refusal by the condition settles the message."""

    rejected_ok: bool
    ConditionExpression: str | ConditionBase
    ExpressionAttributeNames: Mapping[str, str]
    ExpressionAttributeValues: Mapping[str, Any]


class _EveryWrite(_EveryRequest, _EveryCondition, total=False):
    """The arguments of every write."""

    ReturnItemCollectionMetrics: Literal["SIZE", "NONE"]


class RememberArguments(_EveryWrite, total=False):
    """The arguments of `remember`. With onewrite's own `missing_ok`, a missing entity settles the message."""

    missing_ok: bool
    Key: Required[Mapping[str, Any]]
    ReturnValues: Literal["NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"]


class UpdateItemArguments(RememberArguments, total=False):
    """The arguments of `update_item`."""

    UpdateExpression: str


class EffectArguments(_EveryCondition, _EveryRequest, total=False):
    """The arguments of `begin_effect` and `perform_effect` in addition to the effect's arguments. The condition is the caller's, on the entity."""

    missing_ok: bool
    Key: Required[Mapping[str, Any]]


class PutItemArguments(_EveryWrite, total=False):
    """The arguments of `put_item`."""

    Item: Required[Mapping[str, Any]]
    ReturnValues: Literal["NONE", "ALL_OLD"]


class DeleteItemArguments(_EveryWrite, total=False):
    """The arguments of `delete_item`."""

    missing_ok: bool
    Key: Required[Mapping[str, Any]]
    ReturnValues: Literal["NONE", "ALL_OLD"]


class PreviewArguments(_EveryRequest, total=False):
    """The arguments of `preview`, which reads the whole item."""

    Key: Required[Mapping[str, Any]]
    ConsistentRead: bool


class GetItemArguments(PreviewArguments, total=False):
    """The arguments of `get_item`."""

    ProjectionExpression: str
    ExpressionAttributeNames: Mapping[str, str]
