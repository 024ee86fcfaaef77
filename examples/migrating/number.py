"""Step 2 of the migration of a last number: set the mark of each order from its `version`, while consumers write.

Use your own attribute, and the source and the type of the sequence that your consumers' messages have. If you store a number per source,
remember a message for each. For `InSequence`, use `HighWaterMark` here nevertheless: `InSequence` would wait for message 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pymongo.collection import Collection

from onewrite import HighWaterMark, Message
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table


def carry_table(table: Table) -> None:
    store = GuardedTable(table, HighWaterMark())
    pages = table.meta.client.get_paginator("scan").paginate(TableName=table.name, ConsistentRead=True)
    for item in (item for page in pages for item in page["Items"] if "version" in item):
        message = Message("carried", source=f"orders/{item['orderId']}", sequence=int(cast("int", item["version"])))
        store.remember(message, Key={"orderId": item["orderId"]}, ConditionExpression="attribute_exists(version)")


def carry_collection(collection: Collection[dict[str, Any]]) -> None:
    store = GuardedCollection(collection, HighWaterMark())
    for document in collection.find({"version": {"$exists": True}}):
        message = Message("carried", source=f"orders/{document['_id']}", sequence=document["version"])
        store.remember(message, {"_id": document["_id"], "version": {"$exists": True}}, upsert=False)
