"""Relays and publishers, which move events from an entity's outbox to a broker.

A write with `emit=` adds events to its entity. A relay publishes them, in order within each entity, and clears them.
"""

from onewrite.core.features.pending import Broken, Outgoing
from onewrite.outbox.passes import FlushReport, OutboxState, SweepReport, Waiting
from onewrite.outbox.publishers import to_eventbridge, to_sns, to_sqs
from onewrite.outbox.relay import AsyncRelay, Relay, stream_handler

__all__ = [
    "AsyncRelay",
    "Broken",
    "FlushReport",
    "OutboxState",
    "Outgoing",
    "Relay",
    "SweepReport",
    "Waiting",
    "stream_handler",
    "to_eventbridge",
    "to_sns",
    "to_sqs",
]
