"""Work done right by what Lambda calls, on DynamoDB: with Powertools' batch, and by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from botocore.exceptions import BotoCoreError, ClientError

from onewrite import Message, SeenIds
from onewrite.dynamodb import GuardedTable

Handler = Callable[[Any, Any], Any]

C1 = {"id": "c1"}


def _add(body: str) -> dict[str, Any]:
    return {"UpdateExpression": "ADD balance :n", "ExpressionAttributeValues": {":n": 10 ** int(body)}}


def with_powertools(table: Any) -> Handler:
    """Powertools names the records for which the function raises. The mark is in the write."""
    customers = GuardedTable(table, SeenIds())
    processor = BatchProcessor(event_type=EventType.SQS)

    def book(record: Any) -> None:
        customers.update_item(Message(record.message_id), Key=C1, **_add(record.body))

    def handler(event: Mapping[str, Any], context: Any) -> Any:
        return process_partial_response(event=dict(event), record_handler=book, processor=processor, context=context)

    return handler


def by_hand(table: Any) -> Handler:
    """It goes on after a record that fails, and names all of these."""
    refused = table.meta.client.exceptions.ConditionalCheckFailedException

    def book(record: Mapping[str, Any]) -> None:
        add, name = _add(record["body"]), record["messageId"]
        values = {**add["ExpressionAttributeValues"], ":ids": {name}, ":id": name}
        with suppress(refused):
            table.update_item(
                Key=C1,
                UpdateExpression="ADD balance :n, seen :ids",
                ConditionExpression="NOT contains(seen, :id)",
                ExpressionAttributeValues=values,
            )

    def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
        failures = []
        for record in event["Records"]:
            try:
                book(record)
            except (ClientError, BotoCoreError):
                failures.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failures}

    return handler
