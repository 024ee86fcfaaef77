"""The table, collection, queue, function, or broker that the command line names, without a user's module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from onewrite.core.features.event import Outbox
from onewrite.errors import ConfigurationError
from onewrite.operate.image import EntityImage, EntityStore
from onewrite.operate.options import Options
from onewrite.operate.report import NotThere
from onewrite.outbox import Outgoing, Relay, to_eventbridge, to_sns, to_sqs
from onewrite.outbox.passes import StoredOutboxes
from onewrite.outbox.relay import Publish

_ONE_STORE = (
    "Pass either --table NAME or --collection mongodb://HOST/DATABASE.COLLECTION, or set ONEWRITE_TABLE or "
    "ONEWRITE_COLLECTION."
)
_NO_COLLECTION = (  # without the value, which can contain a password
    "--collection: expected mongodb://HOST/DATABASE.COLLECTION."
)
# Seconds to connect, and to wait for a response. An operator waits for less time than a service.
_CONNECT = 5.0
_READ_AWS = 5.0  # a page of a scan is at most a megabyte
_READ_MONGODB = 60.0  # a scan can read many documents before it finds a page of matches
_open_clients: list[Any] = []  # MongoDB clients, each with threads and connections
_TARGET = re.compile("arn:[^:]+:(sns|events):([^:]+):.+|(https?://[^/]+)/.+")
_USUAL_HOST = re.compile(r"https://sqs\.[^.]+\.amazonaws\.com(\.cn)?")


def close_clients() -> None:
    """Close the clients that the verb opened."""
    while _open_clients:
        _open_clients.pop().close()


def is_named(options: Options) -> bool:
    """Whether the options name a store."""
    return options["table"] is not None or options["collection"] is not None


def open_store(options: Options) -> EntityStore:
    """Return the table or collection that the options name."""
    _check_named(options)
    if options["table"] is not None:
        from onewrite.operate.dynamodb import TableStore

        return TableStore(_make_table_client(options), options["table"])
    collection = open_collection(options["collection"])
    from onewrite.operate.mongodb import CollectionStore

    return CollectionStore(collection)


def read_entity(store: EntityStore, key: str) -> EntityImage:
    """Return the entity's current image."""
    image = store.read(store.parse_key(key))
    if image is None:
        raise NotThere(f"There is no entity {key} in {store.name}. Check --key, and {store.where}.")
    return image


def check_exists(options: Options) -> None:
    """Raise NotThere if the options name a MongoDB collection that doesn't exist. A relay would find no events there."""
    if options["collection"] is not None:
        from onewrite.operate.mongodb import check_collection

        check_collection(open_collection(options["collection"]))


class OutboxStore(NamedTuple):
    """The part of a store that a relay needs. The ledger of the writers makes no difference."""

    outboxes: StoredOutboxes


def make_relay(options: Options, outbox: Outbox, to: str | None) -> Relay:
    """Return a relay for the outboxes of a table or collection. Without a destination `to`, it can't publish."""
    store = OutboxStore(_open_outboxes(options, outbox))
    return Relay(store, _refuse_to_publish if to is None else _make_publisher(to, outbox, options))


def _open_outboxes(options: Options, outbox: Outbox) -> StoredOutboxes:
    """Return the outboxes in the table or collection that the options name."""
    _check_named(options)
    if options["table"] is not None:
        from onewrite.dynamodb.outboxes import Outboxes as TableOutboxes

        return TableOutboxes(_make_table_client(options), options["table"], outbox)
    if outbox.index is not None:
        raise ConfigurationError(
            "--index names a DynamoDB index. Remove it: MongoDB uses the index on ow_due automatically."
        )
    collection = open_collection(options["collection"])
    from onewrite.mongodb.outboxes import Outboxes as CollectionOutboxes

    return CollectionOutboxes(collection, ("_id",), outbox)


def format_key(relay: Relay, entity: Mapping[str, Any]) -> str:
    """Return the key of an entity in the relay's store as `--key` takes it."""
    # A relay doesn't have a public attribute for its engine.
    if type(attrgetter("_boxes")(relay)).__module__.startswith("onewrite.dynamodb"):
        from onewrite.operate.dynamodb import format_key as format_item_key

        return format_item_key(entity)
    from onewrite.operate.mongodb import format_key as format_document_key

    return format_document_key(entity)


def _check_named(options: Options) -> None:
    """Raise ConfigurationError unless the options name one store, before any connection is made."""
    if (options["table"] is None) == (options["collection"] is None):
        raise ConfigurationError(_ONE_STORE)
    if options["table"] is not None:
        return
    _parse_names(options["collection"])
    for name in ("region", "endpoint_url"):
        if options[name] is not None:
            raise ConfigurationError(
                f"--{name.replace('_', '-')} is for --table. Remove it: a collection's URL contains its address."
            )


