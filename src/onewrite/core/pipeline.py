"""Sends a guarded write until its outcome is known, on any engine. `settle` sends a write again after a refusal.

`make_write` puts the parts of a write together. An engine makes an `Attempt` from them: a write that is ready to be sent. DynamoDB returns the
item that refused it, and MongoDB must be read: `Attempt.send` hides that difference. `judging.py` decides what the refusing entity means.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar, cast

from onewrite.core.effect import MOVED_BACK, Effect
from onewrite.core.engine import Attempt, Engine, Landed, Native, Refusal
from onewrite.core.flow import NOTHING_FINAL, FinalRefusals, Flow
from onewrite.core.judging import (
    NoReason,
    OtherEffect,
    Reason,
    Verdict,
    has_landed,
    judge,
    judge_begin,
    judge_finish,
    judge_read,
    judge_write,
    settle_missing,
)
from onewrite.core.ledgers.entry import check_message, join_entries
from onewrite.core.write import NO_EFFECT, Begins, EffectPart, Finishes, Image, Withdraws, Write
from onewrite.errors import LedgerMismatch
from onewrite.message import Message
from onewrite.outcome import ENTITY_IS_BARE, OTHERS_INTERFERED, Applied, Outcome, Rejected, Unmet

MAX_ATTEMPTS = 6  # each attempt after the second means that a different writer interfered

# Two calls have the same token with a probability of 2^-48. A duplicate is then reported as Applied with retried=True, which is settled too.
_TOKEN_BYTES = 6  # eight characters

T = TypeVar("T")


def make_token(call: str) -> str:
    """Return the token of the call with this unique name.

    botocore sends a request again if its response is lost, and the mark of the first attempt then refuses the second. The entity stores
    the token of its last writer, which shows whose mark it is.
    """
    return urlsafe_b64encode(blake2b(call.encode(), digest_size=_TOKEN_BYTES).digest()).decode()


def make_write(
    engine: Engine,
    messages: tuple[Message, ...],
    key: Mapping[str, Any],
    effect: EffectPart = NO_EFFECT,
    *,
    emit: object = None,
    name: str | None = None,
    has_token: bool = True,
) -> Write:
    """Return the parts of a write. `name`: the call."""
    now, outbox_part = engine.clock(), engine.empty_emission
    if len(messages) == 1:
        entry = engine.ledger.entry(messages[0], now)
    else:
        entry = join_entries([engine.ledger.entry(message, now) for message in messages])
    has_token = has_token and engine.has_token
    if name is None and (has_token or emit is not None):
        name = engine.name_call()
    if emit is not None:
        outbox_part = engine.emitter.emit(messages, emit, now, f"{engine.full_name} {name}")
    token = make_token(name) if name is not None and has_token else None
    return Write(messages, key, now, entry, effect, outbox_part, token)


def read_outcome(engine: Engine, message: Message, native: Native) -> Flow[Outcome]:
    """Return the outcome that an unconditional write of the message would have now."""
    check_message(message)
    native = engine.keep(native)
    write = make_write(engine, (message,), engine.read_key(native))
    engine.check_marks(write.entry)  # raises like the write itself, before it is sent
    return judge_read(write, (yield from engine.read(write.key, native, write.entry)))


class Exhausted(NamedTuple):
    """Other writers interfered with every attempt."""


class Settled(NamedTuple, Generic[T]):
    """The end of a write. `NoReason`: the caller's own condition refused it."""

    attempt: Attempt
    result: Landed | Reason[T] | NoReason | Exhausted
    refusal: Refusal | None = None


def settle(attempt: Attempt, judge_refusal: Callable[[Write, Image], Verdict[T]]) -> Flow[Settled[T]]:
    """Send a write until its outcome is known. If other writers interfered with every attempt, raise the last failure, if there is one."""
    failure: Exception | None = None
    attempts = 0
    while True:
        attempts += 1
        result = yield from attempt.send()
        if isinstance(result, Landed):
            return Settled(attempt, result)
        write, image, last_failure = refusal = result
        if has_landed(write, image):
            return Settled(attempt, Landed(image.entity, retried=True), refusal)
        match judge_refusal(write, image):
            case Reason() as reason:
                return Settled(attempt, reason, refusal)
            case OtherEffect(effect) if attempts < MAX_ATTEMPTS and not write.has_effect(effect):
                attempt = attempt.with_effect(effect)
                continue
            case OtherEffect() | NoReason():
                next_attempt = yield from attempt.retry(refusal, attempts)
        if next_attempt is None:
            return Settled(attempt, NoReason(), refusal)
        attempt, failure = next_attempt, last_failure or failure
        if attempts >= MAX_ATTEMPTS:
            if failure is not None:
                raise failure
            return Settled(attempt, Exhausted(), refusal)


