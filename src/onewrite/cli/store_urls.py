"""Makes what a verb needs of a store that the command line names by its URL. No module of the user's is needed.

To relay, only the outbox in an entity must be known, and to find open steps nothing. Which ledger its writers have makes no
difference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from onewrite.errors import ConfigurationError
from onewrite.event import Outbox
from onewrite.flow import Flow
from onewrite.outbox import Outgoing, Relay, to_eventbridge, to_sns, to_sqs
from onewrite.outbox.passes import Outboxes
from onewrite.outbox.relay import Publisher
from onewrite.step import FoundStep

FORMS = "dynamodb://TABLE or mongodb://HOST/DATABASE.COLLECTION"
_NO_STORE = f"A store is given as {FORMS}."  # without what was given: it may hold a password
_BY_ENVIRONMENT = "The region and the endpoint come from the environment: AWS_REGION, AWS_ENDPOINT_URL."
_TARGET = re.compile("arn:[^:]+:(sns|events):([^:]+):.+|(https?://[^/]+)/.+")
_OF_AMAZON = re.compile(r"https://sqs\.([^.]+)\.amazonaws\.com.*")


@dataclass(frozen=True, slots=True)
class OutboxStore:
    """As much of a store as a relay needs."""

    outboxes: Outboxes


class StepFinder(Protocol):
    """Goes through a store once, page by page. `target` is the client that its flows are run with."""

    target: Any

    # The steps of the next page, which may have none; None at the end.
    def next(self) -> Flow[list[FoundStep] | None]: ...


def is_url(name: str) -> bool:
    return "://" in name


def relay_of(url: str, outbox: Outbox, to: str | None) -> Relay:
    """The relay of the outboxes in a table or collection. `to` is where it publishes; without it, it cannot."""
    return Relay(OutboxStore(_outboxes(url, outbox)), _nowhere if to is None else _publisher(to, outbox))


def step_finder(url: str) -> StepFinder:
    """Finds the open steps in a table or collection."""
    table = _table(url)
    if table is not None:
        from onewrite.dynamodb.step_finder import StepFinder as OfTable  # noqa: PLC0415  # One engine does without the other's driver.

        return OfTable(dynamodb_client(), table)
    collection = mongo_collection(url)
    from onewrite.mongodb.step_finder import StepFinder as OfCollection  # noqa: PLC0415  # as above

    return OfCollection(collection)


def dynamodb_client() -> Any:
    """boto3's plain client, for the region and the endpoint of the environment."""
    return _client("dynamodb", None)


def mongo_collection(url: str) -> Any:
    """pymongo's Collection that is named by mongodb://HOST/DATABASE.COLLECTION."""
    database, collection = _collection(url)
    return _mongo_client(url)[database][collection]


def _outboxes(url: str, outbox: Outbox) -> Outboxes:
    table = _table(url)
    if table is not None:
        from onewrite.dynamodb.outboxes import Outboxes as OfTable  # noqa: PLC0415  # as above

        return OfTable(dynamodb_client(), table, outbox)
    _collection(url)  # what is wrong with the URL is told first
    if outbox.index is not None:
        raise ConfigurationError("--index names an index of DynamoDB. MongoDB finds the one on ow_due by itself.")
    from onewrite.mongodb.outboxes import Outboxes as OfCollection  # noqa: PLC0415  # as above

    return OfCollection(mongo_collection(url), ("_id",), outbox)


def _table(url: str) -> str | None:
    """The name of the table, if it is one of DynamoDB."""
    parts = _parts(url)
    if parts.scheme == "dynamodb" and (parts.query or parts.fragment):
        raise ConfigurationError(f"A table is given as dynamodb://TABLE alone. {_BY_ENVIRONMENT}")
    return parts.netloc if parts.scheme == "dynamodb" and parts.netloc and not parts.path else None


def _collection(url: str) -> tuple[str, str]:
    parts = _parts(url)
    database, _, collection = unquote(parts.path.removeprefix("/")).partition(".")
    if not parts.scheme.startswith("mongodb") or not database or not collection:
        raise ConfigurationError(_NO_STORE)
    return database, collection


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # brackets that hold no address
        raise ConfigurationError(_NO_STORE) from None


def _mongo_client(url: str) -> Any:
    from pymongo import MongoClient  # noqa: PLC0415  # as above
    from pymongo.errors import PyMongoError  # noqa: PLC0415

    try:
        client: MongoClient[dict[str, Any]] = MongoClient(url)
    except (PyMongoError, ValueError) as error:
        raise ConfigurationError(f"MongoDB cannot be reached by this URI: {error}") from error
    return client


def _publisher(to: str, outbox: Outbox) -> Publisher:
    found = _TARGET.fullmatch(to)
    if found is None:
        raise ConfigurationError(
            f"--to {to}: give the URL of an SQS queue, or the ARN of an SNS topic or of an EventBridge bus."
        )
    service, region, server = found.groups()
    if service == "sns":
        return to_sns(_client("sns", region), to)
    if service == "events":
        return to_eventbridge(_client("events", region), to, source=outbox.name)
    return to_sqs(_queue_client(server), to)


def queue_client(url: str) -> Any:
    """boto3's client for the region, or the endpoint, of the queue's URL."""
    found = _TARGET.fullmatch(url)
    if found is None or found[3] is None:
        raise ConfigurationError(f"--queue {url}: give the URL of an SQS queue.")
    return _queue_client(found[3])


def _queue_client(server: str) -> Any:
    at_amazon = _OF_AMAZON.fullmatch(server)
    options = (at_amazon[1], None) if at_amazon else (None, server)
    return _client("sqs", *options)


def function_client(name: str) -> Any:
    """boto3's client for the region in the function's ARN, or for that of the environment where only its name is given."""
    parts = name.split(":")
    return _client("lambda", parts[3] if parts[0] == "arn" and len(parts) > 3 else None)  # noqa: PLR2004  # arn:aws:lambda:REGION:...


def _client(service: str, region: str | None, endpoint_url: str | None = None) -> Any:
    import boto3  # noqa: PLC0415  # as above
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    sdk: Any = boto3  # The types of its `client` function are unknown without boto3-stubs.
    try:
        return sdk.client(service, region_name=region, endpoint_url=endpoint_url)
    except (BotoCoreError, ValueError) as error:  # a region or an endpoint that is missing or malformed
        raise ConfigurationError(f"There is no client for {service}: {error} Check AWS_REGION and the endpoint.") from error


def _nowhere(_: list[Outgoing]) -> None:
    raise ConfigurationError("The relay has nowhere to publish to: give --to.")
