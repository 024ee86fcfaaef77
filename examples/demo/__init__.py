"""Payments from a queue that delivers at least once, to three handlers: two that are often written, and one with onewrite."""

from demo.lane import Lane
from demo.shops import DynamoShop, MongoShop, Shop
from demo.stream import PaymentStream

__all__ = ["DynamoShop", "Lane", "MongoShop", "PaymentStream", "Shop"]
