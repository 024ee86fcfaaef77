"""Tools for testing message handlers: the explorer, faults, stand-ins, engines, and events.

Each name is imported when it's first used, so a test needs only the packages of the tools that it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onewrite.testing.determinism import seeded
    from onewrite.testing.errors import ProgramMissing, UnsupportedByStandIn
    from onewrite.testing.events import dynamodb_stream_event, kafka_event, kinesis_event, lambda_context, sqs_event
    from onewrite.testing.explorer.exploration import ExplorationWarning
    from onewrite.testing.explorer.explore import explore
    from onewrite.testing.servers.engines import dynoxide, mongod
    from onewrite.testing.standins.stores import mongomock_collection, moto_table
    from onewrite.testing.taps.faults import Crash, Faults

__all__ = [
    "Crash",
    "ExplorationWarning",
    "Faults",
    "ProgramMissing",
    "UnsupportedByStandIn",
    "dynamodb_stream_event",
    "dynoxide",
    "explore",
    "kafka_event",
    "kinesis_event",
    "lambda_context",
    "mongod",
    "mongomock_collection",
    "moto_table",
    "seeded",
    "sqs_event",
]

_HOMES = {
    "Crash": "taps.faults",
    "ExplorationWarning": "explorer.exploration",
    "Faults": "taps.faults",
    "ProgramMissing": "errors",
    "UnsupportedByStandIn": "errors",
    "dynamodb_stream_event": "events",
    "dynoxide": "servers.engines",
    "explore": "explorer.explore",
    "kafka_event": "events",
    "kinesis_event": "events",
    "lambda_context": "events",
    "mongod": "servers.engines",
    "mongomock_collection": "standins.stores",
    "moto_table": "standins.stores",
    "seeded": "determinism",
    "sqs_event": "events",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
