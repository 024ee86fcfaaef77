"""Remarks: hints in a report in addition to the result. Some of them mean that the test could not have failed."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

from onewrite.batch.function import WrongReturn, read_return
from onewrite.message import Message
from onewrite.outcome import Applied, Duplicate, Outcome
from onewrite.testing.explorer.calls import error_in_words
from onewrite.testing.explorer.difference import show, sort_lists
from onewrite.testing.explorer.subject import Subject
from onewrite.testing.explorer.undisturbed import Order, OrderResult, PartResult, PartResults, process_by_part

_MAX_ORDERS = 24  # all orders of four messages, to find an order in which no message raises and each message has an effect
_MAX_NAMES = 3  # requests, or records of an event
_COMPARISONS = ("COMPARE_OP", "CONTAINS_OP", "IS_OP")

# These remarks mean that a write is lost, or that an incorrect handler would pass the test too.
FAILING = ("unapplied", "unobserved", "idle", "early", "unchecked", "untried")
# These remarks report a probable mistake, but the test can still fail.
DOUBTFUL = ("unseen", "cancelled", "raises", "returns", "rejected", "unreturned", "hash", "tasks")
# This remark is often intended, so only the report and pytest's summary show it.
ORDER = "order"
KINDS = (*FAILING, *DOUBTFUL, ORDER)  # kinds that a test can accept
NOTE = "note"  # information about the exploration


@dataclass(frozen=True, slots=True)
class Remark:
    """A hint for the reader of a report. Its `kind` is an argument of `assert_effectively_once(accept=...)`.

    | kind | fails the assertion | meaning |
    |---|---|---|
    | `"unapplied"` | yes | a message writes to an entity twice, and the second write never happens |
    | `"unobserved"` | yes | no message changes the value that `observe` returns |
    | `"idle"` | yes | a message changes nothing, for example because another message has the same ID |
    | `"early"` | yes | a message has no effect if it comes before, or after, another message |
    | `"unchecked"` | yes | the invariant checks nothing |
    | `"untried"` | yes | the bounds allow only one schedule, without faults or redeliveries |
    | `"unseen"` | warns | a message changes the stores, but not the value that `observe` returns |
    | `"cancelled"` | warns | all messages together don't change the value that `observe` returns |
    | `"raises"` | warns | the handler raises for a message in undisturbed processing |
    | `"returns"` | warns | a handler with a guarded store returns a value that the decorators and the worker refuse |
    | `"rejected"` | warns | a message is `Rejected` in every order, and settled because of `rejected_ok=True` |
    | `"unreturned"` | warns | a guarded call didn't settle the message, and the handler didn't return its outcome, which only the decorators and the worker notice |
    | `"hash"` | warns | the handler uses the hash() of a string, which differs between processes |
    | `"tasks"` | warns | it makes a difference which task of a delivery comes first |
    | `"order"` | no | two orders of the messages, both without faults, end differently |
    | `"note"` | no | information about the exploration |
    """

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


def list_remarks(subject: Subject, orders: Iterator[Order], observe: Callable[[], object]) -> Iterator[Remark]:
    """Yield remarks on messages that raise, return a wrong value, or have no effect, and on an `observe` that shows too little.

    The first of `orders` is the order in which the messages were passed.
    """
    in_each_order = [process_by_part(subject, order, observe) for order in islice(orders, 1 + _MAX_ORDERS)]
    first = in_each_order[0]
    # A message can have no effect if it comes before another message. In another order, each message then has an effect.
    complete = [order_result for order_result in in_each_order if all(map(_has_effect, order_result.results.values()))]
    best_results = complete[0].results if complete else first.results
    yield from _remark_on_errors(subject, in_each_order)
    yield from _remark_on_return(subject, first.results)
    yield from _remark_on_refusals(subject, in_each_order)
    yield from _remark_on_unapplied(subject, first.results)
    yield from _remark_on_losses(subject, in_each_order, complete)
    yield from _remark_on_idle(subject, best_results, in_each_order)
    seen_parts = {part for order_result in in_each_order for part, result in order_result.results.items() if result.is_seen}
    if not seen_parts:
        yield Remark("unobserved", _describe_unobserved(subject, first.results, observe))
        return
    yield from _remark_on_order(subject, complete)
    if all(order_result.end == first.start for order_result in in_each_order):
        yield Remark(
            "cancelled",
            "In the end, observe() returns the same as before the first message. A handler that does nothing would pass. Pass "
            "messages that don't cancel each other out, or return more from observe().",
        )
    for part, result in best_results.items():
        if result.has_changed and part not in seen_parts and not result.has_reason:
            text = f"{_name(subject, part)} changes nothing that observe() returns. A second effect would go unnoticed."
            yield Remark("unseen", text)


def _remark_on_errors(subject: Subject, in_each_order: Sequence[OrderResult]) -> Iterator[Remark]:
    """Yield remarks on messages that raise. A message that raises only because it came too early doesn't raise in another order."""
    errors = [
        {part: result.error for part, result in order_result.results.items() if result.error is not None}
        for order_result in in_each_order
    ]
    for part, error in errors[0].items() if all(errors) else ():
        text = (
            f"{_name(subject, part)} raises {error_in_words(error)} without any fault, and settles only after a redelivery. If that "
            "isn't intended, fix it, because a queue gives up a message after some failures."
        )
        yield Remark("raises", text)


