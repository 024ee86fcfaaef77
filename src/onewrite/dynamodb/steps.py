"""How a guarded table begins a step and lets it go. The rules are in onewrite/core/step.py; a finish is a write like any other."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any, cast

from botocore.exceptions import ClientError

from onewrite.core.event import copy_of
from onewrite.core.flow import Call, Flow, settle_missing, split_missing_ok
from onewrite.core.label import is_step
from onewrite.core.pipeline import send_begin
from onewrite.core.step import (
    Step,
    StepRequest,
    check_begin,
    check_claim,
    check_release,
    new_step,
    step_mark,
)
from onewrite.core.step_flows import Effect, FinalWrite, Start, Then, begin_step, let_go, perform_step, step_answers
from onewrite.core.write import Begins, Withdraws
from onewrite.dynamodb.flows import Flows, TableAttempt, check_reads_all, code, send
from onewrite.dynamodb.layout import canonical, name_of_step
from onewrite.dynamodb.native import UpdateItemArguments
from onewrite.dynamodb.request import LEGACY, build_begin, build_update
from onewrite.message import Message
from onewrite.outcome import Answer, Begun, Busy, Outcome, Uncertain

_FINAL_WRITE = FinalWrite(
    "update_item",
    UpdateItemArguments.__required_keys__
    | UpdateItemArguments.__optional_keys__
    | LEGACY  # The guarded write says more of these, and of an Item.
    | {"emit", "Item", "ReturnValuesOnConditionCheckFailure"},
    '{"UpdateExpression": "SET charge = :c", "ExpressionAttributeValues": {":c": charge}}',
)


def begin(
    flows: Flows,
    message: Message,
    name: str,
    *,
    lease: timedelta,
    safe_for: timedelta,
    after: Uncertain | None = None,
    **arguments: Any,
) -> Flow[Answer]:
    step_request = StepRequest(name, lease, safe_for, after)
    check_begin(step_request)
    native, missing_ok = split_missing_ok(arguments)
    native = copy_of(native)  # others run before the effect does, and may use these again
    if after is not None:
        check_claim(after, message, native.get("Key", {}), canonical)
    call_name = flows.attempts()
    write = flows.new_write(message, native, call_name)
    fresh = new_step(flows.ledger.attribute, message, step_request, call_name, write.now)

    def try_to_begin(step: Step, old_fence: str | None) -> Flow[Step | Outcome | None]:
        attempt_write = write._replace(step=Begins(step), token=None)
        if old_fence is None:
            return send_begin(flows.attempt(attempt_write, native, build_begin), replaces=False)
        call = _change_of_step(flows, step_mark(step.ledger, message), write.key, old_fence, step)
        return send_begin(TableAttempt(flows, attempt_write, native, build_begin, call), replaces=True)

    start = Start(message, write.key, step_request, fresh, write.now, flows.clock)
    answer = yield from begin_step(start, try_to_begin)
    return settle_missing(answer, missing_ok=missing_ok, counts=write.entry.own.counts)


def release(flows: Flows, step: Begun, *, sent: bool = True) -> Flow[None]:
    check_release(step)
    message, key = step.message, step.entity_key

    def withdraw(ledger: str) -> Flow[bool]:
        parts = write._replace(step=Withdraws(step.fence, ledger), token=None, emission=None)
        return _is_met(flows.call(parts, {"Key": key}, build_update))

    def change(ledger: str, fields: Mapping[str, Any]) -> Flow[bool]:
        return _is_met(_change_of_step(flows, step_mark(ledger, message), key, step.fence, fields))

    write = flows.new_write(message, {"Key": key}, "")
    return let_go(flows, step, sent=sent, withdraw=None if write.entry.may_be_overtaken else withdraw, change=change)


def _is_met(call: Call) -> Flow[bool]:
    """Send a change of a step. Did the item meet its condition?"""
    try:
        yield from send(call)
    except ClientError as error:
        if code(error) != "ConditionalCheckFailedException":
            raise
        return False
    return True


def _change_of_step(flows: Flows, mark: bytes, key: Mapping[str, Any], fence: str, fields: Mapping[str, Any] | Step) -> Call:
    """Changes these fields of the step of that mark, or puts another step in its place, if it has this fence."""
    names, values = {"#step": name_of_step(mark), "#fence": "fence"}, cast("dict[str, Any]", {":old": fence})
    if isinstance(fields, Step):
        sets, values[":new"] = ["#step=:new"], fields.as_fields()
    else:
        sets = [f"#step.#{name}=:{name}" for name in fields]
        names |= {f"#{name}": name for name in fields}
        values |= {f":{name}": value for name, value in fields.items()}
    request = {
        **flows.table,
        "Key": flows.convert(key),
        "UpdateExpression": f"SET {','.join(sets)}",
        "ConditionExpression": "#step.#fence=:old",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": flows.convert(values),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    return Call("update_item", (), request)


def perform(
    flows: Flows,
    message: Message,
    name: str,
    effect: Effect,
    *,
    lease: timedelta,
    safe_for: timedelta,
    then: Then,
    **native: Any,
) -> Flow[Outcome]:
    def finish(step: Begun, result: object) -> Flow[Outcome]:
        arguments = _FINAL_WRITE.arguments_of(result)
        emit = arguments.pop("emit", None)
        return flows.finish(message, {"Key": step.entity_key, **arguments}, step, emit)

    begun = begin(flows, message, name, lease=lease, safe_for=safe_for, **native)
    return perform_step(begun, effect, finish, partial(release, flows), then)


def open_steps(flows: Flows, **native: Any) -> Flow[list[Busy | Uncertain]]:
    check_reads_all(native, "open_steps")
    kept = flows.kept(native)
    item = (yield from flows.read({"ConsistentRead": True, **flows.address(kept)})) or {}
    return step_answers(flows, [value for name, value in item.items() if is_step(name)], kept["Key"])