def open_collection(url: str) -> Any:
    """Return pymongo's Collection for mongodb://HOST/DATABASE.COLLECTION."""
    from pymongo import MongoClient
    from pymongo.errors import InvalidName, PyMongoError

    database, collection = _parse_names(url)
    # Set only the timeouts that the URL doesn't set, because options here would override the URL's.
    names = {name.lower() for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)}
    limits = {"serverSelectionTimeoutMS": _CONNECT, "connectTimeoutMS": _CONNECT, "socketTimeoutMS": _READ_MONGODB}
    timeouts: Any = {name: int(1000 * seconds) for name, seconds in limits.items() if name.lower() not in names}
    try:
        connection: MongoClient[dict[str, Any]] = MongoClient(url, **timeouts)
    except (PyMongoError, ValueError, OSError) as error:  # it also names files
        # The error can quote a part of a password, which pymongo takes for a port after an unescaped character.
        reason = type(error).__name__ if "@" in url else f"{type(error).__name__}: {error}"
        raise ConfigurationError(
            f"pymongo can't read the MongoDB URI in --collection ({reason}). Check its host and options, and percent-encode the "
            "user's name and password."
        ) from error
    _open_clients.append(connection)
    try:
        return connection[database][collection]
    except InvalidName as error:
        raise ConfigurationError(f"{_NO_COLLECTION} {error}.") from error


def _parse_names(url: str) -> tuple[str, str]:
    """Return the names of the database and the collection in the URL. Raise if it doesn't have both."""
    try:
        parts: SplitResult = urlsplit(url)
    except ValueError:  # brackets without an address
        raise ConfigurationError(_NO_COLLECTION) from None
    database, _, collection = unquote(parts.path.removeprefix("/")).partition(".")
    if not parts.scheme.startswith("mongodb") or not database or not collection:
        raise ConfigurationError(_NO_COLLECTION)
    return database, collection


def _make_publisher(to: str, outbox: Outbox, options: Options) -> Publish:
    """Return a function that publishes events to this queue, topic, or bus."""
    match = _TARGET.fullmatch(to)
    if match is None:
        raise ConfigurationError(
            f"--to {to}: expected the URL of an SQS queue, or the ARN of an SNS topic or EventBridge bus."
        )
    service, region, server = match.groups()
    if service == "sns":
        return to_sns(make_client("sns", region, endpoint_url=None), to)
    if service == "events":
        return to_eventbridge(make_client("events", region, endpoint_url=None), to, source=outbox.name)
    return to_sqs(_make_client_at(server, options), to)


def make_queue_client(url: str, options: Options) -> Any:
    """Return boto3's client for the region or endpoint of the queue's URL."""
    match = _TARGET.fullmatch(url)
    if match is None or match[3] is None:
        raise ConfigurationError(f"--queue {url}: expected the URL of an SQS queue, as `aws sqs get-queue-url` prints it.")
    return _make_client_at(match[3], options)


def _make_client_at(server: str, options: Options) -> Any:
    from onewrite.sqs.queue import find_region

    is_usual = _USUAL_HOST.fullmatch(server) is not None  # botocore knows this host
    return make_client("sqs", find_region(server) or options["region"], None if is_usual else server)


def make_function_client(name: str, options: Options) -> Any:
    """Return boto3's client for the region in the function's ARN, or for the given or configured region."""
    parts = name.split(":")
    region = parts[3] if parts[0] == "arn" and len(parts) > 3 else options["region"]  # noqa: PLR2004  # arn:aws:lambda:REGION:...
    return make_client("lambda", region, options["endpoint_url"])


def _make_table_client(options: Options) -> Any:
    return make_client("dynamodb", options["region"], options["endpoint_url"])


def make_client(service: str, region: str | None, endpoint_url: str | None) -> Any:
    """Return boto3's client for a service. It doesn't retry without a connection, or after a timeout."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import (
        BotoCoreError,
        ConnectTimeoutError,
        EndpointConnectionError,
        NoRegionError,
        ReadTimeoutError,
    )

    def give_up(caught_exception: Exception | None, **_: object) -> None:
        if isinstance(caught_exception, ConnectTimeoutError | EndpointConnectionError | ReadTimeoutError):
            raise caught_exception

    sdk: Any = boto3  # without boto3-stubs, the types of its `client` function are unknown
    limits = Config(connect_timeout=_CONNECT, read_timeout=_READ_AWS)
    try:
        made = sdk.client(service, region_name=region, endpoint_url=endpoint_url, config=limits)
    except NoRegionError as error:
        raise ConfigurationError(
            f"The region of {service} isn't known. Pass --region, or set AWS_DEFAULT_REGION."
        ) from error
    except (BotoCoreError, ValueError) as error:  # a missing or malformed endpoint or profile
        raise ConfigurationError(
            f"boto3 can't create a client for {service}: {error}. Check --region and --endpoint-url."
        ) from error
    made.meta.events.register_first("needs-retry", give_up)
    return made


def _refuse_to_publish(_: list[Outgoing]) -> None:
    raise ConfigurationError("The relay doesn't have a destination. Pass --to.")
