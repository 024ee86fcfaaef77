"""Step 3 of the migration of your own set of IDs: write each entity that the store in between wrote last.

`new` is the ledger of step 2, for example `SeenIds(previous=IdSet("handled"))`. Consumers can write in the meantime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pymongo.collection import Collection

from onewrite import Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table


def touch_table(table: Table, new: SeenIds) -> None:
    store, key_names = GuardedTable(table, new), [part["AttributeName"] for part in table.key_schema]
    pages = table.meta.client.get_paginator("scan").paginate(TableName=table.name, ConsistentRead=True)
    for item in (item for page in pages for item in page["Items"]):
        if str(item.get("ow_l", "")).startswith("ow1 > ") and "ow_tombstone" not in item:
            store.remember(
                Message(f"touched {uuid4()}"),
                Key={name: item[name] for name in key_names},
                ConditionExpression="attribute_exists(#key)",
                ExpressionAttributeNames={"#key": key_names[0]},
            )


def touch_collection(collection: Collection[dict[str, Any]], new: SeenIds) -> None:
    store = GuardedCollection(collection, new)
    for document in collection.find({"ow_l": {"$regex": "^ow1 > "}, "ow_tombstone": {"$exists": False}}):
        store.remember(Message(f"touched {uuid4()}"), {"_id": document["_id"]}, upsert=False)
