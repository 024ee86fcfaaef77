"""A middleware for FastStream on RabbitMQ, Kafka, and NATS. It acknowledges settled messages, and gets the others again after a delay.

Set `ack_policy=AckPolicy.NACK_ON_ERROR`. A subscriber finds the message in the context, as `guarded`.
"""

import asyncio
from typing import Any

from faststream import BaseMiddleware
from faststream.exceptions import NackMessage
from faststream.message import SourceType
from faststream.nats.message import NatsMessage  # leave it out without faststream[nats]

from onewrite import Message
from onewrite.brokers import message_handler
from onewrite.identity import json_body


class Guarded(BaseMiddleware):
    async def consume_scope(self, call_next: Any, msg: Any) -> Any:
        if msg.source_type is SourceType.RESPONSE:  # the reply to your own broker.request()
            return await call_next(msg)

        @message_handler(json_body(id="eventId"))
        async def each(message: Message) -> Any:
            with self.context.scope("guarded", message):
                return await call_next(msg)

        result = await each.aprocess({"messageId": msg.message_id, "body": msg.body})
        attempt = int(msg.headers.get("x-delivery-count", 0)) + 1  # of RabbitMQ's quorum queues
        if getattr(msg.raw_message, "reply", ""):  # of JetStream
            attempt = msg.raw_message.metadata.num_delivered
        seconds = result.retry_after(attempt)
        if seconds is not None and isinstance(msg, NatsMessage):
            raise NackMessage(delay=seconds)
        if seconds is not None:
            await asyncio.sleep(min(seconds, 60))
            raise NackMessage
        return None
