"""Makes what a verb needs of a table or collection that the command line names. No module of the user's is needed.

To relay, only the outbox in an entity must be known, and to find open steps nothing. Which ledger its writers have makes no
difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from onewrite.core.event import Outbox
from onewrite.core.flow import run
from onewrite.errors import ConfigurationError
from onewrite.operate.image import EntityImage, EntityStore
from onewrite.operate.options import Options
from onewrite.operate.report import NotThere
from onewrite.outbox import Outgoing, Relay, to_eventbridge, to_sns, to_sqs
from onewrite.outbox.passes import StoredOutboxes
from onewrite.outbox.relay import Publisher

_ONE_STORE = (
    "Give --table NAME or --collection mongodb://HOST/DATABASE.COLLECTION, and not both. ONEWRITE_TABLE and ONEWRITE_COLLECTION in the "
    "environment count as well."
)
_NO_COLLECTION = (  # without what was given: it may hold a password
    "A collection is given as mongodb://HOST/DATABASE.COLLECTION."
)
# Seconds to connect, and to wait for a response: an operator does not wait for as long as a service.
_CONNECT = 5.0
_READ_AWS = 5.0  # a page of a scan is a megabyte at most
_READ_MONGODB = 60.0  # a scan looks at any number of documents before it finds a page of those that it needs
_open_clients: list[Any] = []  # of MongoDB: each has threads and connections of its own
_TARGET = re.compile("arn:[^:]+:(sns|events):([^:]+):.+|(https?://[^/]+)/.+")
_USUAL_HOST = re.compile(r"https://sqs\.[^.]+\.amazonaws\.com(\.cn)?")


def close_clients() -> None:
    """Close what the verb has opened."""
    while _open_clients:
        _open_clients.pop().close()


def is_named(options: Options) -> bool:
    """Do the options name a store?"""
    return options["table"] is not None or options["collection"] is not None


def store_of(options: Options) -> EntityStore:
    """The table or collection that the options name."""
    _check_named(options)
    table, collection = options["table"], options["collection"]
    if table is not None:
        from onewrite.operate.dynamodb import TableStore  # noqa: PLC0415  # One engine does without the other's driver.

        return TableStore(dynamodb_client(options["region"], options["endpoint_url"]), table)
    target = mongo_collection(collection)
    from onewrite.operate.mongodb import CollectionStore  # noqa: PLC0415  # as above

    return CollectionStore(target)


def entity_of(store: EntityStore, key: str) -> EntityImage:
    """The entity as it is now."""
    image = run(store.read(store.key(key)), store.target)
    if image is None:
        raise NotThere(f"There is no entity {key} in {store.name}.")
    return image


def relay_of(options: Options, outbox: Outbox, to: str | None) -> Relay:
    """The relay of the outboxes in a table or collection. `to` is where it publishes; without it, it cannot."""

    @dataclass(frozen=True, slots=True)
    class OutboxStore:
        """As much of a store as a relay needs."""

        outboxes: StoredOutboxes

    return Relay(OutboxStore(_outboxes(options, outbox)), _nowhere if to is None else _publisher(to, outbox, options))


def _outboxes(options: Options, outbox: Outbox) -> StoredOutboxes:
    _check_named(options)
    table, collection = options["table"], options["collection"]
    if table is not None:
        from onewrite.dynamodb.outboxes import Outboxes as OfTable  # noqa: PLC0415  # as above

        return OfTable(dynamodb_client(options["region"], options["endpoint_url"]), table, outbox)
    if outbox.index is not None:
        raise ConfigurationError("--index names an index of DynamoDB. MongoDB finds the one on ow_due by itself.")
    target = mongo_collection(collection)
    from onewrite.mongodb.outboxes import Outboxes as OfCollection  # noqa: PLC0415  # as above

    return OfCollection(target, ("_id",), outbox)


def key_text(relay: Relay, entity: Mapping[str, Any]) -> str:
    """The key of an entity in the relay's store, as `--key` takes it."""
    # A relay keeps these to itself. A module's relay does not say of which engine it is.
    if type(attrgetter("_boxes")(relay)).__module__.startswith("onewrite.dynamodb"):
        from onewrite.operate.dynamodb import key_text as of_table  # noqa: PLC0415  # as above

        return of_table(entity)
    from onewrite.operate.mongodb import key_text as of_collection  # noqa: PLC0415  # as above

    return of_collection(entity)


def _check_named(options: Options) -> None:
    """Raise unless the options name one store, before anything is connected."""
    if (options["table"] is None) == (options["collection"] is None):
        raise ConfigurationError(_ONE_STORE)
    if options["table"] is not None:
        return
    _names_in(options["collection"])
    for name in ("region", "endpoint_url"):
        if options[name] is not None:
            raise ConfigurationError(f"--{name.replace('_', '-')} goes with --table. A collection's URL says where it is.")


