"""Every property has the same examples in every run, however busy the machine is; with ONEWRITE_EXAMPLES=n others, and n of them."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.support.examples import examples

settings.register_profile(
    "repeatable",
    max_examples=examples(100),
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "more",
    settings.get_profile("repeatable"),
    derandomize=False,
    max_examples=int(os.environ.get("ONEWRITE_EXAMPLES", "100")),
)
settings.load_profile("more" if "ONEWRITE_EXAMPLES" in os.environ else "repeatable")
