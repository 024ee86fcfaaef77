"""Several guarded writes as one: all of them or none, with one outcome.

If DynamoDB cancels a transaction, it reports a reason and the stored item for each write, by position. The outcome follows from these. If
the result is unknown, the transaction is sent again with the same bytes and the same token, so it takes effect once. After a
cancellation, the next attempt has a new token.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from botocore.exceptions import ClientError

from onewrite.core.clock import random_share
from onewrite.core.event import Emit, copy_events, copy_value
from onewrite.core.flow import Call, Flow, Wait, arun, run, split_missing_ok
from onewrite.core.inbox import Inbox
from onewrite.core.judging import has_effect, has_landed
from onewrite.core.label import TOKEN
from onewrite.core.pipeline import pass_over
from onewrite.core.targets import make_arguments_optional
from onewrite.core.transaction import (
    DEADLINE,
    Backoff,
    Findings,
    PreparedWrite,
    Transaction,
    TransactionWrite,
    check_prepared,
)
from onewrite.core.unreturned import noted, noted_async
from onewrite.core.write import Image, Write
from onewrite.dynamodb.dialect import build_put, build_update
from onewrite.dynamodb.expression import read_mapping
from onewrite.dynamodb.flows import (
    Flows,
    TableAttempt,
    is_mistyped_text,
    is_too_large_text,
    read_error_code,
    read_error_text,
)
from onewrite.dynamodb.layout import canonical
from onewrite.dynamodb.size import measure_value
from onewrite.dynamodb.typed import type_result
from onewrite.dynamodb.values import readable_values
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.message import Message
from onewrite.outcome import Applied, Duplicate, Entity, Outcome, Unmet

_MAX_ACTIONS = 100  # writes in one TransactWriteItems
_MAX_BYTES = 4 * 1024 * 1024
_MAX_UNMEASURED_WRITES = 10  # An item has 400 KB at most, so ten of them are within the limit.
# Temporary reasons. The second one is reported for a table, and the others come from DynamoDB's request router.
_DELAYS = frozenset({"TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError", "RequestLimitExceeded"})
# With these codes, the result of the whole request is unknown. With the same token, it can safely be sent again.
_UNDECIDED_CODES = frozenset(
    {
        "TransactionInProgressException",
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
    }
)
_TWICE = "multiple operations on one item"
_SAME_ITEM = "Two participants write to the same item. Combine them into one write."


_EVERY_WRITE = {"ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"}
_ARGUMENTS = {
    "updating": {"Key", "UpdateExpression", *_EVERY_WRITE},
    "putting": {"Item", *_EVERY_WRITE},
    "recording": {"Key", *_EVERY_WRITE},
}
_REASONS = {"ReturnValues": "a transaction returns no items. Read them after it."}


@noted
def transact(
    message: Message,
    participants: Sequence[Prepared],
    *,
    inbox: Inbox | None = None,
    deadline: timedelta = DEADLINE,
) -> Outcome:
    """Make several guarded writes, or none of them: `transact(message, [accounts.updating(Key=..., ...), ...])`.

    Each participant has its own ledger. If any ledger contains the message, the outcome is `Duplicate`, and nothing is written.
    For any other refusal, `participant` is the index of the refusing write. onewrite retries conflicts and throttling until
    `deadline`.
    """
    transaction = _Transaction(message, participants, inbox, is_async=False)
    return _type_outcome(run(transaction.run_within(deadline), transaction.store.target), participants)


@noted_async
async def atransact(
    message: Message,
    participants: Sequence[Prepared],
    *,
    inbox: Inbox | None = None,
    deadline: timedelta = DEADLINE,
) -> Outcome:
    """Make several writes of an `AsyncGuardedTable`, or none of them, like `transact`."""
    transaction = _Transaction(message, participants, inbox, is_async=True)
    return _type_outcome(await arun(transaction.run_within(deadline), transaction.store.target), participants)


def _type_outcome(outcome: Outcome, participants: Sequence[Prepared]) -> Outcome:
    """Return the outcome with its entity in plain or typed values, as the participant's store requires."""
    place: int | None = getattr(outcome, "participant", None)
    return type_result(outcome) if participants[place or 0].store.typed else outcome


