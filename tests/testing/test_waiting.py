"""Who must wait for whose transaction."""

from __future__ import annotations

import pytest

from onewrite.testing.explorer.trial import must_wait

NOBODY: frozenset[str] = frozenset()


def by(*names: str) -> frozenset[str]:
    return frozenset(names)


@pytest.mark.parametrize(
    ("waited_for", "waiting"),
    [
        ({"a": NOBODY, "b": NOBODY}, ""),
        ({"a": by("b"), "b": by("c"), "c": NOBODY}, "ab"),
        ({"a": by("b"), "b": by("a")}, ""),
        ({"a": by("b"), "b": by("c"), "c": by("b")}, "a"),
        ({"a": by("somebody who is gone")}, ""),
        ({"a": by("b"), "b": by("somebody who is gone")}, "a"),
    ],
)
def test_all_wait_but_those_in_a_circle_and_those_who_wait_for_nobody(
    waited_for: dict[str, frozenset[str]], waiting: str
) -> None:
    assert "".join(name for name in waited_for if must_wait(name, waited_for)) == waiting
