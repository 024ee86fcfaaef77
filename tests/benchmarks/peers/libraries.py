"""The libraries that keep a record of each message around a handler: Powertools and idemkit. They need not be installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from onewrite import Message
from onewrite.testing import lambda_context
from onewrite.testing.servers.engines import REGION
from tests.benchmarks.peers.ways import INSTALL, DeliveryFailedError, Unmeasured, Way

POWERTOOLS, IDEMKIT = "Powertools idempotency around it", "idemkit around it"
RECORDS = "records-of-powertools"
_RECORDS_OF_IDEMKIT = "records-of-idemkit"
_LEASE = 30  # seconds that a handler may take

Plainly = Callable[[str], object]
"""The business write to the entity of this name, unguarded."""


def powertools(client: Any, plainly: Plainly) -> Way | Unmeasured:
    try:
        from aws_lambda_powertools.utilities.idempotency import (  # noqa: PLC0415  # it need not be there
            DynamoDBPersistenceLayer,
            IdempotencyConfig,
            idempotent_function,
        )
    except ImportError:
        return Unmeasured(POWERTOOLS, INSTALL)
    context: Any = lambda_context(remaining_ms=_LEASE * 1000)
    records = DynamoDBPersistenceLayer(RECORDS, boto3_client=client)

    @idempotent_function(  # type: ignore[untyped-decorator]  # Powertools does not say what it gives
        data_keyword_argument="message_id", persistence_store=records, config=IdempotencyConfig(lambda_context=context)
    )
    def once(message_id: str, entity: str) -> None:
        plainly(entity)

    return Way(POWERTOOLS, lambda messages, entity: once(message_id=messages[0].id, entity=entity))


def idemkit_on_dynamodb(endpoint: str, stack: ExitStack, plainly: Plainly) -> Way | Unmeasured:
    try:
        from idemkit import DynamoBackend  # noqa: PLC0415  # it need not be there
    except ImportError:
        return Unmeasured(IDEMKIT, INSTALL)
    credentials = {"aws_access_key_id": "dummy", "aws_secret_access_key": "dummy"}
    backend = DynamoBackend(table=_RECORDS_OF_IDEMKIT, endpoint_url=endpoint, region_name=REGION, **credentials)
    return _idemkit(backend, stack, plainly)


def idemkit_on_mongodb(uri: str, stack: ExitStack, plainly: Plainly) -> Way | Unmeasured:
    try:
        from idemkit import MongoBackend  # noqa: PLC0415  # the same
    except ImportError:
        return Unmeasured(IDEMKIT, INSTALL)
    durable = {"w": "majority", "journal": True}
    return _idemkit(MongoBackend.from_url(uri, database="shop", collection=_RECORDS_OF_IDEMKIT, **durable), stack, plainly)


def _idemkit(backend: Any, stack: ExitStack, plainly: Plainly) -> Way:
    """Its consumer of queues, called by a program without an event loop, as all the others are."""
    from idemkit import ConsumerAction, IdempotentConsumer, QueueConfig  # noqa: PLC0415  # the same
    from idemkit.core.sync_bridge import run_sync  # noqa: PLC0415  # the same

    config = QueueConfig(
        dedup_id=lambda delivery: delivery[0], visibility_timeout_seconds=2 * _LEASE, receive_count=lambda _: 1
    )
    consumer = IdempotentConsumer(backend=backend, config=config, handler=lambda delivery: plainly(delivery[1]))
    stack.callback(lambda: run_sync(backend.aclose()))

    def deliver(messages: Sequence[Message], entity: str) -> None:
        result = consumer.dispatch_sync((messages[0].id, entity))
        if result.action is not ConsumerAction.ACK or result.error is not None:
            raise DeliveryFailedError(repr(result))

    return Way(IDEMKIT, deliver)
