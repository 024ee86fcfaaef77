"""The output of all verbs as text or JSON, their exit codes, and the log of changes."""

from __future__ import annotations

import getpass
import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, cast

from onewrite.core.log import log
from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.message import printable
from onewrite.operate.exits import INTERRUPTED_TEXT, Exit
from onewrite.process.stopping import on_signals

_MAX_TEXT = 4096  # characters of a foreign string: an operator needs all of an id
_CONTROLS = {number: f"\\x{number:02x}" for number in (*range(32), 127)}
_IN_LINES = {**_CONTROLS, ord("\n"): "\n"}
# Packages whose exceptions report a database or network failure, as the operating system's exceptions do.
_DRIVERS = frozenset({"boto3", "botocore", "pymongo", "urllib3"})
_REFUSALS = ("ValidationException", "ParamValidationError")  # for requests that are invalid everywhere


class OutsideFailure(Exception):  # named like our other errors
    """Something outside onewrite failed. The text describes it."""


class NotThere(OnewriteError):
    """The named object doesn't exist."""


class NothingToDo(OnewriteError):
    """The requested state already exists. Nothing was written."""


def run_verb(act: Callable[[], int], failure: str = "The database or the network fails") -> int:
    """Run a verb and return its exit code. If it fails, print why in one sentence."""
    try:
        return act()
    except NotThere as error:
        return say(error, Exit.NOT_THERE)
    except NothingToDo as error:
        return say(error, Exit.NOTHING_TO_DO)
    except KeyboardInterrupt:
        return say(INTERRUPTED_TEXT, Exit.INTERRUPTED)
    except (ModuleNotFoundError, OnewriteError, OutsideFailure):
        raise  # `main` names the missing package, and `run` the others
    except Exception as error:
        return report_failure(error, failure)


def report_failure(error: Exception, failure: str) -> int:
    """Print the cause of a failure, and return the exit code."""
    packages = [kind.__module__.partition(".")[0] for kind in type(error).__mro__]
    if not isinstance(error, OSError) and _DRIVERS.isdisjoint(packages):
        traceback.print_exception(error)
        return say(
            f"{type(error).__name__}: {error}. This is a bug in onewrite, not a failure of the database. Please report it at "
            "https://github.com/onewrite/onewrite/issues.",
            Exit.FAILED,
        )
    details, kind = read_aws_error(error), find_kind(error)
    if kind == "ResourceNotFoundException":
        reason = details.get("Message", "").removesuffix(".")
        return say(f"The table doesn't exist here: {reason}. Check --table, --region, and --endpoint-url.", Exit.NOT_THERE)
    if kind in _REFUSALS:
        reason = (details.get("Message") or format_error(error)).removesuffix(".")
        return say(f"The database rejected the request as invalid: {reason}. Check the command's options.", Exit.REFUSED)
    if kind == "NoCredentialsError":
        return say(
            "There are no AWS credentials. Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.", Exit.FAILED
        )
    reason = f"{type(error).__name__}: {format_error(error)}".removesuffix(".")
    return say(f"{failure}: {reason}. {advise(kind)}", Exit.FAILED)


def find_kind(error: BaseException) -> str:
    """Return the database's code of an error, or the error's class."""
    kind = read_aws_error(error).get("Code")
    with suppress(Exception):  # only pymongo's errors that a server has sent have this
        kind = kind or cast("Any", error).details["codeName"]
    return kind or type(error).__name__


_CREDENTIALS = re.compile("Authentication|Token|Signature|Unrecognized|InvalidClient|Credential")


def advise(kind: str) -> str:
    """Return the next step after a failure of this kind: the database's code, or an error's class."""
    if "ResourceNotFound" in kind or "NonExistentQueue" in kind or "QueueDoesNotExist" in kind:
        return "Check its name, --region, and --endpoint-url."
    if "AccessDenied" in kind or kind in ("Unauthorized", "AtlasError"):
        return "Check the permissions of your role or user: docs/permissions.md lists them by command."
    if _CREDENTIALS.search(kind):
        return "Renew your credentials, or set AWS_PROFILE."
    if "Throttl" in kind or "Exceeded" in kind or "Internal" in kind or "Unavailable" in kind:
        return "Repeat the command later."
    return "Check the network, and the address: --region and --endpoint-url, or the host in --collection."


def read_aws_error(error: BaseException) -> Mapping[str, str]:
    """Return AWS's error response. It is empty for an error without one; botocore's errors can have None."""
    response: Mapping[str, Any] = getattr(error, "response", None) or {}
    return cast("Mapping[str, str]", response.get("Error", {}))


