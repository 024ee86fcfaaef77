"""The flows of a guarded table that begin a step, finish it and let it go. The rules are in onewrite/step.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from botocore.exceptions import ClientError

from onewrite.copies import copied
from onewrite.dynamodb.flows import Flows, check_reads_all, code, send
from onewrite.dynamodb.verdict import check_outbox_of, finish_refused, judged, open_step
from onewrite.dynamodb.writing.attempt import Attempt, new_attempt
from onewrite.dynamodb.writing.layout import name_of_step
from onewrite.dynamodb.writing.request import guard_begin, guard_update
from onewrite.dynamodb.writing.same import canonical
from onewrite.errors import InvalidUpdate, LedgerMismatch
from onewrite.event import moment
from onewrite.flow import Call, Flow
from onewrite.label import is_step
from onewrite.message import Message
from onewrite.missing import accepting, asked_of
from onewrite.outcome import Answer, Begun, Busy, Outcome, Rejected, Uncertain, Unmet
from onewrite.step import (
    MOVED_BACK,
    Asked,
    Claim,
    Step,
    answer_to,
    check_begin,
    check_claim,
    check_release,
    fence_of_unsent,
    new_step,
    read_step,
    since,
    step_mark,
)
from onewrite.step_flows import Effect, Start, Then, begun, performed

_CONDITION = (
    "A write that finishes a step takes no condition: if it were refused, the effect would never be recorded. Put the condition into "
    "begin."
)


def _is_met(call: Call) -> Flow[bool]:
    """Send a change of a step. Did the item meet its condition?"""
    try:
        yield from send(call)
    except ClientError as error:
        if code(error) != "ConditionalCheckFailedException":
            raise
        return False
    return True


class StepFlows(Flows):
    """The flows of `Flows`, and those of steps."""

    def update(self, message: Message, native: Mapping[str, Any], emit: object, finishes: Claim | None) -> Flow[Outcome]:
        return self.write(message, native, emit=emit) if finishes is None else self.finish(message, native, finishes, emit)

    def remember(self, message: Message, native: Mapping[str, Any], emit: object, finishes: Claim | None) -> Flow[Outcome]:
        return self.record(message, native, emit) if finishes is None else self.finish(message, native, finishes, emit)

    def begin(self, message: Message, native: Mapping[str, Any], asked: Asked) -> Flow[Answer]:
        check_begin(asked)
        native, missing_ok = asked_of(native)
        native = copied(native)  # others run before the effect does, and may use these again
        key: Mapping[str, Any] = native.get("Key", {})
        if asked.after is not None:
            check_claim(asked.after, message, key, canonical)
        now, call = self.clock(), self.attempts()
        entry, fresh = self._ledger.entry(message, now).asking, new_step(self._ledger.attribute, message, asked, call, now)
        attempt = new_attempt(message, entry, call, now, self._nothing, exact=True, entity_key=key, part="begin")
        self._exact = True  # this store's writes will meet open steps
        start = Start(message, key, asked, fresh, now, self.clock)
        flow = begun(start, lambda step, replaced: self._try_begin(attempt._replace(step=step), native, replaced))
        return accepting(flow, counts=entry.own.counts) if missing_ok else flow

    def _try_begin(self, attempt: Attempt, native: Mapping[str, Any], replaced: str | None) -> Flow[Step | Outcome | None]:
        call = self._begin_call(attempt, native, replaced)
        try:
            yield from send(call)
        except ClientError as error:
            held, unexplained = yield from self._refusal(error, call)
            check_outbox_of(attempt, held or {})
            step = open_step(attempt, held or {})
            if step is not None:
                return step
            entity = None if held is None else self.without_ledger(held)
            outcome = cast("Outcome", judged(attempt, held or {}, entity))  # a begin is exact, and has one form
            if not isinstance(outcome, Unmet):
                return outcome
            if unexplained is not None:
                self._raise(unexplained, attempt, call, held)
            if replaced is not None and held is not None:
                return None  # the step that was to be replaced is gone, and the message was not done
            if isinstance(outcome, Rejected) and attempt.entry.own.counts:
                return (yield from self._record_refusal(outcome, native))
            return outcome
        return attempt.step

    def _begin_call(self, attempt: Attempt, native: Mapping[str, Any], replaced: str | None) -> Call:
        if replaced is None:
            return guard_begin(attempt, {**self._table, **native}, self._convert)
        step, values = attempt.fresh, {":new": attempt.fresh.stored(), ":old": replaced}
        return self._step_call(step.ledger, attempt.message, attempt.entity_key, "SET #step=:new", values)

    def finish(self, message: Message, native: Mapping[str, Any], claim: Claim, emit: object = None) -> Flow[Outcome]:
        native, _ = asked_of(native)
        check_claim(claim, message, native.get("Key"), canonical)
        if "ConditionExpression" in native:
            raise InvalidUpdate(_CONDITION)
        attempt = self._attempt(message, native, emit, self.attempts())
        met: Outcome | Attempt | None = attempt._replace(part="finish", fence=claim.fence)
        while isinstance(met, Attempt):
            met = yield from self._try_finish(met, native)
        if met is None:
            raise LedgerMismatch(MOVED_BACK)
        return met

    def _try_finish(self, attempt: Attempt, native: Mapping[str, Any]) -> Flow[Outcome | Attempt | None]:
        """An attempt: the step is ours, and the ledger wants this one. None: it is ours, and the ledger wants nothing else."""
        call = guard_update(attempt, {**self._table, **native}, self._convert)
        try:
            response = yield from send(call)
        except ClientError as error:
            held, unexplained = yield from self._refusal(error, call)
            met = finish_refused(attempt, held, shows=call.kwargs.get("ReturnValues") == "ALL_NEW")
            if met is None and unexplained is not None:
                self._raise(unexplained, attempt, call, held)
            return met
        return self._applied(attempt.message, response)

    def release(self, step: Begun, *, sent: bool) -> Flow[None]:
        """End the lease, if the step is still this worker's. One whose effect nobody can have sent is removed.

        It stays, as one that anybody may take over, under a ledger by which later messages may overtake this one: only the step says
        then that the message is still to be done.
        """
        check_release(step)
        for ledger in self._ledger.terms.attributes:  # it may be under one in also=
            unsent = step.first and not sent
            stays = self._ledger.entry(step.message, self.clock()).may_be_overtaken
            if unsent and not stays and (yield from _is_met(self._withdrawal(ledger, step))):
                return
            values: dict[str, Any] = {":old": step.fence, ":now": moment(self.clock())}
            update = "SET #step.#until=:now"
            if unsent:
                update = f"{update},#step.#fence=:unsent_fence,#step.unsent=:unsent"
                values |= {":unsent": True, ":unsent_fence": fence_of_unsent(step.fence)}
            if (yield from _is_met(self._step_call(ledger, step.message, step.entity_key, update, values))):
                return

    def _withdrawal(self, ledger: str, step: Begun) -> Call:
        message, key, now = step.message, step.entity_key, self.clock()
        entry = self._ledger.entry(message, now).asking
        more: dict[str, Any] = {"part": "withdraw", "fence": step.fence, "step_ledger": ledger}
        attempt = new_attempt(message, entry, "", now, entity_key=key, **more)
        return guard_update(attempt, {**self._table, "Key": key}, self._convert)

    def perform(
        self, message: Message, native: Mapping[str, Any], asked: Asked, *, effect: Effect, then: Then
    ) -> Flow[Outcome]:
        def finish(step: Begun, made: Mapping[str, Any]) -> Flow[Outcome]:
            arguments = {name: value for name, value in made.items() if name != "emit"}
            return self.finish(message, {**arguments, "Key": step.entity_key}, step, made.get("emit"))

        return performed(self.begin(message, native, asked), effect, finish, self.release, then)

    def open_steps(self, native: Mapping[str, Any]) -> Flow[list[Busy | Uncertain]]:
        """The entity's steps of this store's ledger, and of those in its also=, those first that were begun first."""
        check_reads_all(native, "open_steps")
        item = yield from self._read({"ConsistentRead": True, **self._named(native)})
        return self._steps_of(item or {}, native["Key"])

    def _steps_of(self, item: Mapping[str, Any], key: Mapping[str, Any]) -> list[Busy | Uncertain]:
        steps = [read_step(value) for name, value in item.items() if is_step(name)]
        mine = sorted([step for step in steps if step.ledger in self._ledger.terms.attributes], key=since)
        return [answer_to(step, step.message, self.clock(), None, key) for step in mine]

    def _step_call(
        self, ledger: str, message: Message, key: Mapping[str, Any], update: str, values: Mapping[str, Any]
    ) -> Call:
        """A change of the message's step under that ledger, if it has the fence `:old`."""
        step = name_of_step(step_mark(ledger, message))
        names = {"#step": step, "#fence": "fence"} | ({"#until": "until"} if "#until" in update else {})
        return Call(
            "update_item",
            (),
            {
                **self._table,
                "Key": self._convert(key),
                "UpdateExpression": update,
                "ConditionExpression": "#step.#fence=:old",
                "ExpressionAttributeNames": names,
                "ExpressionAttributeValues": self._convert(values),
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            },
        )
