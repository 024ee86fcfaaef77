"""The worker's log on stderr: lines of text, or of JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, cast

_CONTROLS = {number: f"\\x{number:02x}" for number in (*range(32), 127)}


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
    printed = logging.StreamHandler()
    text = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    printed.setFormatter(TextLines(text) if style is LogFormat.TEXT else JsonLines())
    logging.basicConfig(level=level.value, handlers=[printed])


class TextLines(logging.Formatter):
    """Plain lines. An id is what a producer makes it: no control character of it may begin a line that nobody wrote."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's own name
        """Without control characters. A traceback, which comes after it, keeps its lines."""
        record.message = _escaped(record.message)
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


def _escaped(text: str) -> str:
    return text.translate(_CONTROLS)
