"""One item per order, and an index that lists a consumer's orders by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import DynamoDBServiceResource, Table

INDEX = "consumer-creationDate"


def create_table(dynamodb: DynamoDBServiceResource, name: str = "order-history") -> Table:
    table = dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "orderId", "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": "orderId", "AttributeType": "S"},
            {"AttributeName": "consumerId", "AttributeType": "S"},
            {"AttributeName": "creationDate", "AttributeType": "S"},
        ],
        GlobalSecondaryIndexes=[
            {
                # Sparse: an item that only a delivery has written lacks both attributes, and isn't listed.
                "IndexName": INDEX,
                "KeySchema": [
                    {"AttributeName": "consumerId", "KeyType": "HASH"},
                    {"AttributeName": "creationDate", "KeyType": "RANGE"},
                ],
                # The index projects what the query shows. A copy of the ledger would be billed with every message.
                "Projection": {
                    "ProjectionType": "INCLUDE",
                    "NonKeyAttributes": ["restaurant", "lineItems", "status", "deliveryStatus", "steps"],
                },
            }
        ],
    )
    table.wait_until_exists()
    return table
