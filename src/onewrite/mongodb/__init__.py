"""Guarded writes for MongoDB: `GuardedCollection` and `AsyncGuardedCollection`."""

from onewrite.extras import installed_by

with installed_by("mongodb", "onewrite.mongodb"):
    from onewrite.mongodb.collection import AsyncGuardedCollection, GuardedCollection

__all__ = ["AsyncGuardedCollection", "GuardedCollection"]
