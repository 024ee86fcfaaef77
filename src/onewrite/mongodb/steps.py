"""How a guarded collection begins a step and lets it go. The rules are in onewrite/core/step.py; a finish is a write like any other."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from onewrite.core.flow import Call, Flow, settle_missing, split_missing_ok
from onewrite.core.pipeline import send_begin
from onewrite.core.step import (
    Step,
    StepRequest,
    check_begin,
    check_claim,
    check_release,
    new_step,
)
from onewrite.core.step_flows import Effect, FinalWrite, Start, Then, begin_step, let_go, perform_step, step_answers
from onewrite.core.write import Begins, Withdraws
from onewrite.errors import InvalidUpdate
from onewrite.message import Message
from onewrite.mongodb.dialect import step_path
from onewrite.mongodb.expression import identity
from onewrite.mongodb.flows import CollectionAttempt, Flows
from onewrite.mongodb.indexes import check_collation
from onewrite.mongodb.layout import Document
from onewrite.mongodb.native import UpdateOneArguments
from onewrite.mongodb.request import check_not_in_transaction, guard
from onewrite.outcome import Answer, Begun, Busy, Outcome, Uncertain

_FINAL_WRITE = FinalWrite(
    "update_one",
    UpdateOneArguments.__required_keys__ | UpdateOneArguments.__optional_keys__ | {"update", "emit"},
    '{"update": {"$set": {"charge": charge}}}',
)


def begin(
    flows: Flows,
    message: Message,
    name: str,
    filter: Document,
    *,
    lease: timedelta,
    safe_for: timedelta,
    after: Uncertain | None = None,
    **arguments: Any,
) -> Flow[Answer]:
    step_request = StepRequest(name, lease, safe_for, after)
    check_begin(step_request)
    query, _, native = flows.keep_arguments(filter, None, arguments)
    native, missing_ok = split_missing_ok(native)
    if native.get("upsert"):
        raise InvalidUpdate("begin creates nothing: create the entity before, and leave out upsert.")
    check_not_in_transaction(native, "begin", "Nobody else would see the step until the commit: begin before it.")
    if after is not None:
        check_claim(after, message, identity(query, flows.fields), flows.canonical)
    write = flows.new_write(message, query)
    fresh = new_step(flows.ledger.attribute, message, step_request, flows.attempts(), write.now)
    request = guard(write._replace(step=Begins(fresh)), query, None, native)

    def try_to_begin(step: Step, old_fence: str | None) -> Flow[Step | Outcome | None]:
        attempt_request = request
        if old_fence is not None:
            path = step_path(step.ledger, message)
            step_query = {**request.write.key, f"{path}.fence": old_fence}
            attempt_write = request.write._replace(step=Begins(step))
            attempt_request = request._replace(
                write=attempt_write, filter=step_query, update={"$set": {path: step.as_fields()}}
            )
        return send_begin(CollectionAttempt(flows, attempt_request, "update_one"), replaces=old_fence is not None)

    start = Start(message, request.write.key, step_request, fresh, write.now, flows.clock)
    answer = yield from begin_step(start, try_to_begin)
    return settle_missing(answer, missing_ok=missing_ok, counts=write.entry.own.counts)


def release(flows: Flows, step: Begun, *, sent: bool = True) -> Flow[None]:
    check_release(step)
    key = step.entity_key

    def withdraw(ledger: str) -> Flow[bool]:
        return flows.lands(guard(write._replace(step=Withdraws(step.fence, ledger)), key, None, {}))

    def change(ledger: str, fields: Document) -> Flow[bool]:
        path = step_path(ledger, step.message)
        changes = {f"{path}.{name}": value for name, value in fields.items()}
        reply = yield Call("update_one", ({**key, f"{path}.fence": step.fence}, {"$set": changes}))
        return bool(reply.matched_count == 1)

    write = flows.new_write(step.message, key)
    return let_go(flows, step, sent=sent, withdraw=None if write.entry.may_be_overtaken else withdraw, change=change)


def perform(
    flows: Flows,
    message: Message,
    name: str,
    effect: Effect,
    filter: Document,
    *,
    lease: timedelta,
    safe_for: timedelta,
    then: Then,
    **native: Any,
) -> Flow[Outcome]:
    def finish(step: Begun, result: object) -> Flow[Outcome]:
        arguments = _FINAL_WRITE.arguments_of(result)
        update, emit = arguments.pop("update", None), arguments.pop("emit", None)
        return flows.finish(message, step.entity_key, update, arguments, "update_one", finishes=step, emit=emit)

    begun = begin(flows, message, name, filter, lease=lease, safe_for=safe_for, **native)
    return perform_step(begun, effect, finish, partial(release, flows), then)


def open_steps(flows: Flows, filter: Document, **arguments: Any) -> Flow[list[Busy | Uncertain]]:
    query, _, native = flows.keep_arguments(filter, None, arguments)
    entity = identity(query, flows.fields)
    check_collation(native.get("collation"), entity, text=False)
    image = flows.image_of((yield from flows.look(entity, native)))
    return step_answers(flows, image.steps.values(), entity)
