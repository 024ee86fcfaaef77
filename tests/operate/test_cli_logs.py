"""The log of `onewrite worker` and `onewrite relay` is written as requested, whatever logging the user's module has configured."""

from __future__ import annotations

import json
import logging
import logging.config
from collections.abc import Callable, Iterator

import pytest

from onewrite.core.log import log
from onewrite.operate.options import LOG_FORMATS
from onewrite.operate.report import log_to_stderr, own_log
from tests.support.repairs import log_as_it_was

NAMED = {"handlers": ["console"], "level": "ERROR", "propagate": False}
CONSOLE = {"console": {"class": "logging.StreamHandler"}}
LOGGER = logging.getLogger("onewrite")
ACTS: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "dictConfig": lambda: logging.config.dictConfig({"version": 1}),
    "dictConfig that names it": lambda: logging.config.dictConfig(
        {"version": 1, "handlers": CONSOLE, "loggers": {"onewrite": NAMED}, "root": NAMED}
    ),
    "basicConfig": lambda: logging.basicConfig(level="CRITICAL", format="mine: %(message)s"),
}


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    before = {**LOGGER.__dict__, "handlers": [*LOGGER.handlers]}
    # `dictConfig` disables all loggers that it doesn't name, so it would silence those of other tests.
    loggers = [logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    others = [logger for logger in loggers if not logger.disabled]
    with log_as_it_was():
        yield
    for logger in others:
        logger.disabled = False
    LOGGER.__dict__.update(before)


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("style", LOG_FORMATS)
def test_log_has_the_requested_format_if_a_module_configures_logging(
    style: str, act: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    logging.root.handlers.clear()
    act()  # at its import
    own_log(style, "INFO")
    log_to_stderr(style, "INFO")
    log(logging.DEBUG, "details")
    log(logging.INFO, "%s failed", 3, details={"failed": 3})
    [line] = capsys.readouterr().err.splitlines()
    if style == "json":
        assert json.loads(line)["onewrite"] == {"failed": 3}
    else:
        assert line.endswith("INFO onewrite: 3 failed")
