"""Relays and publishers, which move events from an entity's outbox to a broker.

A write with `emit=` adds events to its entity. A relay publishes them, in order within each entity, and clears them.
"""

from onewrite.core.features.pending import BrokenOutbox, Outgoing
from onewrite.outbox.passes import FlushReport, OutboxState, PendingEntity, SweepReport
from onewrite.outbox.publishers import to_eventbridge, to_sns, to_sqs
from onewrite.outbox.relay import AsyncRelay, Relay, stream_handler

__all__ = [
    "AsyncRelay",
    "BrokenOutbox",
    "FlushReport",
    "OutboxState",
    "Outgoing",
    "PendingEntity",
    "Relay",
    "SweepReport",
    "stream_handler",
    "to_eventbridge",
    "to_sns",
    "to_sqs",
]
