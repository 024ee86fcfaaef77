"""Several guarded writes as one: all of them or none, and one answer.

DynamoDB cancels a transaction with a reason for each of its writes, by position, and with the item as it was. Whatever is
decided here is decided from these. A transaction that is sent again while nobody knows what became of it has the same bytes and
the same token, so it is done once; after a cancellation it is another one, with a new token.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from botocore.exceptions import ClientError

from onewrite.core.clock import random_share
from onewrite.core.flow import Call, Flow, Wait, arun, run
from onewrite.core.inbox import Inbox
from onewrite.core.label import TOKEN
from onewrite.core.targets import let_flow_refuse
from onewrite.core.transaction import DEADLINE, Backoff, Findings, Transaction
from onewrite.core.write import Image, Write
from onewrite.dynamodb.dialect import build_put
from onewrite.dynamodb.flows import Flows, TableAttempt, read_error_code, read_error_text, says_mistyped, says_too_large
from onewrite.dynamodb.layout import canonical
from onewrite.dynamodb.participants import Action, Prepared
from onewrite.dynamodb.typed import typed_result
from onewrite.dynamodb.values import readable_values
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.message import Message
from onewrite.outcome import Applied, Entity, Outcome, Unmet

_MAX_ACTIONS = 100  # of one TransactWriteItems
_MAX_BYTES = 4 * 1024 * 1024
_SURELY_SMALL = 10
# Reasons that go away by themselves. The second is what AWS calls it for a table, the others come from its request router.
_DELAYS = frozenset({"TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError", "RequestLimitExceeded"})
# The whole request got no verdict. Under the same token it may be sent again whatever became of it.
_UNDECIDED_CODES = frozenset(
    {
        "TransactionInProgressException",
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "RequestLimitExceeded",
    }
)
_TWICE = "multiple operations on one item"
_SAME_ITEM = "Two participants write the same item: make them one write."


def transact(
    message: Message,
    participants: Sequence[Prepared],
    *,
    inbox: Inbox | None = None,
    deadline: timedelta = DEADLINE,
) -> Outcome:
    """Make all of these guarded writes, or none: `transact(message, [accounts.updating(Key=..., ...), ...])`.

    Each participant is guarded by its own ledger. If any holds the message, the answer is `Duplicate`, and nothing is written.
    Any other refusal says in `participant` whose it is. What is in the way for a moment is waited for, `deadline` long.
    """
    transaction = _Transaction(message, participants, inbox, is_async=False)
    return _shown(run(transaction.answer_within(deadline), transaction.store.target), participants)


async def atransact(
    message: Message,
    participants: Sequence[Prepared],
    *,
    inbox: Inbox | None = None,
    deadline: timedelta = DEADLINE,
) -> Outcome:
    """`transact` for the writes of an `AsyncGuardedTable`."""
    transaction = _Transaction(message, participants, inbox, is_async=True)
    return _shown(await arun(transaction.answer_within(deadline), transaction.store.target), participants)


def _shown(outcome: Outcome, participants: Sequence[Prepared]) -> Outcome:
    """Return the outcome with the entity as the participant's store shows it."""
    place: int | None = getattr(outcome, "participant", None)
    return typed_result(outcome) if participants[place or 0].store.typed else outcome


let_flow_refuse(transact, atransact)


class _Reason(NamedTuple):
    """Why DynamoDB did not make one of the writes, and the item as it was then, if DynamoDB has looked at it."""

    action: Action
    code: str
    text: str
    item: Entity | None


