"""For the tests of message handlers: an explorer of deliveries, faults, stand-ins, servers and events.

A name is imported when it is first asked for, so that a test pays, and needs installed, only what it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onewrite.testing.context import lambda_context
    from onewrite.testing.errors import ProgramMissing, StandInLies
    from onewrite.testing.events import dynamodb_stream_event, kafka_event, kinesis_event, sqs_event
    from onewrite.testing.explorer import explore
    from onewrite.testing.faults import Crash, Faults
    from onewrite.testing.servers import dynamodb_local, dynoxide, mongod
    from onewrite.testing.standins import mongomock_collection, moto_table

__all__ = [
    "Crash",
    "Faults",
    "ProgramMissing",
    "StandInLies",
    "dynamodb_local",
    "dynamodb_stream_event",
    "dynoxide",
    "explore",
    "kafka_event",
    "kinesis_event",
    "lambda_context",
    "mongod",
    "mongomock_collection",
    "moto_table",
    "sqs_event",
]

_HOMES = {
    "Crash": "faults",
    "Faults": "faults",
    "ProgramMissing": "errors",
    "StandInLies": "errors",
    "dynamodb_local": "servers",
    "dynamodb_stream_event": "events",
    "dynoxide": "servers",
    "explore": "explorer",
    "kafka_event": "events",
    "kinesis_event": "events",
    "lambda_context": "context",
    "mongod": "servers",
    "mongomock_collection": "standins",
    "moto_table": "standins",
    "sqs_event": "events",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
