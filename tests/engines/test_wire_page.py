"""docs/wire.md shows requests and a refusal in full. These tests send the requests and compare both."""

from __future__ import annotations

import json
import re
from typing import Any

from bson import json_util
from pymongo import MongoClient

from onewrite import Applied, Duplicate, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.engines.stores import Commands, create_table
from tests.support.pages import ROOT
from tests.support.seams import name_calls

BLOCK = re.compile(r"^```json\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHOWN = [json.loads(block) for block in BLOCK.findall((ROOT / "docs" / "wire.md").read_text())]
NOON = 1_790_000_000.0
# What the driver adds to every command, and what is not the same in two runs.
EVERYWHERE = {"lsid", "txnNumber", "$clusterTime", "$db", "$readPreference", "ordered"}


def test_page_shows_dynamodb_request_refusal_and_item(dynoxide: Dynoxide) -> None:
    client = dynoxide.client()
    create_table(client, "orders-of-the-page")
    said: list[Any] = []
    hear = client.meta.events.register
    hear("before-send.dynamodb.UpdateItem", lambda request, **_: said.append(json.loads(request.body)))
    hear("after-call.dynamodb.UpdateItem", lambda http_response, **_: said.append(json.loads(http_response.content)))
    orders = name_calls(
        GuardedTable(client, SeenIds(), table_name="orders-of-the-page", clock=lambda: NOON), lambda: f"attempt-{len(said)}"
    )
    for answer in (Applied, Duplicate):
        change: Any = {"UpdateExpression": "ADD paid :cents", "ExpressionAttributeValues": {":cents": 1250}}
        assert isinstance(orders.update_item(Message("evt-42"), Key={"id": "o-1"}, **change), answer)
    client.close()
    request, nothing, again, refusal = said
    token = "ExpressionAttributeValues"
    assert {
        **again,
        token: {**again[token], ":ow_token": request[token][":ow_token"]},
    } == request  # except for the token the same
    assert nothing == {}
    assert SHOWN[:2] == [{**request, "TableName": "orders"}, refusal]


def test_page_shows_the_mongodb_update(mongod: Mongod) -> None:
    commands = Commands()
    with MongoClient[dict[str, Any]](mongod.uri, event_listeners=[commands]) as client:
        client.page.stock.insert_one({"_id": "sku-1", "left": 3})
        stock = GuardedCollection(client.page.stock, SeenIds(), clock=lambda: NOON)
        for answer in (Applied, Duplicate):
            taken = stock.update_one(Message("evt-42"), {"_id": "sku-1", "left": {"$gte": 2}}, {"$inc": {"left": -2}})
            assert isinstance(taken, answer)
        assert (client.page.stock.find_one() or {})["ow_r"].keys() == {"r1"}
    update, again, look, _ = (
        json.loads(json_util.dumps({name: value for name, value in sent.items() if name not in EVERYWHERE}))
        for sent in commands.sent
        if {"update", "find"} & sent.keys()
    )
    assert again == update
    assert SHOWN[2:] == [{**update, "update": "stock"}]
    assert look["readConcern"] == {"level": "majority"}
