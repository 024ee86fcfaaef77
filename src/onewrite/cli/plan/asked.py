"""From the options of `plan` to its inputs: what they say, and what a live store shows where they say nothing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from onewrite.cli.plan.words import index_load, per_day, price_list, share, span, with_writes
from onewrite.cli.stores import NamedTable, named_store
from onewrite.costs.capacity import IndexLoad
from onewrite.costs.inputs import Inputs
from onewrite.costs.plan import Engine
from onewrite.costs.sample import Sample
from onewrite.errors import ConfigurationError
from onewrite.flow import run

_AS_THEY_ARE = ("id_bytes", "source_bytes", "sources", "window", "age")


class EngineName(Enum):
    """The databases that are known."""

    DYNAMODB = "dynamodb"
    MONGODB = "mongodb"


def asked(options: Mapping[str, Any]) -> tuple[Inputs, Sample | None]:
    """The inputs, and what was read of the store if one is named."""
    rate = _needed(options["messages"], "--messages", "as in --messages 10000/d")
    messages, retention = per_day(rate), span(options["retention"])
    hottest, duplicates = share("--hottest", options["hottest"]), share("--duplicates", options["duplicates"])
    prices = price_list(options["prices"])  # what is wrong with an option is told before a database is asked
    sample = _read(options)
    item_bytes = options["item_bytes"] or _needed_of(sample, options["item_bytes"], "own", "--item-bytes")
    entities = options["entities"] or _needed_of(sample, options["entities"], "entities", "--entities")
    inputs = Inputs(
        engine=_engine(options, sample),
        item_bytes=item_bytes,
        per_day=messages,
        entities=entities,
        hottest=hottest,
        duplicates=duplicates or 0,
        retention=retention,
        indexes=_indexes(options, sample, item_bytes),
        prices=prices,
        **{name: options[name] for name in _AS_THEY_ARE},
    )
    return inputs, sample


def _needed(value: str | None, name: str, example: str) -> str:
    if value is None:
        raise ConfigurationError(f"{name} is missing: there is no plan without it, {example}.")
    return value


def _needed_of(sample: Sample | None, value: int | None, name: str, option: str) -> int:
    """The value of an option, or what the sample shows."""
    if value is not None:  # nothing but 0: the inputs say what is wrong with it
        return value
    if sample is None:
        raise ConfigurationError(f"{option} is missing: give it, or name a live store by --table or --collection.")
    if not (found := getattr(sample, name)):
        raise ConfigurationError(f"There is nothing in {sample.name} to learn from: give {option}.")
    return int(found)


def _read(options: Mapping[str, Any]) -> Sample | None:
    table, collection = options["table"], options["collection"]
    if table is None and collection is None:
        return None
    store, most = named_store(table, collection), options["sample"]
    if isinstance(store, NamedTable):
        from onewrite.costs.live_dynamodb import table_sample  # noqa: PLC0415  # one engine does without the other's driver

        return run(table_sample(store.name, most), store.client)
    from onewrite.costs.live_mongodb import collection_sample  # noqa: PLC0415  # as above

    return run(collection_sample(store.collection.full_name, most), store.collection)


def _engine(options: Mapping[str, Any], sample: Sample | None) -> Any:
    asked_for: EngineName | None = options["engine"]
    if sample is None:
        return (asked_for or EngineName.DYNAMODB).value
    if asked_for is not None and asked_for.value != sample.engine:
        raise ConfigurationError(
            f"--engine {asked_for.value} contradicts the store that is named, which is {sample.engine}."
        )
    return sample.engine


def _indexes(options: Mapping[str, Any], sample: Sample | None, item_bytes: int) -> tuple[IndexLoad, ...]:
    said: list[str] = options["index"] or []
    writes: list[str] = options["writes"] or []
    if sample is None:
        if writes:
            raise ConfigurationError(
                "--writes is for the indexes of a live table: say it with --index, as in --index ALL:moves."
            )
        return tuple([index_load(text, place, item_bytes) for place, text in enumerate(said, start=1)])
    if said:
        raise ConfigurationError(
            "--index is for tables that are not there yet: a live one says itself which indexes it has."
        )
    return with_writes(sample.indexes, writes)


def engine_of(inputs: Inputs) -> Engine:
    """What counts for the engine of the inputs."""
    if inputs.engine == "dynamodb":
        from onewrite.costs.on_dynamodb import OnDynamoDB  # noqa: PLC0415  # one engine does without the other's driver

        return OnDynamoDB(inputs)
    from onewrite.costs.on_mongodb import OnMongoDB  # noqa: PLC0415  # as above

    return OnMongoDB(inputs)