make_arguments_optional(transact, atransact)


# --- the participants ----------------------------------------------------------------------------------------------------


class Prepared(PreparedWrite[Flows]):
    """A guarded write that hasn't been sent. Pass it to `transact`, together with other writes."""

    __slots__ = ()

    @property
    def entity(self) -> Mapping[str, Any]:
        """The item's key. It's empty for a put, whose arguments don't show which attributes are the key."""
        key: Mapping[str, Any] = self.native.get("Key", {})
        return key

    def make_attempt(self, write: Write) -> TableAttempt:
        """Return the write with these parts, ready to be sent on its own."""
        attempt = TableAttempt(self.store, write, self.native, build_put if self.creates else build_update)
        if not (self.creates or attempt.call.kwargs["UpdateExpression"]):  # every ledger would have added a mark
            raise InvalidUpdate("A store without a ledger can't record a message. Give the write an UpdateExpression.")
        return attempt


def prepare(flows: Flows, method: str, native: Mapping[str, Any], emit: Emit) -> Prepared:
    """Return the prepared write. Raise for arguments that a transaction doesn't accept."""
    native, missing_ok = split_missing_ok(native)
    check_prepared(method, native, _ARGUMENTS[method], _REASONS)
    for name in ("Key", "Item", "ExpressionAttributeNames", "ExpressionAttributeValues"):
        read_mapping(native, name)  # raises if the argument isn't a mapping
    return Prepared(flows, method, copy_value(native), copy_events(emit), missing_ok)


@dataclass(frozen=True, slots=True, eq=False)
class _Action(TransactionWrite[TableAttempt]):
    """One write of a transaction."""

    @property
    def flows(self) -> Flows:
        return self.attempt.flows

    @property
    def request(self) -> dict[str, Any]:
        call = self.attempt.call
        kind = "Put" if call.method == "put_item" else "Update"
        return {kind: {"TableName": self.flows.full_name, **call.kwargs}}

    def judge_image(self, image: Image) -> Outcome | None:
        """Return the outcome for the item that failed the condition, or None if the write can be sent again."""
        if self.place is None:
            return Duplicate(self.write.message) if image.exists else None
        return self.judge(image, self.write.now)

    def pass_over(self, image: Image | None) -> Flow[Outcome | None]:
        """Move the mark past the message. Read the item if no refusal showed it."""
        if not self.write.entry.also:
            return None
        if image is None:
            item = self.attempt.call.kwargs.get("Item")
            key = self.write.key if item is None else (yield from self.flows.ask_key(self.flows.make_plain_item(item)))
            image = self.flows.read_image((yield from self.flows.look(self.flows.convert(key))))
        return (yield from pass_over(self.attempt, image))

    def has_effect(self, image: Image) -> bool:
        """Whether the item shows the effect of this write."""
        return self.write.token is not None and image.exists and has_effect(self.write, image)


# --- the transaction ----------------------------------------------------------------------------------------------------


class _Reason(NamedTuple):
    """The reason why DynamoDB refused one of the writes, with the item as it was then, if DynamoDB returned it."""

    action: _Action
    code: str
    text: str
    item: Entity | None


