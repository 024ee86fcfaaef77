"""What every verb has to say and how it ends: text for a person or JSON for a program, an exit code, a log of what was done.

The exit codes of all verbs are those of `Exit`, and docs/cli.md has their table.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from typing import Any, NoReturn, TextIO, cast

import typer

from onewrite.core.log import log
from onewrite.errors import OnewriteError
from onewrite.message import printable

_LONGEST = 4096  # characters of a text that somebody else has chosen: an operator needs all of an id
_CONTROLS = {number: f"\\x{number:02x}" for number in (*range(32), 127)}
_IN_LINES = {**_CONTROLS, ord("\n"): "\n"}
# The packages whose exceptions tell of a database or a network, as those of the operating system do.
_DRIVERS = ("boto3", "botocore", "pymongo", "urllib3")
_REFUSALS = ("ValidationException", "ParamValidationError")  # of a request that is wrong, wherever it goes


class Exit(IntEnum):
    """How a verb ends: one meaning per code, whatever the verb."""

    DONE = 0  # or a search found nothing
    FAILED = 1  # the database, the network, a module of the user's, or onewrite itself
    REFUSED = 2  # the command cannot be run as it was given
    NOT_THERE = 3  # the entity, event, table, or collection that the command names
    NOTHING_TO_DO = 4  # the entity already is as the command asks
    FOUND = 5  # what the verb searches for: what it lists needs a look
    INTERRUPTED = 130  # a signal ended the verb before it was done


class OutsideFailure(Exception):  # as our other errors are named
    """Something outside onewrite failed, and the text says what."""


class NotThere(OnewriteError):
    """What was named is not there."""


class NothingToDo(OnewriteError):
    """What was asked for is so already: nothing was written."""


def end(act: Callable[[], int], failure: str = "The database or the network fails") -> NoReturn:
    """Do it, and end with its exit code, or say in a sentence why it could not be done."""
    try:
        code = act()
    except NotThere as error:
        code = say(error, Exit.NOT_THERE)
    except NothingToDo as error:
        code = say(error, Exit.NOTHING_TO_DO)
    except OnewriteError as error:
        code = say(error, Exit.REFUSED)
    except KeyboardInterrupt:
        code = say_interrupted()
    except (ModuleNotFoundError, typer.Exit, typer.Abort, typer.BadParameter, OutsideFailure):
        raise  # `main` says what to install, `run` what failed, and Typer what is misspelt
    except Exception as error:
        code = report_failure(error, failure)
    raise typer.Exit(code)


def report_failure(error: Exception, failure: str = "The database or the network fails") -> int:
    """Say what failed: the database, which may know no such table; the network; or onewrite itself."""
    if not is_outside(error):
        traceback.print_exception(error)
        return say(
            f"This is a fault of onewrite, and not of the database: {type(error).__name__}: {error}. Please report it.", 1
        )
    answer = error_of_aws(error)
    kind = answer.get("Code", type(error).__name__)
    if kind == "ResourceNotFoundException":
        return say(
            f"There is no such table here: {answer.get('Message', '')} Check --region and --endpoint-url.", Exit.NOT_THERE
        )
    if kind in _REFUSALS:
        return say(f"This cannot be asked of the database: {answer.get('Message') or brief(error)}", Exit.REFUSED)
    if kind == "NoCredentialsError":
        return say(
            "There are no credentials for AWS: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.", Exit.FAILED
        )
    return say(f"{failure}: {type(error).__name__}: {brief(error)}", Exit.FAILED)


def error_of_aws(error: BaseException) -> Mapping[str, str]:
    """What AWS says of an error: empty for an error without a response, of which botocore's may have None."""
    response: Mapping[str, Any] = getattr(error, "response", None) or {}
    return cast("Mapping[str, str]", response.get("Error", {}))


# What pymongo adds when it finds no server: the timeouts of each, and all that it knows of them.
_TOPOLOGY = re.compile(r" \(configured timeouts: [^)]*\)|, Timeout: \S+, Topology Description: .*", re.DOTALL)


