"""The log of `onewrite worker` and `onewrite relay` is written as it was asked for, whatever the user's module does to logging."""

from __future__ import annotations

import json
import logging
import logging.config
from collections.abc import Callable, Iterator

import pytest

from onewrite.core.log import log
from onewrite.operate.report import Level, LogFormat, keep_log, log_to_stderr
from tests.support.repairs import log_as_it_was

NAMED = {"handlers": ["console"], "level": "ERROR", "propagate": False}
CONSOLE = {"console": {"class": "logging.StreamHandler"}}
LOGGER = logging.getLogger("onewrite")


def take_over() -> None:
    LOGGER.handlers[:] = [logging.NullHandler()]
    LOGGER.propagate, LOGGER.disabled = False, True
    LOGGER.setLevel(logging.CRITICAL)


ACTS: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "dictConfig": lambda: logging.config.dictConfig({"version": 1}),
    "dictConfig that names it": lambda: logging.config.dictConfig(
        {"version": 1, "handlers": CONSOLE, "loggers": {"onewrite": NAMED}, "root": NAMED}
    ),
    "basicConfig": lambda: logging.basicConfig(level="CRITICAL", format="mine: %(message)s"),
    "basicConfig by force": lambda: logging.basicConfig(level="CRITICAL", format="mine: %(message)s", force=True),
    "disable": lambda: logging.disable(logging.CRITICAL),
    "by hand": take_over,
}


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    before, kind = {**LOGGER.__dict__, "handlers": [*LOGGER.handlers]}, LOGGER.__class__
    # `dictConfig` disables all loggers that it doesn't name, so it would silence those of other tests.
    others = [
        logger
        for logger in logging.root.manager.loggerDict.values()
        if isinstance(logger, logging.Logger) and not logger.disabled
    ]
    with log_as_it_was():
        yield
    logging.disable(logging.NOTSET)
    for logger in others:
        logger.disabled = False
    LOGGER.__class__ = kind
    LOGGER.__dict__.clear()
    LOGGER.__dict__.update(before)


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("style", LogFormat)
def test_log_keeps_its_format_if_a_module_configures_logging(
    style: LogFormat, act: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    logging.root.handlers.clear()
    keep_log(style, Level.INFO)
    act()  # at its import
    log_to_stderr(style, Level.INFO)
    act()  # in its handler
    log(logging.DEBUG, "details")
    log(logging.INFO, "%s failed", 3, details={"failed": 3})
    [line] = capsys.readouterr().err.splitlines()
    if style is LogFormat.JSON:
        assert json.loads(line)["onewrite"] == {"failed": 3}
    else:
        assert line.endswith("INFO onewrite: 3 failed")
