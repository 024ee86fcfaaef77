"""What the options of `worker` and `relay` have in common: each may come from the environment, and both log and count."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import typer

from onewrite.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter


class MetricsKind(Enum):
    """Where metrics go."""

    EMF = "emf"
    OPENTELEMETRY = "opentelemetry"


def option(verb: str, name: str, text: str, **more: Any) -> Any:
    """An option that the environment may give too: the worker's --queue-url as ONEWRITE_WORKER_QUEUE_URL."""
    return typer.Option(f"--{name}", envvar=f"ONEWRITE_{verb}_{name}".upper().replace("-", "_"), help=text, **more)


def global_meter() -> Meter:
    """The meter of `--metrics opentelemetry`."""
    try:
        from opentelemetry.metrics import get_meter  # noqa: PLC0415  # a package that few have
    except ModuleNotFoundError as error:
        raise ConfigurationError('--metrics opentelemetry needs a package: pip install "onewrite[opentelemetry]"') from error
    return get_meter("onewrite")
