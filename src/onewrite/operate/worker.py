"""`onewrite worker` runs a decorated handler on the messages of an SQS queue."""

from __future__ import annotations

import faulthandler
import logging
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.message import Message
from onewrite.metrics import Hook, Reported, emf, opentelemetry
from onewrite.operate.exits import Exit, end_at_last, leave
from onewrite.operate.modules import HANDLER, find
from onewrite.operate.options import (
    Options,
    VerbParser,
    add_logging,
    get_global_meter,
    make_number_reader,
    refuse_ineffective,
)
from onewrite.operate.report import log_to_stderr, own_log, run_verb, say

logger = logging.getLogger("onewrite")

_EVERY = 10.0  # seconds between two signs that Python threads still run
_SLACK = 60.0  # extra seconds: until then the worker itself finds the hanging code, if it can
_STDERR = 2  # the file descriptor, because Python's file object needs the interpreter


def add_options(parser: VerbParser) -> None:
    """Add the options of `worker`."""
    handler = "The handler, or a function that creates it, for example shop.handlers:ship."
    parser.add_position("handler", HANDLER, handler, variable="ONEWRITE_WORKER_HANDLER", is_required=True)
    queue = "The queue's URL, as `aws sqs get-queue-url` prints it."
    parser.add_value("--queue-url", queue, metavar="URL", variable=True, is_required=True)
    region = "The queue's region, if neither its URL nor the configuration has it."
    parser.add_value("--region", region, metavar="REGION", variable=True)
    parser.add_value("--endpoint-url", "The endpoint of SQS, if not AWS's.", metavar="URL", variable=True)
    parser.add_value(
        "--in-flight",
        "The number of messages to process at once.",
        metavar="N",
        variable=True,
        default=10,
        kind=make_number_reader(int, 1, 10_000),
    )
    parser.add_value(
        "--timeout",
        "Seconds after which an unfinished message is returned to the queue.",
        metavar="SECONDS",
        variable=True,
        default=300.0,
        kind=make_number_reader(float, 0.001, 43_200),
    )
    parser.add_value(
        "--wait",
        "Seconds to wait for messages, 20 unless you set it, or 3 with --stop-when-empty.",
        metavar="SECONDS",
        variable=True,
        kind=make_number_reader(int, 0, 20),
    )
    parser.add_value(
        "--visibility-timeout",
        "Seconds until a failed message is redelivered, if not the queue's default.",
        metavar="SECONDS",
        variable=True,
        kind=make_number_reader(int, 1, 43_200),
    )
    parser.add_flag("--stop-when-empty", "Stop when the queue is empty.", has_variable=True)
    parser.add_value(
        "--health-port",
        "Serve /health here.",
        metavar="PORT",
        variable=True,
        kind=make_number_reader(int, 1, 65_535),
    )
    parser.add_value(
        "--health-host",
        "The address to serve it at: 0.0.0.0 for probes from other hosts.",
        metavar="ADDRESS",
        variable=True,
        default="127.0.0.1",
    )
    add_logging(parser)


_WORKER_OPTIONS = (
    "in_flight",
    "timeout",
    "wait",
    "visibility_timeout",
    "drain_seconds",
    "stop_when_empty",
    "health_port",
    "health_host",
)


def run(options: Options) -> int:
    """Run the verb and return its exit code."""
    if options["health_port"] is None:
        refuse_ineffective(options, ["health_host"], "without --health-port")
    return run_verb(lambda: _work(options))


def _work(options: Options) -> int:
    style, level, queue_url = options["log_format"], options["log_level"], options["queue_url"]
    owns_process: bool = options["owns_process"]
    function = find(options["handler"], quiet=False)
    if owns_process:
        own_log(style, level)
    log_to_stderr(style, level)  # for other loggers, unless the handler's module has configured logging
    try:
        hook = make_hook(options["metrics"] or (), getattr(function, "__name__", ""))
        from onewrite.sqs.queue import make_default_client

        client = make_default_client(queue_url, region=options["region"], endpoint_url=options["endpoint_url"])
        more = {name: options[name] for name in _WORKER_OPTIONS}
        if not run_worker(function, queue_url, {**more, "client": client, "on_outcome": hook}, owns_process=owns_process):
            text = "The worker has not ended within %g seconds of the signal. Its unsettled messages are redelivered"
            logger.error(text, options["drain_seconds"])
            leave(Exit.INTERRUPTED)
    except ConfigurationError as error:
        return _report(error, style, Exit.REFUSED)
    except OnewriteError as error:  # the worker is stuck, and hanging threads would keep the interpreter alive
        end_at_last(Exit.FAILED)  # before any output, because hanging code can hold a log's lock
        leave(_report(error, style, Exit.FAILED))
    except ModuleNotFoundError:
        raise
    except Exception as error:
        logger.critical("The worker has ended with %s", type(error).__name__, exc_info=True)
        return Exit.FAILED
    return Exit.DONE


def run_worker(handler: Any, url: str, options: dict[str, Any], *, owns_process: bool) -> bool:
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


def make_hook(kinds: Sequence[str], name: str) -> Hook | None:
    """Return one hook for all requested kinds of metrics."""
    hooks = [
        emf(function=name or None) if kind == "emf" else opentelemetry(get_global_meter(), function=name or None)
        for kind in kinds
    ]

    def call_all(message: Message | None, outcome: Reported, seconds: float) -> None:
        for hook in hooks:
            hook(message, outcome, seconds)

    return call_all if hooks else None


def _report(error: OnewriteError, style: str, code: int) -> int:
    """Report an error in one line, and return the exit code."""
    if style == "json":
        logger.critical("%s", error)
        return code
    return say(error, code)