def send_write(attempt: Attempt, final: FinalRefusals = NOTHING_FINAL) -> Flow[Outcome]:
    """Send the write of one message. `final`: the refusals that settle the message."""
    flow: Flow[Settled[Outcome]] = settle(attempt, judge_write)
    settled = yield from flow
    verdict = settled.result
    if isinstance(verdict, Landed) and settled.refusal is None:  # the usual case, without one more generator
        return Applied(attempt.write.messages[0], verdict.entity, response=verdict.response)
    return (yield from conclude(settled, final))


def conclude(settled: Settled[Outcome], final: FinalRefusals = NOTHING_FINAL) -> Flow[Outcome]:
    """Return the outcome of a write. A counting ledger remembers a final refusal, because later messages wait for its mark."""
    attempt, result, refusal = settled
    message = attempt.write.message
    match result:
        case Landed(entity, response, retried):
            applied = Applied(message, entity, retried=retried, response=response)
            return applied if refusal is None else attempt.show(applied)
        case Exhausted():
            return Rejected(message, reason=OTHERS_INTERFERED)
        case Reason(outcome):
            outcome = attempt.show(outcome)
        case NoReason():
            refused_write, image, _ = cast("Refusal", refusal)
            outcome = attempt.show(judge(refused_write, image))
    if isinstance(outcome, Rejected) and final.rejected_ok and outcome.reason != ENTITY_IS_BARE:
        return (yield from remember_refusal(attempt, outcome))
    return settle_missing(outcome, attempt.write, missing_ok=final.missing_ok)


def remember_refusal(attempt: Attempt, outcome: Rejected) -> Flow[Outcome]:
    """Settle the message whose refusal is final, and return this outcome, or a new one if the entity has changed since.

    A counting mark moves past the message, because later messages would wait for it forever. Other ledgers don't store a refusal.
    """
    effect, outcome = attempt.write.effect, replace(outcome, settled=True)
    if not attempt.write.entry.own.requires_predecessor:
        if isinstance(effect, Finishes):
            # Remove the unsent effect, because the message isn't redelivered. The mark remains.
            ledger_write = yield from attempt.make_ledger_write()
            if ledger_write is not None:
                part = effect if effect.overtaken else Withdraws(effect.fence, effect.ledger)
                yield from ledger_write.with_effect(part).try_send()
        return outcome
    ledger_write = cast(
        "Attempt", (yield from attempt.make_ledger_write())
    )  # a put, which has none, can't declare its refusal final
    if isinstance(effect, Finishes):
        ledger_write = ledger_write.with_effect(effect)
    result = yield from ledger_write.send()
    if isinstance(result, Landed) or has_landed(result.write, result.image):
        return outcome
    verdict = judge(result.write, result.image)
    if isinstance(verdict, Unmet):
        yield from ledger_write.raise_failure(result)
    return Rejected(outcome.message, verdict.entity, reason=OTHERS_INTERFERED) if isinstance(verdict, Rejected) else verdict


def send_finish(attempt: Attempt) -> Flow[Outcome]:
    """Send the write that finishes an effect. A refusal shows the effect's ledger, and whether later messages have overtaken the effect."""
    flow: Flow[Settled[Outcome]] = settle(attempt, judge_finish)
    settled = yield from flow
    if isinstance(settled.result, NoReason | Exhausted):
        raise LedgerMismatch(MOVED_BACK)
    return (yield from conclude(settled))


def send_begin(attempt: Attempt, final: FinalRefusals, *, replaces: bool) -> Flow[Effect | Outcome | None]:
    """Send the begin of an effect. Return the message's open effect, or why it can't have one.

    `replaces`: whether the begin replaces an effect. Return None if that effect no longer exists.
    """

    def judge_refusal(write: Write, image: Image) -> Verdict[Effect | Outcome]:
        found = judge_begin(write, image)
        return NoReason() if isinstance(found, Unmet) and not (replaces and image.exists) else Reason(found)

    flow: Flow[Settled[Effect | Outcome]] = settle(attempt, judge_refusal)
    attempt_sent, result, refusal = yield from flow
    match result:
        case Landed():
            return cast("Begins", attempt.write.effect).effect
        case Reason(found) if isinstance(found, Effect):
            return found
        case Reason(found) if isinstance(found, Unmet):
            yield from attempt.raise_failure(cast("Refusal", refusal))
            return None
        case _:
            return (yield from conclude(cast("Settled[Outcome]", Settled(attempt_sent, result, refusal)), final))
