"""A trial in which no handler runs, since what its calls do is recalled."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple, TypeAlias, cast

from onewrite.testing.explorer.handler.calls import Stop
from onewrite.testing.explorer.handler.invocation import Invocation
from onewrite.testing.explorer.handler.recall import (
    AnyCall,
    History,
    NotRecallableError,
    Recall,
    RecalledCall,
    UnknownError,
    answer_of,
    answers_of,
)
from onewrite.testing.explorer.schedule import Delivery, Fault, Step
from onewrite.testing.explorer.trials.subject import Subject
from onewrite.testing.explorer.trials.trial import Trial, TrialStep
from onewrite.testing.model.machine import Position


class _Effect(NamedTuple):
    """What comes of a step wherever the store and the delivery stand as they did."""

    done: TrialStep
    position: Position
    history: History | None  # None: the delivery has ended


Effects: TypeAlias = dict[tuple[Hashable, History, Fault, int, bool], _Effect]


class RecalledTrial(Trial):
    """A trial that costs little, and that can be forked wherever it stands."""

    def __init__(self, subject: Subject, effects: Effects) -> None:
        self._recall = cast("Recall", subject.recall)
        self._effects = effects
        self._histories: dict[Delivery, History] = {}
        super().__init__(subject)

    def fork(self) -> RecalledTrial:
        """Another trial that stands where this one stands."""
        other = object.__new__(RecalledTrial)
        other.__dict__.update(self.__dict__)
        other.steps, other.widths = self.steps.copy(), []
        other._histories = self._histories.copy()
        other._brought = self._brought.copy()
        return other

    def able(self) -> list[Delivery]:
        """The deliveries that may take the next step, but only one of those that may take each other's part."""
        histories = self._histories
        able = {(delivery.message, histories.get(delivery)): delivery for delivery in reversed(self.progress.able())}
        return [*reversed(able.values())]

    @property
    def state(self) -> Hashable:
        return self._held  # nobody is recalled who begins a transaction

    @property
    def place(self) -> Hashable:
        """Equal for trials after which the same can happen: a delivery that has ended counts only by what it has left behind."""
        histories = sorted([history.number for history in self._histories.values()])
        progress = self.progress
        return self.state, tuple(histories), progress.started, progress.faults, frozenset(progress.settled)

    def _done(self, step: Step) -> tuple[TrialStep, Position]:
        delivery, fault, which = step
        if delivery not in self._histories:
            self._begin(delivery, self.progress.brings(delivery.message))
        history = self._histories[delivery]
        where = self.state, history, fault, which, self.progress.faults < self._subject.bounds.faults
        effect = self._effects.get(where)
        if effect is None:
            effect = self._effects[where] = self._effect(step, history)
        if effect.history is None:
            del self._histories[delivery]
        else:
            self._histories[delivery] = effect.history
        taken = effect.done.taken
        if taken.step.delivery == delivery:
            return effect.done, effect.position
        taken = taken._replace(step=taken.step._replace(delivery=delivery))
        return replace(effect.done, taken=taken), effect.position

    def _effect(self, step: Step, history: History) -> _Effect:
        try:
            self._calls = {step.delivery: RecalledCall(self._recall, history)}
            done, position = super()._done(step)
        except UnknownError as unknown:
            missing = unknown.history
        else:
            if self._subject.machine.why_slow is not None:
                raise NotRecallableError
            call = cast("RecalledCall | None", self._calls.get(step.delivery))
            return _Effect(done, position, None if call is None else call.history)
        # Outside of the block, so that what is raised in the handler does not get `unknown` for its context.
        self._learn(step.delivery, missing)
        return self._effect(step, history)

    def _learn(self, delivery: Delivery, history: History) -> None:
        """Run the handler to see what it does with these answers. The last call goes on, if this is its next answer."""
        call = self._subject.waiting.pop(history.before, None)
        self._subject.release_waiting()
        if call is None:
            call = self._subject.call(self._begun_here(), delivery, self._brought[delivery], answers_of(history))
        else:
            self.go_here()
            call.resume(answer_of(history), history.which)
        self._subject.waiting[history] = call
        self._recall.learn(history, call)

    def _begun_here(self) -> Invocation:
        """A handler that was built anew, with the store as it is where this trial stands."""
        invocation = self._subject.begin()
        self.go_here()
        return invocation

    def _stop(self, delivery: Delivery) -> Stop:
        return self._histories[delivery].stop

    def _start(self) -> None:
        self._process = None
        self._subject.machine.reset()

    def _begin(self, delivery: Delivery, parts: tuple[int, ...]) -> None:
        self._histories[delivery] = self._recall.root(delivery, parts)
        self._brought[delivery] = parts

    def _leave_process(self, delivery: Delivery, *, died: bool) -> None:
        """One that keeps nothing in memory is like another."""

    def _release(self, call: AnyCall) -> None:
        """No thread has been taken for it."""