# Timeouts and the topology, which pymongo adds to an error if it doesn't find a server.
_TOPOLOGY = re.compile(
    r" \(configured timeouts: [^)]*\)|, Timeout: \S+, Topology Description: .*|, full error: .*", re.DOTALL
)


def format_error(error: BaseException) -> str:
    """Return an error's text in one line."""
    return " ".join(_TOPOLOGY.sub("", str(error)).split())


def say(error: object, code: int) -> int:
    """Print an error in one line, without control characters, and return the exit code."""
    sys.stderr.write(f"onewrite: {str(error).translate(_IN_LINES)}\n")
    return code


def confirm(question: str) -> bool:
    """Ask the operator, and return whether the answer is yes."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        sys.stderr.write("\n")
        raise ConfigurationError("The question wasn't answered. Nothing was done. To skip the question, pass --yes.")
    return answer.strip().lower() in ("y", "yes")


def tell(lines: str | Iterable[str]) -> None:
    """Print lines to stdout, or raise OutsideFailure. A closed pipe, for example to `head`, isn't a failure."""
    try:
        sys.stdout.write(lines if isinstance(lines, str) else "".join([f"{line}\n" for line in lines]))
        sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes stdout again at exit, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise OutsideFailure(f"The output can't be written: {error}") from error


def tell_json(document: Mapping[str, Any]) -> None:
    tell(json.dumps(document, indent=2) + "\n")


def escape(text: str) -> str:
    """Return a foreign string, safe for a terminal."""
    return printable(text, _MAX_TEXT)


def format_age(seconds: float) -> str:
    """Return a duration in hours, minutes, and seconds. It is negative if the writer's clock was ahead."""
    return f"{'-' if seconds < 0 else ''}{timedelta(seconds=abs(int(seconds)))}"


def format_count(number: int, thing: str, things: str | None = None) -> str:
    """Return a number with its noun. The words can include a verb, as in 1 entity has and 2 entities have.

    >>> format_count(1, "id is", "ids are"), format_count(2_500, "id")
    ('1 id is', '2,500 ids')
    """
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def find_user() -> str:
    """Return the name of this process's user. A container can have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def record(text: str, operator: str | None, details: dict[str, Any]) -> None:
    """Log a change and its operator, which is this process's user by default."""
    operator = operator or find_user()
    log(logging.WARNING, "%s Requested by %s.", text, operator, details={**details, "operator": operator})


def raise_interrupt() -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def record_unknown_result(text: str, operator: str | None, details: dict[str, Any]) -> Generator[None, None, None]:
    """Log the unknown result of a write that ends without a response, because of a signal or the network."""
    try:
        with on_signals(raise_interrupt):  # ending the process would leave the unknown result out of the log
            yield
    except BaseException as error:
        has_response = read_aws_error(error) or getattr(error, "code", None) is not None  # pymongo's errors have a code
        if not (has_response or isinstance(error, OnewriteError)):
            unknown = (
                f"{text} ended by {type(error).__name__} before a response arrived. It is unknown whether it was written."
            )
            record(f"{unknown} Inspect the entity before you repeat it.", operator, {**details, "result": "unknown"})
        raise


def log_to_stderr(style: str = "text", level: str = "INFO") -> None:
    """Log to stderr, unless the user's module has configured logging."""
    logging.basicConfig(level=level, handlers=[_make_stderr_handler(style)])
    logging.getLogger("onewrite").disabled = False  # `dictConfig` disables the loggers that it doesn't name


def own_log(style: str, level: str) -> None:
    """Write the lines of onewrite in this style, even if the user's module has configured logging on import."""
    logger = logging.getLogger("onewrite")
    logger.handlers[:] = [_make_stderr_handler(style)]
    logger.setLevel(level)
    logger.propagate = False


def _make_stderr_handler(style: str) -> logging.Handler:
    handler = logging.StreamHandler()
    text = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    handler.setFormatter(TextLines(text) if style == "text" else JsonLines())
    return handler


class TextLines(logging.Formatter):
    """Text lines. Control characters are escaped, because a producer could forge a line by its IDs."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's own name
        """Return the line without control characters. A traceback follows it and keeps its lines."""
        record.message = record.message.translate(_CONTROLS)
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """One JSON object per line. Facts about a message or batch are in `onewrite`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON. Values that JSON doesn't have become text."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if details := cast("Mapping[str, Any]", getattr(record, "onewrite", {})):
            line["onewrite"] = dict(details)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({**line, "process": record.process}, default=str)
