"""The common case of a step in one call: begin it, have the effect, and finish it with the write. No engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from onewrite.errors import InvalidUpdate
from onewrite.flow import Do, Flow
from onewrite.outcome import Answer, Begun, Busy, Outcome

Effect: TypeAlias = Callable[[Begun], Any]
Then: TypeAlias = Callable[[Any], Mapping[str, Any]]


def performed(
    begin: Flow[Answer],
    effect: Effect,
    finish: Callable[[Begun, Mapping[str, Any]], Flow[Outcome]],
    release: Callable[..., Flow[bool]],
    then: Then,
) -> Flow[Outcome]:
    """`finish` and `release` make flows of a step. `then` makes the arguments of the write of what the effect has returned."""
    step = yield from begin
    if not isinstance(step, Begun):
        return step
    if not step.left():  # this process stood still meanwhile: another worker may have the effect now
        yield from release(step, sent=False)
        return Busy(step.message, step.until)
    try:
        result = yield Do(effect, (step,))
        return (yield from finish(step, _arguments(then(result))))
    except Exception as error:
        # The effect may have happened: so the step stays, and the next delivery need not wait for the end of the lease.
        try:
            yield from release(step, sent=True)
        except Exception as again:
            error.add_note(f"The step could not be released either, and stays until its lease ends: {again!r}")
        raise


def _arguments(made: object) -> Mapping[str, Any]:
    if not isinstance(made, Mapping):
        raise InvalidUpdate(f"then= returned a {type(made).__name__}: return a dict with the arguments of the write.")
    return cast("Mapping[str, Any]", made)
