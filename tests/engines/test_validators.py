"""A store on a real mongod names the validator that refuses its ledger, and works once the validator tolerates it."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.collection import Collection

from onewrite import Applied, ConfigurationError, Message, SeenIds
from onewrite.mongodb import GuardedCollection

CLOSED = {"bsonType": "object", "properties": {"_id": {}, "left": {"bsonType": "int"}}, "additionalProperties": False}
M1 = Message("m1")
WRITES: dict[str, Any] = {
    "update_one": lambda store: store.update_one(M1, {"_id": "a"}, {"$inc": {"left": 1}}),
    "upsert": lambda store: store.update_one(M1, {"_id": "b"}, {"$inc": {"left": 1}}, upsert=True),
    "find_one_and_update": lambda store: store.find_one_and_update(M1, {"_id": "a"}, {"$inc": {"left": 1}}),
    "insert_one": lambda store: store.insert_one(M1, {"_id": "c", "left": 1}),
    "remember": lambda store: store.remember(M1, {"_id": "a"}),
}


@pytest.mark.parametrize("write", WRITES)
def test_closed_validator_is_reported_unless_onewrite_fields_are_allowed(collection: Collection[Any], write: str) -> None:
    collection.database.create_collection(collection.name, validator={"$jsonSchema": CLOSED})
    collection.insert_one({"_id": "a", "left": 1})
    store = GuardedCollection(collection, SeenIds())
    with pytest.raises(ConfigurationError, match=r"validator refuses ow_l, .*patternProperties"):
        WRITES[write](store)
    schema = {**CLOSED, "patternProperties": {"^ow_": {}}}
    collection.database.command("collMod", collection.name, validator={"$jsonSchema": schema})
    assert isinstance(WRITES[write](store), Applied)
