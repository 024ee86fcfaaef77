"""The plugin of this package, loaded here so that its imports are measured too, and pytest's own for tests of plugins."""

pytest_plugins = ["onewrite.testing.plugin", "pytester"]
