"""The arguments of DynamoDB's own calls, by name and type, so a type checker and an editor know them.

The arguments that expressions have replaced (`Expected`, `AttributeUpdates` and the like) are left out, and so is what a
guarded table says by itself: `TableName`, and that a refusal shall show the item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, Required, TypedDict

from boto3.dynamodb.conditions import ConditionBase


class Table(Protocol):
    """A boto3 or aioboto3 Table, which knows its own name."""

    @property
    def name(self) -> str: ...
    @property
    def update_item(self) -> Callable[..., Any]: ...


class Client(Protocol):
    """A low-level client, which serves every table."""

    @property
    def update_item(self) -> Callable[..., Any]: ...


class _EveryRequest(TypedDict, total=False):
    """What every request may ask for: its answer is in `Applied.response`."""

    ReturnConsumedCapacity: Literal["INDEXES", "TOTAL", "NONE"]


class _EveryCondition(TypedDict, total=False):
    """What every write may say, also in a transaction."""

    ConditionExpression: str | ConditionBase
    ExpressionAttributeNames: Mapping[str, str]
    ExpressionAttributeValues: Mapping[str, Any]


class RecordingArguments(_EveryCondition, total=False):
    """The arguments of `recording`. `missing_ok` is ours: a missing entity settles the message."""

    missing_ok: bool
    Key: Required[Mapping[str, Any]]


class UpdatingArguments(RecordingArguments, total=False):
    """The arguments of `updating`."""

    UpdateExpression: str


class PuttingArguments(_EveryCondition, total=False):
    """The arguments of `putting`."""

    Item: Required[Mapping[str, Any]]


class _EveryWrite(_EveryRequest, _EveryCondition, total=False):
    """What every write of its own may say."""

    ReturnItemCollectionMetrics: Literal["SIZE", "NONE"]


class RecordArguments(_EveryWrite, total=False):
    """The arguments of `record`."""

    missing_ok: bool
    Key: Required[Mapping[str, Any]]
    ReturnValues: Literal["NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"]


class UpdateItemArguments(RecordArguments, total=False):
    """The arguments of `update_item`."""

    UpdateExpression: str


class BeginArguments(RecordingArguments, _EveryRequest, total=False):
    """The arguments of `begin` and `perform` beside those of the step. The condition is the caller's own, on the entity."""


class PutItemArguments(_EveryWrite, total=False):
    """The arguments of `put_item`."""

    Item: Required[Mapping[str, Any]]
    ReturnValues: Literal["NONE", "ALL_OLD"]


class DeleteItemArguments(_EveryWrite, total=False):
    """The arguments of `delete_item`."""

    missing_ok: bool
    Key: Required[Mapping[str, Any]]
    ReturnValues: Literal["NONE", "ALL_OLD"]


class SeenArguments(_EveryRequest, total=False):
    """The arguments of `seen`, which reads the whole item."""

    Key: Required[Mapping[str, Any]]
    ConsistentRead: bool


class GetItemArguments(SeenArguments, total=False):
    """The arguments of `get_item`."""

    ProjectionExpression: str
    ExpressionAttributeNames: Mapping[str, str]