def _remark_on_refusals(subject: Subject, in_each_order: Sequence[OrderResult]) -> Iterator[Remark]:
    """Yield remarks on messages that the caller's own condition refuses in every order, and for good."""
    for part in in_each_order[0].results:
        if all(order_result.results[part].is_refused_for_good for order_result in in_each_order):
            text = (
                f"{_name(subject, part)} is Rejected in every order, and settled because of rejected_ok=True. It never has an effect. If "
                "that isn't intended, correct the condition. Otherwise, also pass a message that makes it true."
            )
            yield Remark("rejected", text)


def _remark_on_unapplied(subject: Subject, results: PartResults) -> Iterator[Remark]:
    """Yield remarks on messages whose second write to an entity never happens."""
    for part, result in results.items():
        if result.unapplied_write is not None:
            text = (
                f"{_name(subject, part)} writes to one entity twice, and the second write never happens. {result.unapplied_write} is taken "
                'for a duplicate of the first. Pass each write its own part of the message, as in message.part("receipt").'
            )
            yield Remark("unapplied", text)


def _remark_on_losses(
    subject: Subject, in_each_order: Sequence[OrderResult], complete: Sequence[OrderResult]
) -> Iterator[Remark]:
    """Yield remarks on messages that have an effect in some orders, and whose effect is lost in another one."""
    for part in in_each_order[0].results:
        changing = [order_result for order_result in in_each_order if order_result.results[part].has_changed]
        losses = (order_result for order_result in in_each_order if _is_loss(part, order_result, changing, complete))
        loss = next(losses, None)
        if changing and loss is not None:
            yield _remark_on_early(subject, part, loss.results)


def _remark_on_idle(subject: Subject, best_results: PartResults, in_each_order: Sequence[OrderResult]) -> Iterator[Remark]:
    """Yield remarks on messages without an effect. If the messages compete, the remark is only a note."""
    first = in_each_order[0]
    given_order = tuple(first.results)
    for place, part in enumerate(given_order):
        if _has_effect(best_results[part]):
            continue
        if _has_effect_elsewhere(part, first, in_each_order) and not _shares_its_id(subject, part):
            text = (
                f"{_name(subject, part)} has an effect if it comes first, and none after the others. The messages compete, and both ends "
                "count as right."
            )
            yield Remark(NOTE, text)
        else:
            yield Remark("idle", _describe_idle(subject, part, given_order[:place], best_results[part]))


def remark_on_invariant(invariant: Callable[..., Any], *, has_asked: bool) -> Iterator[Remark]:
    """Yield the remark on an invariant that returned None each time."""
    # A comparison whose result is discarded, as in `left >= 0`, usually lacks a `return`.
    code = getattr(inspect.unwrap(invariant), "__code__", None)
    operations = [] if code is None else [instruction.opname for instruction in dis.get_instructions(code)]
    if any(operation in _COMPARISONS and following == "POP_TOP" for operation, following in pairwise(operations)):
        yield Remark(
            "unchecked", "The invariant compares two values and discards the result. Return the result, or assert it."
        )
    elif not has_asked:
        yield Remark("unchecked", "The invariant checks nothing. It always returns None, and reads none of the stores.")


def _remark_on_return(subject: Subject, results: PartResults) -> Iterator[Remark]:
    """Yield a remark on the first return value that the decorators refuse. A handler without a guarded store can return any value."""
    messages: list[Any] = [deliverable.message for deliverable in subject.deliverables for _ in deliverable.ids]
    for part, result in results.items():
        if isinstance(messages[part], Message) and any(isinstance(outcome, Outcome) for outcome in result.outcomes):
            try:
                read_return(result.returned)
            except WrongReturn:
                text = (
                    f"For {_name(subject, part)} the handler returns a {type(result.returned).__name__}, which counts as done here. "
                    "sqs_handler and the other decorators refuse it, and the message would be redelivered. Return the outcome, a "
                    "sequence of outcomes, or None."
                )
                yield Remark("returns", text)
                return


def _is_loss(part: int, order_result: OrderResult, changing: Sequence[OrderResult], complete: Sequence[OrderResult]) -> bool:
    """Whether the part has no effect in this order, permanently, and the end of the order shows that its effect is missing.

    `changing` has the orders in which the part has an effect, and `complete` those in which each part has one.
    """
    result, end = order_result.results[part], order_result.end
    # An upsert that forestalled the part's creation might have written everything that the part would have written.
    if result.is_lost and not (result.is_forestalled and end in [other.end for other in changing]):
        return True
    # If the later message wins, all orders have the same end.
    return result.is_ignored and bool(complete) and end not in [other.end for other in complete]


def _has_effect(result: PartResult) -> bool:
    return result.has_changed or result.has_reason


