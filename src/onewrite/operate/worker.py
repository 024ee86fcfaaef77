"""`onewrite worker` runs a decorated handler on the messages of an SQS queue."""

from __future__ import annotations

import faulthandler
import logging
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Annotated, Any, TypeAlias

import typer

from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.message import Message
from onewrite.metrics import Hook, Reported, emf, opentelemetry
from onewrite.operate.exits import Exit, end_at_last, leave
from onewrite.operate.modules import HANDLER, find
from onewrite.operate.options import MetricsKind, VersionOption, get_global_meter, option
from onewrite.operate.report import Level, LogFormat, log_to_stderr, own_log

logger = logging.getLogger("onewrite")

_EVERY = 10.0  # seconds between two signs that Python threads still run
_SLACK = 60.0  # extra seconds: until then the worker itself finds the hanging code, if it can
_STDERR = 2  # the file descriptor, because Python's file object needs the interpreter

_option = partial(option, "WORKER")

Name: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar=HANDLER,
        envvar="ONEWRITE_WORKER_HANDLER",
        help="The handler, or a function that creates it, for example shop.handlers:ship.",
    ),
]
QueueUrl: TypeAlias = Annotated[str, _option("queue-url", "The queue's URL, as `aws sqs get-queue-url` prints it.")]
Region: TypeAlias = Annotated[
    str | None, _option("region", "The queue's region, if neither its URL nor the configuration has it.")
]
EndpointUrl: TypeAlias = Annotated[str | None, _option("endpoint-url", "The endpoint of SQS, if not AWS's.")]
InFlight: TypeAlias = Annotated[int, _option("in-flight", "The number of messages to process at once.", min=1, max=10_000)]
Timeout: TypeAlias = Annotated[
    float, _option("timeout", "Seconds after which an unfinished message is returned to the queue.", min=0.001, max=43_200)
]
Wait: TypeAlias = Annotated[
    int | None,
    _option("wait", "Seconds to wait for messages. The default is 20, or 3 with --stop-when-empty.", min=0, max=20),
]
VisibilityTimeout: TypeAlias = Annotated[
    int | None,
    _option(
        "visibility-timeout", "Seconds until a failed message is redelivered, if not the queue's default.", min=1, max=43_200
    ),
]
DrainSeconds: TypeAlias = Annotated[
    float, _option("drain-seconds", "The maximum number of seconds from SIGTERM or Ctrl-C to the end.", min=0, max=43_200)
]
StopWhenEmpty: TypeAlias = Annotated[bool, _option("stop-when-empty", "Stop when the queue is empty.")]
HealthPort: TypeAlias = Annotated[int | None, _option("health-port", "Serve /health here.", min=1, max=65_535)]
HealthHost: TypeAlias = Annotated[
    str, _option("health-host", "The address to serve it at: 0.0.0.0 for probes from other hosts.")
]
Metrics: TypeAlias = Annotated[
    list[MetricsKind] | None, _option("metrics", "emf prints CloudWatch metrics; opentelemetry counts on the global meter.")
]
Format: TypeAlias = Annotated[LogFormat, _option("log-format", "Text lines, or one JSON object per line.")]
LogLevel: TypeAlias = Annotated[Level, _option("log-level", "The minimum level to log.", case_sensitive=False)]


def worker(
    context: typer.Context,
    handler: Name,
    *,
    queue_url: QueueUrl,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    in_flight: InFlight = 10,
    timeout: Timeout = 300,
    wait: Wait = None,
    visibility_timeout: VisibilityTimeout = None,
    drain_seconds: DrainSeconds = 25.0,
    stop_when_empty: StopWhenEmpty = False,
    health_port: HealthPort = None,
    health_host: HealthHost = "127.0.0.1",
    metrics: Metrics = None,
    log_format: Format = LogFormat.TEXT,
    log_level: LogLevel = Level.INFO,
    version: VersionOption = False,
) -> None:
    """Run a handler that is decorated with @sqs_handler on the messages of a queue, and delete the settled messages.

    After SIGTERM or Ctrl-C it finishes the messages in progress and stops. After a second signal it stops at once. The
    environment can set each option too: --queue-url as ONEWRITE_WORKER_QUEUE_URL.
    """
    _start(**locals())


def _start(context: typer.Context, handler: str, queue_url: str, **options: Any) -> None:
    del options["version"]  # its callback has printed it and exited
    style, level, kinds = options.pop("log_format"), options.pop("log_level"), options.pop("metrics")
    region, endpoint_url = options.pop("region"), options.pop("endpoint_url")
    owns_process: bool = context.obj
    function = find(handler, quiet=False)
    if owns_process:
        own_log(style, level)
    log_to_stderr(style, level)  # for other loggers, unless the handler's module has configured logging
    with _print_errors(style):
        options["on_outcome"] = make_hook(kinds or (), getattr(function, "__name__", ""))
        from onewrite.sqs.queue import make_default_client

        options["client"] = make_default_client(queue_url, region=region, endpoint_url=endpoint_url)
        if not run(function, queue_url, options, owns_process=owns_process):
            leave(Exit.INTERRUPTED)


def run(handler: Any, url: str, options: dict[str, Any], *, owns_process: bool) -> bool:
    """Run a worker until it stops. Return False if its deadline came first and some work is still in progress."""
    from onewrite.sqs import Worker

    sqs_worker = Worker(url, handler, **options)
    with dead_mans_switch(sqs_worker.timeout) if owns_process else nullcontext():
        return sqs_worker.run()


@contextmanager
def dead_mans_switch(timeout: float, *, every: float = _EVERY) -> Generator[None, None, None]:
    """End the process and print its threads' stacks if no Python thread can run for this long.

    A regular expression that takes forever is one cause, because it never releases the interpreter's lock. Python's
    faulthandler watches from a C thread. A process that was frozen for as long ends too.
    """
    over = threading.Event()

    def hold() -> None:
        while not over.is_set():
            faulthandler.dump_traceback_later(timeout + _SLACK, exit=True, file=_STDERR)
            over.wait(every)

    thread = threading.Thread(target=hold, name="onewrite-switch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()  # it could be about to set the switch again
        faulthandler.cancel_dump_traceback_later()


def make_hook(kinds: Sequence[MetricsKind], name: str) -> Hook | None:
    """Return one hook for all requested kinds of metrics."""
    hooks = [
        emf(function=name or None) if kind is MetricsKind.EMF else opentelemetry(get_global_meter(), function=name or None)
        for kind in kinds
    ]

    def call_all(message: Message | None, outcome: Reported, seconds: float) -> None:
        for hook in hooks:
            hook(message, outcome, seconds)

    return call_all if hooks else None


@contextmanager
def _print_errors(style: LogFormat) -> Generator[None, None, None]:
    """Print an operator's mistake as one line, without a traceback."""
    try:
        yield
    except ConfigurationError as error:
        _tell(error, style)
        raise typer.Exit(Exit.REFUSED) from error
    except OnewriteError as error:  # the worker is stuck, and hanging threads would keep the interpreter alive
        end_at_last(Exit.FAILED)  # before any output, because hanging code can hold a log's lock
        _tell(error, style)
        leave(Exit.FAILED)
    except Exception as error:
        if style is LogFormat.TEXT:
            raise
        logger.critical("The worker has ended with %s", type(error).__name__, exc_info=True)
        raise typer.Exit(Exit.FAILED) from error


def _tell(error: Exception, style: LogFormat) -> None:
    if style is LogFormat.JSON:
        logger.critical("%s", error)
    else:
        sys.stderr.write(f"onewrite: {error}\n")
