"""The plugin of this package, loaded here so that its imports are measured too, pytest's own for tests of plugins, and ours."""

from functools import cache

import botocore.loaders

pytest_plugins = [
    "onewrite.testing.plugin",
    "pytester",
    "tests.support.measured",
    "tests.support.profiles",
    "tests.support.queues",
    "tests.support.slow",
    "tests.support.sampling",
]

# Every session of boto3 reads the descriptions of the services from files again, and moto gives each test a session of its own.
botocore.loaders.create_loader = cache(botocore.loaders.create_loader)