def dynamodb_client(region: str | None, endpoint_url: str | None) -> Any:
    """boto3's plain client, for the region and the endpoint that are given, or those of the environment."""
    return client("dynamodb", region, endpoint_url)


def mongo_collection(url: str) -> Any:
    """pymongo's Collection that is named by mongodb://HOST/DATABASE.COLLECTION."""
    from pymongo.errors import InvalidName  # noqa: PLC0415  # as above

    database, collection = _names_in(url)
    client = _mongo_client(url)
    _open_clients.append(client)
    try:
        return client[database][collection]
    except InvalidName as error:
        raise ConfigurationError(f"{_NO_COLLECTION} Here {error}.") from error


def _names_in(url: str) -> tuple[str, str]:
    try:
        parts: SplitResult = urlsplit(url)
    except ValueError:  # brackets that hold no address
        raise ConfigurationError(_NO_COLLECTION) from None
    database, _, collection = unquote(parts.path.removeprefix("/")).partition(".")
    if not parts.scheme.startswith("mongodb") or not database or not collection:
        raise ConfigurationError(_NO_COLLECTION)
    return database, collection


def _mongo_client(url: str) -> Any:
    from pymongo import MongoClient  # noqa: PLC0415  # as above
    from pymongo.errors import PyMongoError  # noqa: PLC0415

    try:
        connection: MongoClient[dict[str, Any]] = MongoClient(url, **_patience(url))
    except (PyMongoError, ValueError, OSError) as error:  # it names files, too
        raise ConfigurationError(f"MongoDB cannot be reached by this URI: {error}") from error
    return connection


def _patience(url: str) -> dict[str, Any]:
    """How long to wait, where the URL does not say it. Options here outdo its."""
    names = {name.lower() for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)}
    limits = {"serverSelectionTimeoutMS": _CONNECT, "connectTimeoutMS": _CONNECT, "socketTimeoutMS": _READ_MONGODB}
    return {name: int(1000 * seconds) for name, seconds in limits.items() if name.lower() not in names}


def _publisher(to: str, outbox: Outbox, options: Options) -> Publisher:
    match = _TARGET.fullmatch(to)
    if match is None:
        raise ConfigurationError(
            f"--to {to}: give the URL of an SQS queue, or the ARN of an SNS topic or of an EventBridge bus."
        )
    service, region, server = match.groups()
    if service == "sns":
        return to_sns(client("sns", region, None), to)
    if service == "events":
        return to_eventbridge(client("events", region, None), to, source=outbox.name)
    return to_sqs(_queue_client(server, options), to)


def queue_client(url: str, options: Options) -> Any:
    """boto3's client for the region, or the endpoint, of the queue's URL."""
    match = _TARGET.fullmatch(url)
    if match is None or match[3] is None:
        raise ConfigurationError(f"--queue {url}: give the URL of an SQS queue.")
    return _queue_client(match[3], options)


def _queue_client(server: str, options: Options) -> Any:
    from onewrite.sqs.queue import region_of  # noqa: PLC0415  # as above

    is_usual = _USUAL_HOST.fullmatch(server) is not None  # botocore knows it
    return client("sqs", region_of(server) or options["region"], None if is_usual else server)


def function_client(name: str, options: Options) -> Any:
    """boto3's client for the region in the function's ARN, or for the one that is given or configured."""
    parts = name.split(":")
    region = parts[3] if parts[0] == "arn" and len(parts) > 3 else options["region"]  # noqa: PLR2004  # arn:aws:lambda:REGION:...
    return client("lambda", region, options["endpoint_url"])


def client(service: str, region: str | None, endpoint_url: str | None) -> Any:
    """boto3's client for a service. A request that finds no server, or no response in time, is not sent again."""
    import boto3  # noqa: PLC0415  # as above
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import (  # noqa: PLC0415
        BotoCoreError,
        ConnectTimeoutError,
        EndpointConnectionError,
        NoRegionError,
        ReadTimeoutError,
    )

    def give_up(caught_exception: Exception | None, **_: object) -> None:
        if isinstance(caught_exception, ConnectTimeoutError | EndpointConnectionError | ReadTimeoutError):
            raise caught_exception

    sdk: Any = boto3  # The types of its `client` function are unknown without boto3-stubs.
    limits = Config(connect_timeout=_CONNECT, read_timeout=_READ_AWS)
    try:
        made = sdk.client(service, region_name=region, endpoint_url=endpoint_url, config=limits)
    except NoRegionError as error:
        raise ConfigurationError(f"There is no region for {service}: give --region, or set AWS_DEFAULT_REGION.") from error
    except (BotoCoreError, ValueError) as error:  # an endpoint or a profile that is missing or malformed
        raise ConfigurationError(f"There is no client for {service}: {error}. Check --region and --endpoint-url.") from error
    made.meta.events.register_first("needs-retry", give_up)
    return made


def _nowhere(_: list[Outgoing]) -> None:
    raise ConfigurationError("The relay has nowhere to publish to: give --to.")
