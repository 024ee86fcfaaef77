"""A Pydantic AI agent with a tool that charges cards. A job from a queue starts a run, and a redelivery repeats it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from pydantic_ai import Agent, RunContext
from pydantic_ai.models import Model

from agent.recording import RecordedModel
from onewrite import Applied, Duplicate, Message
from onewrite.mongodb import AsyncGuardedCollection


class Provider(Protocol):
    async def charge(self, cents: int, *, key: str, seconds: float) -> str:
        """Charge the card once per key, within these seconds, and return the charge's ID."""
        ...


class UndecidedError(Exception):
    """The charge is in progress elsewhere, or its result is unknown. The job must be redelivered."""


@dataclass(frozen=True, slots=True)
class Desk:
    """The dependencies of a run. `job` is the message that started it, the same on every delivery."""

    job: Message
    orders: AsyncGuardedCollection
    provider: Provider


agent = Agent(deps_type=Desk)


@agent.tool
async def charge_card(ctx: RunContext[Desk], order: str, cents: int) -> str:
    """Charge the customer's card for an order, and return the charge."""
    desk, call = ctx.deps, ctx.deps.job.part(f"{ctx.tool_name} {ctx.tool_call_id}")
    field = call.child("charge")  # a tool_call_id can have characters that a field's name can't
    outcome = await desk.orders.perform_effect(
        call,
        "charge",
        lambda effect: desk.provider.charge(cents, key=effect.key, seconds=effect.time_left()),
        {"_id": order},
        lease=timedelta(minutes=1),
        key_valid_for=timedelta(hours=23),
        then=lambda charge: {"update": {"$set": {f"charges.{field}": charge}}},
    )
    if not isinstance(outcome, Applied | Duplicate):
        raise UndecidedError(f"{order}: {type(outcome).__name__}")  # ends the run, so the model can't decide to try again
    paid = await desk.orders.find_one({"_id": order})
    return str(paid and paid["charges"][field])


def make_handler(
    orders: AsyncGuardedCollection, responses: Any, provider: Provider, model: Model
) -> Callable[[Message], Coroutine[Any, Any, str]]:
    """Return a function that runs the agent for a job. `responses` is a collection for the model's responses."""

    async def handle(job: Message) -> str:
        desk, recorded = Desk(job, orders, provider), RecordedModel(model, responses, job)
        result = await agent.run(job.body, deps=desk, model=recorded)
        return result.output

    return handle