class _Transaction(Transaction[Prepared, Action, ClientError]):
    kind = Prepared
    action = Action
    stores = "tables"
    instead = "[orders.updating(...), stock.updating(...)], as you would write orders.update_item(message, ...)"

    def open_inbox(self, inbox: Inbox) -> Flows:
        clock = inbox.clock or self.store.clock
        return Flows(inbox.store, None, inbox.table_name, clock, self.store.attempts, is_async=self.store.is_async)

    def attempt_inbox(self, write: Write, expires: float) -> TableAttempt:
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
        stores = [*[write.store for write in self.participants], *filter(None, [self.inbox_store])]
        # A client that is tapped by a test is a copy, which has the same `meta`.
        if len({id(getattr(store.target, "meta", None)) for store in stores}) > 1:
            raise ConfigurationError(
                "A transaction is one request, of one client: make all these tables with the same client, or from the same "
                "boto3.resource, as in resource.Table('orders') and resource.Table('stock')."
            )
        _check_limits(self.participants, self.inbox)

    def answer_within(self, deadline: timedelta) -> Flow[Outcome]:
        if self.is_single:
            return self.send_alone()
        return self.flow(Backoff(deadline, random_share, self.store.clock))

    def make(self, actions: Sequence[Action], name: str, round_number: int, backoff: Backoff) -> Flow[Applied | ClientError]:
        """Send the transaction until DynamoDB says what became of it."""
        token = blake2b(f"{round_number} {name}".encode(), digest_size=16).hexdigest()
        request = {"TransactItems": [action.request for action in actions], "ClientRequestToken": token}
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

    def findings(self, actions: Sequence[Action], refusal: ClientError, round_number: int) -> Flow[Findings]:
        reasons = _read_reasons(refusal, actions)
        if not reasons:
            raise refusal
        hidden_actions = [reason.action for reason in reasons if reason.code in _DELAYS]
        outcomes: list[Outcome] = []
        failures: list[Exception] = []
        images: list[tuple[Action, Image]] = []
        has_expired = False  # an item was in the way, and is no more
        for reason in reasons:
            if reason.code in _DELAYS:
                continue
            image, verdict = yield from _judge_reason(reason, refusal)
            images.append((reason.action, image))
            if isinstance(verdict, Exception):
                failures.append(verdict)
            elif verdict is None:
                has_expired = True
            else:
                outcomes.append(verdict)
        # A token proves something only together with the effect, and a transaction has the effects of all of its writes.
        has_token = any(action.has_landed(image) for action, image in images)
        effective = [action for action, image in images if action.shows_effect(image)]
        other_actions = [action for action in actions if action.is_guarded and action not in effective]
        if has_token and not other_actions:
            return Findings([Applied(self.message, retried=True)])
        return Findings(
            outcomes,
            passes=bool(hidden_actions) or has_expired,
            waits=bool(hidden_actions) or (has_expired and round_number > 0),
            failure=next(iter(failures), None),
            is_undecided=has_token and all(action in hidden_actions for action in other_actions),
            images={action.place: image for action, image in images if image.exists},
        )

    def give_up(self, actions: Sequence[Action], refusal: ClientError) -> Flow[Outcome]:  # noqa: ARG002  # DynamoDB has said which write
        yield from ()
        raise refusal


# --- what DynamoDB answers ---------------------------------------------------------------------------------------------


def _read_reasons(error: ClientError, actions: Sequence[Action]) -> list[_Reason]:
    """Return the reasons of those writes that have one."""
    text = read_error_text(error)
    if read_error_code(error) == "ValidationException":
        if _TWICE in text:
            raise InvalidUpdate(_SAME_ITEM) from error
        if not (says_too_large(text) or says_mistyped(text)):
            raise error
        return [_Reason(action, "ValidationError", text, None) for action in actions]
    entries = cast("list[dict[str, Any]]", error.response.get("CancellationReasons", []))
    if read_error_code(error) != "TransactionCanceledException" or len(entries) != len(actions):
        raise error
    return [
        # Even a Table's client gives typed values here: boto3 does not convert the members of an error.
        _Reason(
            action,
            entry["Code"],
            str(entry.get("Message", "")),
            readable_values(entry["Item"]) if entry.get("Item") else None,
        )
        for action, entry in zip(actions, entries, strict=True)
        if entry.get("Code", "None") != "None"
    ]


def _judge_reason(reason: _Reason, error: ClientError) -> Flow[tuple[Image, Outcome | Exception | None]]:
    """Return the item that refused, and what that means."""
    action, image = reason.action, reason.action.flows.read_image(reason.item)
    if reason.code == "ConditionalCheckFailed":
        return image, action.judge_image(image)
    if reason.code != "ValidationError" or not (says_too_large(reason.text) or says_mistyped(reason.text)):
        return image, error
    # DynamoDB looks at the size, and at some types, before the condition: this may be a redelivery.
    outcome: Outcome | None = None
    if action.write.key:  # a put does not say what to read
        with suppress(ClientError):  # the caller may be allowed to write only
            image = yield from action.read()
            outcome = action.judge_image(image)
    if not isinstance(outcome, Unmet | None):
        return image, outcome
    if not says_too_large(reason.text):
        return image, error
    failure = action.too_large(image)
    failure.__cause__ = error
    return image, failure


# --- what cannot be sent -----------------------------------------------------------------------------------------------


def _check_limits(participants: Sequence[Prepared], inbox: Inbox | None) -> None:
    count = len(participants) + (0 if inbox is None else 1 + len(inbox.also))
    if count > _MAX_ACTIONS:
        raise InvalidUpdate(f"A transaction has {count} writes, and DynamoDB takes {_MAX_ACTIONS}: split it.")
    # An item has 400 KB at most, so ten of them are within the limit.
    size = sum([write.size for write in participants]) if count > _SURELY_SMALL else 0
    if size > _MAX_BYTES:
        raise InvalidUpdate(f"A transaction brings {size} bytes of values, and DynamoDB takes {_MAX_BYTES}: split it.")
    key_names = {write.store.full_name: write.native["Key"] for write in participants if write.native.get("Key")}
    items: set[Hashable] = set()
    for write in participants:
        table = write.store.full_name
        key = write.key(key_names.get(table, ()))
        if key:
            item = (table, canonical(key))
            if item in items:
                raise InvalidUpdate(_SAME_ITEM)
            items.add(item)
