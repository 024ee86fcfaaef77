"""Three repositories of mapped objects whose writes are guarded: PynamoDB, Beanie, and MongoEngine.

Each module begins with a bridge from the mapper's update language to a guarded store, and ends with a repository that uses the bridge.
The bridges call private methods of the mappers: README.md names the versions.
"""
