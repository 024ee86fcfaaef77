"""Guarded writes for MongoDB: `GuardedCollection` and `AsyncGuardedCollection`."""

from onewrite.mongodb.collection import AsyncGuardedCollection, GuardedCollection

__all__ = ["AsyncGuardedCollection", "GuardedCollection"]
