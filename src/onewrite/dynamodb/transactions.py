"""Several guarded writes as one: all of them or none, and one answer.

DynamoDB cancels a transaction with a reason for each of its writes, by position, and with the item as it was. Whatever is
decided here is decided from these. A transaction that is sent again while nobody knows what became of it has the same bytes and
the same token, so it is done once; after a cancellation it is another one, with a new token.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias, cast

from botocore.exceptions import ClientError

from onewrite.core.clock import random_share
from onewrite.core.flow import Call, Flow, Wait, arun, run
from onewrite.core.inbox import Inbox
from onewrite.core.targets import let_flow_refuse
from onewrite.core.transaction import DEADLINE, Backoff, Findings, Transaction
from onewrite.dynamodb.flows import read_error_code, read_error_text, says_mistyped, says_too_large
from onewrite.dynamodb.layout import canonical
from onewrite.dynamodb.participants import Action, Prepared, inbox_actions, inbox_flows, make_action, write_alone
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
    """Why DynamoDB did not make one of the writes."""

    action: Action
    code: str
    text: str
    item: Entity | None
    shows_item: bool  # `item` is what DynamoDB has looked at, and None says that there is none


class _Transaction(Transaction[Prepared, Action, ClientError]):
    kind = Prepared
    stores = "tables"
    instead = "[orders.updating(...), stock.updating(...)], as you would write orders.update_item(message, ...)"

    def check(self) -> None:
        _check_client(self.participants, self.inbox)
        _check_limits(self.participants, self.inbox)

    def answer_within(self, deadline: timedelta) -> Flow[Outcome]:
        if self.is_single:
            return write_alone(self.message, self.participants[0])
        return self.flow(Backoff(deadline, random_share, self.store.clock))

    def actions(self, name: str) -> list[Action]:
        actions = [
            make_action(place, self.message, write, name, self.steps) for place, write in enumerate(self.participants)
        ]
        if self.inbox is not None:
            actions += inbox_actions(self.inbox, self.store, self.message, name)
        return actions

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
        reasons = _reasons(refusal, actions)
        if not reasons:
            raise refusal
        hidden_actions = [reason.action for reason in reasons if reason.code in _DELAYS]
        outcomes: list[Outcome] = []
        failures: list[Exception] = []
        looks: list[tuple[Action, Entity | None]] = []
        has_expired = False  # an item was in the way, and is no more
        for reason in reasons:
            if reason.code in _DELAYS:
                continue
            item, verdict = yield from _judge_reason(reason, refusal)
            looks.append((reason.action, item))
            if isinstance(verdict, Exception):
                failures.append(verdict)
            elif verdict is None:
                has_expired = True
            else:
                outcomes.append(verdict)
        # A token proves something only together with the effect, and a transaction has the effects of all of its writes.
        has_token = any(action.has_landed(item) for action, item in looks)
        effective = [action for action, item in looks if action.shows_effect(item)]
        other_actions = [action for action in actions if action.is_guarded and action not in effective]
        if has_token and not other_actions:
            return Findings([Applied(self.message, retried=True)])
        return Findings(
            outcomes,
            passes=bool(hidden_actions) or has_expired,
            waits=bool(hidden_actions) or (has_expired and round_number > 0),
            failure=next(iter(failures), None),
            is_undecided=has_token and all(action in hidden_actions for action in other_actions),
            entities={action.place: item for action, item in looks if item is not None},
        )

    def give_up(self, actions: Sequence[Action], refusal: ClientError) -> Flow[Outcome]:  # noqa: ARG002  # DynamoDB has said which write
        yield from ()
        raise refusal


# --- what DynamoDB answers ---------------------------------------------------------------------------------------------


_Verdict: TypeAlias = tuple[Entity | None, Outcome | Exception | None]


def _judge_reason(reason: _Reason, error: ClientError) -> Flow[_Verdict]:
    """Return the item that refused, and what that means."""
    if reason.code == "ValidationError":
        return (yield from _judge_invalid(reason, error))
    if reason.code != "ConditionalCheckFailed":
        return None, error
    item = reason.item if reason.shows_item else (yield from _read_item(reason.action, error))
    return item, reason.action.judge_item(item)


def _reasons(error: ClientError, actions: Sequence[Action]) -> list[_Reason]:
    """Return the reasons of those writes that have one."""
    text = read_error_text(error)
    if read_error_code(error) == "ValidationException":
        if _TWICE in text:
            raise InvalidUpdate(_SAME_ITEM) from error
        if not (says_too_large(text) or says_mistyped(text)):
            raise error
        return [_Reason(action, "ValidationError", text, None, shows_item=False) for action in actions]
    if read_error_code(error) != "TransactionCanceledException":
        raise error
    entries = cast("list[dict[str, Any]] | None", error.response.get("CancellationReasons"))
    if entries is None:  # the text has the codes, and nothing has the items
        codes = re.findall(r"\w+", text[text.rfind("[") :])
        entries = [{"Code": name} for name in codes]
    if len(entries) != len(actions):
        raise error
    pairs = zip(actions, entries, strict=True)
    shows_item = "CancellationReasons" in error.response
    return [
        # Even a Table's client gives typed values here: boto3 does not convert the members of an error.
        _Reason(
            action,
            entry["Code"],
            str(entry.get("Message", "")),
            readable_values(entry["Item"]) if entry.get("Item") else None,
            shows_item,
        )
        for action, entry in pairs
        if entry.get("Code", "None") != "None"
    ]


def _judge_invalid(reason: _Reason, error: ClientError) -> Flow[_Verdict]:
    """Judge a write that DynamoDB called invalid. It checks the size, and some types, before the condition: this may be a redelivery."""
    action = reason.action
    if not (says_too_large(reason.text) or says_mistyped(reason.text)):
        return None, error
    item = None
    try:
        item = yield from _read_item(action, error)
    except ClientError:  # a put does not say what to read, and the caller may be allowed to write only
        outcome = None
    else:
        outcome = action.judge_item(item)
    if not isinstance(outcome, Unmet | None):
        return item, outcome
    if not says_too_large(reason.text):
        return item, error
    failure = action.too_large(item)
    failure.__cause__ = error
    return item, failure


def _read_item(action: Action, error: ClientError) -> Flow[Entity | None]:
    """Read the item of a write, as it is now. A put does not say which part of its item is the key."""
    if action.key is None:
        raise error
    return (yield from action.flows.look(action.key))


# --- what cannot be sent -----------------------------------------------------------------------------------------------


def _check_client(participants: Sequence[Prepared], inbox: Inbox | None) -> None:
    stores = [write.store for write in participants]
    stores += [] if inbox is None else [inbox_flows(inbox, stores[0])]
    # A client that is tapped by a test is a copy, which has the same `meta`.
    if len(stores) > 1 and len({id(getattr(store.target, "meta", None)) for store in stores}) > 1:
        raise ConfigurationError(
            "A transaction is one request, of one client: make all these tables with the same client, or from the same "
            "boto3.resource, as in resource.Table('orders') and resource.Table('stock')."
        )


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
