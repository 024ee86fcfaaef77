"""`onewrite worker` runs a decorated handler on the messages of an SQS queue."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeAlias, cast

import typer

from onewrite.cli.early_signals import EarlySignals
from onewrite.errors import ConfigurationError

_NAME = "MODULE:HANDLER"

Name: TypeAlias = Annotated[str, typer.Argument(metavar=_NAME, help="Where the handler is, as in shop.handlers:ship.")]
QueueUrl: TypeAlias = Annotated[str, typer.Option(help="The queue, as `aws sqs get-queue-url` prints it.")]
Region: TypeAlias = Annotated[str | None, typer.Option(help="The queue's region, if not the configured one.")]
EndpointUrl: TypeAlias = Annotated[str | None, typer.Option(help="Where SQS is, if not at AWS.")]
BatchSize: TypeAlias = Annotated[int, typer.Option(min=1, max=10, help="How many messages a batch has at most.")]
Wait: TypeAlias = Annotated[
    int | None, typer.Option(min=0, max=20, help="Seconds to wait for messages; by default 20, or 3 with --stop-when-empty.")
]
VisibilityTimeout: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, max=43_200, help="Seconds until a message that failed comes again, if not the queue's own."),
]
DrainSeconds: TypeAlias = Annotated[
    float, typer.Option(min=0, max=43_200, help="The most seconds from SIGTERM or Ctrl-C to the end.")
]
StopWhenEmpty: TypeAlias = Annotated[bool, typer.Option("--stop-when-empty", help="Stop when no more messages come.")]


def worker(
    context: typer.Context,
    handler: Name,
    *,
    queue_url: QueueUrl,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    batch_size: BatchSize = 10,
    wait: Wait = None,
    visibility_timeout: VisibilityTimeout = None,
    drain_seconds: DrainSeconds = 25,
    stop_when_empty: StopWhenEmpty = False,
) -> None:
    """Run a handler that is decorated with @sqs_handler on the messages of a queue, and delete the messages that are done.

    After SIGTERM or Ctrl-C it finishes what is under way and stops. After a second one it stops at once.
    """
    options: dict[str, Any] = {"batch_size": batch_size, "wait": wait, "visibility_timeout": visibility_timeout}
    options |= {"drain_seconds": drain_seconds, "stop_when_empty": stop_when_empty}
    found = find(handler)
    log_to_stderr()  # after the import of the handler's module, which may have set up logging of its own
    try:
        orderly = run(found, queue_url, region=region, endpoint_url=endpoint_url, options=options, early=context.obj)
    except ConfigurationError as error:
        sys.stderr.write(f"onewrite: {error}\n")
        raise typer.Exit(2) from error
    if not orderly:
        _leave()


def run(
    handler: Any,
    queue_url: str,
    *,
    region: str | None,
    endpoint_url: str | None,
    options: Mapping[str, Any],
    early: EarlySignals,
) -> bool:
    """Run a worker until it stops. False: its deadline came first, and a batch is still under way."""
    from onewrite.sqs import Worker  # noqa: PLC0415  # The other verbs do without botocore.
    from onewrite.sqs.queue import default_client  # noqa: PLC0415  # the same

    client = default_client(queue_url, region=region, endpoint_url=endpoint_url)
    started = Worker(queue_url, handler, client=client, **options)
    early.pass_on(started.stop)
    return started.run()


def log_to_stderr() -> None:
    printed = logging.StreamHandler()
    printed.setFormatter(Lines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[printed])


class Lines(logging.Formatter):
    """Plain lines. Below the line of a batch, each of its failures has a line."""

    def format(self, record: logging.LogRecord) -> str:
        details = cast("Mapping[str, Any]", getattr(record, "onewrite", {}))
        failures = details.get("failures", ())
        return "\n    ".join([super().format(record), *map(_failure_line, failures)])


def _failure_line(failure: Mapping[str, Any]) -> str:
    """What is known of a failure, in this order: record, message, attempt, error, reason and line."""
    return ", ".join(f"{name} {value}" for name, value in failure.items() if value is not None)


def find(name: str) -> Any:
    """The handler that `module:handler` names. The module may be in the current directory."""
    module, _, handler = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *handler.split("."))):
        raise _misuse(f"{name!r} is not of the form module:handler, as shop.handlers:ship is.")
    found = _import(module)
    try:
        return attrgetter(handler)(found)
    except AttributeError as error:
        raise _misuse(f"the module {module!r} has no {handler!r}.") from error


def _import(module: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # The module is there, but a module that it imports is not.
        raise _misuse(f"there is no module {error.name!r} in {here} or among the installed packages.") from error


def _misuse(text: str) -> typer.BadParameter:
    return typer.BadParameter(text, param_hint=_NAME)


def _leave() -> None:
    """End the process at once. An orderly end of the interpreter would wait for the threads of a handler that hangs."""
    logging.shutdown()
    os._exit(1)
