"""Several guarded writes as one: all of them or none, and one answer.

DynamoDB cancels a transaction with a reason for each of its writes, by position, and with the item as it was. Whatever is
decided here is decided from these. A transaction that is sent again while nobody knows what became of it has the same bytes and
the same token, so that it is done once; after a cancellation it is another one, with a new token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import timedelta
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, cast

from botocore.exceptions import ClientError

from onewrite.backoff import Backoff
from onewrite.clock import random_share
from onewrite.dynamodb.flows import code, says_mistyped, says_too_large, text_of
from onewrite.dynamodb.inboxes import INBOX, Mark, client_of, marks_of
from onewrite.dynamodb.participants import Action, Prepared, action, alone
from onewrite.dynamodb.same import canonical
from onewrite.dynamodb.values import plain
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.flow import Call, Flow, Wait, arun, run
from onewrite.inbox import Inbox
from onewrite.joint import DEADLINE, check_stores, checked, heaviest, to_come_again
from onewrite.message import Message
from onewrite.outcome import (
    Applied,
    Duplicate,
    Entity,
    Outcome,
    Unmet,
)
from onewrite.write import Write

Part: TypeAlias = Action | Mark

_MOST_ACTIONS = 100  # of one TransactWriteItems
_MOST_BYTES = 4 * 1024 * 1024
_FEW = 10
# Reasons that go away by themselves. The second is what AWS calls it for a table, the others come from its request router.
_PASSING = frozenset({"TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError", "RequestLimitExceeded"})
# The whole request got no verdict. Under the same token it may be sent again whatever became of it.
_UNDECIDED = frozenset(
    {
        "TransactionInProgressException",
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
    }
)
_TWICE = "multiple operations on one item"


def transact(
    message: Message,
    participants: Sequence[Prepared],
    *,
    completes: bool = False,
    inbox: Inbox | None = None,
    deadline: timedelta = DEADLINE,
) -> Outcome:
    """Make all of these guarded writes, or none: `transact(message, [accounts.updating(Key=..., ...), ...])`.

    Each participant is guarded by its own ledger. If any holds the message, the answer is `Duplicate`, and nothing is written;
    `completes=True` then writes what is missing, for a handler that made single writes before. Any other refusal says in
    `participant` whose it is. What is in the way for a moment is waited for, `deadline` long.
    """
    transaction = _Transaction(message, participants, completes=completes, inbox=inbox, awaited=False)
    return run(transaction.flow(deadline, random_share), transaction.target)


async def atransact(
    message: Message,
    participants: Sequence[Prepared],
    *,
    completes: bool = False,
    inbox: Inbox | None = None,
    deadline: timedelta = DEADLINE,
) -> Outcome:
    """`transact` for the writes of an `AsyncGuardedTable`."""
    transaction = _Transaction(message, participants, completes=completes, inbox=inbox, awaited=True)
    return await arun(transaction.flow(deadline, random_share), transaction.target)


def explain_transaction(
    message: Message, participants: Sequence[Prepared], *, inbox: Inbox | None = None
) -> list[dict[str, Any]]:
    """The writes that `transact` or `atransact` would send in one request, in their order, those of an inbox last; one participant alone
    is a plain write. Each is the arguments by the name of the write. Nothing is sent.

    DynamoDB charges each write in a transaction twice: two items of up to 1 KB take four units, and their single writes two.
    """
    return _Transaction(message, participants, inbox=inbox, awaited=None).explained()


class _Reason(NamedTuple):
    """Why DynamoDB did not make one of the writes."""

    part: Part
    code: str
    text: str
    item: Entity | None
    shown: bool  # `item` is what DynamoDB has looked at, and None says that there is none


class _Verdicts(NamedTuple):
    """What the reasons of a cancelled transaction come to.

    An attempt in `found`: no reason, and this one is to be sent. None: no reason any more.
    """

    found: list[tuple[Part, Outcome | Write | None]]
    passes: bool  # something was in the way that goes away by itself
    failure: Exception | None  # something cannot be done at all
    landed: bool  # an earlier try has made the transaction
    undecided: bool  # it may have, and the next try shows the items that were not shown now

    @property
    def holding(self) -> frozenset[int]:
        """The places of those that hold the message."""
        return frozenset([part.place for part, outcome in self.found if isinstance(outcome, Duplicate)])

    @property
    def inexact(self) -> bool:
        return any(outcome is None or isinstance(outcome, Write) for _, outcome in self.found)

    @property
    def again(self) -> dict[int, Write]:
        """What is to be sent instead, by its place."""
        return {part.place: outcome for part, outcome in self.found if isinstance(outcome, Write)}


class _Transaction:
    """One call of `transact`."""

    def __init__(
        self,
        message: Message,
        participants: Sequence[Prepared],
        *,
        awaited: bool | None,
        inbox: Inbox | None,
        completes: bool = False,
    ) -> None:
        self._message = message
        self._participants = checked(
            participants,
            Prepared,
            stores="tables",
            instead="[orders.updating(...), stock.updating(...)], as you would write orders.update_item(message, ...)",
        )
        self._completes = completes
        self._inbox = inbox
        _check_stores(self._participants, inbox, awaited=awaited)
        _check_limits(self._participants, inbox)

    @property
    def _is_single(self) -> bool:
        return len(self._participants) == 1 and self._inbox is None

    @property
    def target(self) -> Any:
        store = self._participants[0].store
        return store.target

    def explained(self) -> list[dict[str, Any]]:
        name = self._participants[0].store.attempts()
        if self._is_single:
            call = action(0, self._message, self._participants[0], name).call
            return [{call.method: call.kwargs}]
        return cast("list[dict[str, Any]]", _request(self._parts(name), name, 0)["TransactItems"])

    def flow(self, deadline: timedelta, chance: Callable[[], float]) -> Flow[Outcome]:
        store = self._participants[0].store
        if not self._is_single:
            return self._together(Backoff(deadline, chance, store.clock))
        return alone(self._message, self._participants[0])

    def _parts(self, name: str, before: Mapping[int, Write] = MappingProxyType({})) -> list[Part]:
        message = self._message
        writes: list[Part] = [
            action(place, message, each, name, before.get(place)) for place, each in enumerate(self._participants)
        ]
        if self._inbox is None:
            return writes
        return [*writes, *marks_of(self._inbox, message, name, self._participants[0].store.clock)]

    def _together(self, backoff: Backoff) -> Flow[Outcome]:
        # One name for all tries of this call: whichever has landed is known by its token.
        name, turn = self._participants[0].store.attempts(), 0
        done: frozenset[int] = frozenset()
        again: dict[int, Write] = {}
        while True:
            parts = [part for part in self._parts(name, again) if part.place not in done]
            try:
                response = yield from _sent(_request(parts, name, turn), backoff)
            except ClientError as error:
                verdicts = yield from _judged(error, parts)
                outcome = self._outcome(verdicts, parts)
                if outcome is not None:
                    return outcome
                done |= frozenset() if verdicts.undecided else verdicts.holding
                again |= verdicts.again
                yield from _paused(verdicts, backoff, error, first=turn == 0)
            else:
                return Applied(self._message, response=response)
            turn += 1

    def _outcome(self, verdicts: _Verdicts, parts: Sequence[Part]) -> Outcome | None:
        """The answer, or None: the transaction is to be sent again, without the writes that are done."""
        if verdicts.landed:
            return Applied(self._message, retried=True)
        if verdicts.undecided:
            return None
        outcome = heaviest([each for _, each in verdicts.found if each is not None and not isinstance(each, Write)])
        if isinstance(outcome, Duplicate):
            left = [part for part in parts if part.place not in verdicts.holding]
            # What is in the inbox was done as a whole. Anything else may have been done in part.
            missing = [type(part) for part in left] if INBOX not in verdicts.holding else []
            return None if self._completes and Action in missing else outcome
        if verdicts.passes or verdicts.inexact:
            return None
        if verdicts.failure is not None and isinstance(outcome, Unmet | None):
            raise verdicts.failure
        return to_come_again(outcome, counts=any(part.counts for part in parts if isinstance(part, Action)))


# --- what DynamoDB answers ---------------------------------------------------------------------------------------------


def _request(parts: Sequence[Part], name: str, turn: int) -> dict[str, Any]:
    token = blake2b(f"{turn} {name}".encode(), digest_size=16).hexdigest()
    return {"TransactItems": [part.request for part in parts], "ClientRequestToken": token}


def _sent(request: dict[str, Any], backoff: Backoff) -> Flow[Mapping[str, Any]]:
    """Send the transaction until DynamoDB says what became of it."""
    while True:
        try:
            return cast("Mapping[str, Any]", (yield Call("transact_write_items", (), request)))
        except ClientError as error:
            wait = backoff.pause() if code(error) in _UNDECIDED else None
            if wait is None:
                raise
        yield Wait(wait)


def _paused(verdicts: _Verdicts, backoff: Backoff, error: ClientError, *, first: bool) -> Flow[None]:
    """Wait for what is in the way, if anything is; raise the error where there is no more time."""
    if verdicts.passes or (verdicts.inexact and not first):
        wait = backoff.pause()
        if wait is None:
            raise error
        yield Wait(wait)


def _judged(error: ClientError, parts: Sequence[Part]) -> Flow[_Verdicts]:
    found: list[tuple[Part, Outcome | Write | None]] = []
    failures: list[Exception] = []
    shown: list[tuple[Part, Entity]] = []
    reasons = _reasons(error, parts)
    if not reasons:
        raise error
    hidden = [reason.part for reason in reasons if reason.code in _PASSING]
    for reason in reasons:
        if reason.code in _PASSING:
            continue
        item, verdict = yield from _verdict(reason, error)
        shown.append((reason.part, item or {}))
        if isinstance(verdict, Exception):
            failures.append(verdict)
        else:
            found.append((reason.part, verdict))
    # A token proves something only together with the effect, and a transaction has the effects of all of its writes.
    has_token = any(part.landed(item) for part, item in shown)
    effective = [part for part, item in shown if part.shows_effect(item)]
    missing = [part for part in parts if part.guarded and part not in effective]
    landed, undecided = has_token and not missing, has_token and bool(missing) and all(part in hidden for part in missing)
    return _Verdicts(found, bool(hidden), next(iter(failures), None), landed, undecided)


_Verdict: TypeAlias = tuple[Entity | None, Outcome | Write | Exception | None]


def _verdict(reason: _Reason, error: ClientError) -> Flow[_Verdict]:
    """The item that refused, and what that means."""
    if reason.code == "ValidationError":
        return (yield from _invalid(reason, error))
    if reason.code != "ConditionalCheckFailed":
        return None, error
    item = reason.item if reason.shown else (yield from _read(reason.part, error))
    return item, reason.part.refused(item)


def _reasons(error: ClientError, parts: Sequence[Part]) -> list[_Reason]:
    """The reasons of those writes that have one."""
    text = text_of(error)
    if code(error) == "ValidationException":
        if _TWICE in text:
            raise InvalidUpdate("Two participants write the same item: make them one write.") from error
        if not (says_too_large(text) or says_mistyped(text)):
            raise error
        return [_Reason(part, "ValidationError", text, None, shown=False) for part in parts]
    if code(error) != "TransactionCanceledException":
        raise error
    given = cast("list[dict[str, Any]] | None", error.response.get("CancellationReasons"))
    if given is None:  # the text has the codes, and nothing has the items
        codes = re.findall(r"\w+", text[text.rfind("[") :])
        given = [{"Code": each} for each in codes]
    if len(given) != len(parts):
        raise error
    pairs = zip(parts, given, strict=True)
    shown = "CancellationReasons" in error.response
    return [_reason(part, each, shown=shown) for part, each in pairs if each.get("Code", "None") != "None"]


def _reason(part: Part, given: Mapping[str, Any], *, shown: bool) -> _Reason:
    # Even a Table's client gives typed values here: boto3 does not convert the members of an error.
    item = plain(given["Item"]) if given.get("Item") else None
    return _Reason(part, given["Code"], str(given.get("Message", "")), item, shown)


def _invalid(reason: _Reason, error: ClientError) -> Flow[_Verdict]:
    """DynamoDB looks at the size, and at some types, before the condition: this may be a redelivery."""
    part = reason.part
    if not isinstance(part, Action) or not (says_too_large(reason.text) or says_mistyped(reason.text)):
        return None, error
    try:
        held = None if part.call.method == "put_item" else (yield from _read(part, error))
    except ClientError:  # the caller may be allowed to write only
        held = None
    outcome = part.refused(held, exact=True)
    if not isinstance(outcome, Unmet):
        return held, outcome
    if not says_too_large(reason.text):
        part.check_tokens(held)
        return held, error
    failure = part.too_large(held)
    failure.__cause__ = error
    return held, failure


def _read(part: Part, error: ClientError) -> Flow[Entity | None]:
    """The item of a write, as it is now. A put does not say which part of its item is the key."""
    key = part.key
    if key is None:
        raise error
    response = yield Call("get_item", (), {"TableName": part.table_name, "Key": key, "ConsistentRead": True})
    item: Entity | None = response.get("Item")
    return None if item is None else part.plain(item)


# --- what cannot be sent -----------------------------------------------------------------------------------------------


def _check_stores(participants: Sequence[Prepared], inbox: Inbox | None, *, awaited: bool | None) -> None:
    check_stores(participants, inbox, awaited=awaited)
    # A client that is tapped by a test is a copy, which has the same `meta`.
    clients = [each.store.target for each in participants] if len(participants) > 1 or inbox is not None else []
    clients += [] if inbox is None else [client_of(inbox)]
    if len({id(client.meta) for client in clients}) > 1:
        raise ConfigurationError(
            "A transaction is one request, of one client: make all these tables with the same client, or from the same "
            "boto3.resource, as in resource.Table('orders') and resource.Table('stock')."
        )


def _check_limits(participants: Sequence[Prepared], inbox: Inbox | None) -> None:
    count = len(participants) + (0 if inbox is None else 1 + len(inbox.also))
    if count > _MOST_ACTIONS:
        raise InvalidUpdate(f"A transaction has {count} writes, and DynamoDB takes {_MOST_ACTIONS}: split it.")
    # An item has 400 KB at most, so that ten of them are within the limit.
    size = sum([each.size for each in participants]) if count > _FEW else 0
    if size > _MOST_BYTES:
        raise InvalidUpdate(f"A transaction brings {size} bytes of values, and DynamoDB takes {_MOST_BYTES}: split it.")
    key_names = {each.store.table_name: each.native["Key"] for each in participants if each.native.get("Key")}
    seen: set[Hashable] = set()
    for each in participants:
        table = each.store.table_name
        key = each.key(key_names.get(table, ()))
        if key:
            item = (table, canonical(key))
            if item in seen:
                raise InvalidUpdate("Two participants write the same item: make them one write.")
            seen.add(item)