def _has_effect_elsewhere(part: int, loser: OrderResult, in_each_order: Sequence[OrderResult]) -> bool:
    """Whether a part without effect in one order has an effect in another order, after which `observe` or a store has other contents.

    For example, two messages reserve one seat, or use up one quota. If the handler mistakes one message for another instead, both
    orders usually leave the same contents, or the part's outcome is `Duplicate`.
    """
    if any(isinstance(outcome, Duplicate) for outcome in loser.results[part].outcomes):
        return False
    contents = loser.end, loser.end_state
    return any(each.results[part].has_changed and (each.end, each.end_state) != contents for each in in_each_order)


def _shares_its_id(subject: Subject, part: int) -> bool:
    """Whether another message has the same ID, so it comes from another source."""
    ids = [getattr(deliverable.message, "id", None) for deliverable in subject.deliverables for _ in deliverable.ids]
    return ids[part] is not None and ids.count(ids[part]) > 1


def _remark_on_order(subject: Subject, complete: Sequence[OrderResult]) -> Iterator[Remark]:
    """Yield a remark if two orders, in which each part has an effect, end differently. The order of a list doesn't matter."""
    effective = [each for each in complete if all(result.has_changed for result in each.results.values())]
    for other in effective[1:]:
        one = effective[0]
        if sort_lists(one.end) != sort_lists(other.end):
            ends = [
                f"{', '.join(_name(subject, part) for part in each.results)} ends in {show(each.end)}"
                for each in (one, other)
            ]
            yield Remark(
                ORDER,
                f"The end depends on the order of the messages, even without faults: {ends[0]}, and {ends[1]}. A redelivery can swap them, and "
                'both ends count as right. If the source keeps their order, pass reorder=False or "within_source". If the later message must '
                "win, pass an invariant=.",
            )
            return


def _remark_on_early(subject: Subject, part: int, results: PartResults) -> Remark:
    """Return a remark on a part that came too early or too late to have an effect. The results are in the order of the parts."""
    order = list(results)
    place = order.index(part)
    earlier, later = (", ".join(_name(subject, other) for other in parts) for parts in (order[:place], order[place + 1 :]))
    if results[part].is_forestalled:
        is_applied = any(isinstance(outcome, Applied) for outcome in results[part].outcomes)
        state = "is Applied and writes nothing but its mark" if is_applied else "is refused for good"
        text = (
            f"{_name(subject, part)} {state} if it comes after {earlier}, which creates its entity. Its other writes are lost. If that "
            "isn't intended, don't create the entity by an upsert. The outcome is then Missing, and the message is redelivered."
        )
    else:
        position = f"before {later}" if later else f"after {earlier}"
        does = "finds nothing and does nothing" if results[part].has_found_nothing else "does nothing"
        text = (
            f"{_name(subject, part)} {does} if it comes {position}, and is never redelivered. If that loses its effect, raise, or return "
            "the Missing of a guarded write. Both cause a redelivery."
        )
    return Remark("early", text)


def _describe_unobserved(subject: Subject, results: PartResults, observe: Callable[[], object]) -> str:
    """Return the text of a remark on an `observe` whose value no message changes, with the most probable cause."""
    value = observe()
    writes = [write for result in results.values() for write in result.writes]
    look_requests = subject.look_requests
    text = "No message changes what observe() sees"
    if value is None:
        text += ". It returns None. A return might be missing"
    elif not look_requests:
        text += ". It reads none of the stores"
    refusals = [type(outcome).__name__ for result in results.values() for outcome in result.outcomes if result.has_reason]
    if refusals and all(result.has_reason for result in results.values()):
        return f"{text}. Each message was {', '.join(dict.fromkeys(refusals))}: check that world() creates the data that they need."
    if look_requests and writes:
        asks, write_list = (list_in_words(list(dict.fromkeys(map(str, requests)))) for requests in (look_requests, writes))
        text += f". It asks {asks}; the handler writes {write_list}"
    return f"{text}. A handler that does everything twice would pass. Return the handler's changes from observe()."


def list_in_words(names: Sequence[str]) -> str:
    return ", ".join([*names[:_MAX_NAMES], *(["others"] if len(names) > _MAX_NAMES else [])])


def _describe_idle(subject: Subject, part: int, earlier: Order, result: PartResult) -> str:
    """Return the text of a remark on a part that changes nothing after these earlier parts."""
    names = ", ".join(_name(subject, other) for other in earlier)
    text = f"{_name(subject, part)} changes nothing when it's processed without faults{f' after {names}' if names else ''}"
    if any(isinstance(outcome, Duplicate) for outcome in result.outcomes):
        text += ", because the guarded store considers it a duplicate"
    if not earlier:
        return f"{text}. If it should, check the condition of its write, and the data that world() creates."
    return (
        f"{text}. If it should, check how the handler distinguishes messages. Two can have the same order ID, the same ID in another "
        "source, or the same digest of the payload. If the messages compete, for example for one seat, return the winner from observe(), or accept this."
    )


def _name(subject: Subject, part: int) -> str:
    return subject.titles.parts[part]
