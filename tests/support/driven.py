"""Flows that a test drives by hand: stores as flows see them when they are made, answers one by one, and DynamoDB's errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError
from pymongo import WriteConcern
from pymongo.results import UpdateResult

from onewrite.core.flow import Call, Do, Flow
from onewrite.dynamodb.values import typed_values


class Table:
    name = "orders"

    def update_item(self) -> None:
        """Never called: the flows are driven by hand."""


class Collection:
    name = "orders"
    write_concern = WriteConcern()

    def with_options(self, **_: Any) -> Collection:
        return self

    def update_one(self) -> None:
        """Never called either."""


def reply(n: int = 0, **fields: Any) -> UpdateResult:
    """What pymongo returns of an update that has matched, or created, so many documents."""
    return UpdateResult({"n": n, **fields}, acknowledged=True)


def play(flow: Flow[Any], *answers: Any) -> tuple[Any, list[Any]]:
    """Drive a flow to its end, giving one answer a step; an exception is thrown in."""
    steps: list[Any] = [next(flow)]
    for n, answer in enumerate(answers):
        try:
            steps.append(flow.throw(answer) if isinstance(answer, Exception) else flow.send(answer))
        except StopIteration as stop:
            assert n == len(answers) - 1, "the flow ended with answers left"
            return stop.value, steps
        except Exception:
            assert n == len(answers) - 1, "the flow failed with answers left"
            raise
    raise AssertionError(f"the flow wants more answers: {steps[-1]}")


def play_requests(flow: Flow[Any], *answers: Any) -> tuple[Any, list[Call]]:
    """As `play`, but with one answer a request. The caller's functions are called, and waits are over at once."""
    calls: list[Call] = []
    replies = [*answers]
    step = next(flow)
    try:
        while True:
            if isinstance(step, Call):
                assert replies, f"the flow wants more answers: {step}"
                calls.append(step)
                answer = replies.pop(0)
            else:
                answer = step.function(*step.args) if isinstance(step, Do) else None
            step = flow.throw(answer) if isinstance(answer, Exception) else flow.send(answer)
    except StopIteration as stop:
        assert replies == [], "the flow ended with answers left"
        return stop.value, calls
    except Exception:
        assert replies == [], "the flow failed with answers left"
        raise


def failure(code: str, text: str = "", operation: str = "UpdateItem", **fields: Any) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": text}, **fields}
    return ClientError(response, operation)


def refusal(item: Mapping[str, Any] | None) -> ClientError:
    """The condition failed, and this is the item."""
    image: dict[str, Any] = {} if item is None else {"Item": typed_values(item)}
    return failure("ConditionalCheckFailedException", "The conditional request failed", **image)


def too_large() -> ClientError:
    return failure("ValidationException", "Item size to update has exceeded the maximum allowed size")