class _Transaction(Transaction[Prepared, _Action, ClientError]):
    kind = Prepared
    action = _Action
    stores = "tables"
    instead = "[orders.updating(...), stock.updating(...)], as you would write orders.update_item(message, ...)"

    def open_inbox(self, inbox: Inbox) -> Flows:
        clock = inbox.clock or self.store.clock
        return Flows(inbox.store, None, inbox.table_name, clock, self.store.name_call, is_async=self.store.is_async)

    def attempt_inbox(self, write: Write, expires: float) -> TableAttempt:
        """Return the put of the message's item into the inbox. The time at which the item `expires` has whole seconds, for DynamoDB's TTL."""
        flows, inbox = cast("Flows", self.inbox_store), cast("Inbox", self.inbox)
        item = {**write.key, inbox.ttl_attribute: int(expires), TOKEN: write.token}
        request = {
            "Item": flows.convert(item),
            "ConditionExpression": "attribute_not_exists(#id)",
            "ExpressionAttributeNames": {"#id": inbox.key},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        return TableAttempt(flows, write, {}, build_put, Call("put_item", (), request))

    def check(self) -> None:
        """Raise if the stores have different clients, if two writes change the same item, or if there are too many or too large writes."""
        stores = [*[write.store for write in self.participants], *filter(None, [self.inbox_store])]
        # A client that a test taps is a copy with the same `meta`.
        if len({id(getattr(store.target, "meta", None)) for store in stores}) > 1:
            raise ConfigurationError(
                "These tables have different clients, but a transaction is a single request. Create all of them with the same client, "
                "or from the same boto3.resource, for example resource.Table('orders') and resource.Table('stock')."
            )
        _check_limits(self.participants, self.inbox)
        _check_distinct(self.participants)

    def run_within(self, deadline: timedelta) -> Flow[Outcome]:
        """Return the flow of the transaction, or of its only write, which needs no transaction."""
        if self.is_single:
            return self.send_alone()
        return self.flow(Backoff(deadline, random_share, self.store.clock))

    def make(
        self, actions: Sequence[_Action], name: str, round_number: int, backoff: Backoff
    ) -> Flow[Applied | ClientError]:
        """Send the transaction until its result is known."""
        request_token = blake2b(f"{round_number} {name}".encode(), digest_size=16).hexdigest()
        request = {"TransactItems": [action.request for action in actions], "ClientRequestToken": request_token}
        while True:
            try:
                return Applied(self.message, response=(yield Call("transact_write_items", (), request)))
            except ClientError as error:
                if read_error_code(error) not in _UNDECIDED_CODES:
                    return error
                wait = backoff.pause()
                if wait is None:
                    raise
            yield Wait(wait)

    def find_reasons(self, actions: Sequence[_Action], refusal: ClientError, round_number: int) -> Flow[Findings]:
        """Find out from the reasons of the cancellation, and from the items in them, why writes were refused."""
        reasons = _read_reasons(refusal, actions)
        if not reasons:
            raise refusal
        hidden_actions = [reason.action for reason in reasons if reason.code in _DELAYS]
        outcomes: list[Outcome] = []
        failures: list[Exception] = []
        images: list[tuple[_Action, Image]] = []
        has_outdated_refusal = False  # whether an item refused a write that it would now accept
        for reason in reasons:
            if reason.code in _DELAYS:
                continue
            image, verdict = yield from _judge_reason(reason, refusal)
            images.append((reason.action, image))
            if isinstance(verdict, Exception):
                failures.append(verdict)
            elif verdict is None:
                has_outdated_refusal = True
            else:
                outcomes.append(verdict)
        # A token proves the transaction only together with its effects, and a transaction has the effects of all its writes.
        is_token_found = any(has_landed(action.write, image) for action, image in images)
        effective_actions = [action for action, image in images if action.has_effect(image)]
        other_actions = [action for action in actions if action.write.token is not None and action not in effective_actions]
        if is_token_found and not other_actions:
            return Findings([Applied(self.message, retried=True)])
        return Findings(
            outcomes,
            passes=bool(hidden_actions) or has_outdated_refusal,
            waits=bool(hidden_actions) or (has_outdated_refusal and round_number > 0),  # one retry is immediate
            failure=next(iter(failures), None),
            is_undecided=is_token_found and all(action in hidden_actions for action in other_actions),
            images={action.place: image for action, image in images if image.exists},
        )

    def give_up(self, actions: Sequence[_Action], refusal: ClientError) -> Flow[Outcome]:  # noqa: ARG002  # the error names the write
        yield from ()
        raise refusal


# --- the reasons of a canceled transaction ------------------------------------------------------------------------------


def _read_reasons(error: ClientError, actions: Sequence[_Action]) -> list[_Reason]:
    """Return the reasons of a cancellation. Writes without a reason are left out."""
    text = read_error_text(error)
    if read_error_code(error) == "ValidationException":
        if _TWICE in text:
            raise InvalidUpdate(_SAME_ITEM) from error
        if not (is_too_large_text(text) or is_mistyped_text(text)):
            raise error
        return [_Reason(action, "ValidationError", text, None) for action in actions]
    entries = cast("list[dict[str, Any]]", error.response.get("CancellationReasons", []))
    if read_error_code(error) != "TransactionCanceledException" or len(entries) != len(actions):
        raise error
    return [
        # Even a Table's client returns typed values here, because boto3 doesn't convert the parts of an error.
        _Reason(action, entry["Code"], str(entry.get("Message", "")), readable_values(entry.get("Item") or None))
        for action, entry in zip(actions, entries, strict=True)
        if entry.get("Code", "None") != "None"
    ]


def _judge_reason(reason: _Reason, error: ClientError) -> Flow[tuple[Image, Outcome | Exception | None]]:
    """Return the item that refused the write, and the outcome or the failure, or None if the write can be sent again."""
    action, image = reason.action, reason.action.flows.read_image(reason.item)
    if reason.code == "ConditionalCheckFailed":
        return image, action.judge_image(image)
    if reason.code != "ValidationError" or not (is_too_large_text(reason.text) or is_mistyped_text(reason.text)):
        return image, error
    # DynamoDB checks the size and some types before the condition, so this might be a redelivery.
    outcome: Outcome | None = None
    if action.write.key:  # a put doesn't show which attributes are the key
        with suppress(ClientError):  # the caller might lack the permission for this request
            image = action.flows.read_image((yield from action.flows.look(action.flows.convert(action.write.key))))
            outcome = action.judge_image(image)
    if not isinstance(outcome, Unmet | None):
        return image, outcome
    if not is_too_large_text(reason.text):
        return image, error
    failure = action.flows.make_too_large_error(action.attempt.call, action.write.emission, image)
    failure.__cause__ = error
    return image, failure


# --- limits -----------------------------------------------------------------------------------------------


def _check_limits(participants: Sequence[Prepared], inbox: Inbox | None) -> None:
    """Raise if the transaction has more writes, or more bytes of values, than DynamoDB accepts."""
    count = len(participants) + (0 if inbox is None else 1 + len(inbox.also))
    if count > _MAX_ACTIONS:
        raise InvalidUpdate(f"The transaction has {count} writes, but DynamoDB accepts at most {_MAX_ACTIONS}. Split it.")
    if count <= _MAX_UNMEASURED_WRITES:
        return
    names = ("Item", "ExpressionAttributeValues")
    parts: list[Mapping[str, Any]] = [write.native.get(name) or {} for write in participants for name in names]
    size = sum([measure_value(value) for part in parts for value in part.values()])
    if size > _MAX_BYTES:
        raise InvalidUpdate(
            f"The transaction has {size} bytes of values, but DynamoDB accepts at most {_MAX_BYTES}. Split it."
        )


def _check_distinct(participants: Sequence[Prepared]) -> None:
    """Raise if two writes change the same item. A put shows its key only if another write of its table names the key."""
    key_names = {write.store.full_name: write.native["Key"] for write in participants if write.native.get("Key")}
    items: set[Hashable] = set()
    for write in participants:
        table = write.store.full_name
        key = key_names.get(table, ())
        attributes: Mapping[str, Any] = write.native.get("Key") or write.native.get("Item") or {}
        if key and attributes.keys() >= {*key}:
            item = (table, canonical({name: attributes[name] for name in key}))
            if item in items:
                raise InvalidUpdate(_SAME_ITEM)
            items.add(item)
