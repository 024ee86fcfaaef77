"""How a guarded table begins a step and lets it go. The rules are in onewrite/step.py; a finish is a write like any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from botocore.exceptions import ClientError

from onewrite.copies import copied
from onewrite.dynamodb.flows import Flows, check_reads_all, code, send
from onewrite.dynamodb.layout import name_of_step
from onewrite.dynamodb.request import guard_begin, guard_update
from onewrite.dynamodb.same import canonical
from onewrite.event import moment
from onewrite.flow import Call, Flow
from onewrite.label import is_step
from onewrite.message import Message
from onewrite.missing import accepting, asked_of
from onewrite.outcome import Answer, Begun, Busy, Outcome, Rejected, Uncertain, Unmet
from onewrite.step import (
    Asked,
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
from onewrite.write import Begins, Withdraws, Write, check_emits, judged, open_step


def begin(flows: Flows, message: Message, native: Mapping[str, Any], asked: Asked) -> Flow[Answer]:
    check_begin(asked)
    native, missing_ok = asked_of(native)
    native = copied(native)  # others run before the effect does, and may use these again
    if asked.after is not None:
        check_claim(asked.after, message, native.get("Key", {}), canonical)
    name = flows.attempts()
    write = flows.new_write(message, native, name, creates=True)
    fresh = new_step(flows.ledger.attribute, message, asked, name, write.now)
    flows.exact = True  # this store's writes will meet open steps

    def try_to_begin(step: Step, replaced: str | None) -> Flow[Step | Outcome | None]:
        return _try_begin(flows, write._replace(step=Begins(step), token=None), native, replaced)

    flow = begun(Start(message, write.key, asked, fresh, write.now, flows.clock), try_to_begin)
    return accepting(flow, counts=write.entry.own.counts) if missing_ok else flow


def _try_begin(flows: Flows, write: Write, native: Mapping[str, Any], replaced: str | None) -> Flow[Step | Outcome | None]:
    step = cast("Begins", write.step).step
    if replaced is None:
        call = flows.call(write, native, guard_begin)
    else:
        values = {":new": step.stored(), ":old": replaced}
        call = _change_of_step(flows, step.ledger, write.message, write.key, update="SET #step=:new", values=values)
    try:
        yield from send(call)
    except ClientError as error:
        image, unexplained = yield from flows.refusal(error, call)
        check_emits(write, image)
        met = open_step(write, image)
        if met is not None:
            return met
        outcome = cast("Outcome", judged(write, image))  # a begin has one form
        if not isinstance(outcome, Unmet):
            return outcome
        if unexplained is not None:
            flows.raise_failure(unexplained, write, call, image)
        if replaced is not None and image.exists:
            return None  # the step that was to be replaced is gone, and the message was not done
        if isinstance(outcome, Rejected) and write.entry.own.counts:
            return (yield from flows.record_refusal(outcome, native))
        return outcome
    return step


def release(flows: Flows, step: Begun, *, sent: bool) -> Flow[None]:
    """End the lease, if the step is still this worker's. One whose effect nobody can have sent is removed.

    It stays, as one that anybody may take over, under a ledger by which later messages may overtake this one: only the step says
    then that the message is still to be done.
    """
    check_release(step)
    message, key = step.message, step.entity_key
    unsent = step.first and not sent
    for ledger in flows.ledger.terms.attributes:  # it may be under one in also=
        if unsent:
            withdrawal = flows.new_write(message, {"Key": key}, "", Withdraws(step.fence, ledger), creates=True)
            if not withdrawal.entry.may_be_overtaken:
                parts = withdrawal._replace(token=None, emission=None)
                if (yield from _is_met(flows.call(parts, {"Key": key}, guard_update))):
                    return
        values: dict[str, Any] = {":old": step.fence, ":now": moment(flows.clock())}
        update = "SET #step.#until=:now"
        if unsent:
            update = f"{update},#step.#fence=:unsent_fence,#step.unsent=:unsent"
            values |= {":unsent": True, ":unsent_fence": fence_of_unsent(step.fence)}
        if (yield from _is_met(_change_of_step(flows, ledger, message, key, update=update, values=values))):
            return


def _is_met(call: Call) -> Flow[bool]:
    """Send a change of a step. Did the item meet its condition?"""
    try:
        yield from send(call)
    except ClientError as error:
        if code(error) != "ConditionalCheckFailedException":
            raise
        return False
    return True


def _change_of_step(
    flows: Flows, ledger: str, message: Message, key: Mapping[str, Any], *, update: str, values: Mapping[str, Any]
) -> Call:
    """A change of the message's step under that ledger, if it has the fence `:old`."""
    names = {"#step": name_of_step(step_mark(ledger, message)), "#fence": "fence"}
    if "#until" in update:
        names["#until"] = "until"
    request = {
        **flows.table,
        "Key": flows.convert(key),
        "UpdateExpression": update,
        "ConditionExpression": "#step.#fence=:old",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": flows.convert(values),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    return Call("update_item", (), request)


def perform(
    flows: Flows, message: Message, native: Mapping[str, Any], asked: Asked, *, effect: Effect, then: Then
) -> Flow[Outcome]:
    def finish(step: Begun, made: Mapping[str, Any]) -> Flow[Outcome]:
        arguments = {name: value for name, value in made.items() if name != "emit"}
        return flows.finish(message, {**arguments, "Key": step.entity_key}, step, made.get("emit"))

    def let_go(step: Begun, *, sent: bool) -> Flow[None]:
        return release(flows, step, sent=sent)

    return performed(begin(flows, message, native, asked), effect, finish, let_go, then)


def open_steps(flows: Flows, native: Mapping[str, Any]) -> Flow[list[Busy | Uncertain]]:
    """The entity's steps of this store's ledger, and of those in its also=, those first that were begun first."""
    check_reads_all(native, "open_steps")
    item = (yield from flows.read({"ConsistentRead": True, **flows.named(native)})) or {}
    steps = [read_step(value) for name, value in item.items() if is_step(name)]
    mine = sorted([step for step in steps if step.ledger in flows.ledger.terms.attributes], key=since)
    return [answer_to(step, step.message, flows.clock(), None, native["Key"]) for step in mine]
