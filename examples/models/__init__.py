"""Three repositories of mapped objects whose writes are guarded: PynamoDB, Beanie and MongoEngine.

Each module stands alone. It begins with a bridge from the mapper's own update language to a guarded store, and ends with a
repository that uses it. The bridges call some methods that the mappers keep for themselves: README.md names the versions.
"""
