"""A loop for aiokafka. It processes partitions concurrently, each in its order, and commits up to the first unsettled record."""

import asyncio
from typing import Any

from onewrite.brokers import MessageHandler


async def consume(consumer: Any, handler: MessageHandler[Any, Any]) -> None:
    """Consume with an `AIOKafkaConsumer("payments", group_id="orders", enable_auto_commit=False)`.

    Don't catch an error that `commit` or `seek` raises after a rebalance. The partition's next consumer receives duplicates.
    """
    while True:
        batches = await consumer.getmany(timeout_ms=1000)
        lanes = [handler.aprocess_in_order([{"body": each.value} for each in records]) for records in batches.values()]
        wait = 0.0
        for (partition, records), results in zip(batches.items(), await asyncio.gather(*lanes), strict=True):
            done = sum(result.settled for result in results)
            if done:
                await consumer.commit({partition: records[done - 1].offset + 1})
            if done < len(records):
                consumer.seek(partition, records[done].offset)  # otherwise it comes again only after a restart
                wait = max(wait, results[done].retry_after(1) or 0)
        await asyncio.sleep(min(wait, 60))
