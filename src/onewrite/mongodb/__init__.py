"""Guarded writes for MongoDB: `GuardedCollection` and `AsyncGuardedCollection`."""

from onewrite.process.extras import name_extra

with name_extra("mongodb", "onewrite.mongodb"):
    # Import bson first, because this import fails if pymongo isn't installed.
    import bson  # noqa: F401  # pyright: ignore[reportUnusedImport]

    from onewrite.mongodb.collection import AsyncGuardedCollection, GuardedCollection

__all__ = ["AsyncGuardedCollection", "GuardedCollection"]
