"""The tables of orders and shipping: one item per order, and a sparse index that a relay uses to find pending events."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import DynamoDBServiceResource, Table

INDEX = "pending"
SHARDS = 1  # a partition of the index takes a thousand writes a second, and this shop has fewer


def create_table(dynamodb: DynamoDBServiceResource, name: str) -> Table:
    table = dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "orderId", "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": "orderId", "AttributeType": "S"},
            {"AttributeName": "ow_shard", "AttributeType": "N"},
            {"AttributeName": "ow_due", "AttributeType": "S"},
        ],
        GlobalSecondaryIndexes=[
            {
                # Sparse: only an item with a pending event has these two attributes.
                "IndexName": INDEX,
                "KeySchema": [
                    {"AttributeName": "ow_shard", "KeyType": "HASH"},
                    {"AttributeName": "ow_due", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    )
    table.wait_until_exists()
    return table