def brief(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(_TOPOLOGY.sub("", str(error)).split())


def is_outside(error: BaseException) -> bool:
    """Does it tell of something outside this process?"""
    homes = [kind.__module__.partition(".")[0] for kind in type(error).__mro__]
    return isinstance(error, OSError) or any(home in _DRIVERS for home in homes)


def say(error: object, code: int) -> int:
    """Say it in a line. What it quotes may hold anything, and no control character reaches the terminal."""
    sys.stderr.write(f"onewrite: {str(error).translate(_IN_LINES)}\n")
    return code


def say_interrupted() -> int:
    return say("Interrupted by a signal.", Exit.INTERRUPTED)


def tell(lines: str | Iterable[str]) -> None:
    """Print to where results go. A reader that has gone, as `head` does, ends neither the verb nor its exit code. A disk that is full does."""
    try:
        sys.stdout.write(lines if isinstance(lines, str) else "".join([f"{line}\n" for line in lines]))
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter would complain once more at its end
        if not isinstance(error, BrokenPipeError):
            raise OutsideFailure(f"The output cannot be written: {error}") from error


def tell_json(document: Mapping[str, Any]) -> None:
    tell(json.dumps(document, indent=2) + "\n")


def is_plain(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether the output should have no colours and no progress bars."""
    return not stream.isatty() or bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"


def escape(text: str) -> str:
    """A text that somebody else has chosen, safe for a terminal."""
    return printable(text, _LONGEST)


def age(seconds: float) -> str:
    """In hours, minutes and seconds. Below zero the clock of the writer was ahead."""
    return f"{'-' if seconds < 0 else ''}{timedelta(seconds=abs(int(seconds)))}"


def count_of(number: int, thing: str, things: str | None = None) -> str:
    """So many of a thing, as in 1 entity and 2 entities. What follows may be part of it, as in 1 entity has and 2 entities have.

    >>> count_of(1, "id is", "ids are"), count_of(2_500, "id")
    ('1 id is', '2,500 ids')
    """
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


# --- the log ------------------------------------------------------------------------------------------------------------


def this_user() -> str:
    """The name of the user whose process this is. In a container there may be none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def record(text: str, operator: str | None, details: dict[str, Any]) -> None:
    """Leave a line in the log: what was done, and who asked for it; by default the user of this process."""
    operator = operator or this_user()
    log(logging.WARNING, "%s It was asked for by %s.", text, operator, details={**details, "operator": operator})


@contextmanager
def record_unknown_result(text: str, operator: str | None, details: dict[str, Any]) -> Generator[None, None, None]:
    """Leave a line as well if a write ends without a response: by a signal, or because the network fails."""
    try:
        yield
    except BaseException as error:
        has_response = error_of_aws(error) or getattr(error, "code", None) is not None  # a code is pymongo's
        if not (has_response or isinstance(error, OnewriteError)):
            unknown = f"{text}: it ended by {type(error).__name__} before a response arrived, and may have been written."
            record(f"{unknown} Look at the entity again.", operator, {**details, "result": "unknown"})
        raise


class LogFormat(Enum):
    """How a line is written."""

    TEXT = "text"
    JSON = "json"


class Level(Enum):
    """The levels by their names."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


def log_to_stderr(style: LogFormat = LogFormat.TEXT, level: Level = Level.INFO) -> None:
    """A logging of the user's own, set up by the module of the handler, is left as it is."""
    logging.basicConfig(level=level.value, handlers=[_stderr_lines(style)])


def keep_log(style: LogFormat, level: Level) -> None:
    """Write the log of this process in this style from now on, whatever a module of the user's does to logging.

    `dictConfig` disables the loggers that it does not name, and takes away the handlers of those that it names.
    """
    kept: Any = logging.getLogger("onewrite")
    kept.__class__ = KeptLogger
    kept.kept_handler, kept.kept_level = _stderr_lines(style), logging.getLevelNamesMapping()[level.value]


def _stderr_lines(style: LogFormat) -> logging.Handler:
    handler = logging.StreamHandler()
    text = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    handler.setFormatter(TextLines(text) if style is LogFormat.TEXT else JsonLines())
    return handler


class KeptLogger(logging.Logger):
    """A logger with one handler and one level, which no configuration changes."""

    kept_handler: logging.Handler
    kept_level: int

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802  # logging's own name
        """Whether a line of this level is written."""
        return level >= self.kept_level

    def handle(self, record: logging.LogRecord) -> None:
        """Write the line, unless a filter of the user's is against it."""
        if self.filter(record):
            self.kept_handler.handle(record)


class TextLines(logging.Formatter):
    """Plain lines. An id is what a producer makes it: no control character of it may begin a line that nobody wrote."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's own name
        """Without control characters. A traceback, which comes after it, keeps its lines."""
        record.message = record.message.translate(_CONTROLS)
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """One JSON object a line. What is known of a message or a batch is in `onewrite`."""

    def format(self, record: logging.LogRecord) -> str:
        """Values that JSON does not have are written as text."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": moment, "level": record.levelname, "logger": record.name}
        line["message"] = record.getMessage()
        if details := cast("Mapping[str, Any]", getattr(record, "onewrite", {})):
            line["onewrite"] = dict(details)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({**line, "process": record.process}, default=str)
