"""Tables and collections in memory: moto and mongomock, made to answer as the engines do where they are known not to."""
