"""The context that Lambda passes to a function together with the event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from onewrite.testing.events import ACCOUNT, REGION


def lambda_context(
    remaining_ms: int = 30_000,
    *,
    function_name: str = "orders",
    aws_request_id: str = "00000000-0000-4000-8000-000000000001",
    memory_limit_in_mb: int = 128,
    clock: Callable[[], float] | None = None,
) -> LambdaContext:
    """The context of an invocation that has `remaining_ms` left.

    Its time stands still unless `clock` is given: a function that returns seconds, such as `time.monotonic`.
    """
    started = 0.0 if clock is None else clock()
    return LambdaContext(
        function_name, aws_request_id, str(memory_limit_in_mb), remaining_ms, clock or (lambda: 0.0), started
    )


@dataclass(frozen=True, slots=True)
class LambdaContext:
    """The context object of Lambda's Python runtime, with a clock that the test chooses."""

    function_name: str
    aws_request_id: str
    memory_limit_in_mb: str  # text, as in the runtime
    remaining_ms: int
    clock: Callable[[], float]
    started: float
    function_version: str = "$LATEST"
    identity: Any = None
    client_context: Any = None
    tenant_id: str | None = None
    log_stream_name: str = "2023/11/14/[$LATEST]00000000000000000000000000000001"
    lines: list[Any] = field(default_factory=list[Any])

    @property
    def invoked_function_arn(self) -> str:
        return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self.function_name}"

    @property
    def log_group_name(self) -> str:
        return f"/aws/lambda/{self.function_name}"

    def get_remaining_time_in_millis(self) -> int:
        """The time left. It is never below zero, as in the runtime."""
        return max(0, self.remaining_ms - round((self.clock() - self.started) * 1000))

    def w3c(self) -> dict[str, str]:
        """The trace context, which is empty here."""
        return {}

    def log(self, message: Any) -> None:
        """Keep the line in `lines`."""
        self.lines.append(message)
