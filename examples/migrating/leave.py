"""Remove all ledgers and tombstones from a table or a collection, when no consumer or relay uses onewrite any longer.

An entity with pending events or an open effect stays unchanged. On DynamoDB, the script stops there with a
`ConditionalCheckFailedException`. Finish the effect, or publish the events, and run the script again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pymongo.collection import Collection

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

NOTHING_OPEN = "attribute_not_exists(ow_events) AND attribute_not_exists(ow_effects)"


def leave_table(table: Table) -> None:
    """Remove all ledgers and tombstones, until a pass finds none."""
    key_names = [part["AttributeName"] for part in table.key_schema]
    is_clean = False
    while not is_clean:
        is_clean = True
        pages = table.meta.client.get_paginator("scan").paginate(TableName=table.name, ConsistentRead=True)
        for item in (item for page in pages for item in page["Items"]):
            key = {name: item[name] for name in key_names}
            ours = [name for name in item if name.startswith("ow_")]
            names = {f"#n{number}": name for number, name in enumerate(ours[:500])}  # an expression holds 4 KB
            if "ow_tombstone" in ours:
                table.delete_item(Key=key, ConditionExpression=NOTHING_OPEN)
            elif ours:
                table.update_item(
                    Key=key,
                    UpdateExpression=f"REMOVE {', '.join(names)}",
                    ConditionExpression=f"{NOTHING_OPEN} AND attribute_exists(#key)",
                    ExpressionAttributeNames={**names, "#key": key_names[0]},
                )
            is_clean = is_clean and not ours


def leave_collection(collection: Collection[dict[str, Any]]) -> None:
    """Remove all ledgers and tombstones, until a pass changes nothing."""
    nothing_open: dict[str, Any] = {"ow_events": {"$exists": False}, "ow_effects": {"$in": [None, {}]}}
    changes = 1
    while changes:
        changes = 0
        for document in collection.find():
            ours = [name for name in document if name.startswith("ow_")]
            query = {"_id": document["_id"], **nothing_open}
            if "ow_tombstone" in ours:
                changes += collection.delete_one(query).deleted_count
            elif ours:
                changes += collection.update_one(query, {"$unset": dict.fromkeys(ours, "")}).modified_count
