"""A mutant is the code with one thing changed."""

from __future__ import annotations

from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tests.mutants import mutants

CODE = '''
class Till:
    """What is in it."""

    def may(self, amount: int = 3) -> bool:
        """Says so."""
        if amount < 0 and self:
            raise ValueError("a debt")
        return amount >= 3
'''


def test_each_mutant_is_the_function_with_one_change(tmp_path: Path) -> None:
    file = tmp_path / "till.py"
    file.write_text(CODE)
    all_mutants = list(mutants(file))
    assert sorted(mutant.change for mutant in all_mutants) == sorted(
        [
            "amount < 0  ->  amount <= 0",
            "0  ->  1",
            "3  ->  4",
            "amount < 0 and self  ->  amount < 0 or self",
            "not (amount < 0 and self)",
            "without: raise ValueError('a debt')",
            "amount >= 3  ->  amount > 3",
            "return amount >= 3  ->  return None",
        ]
    )
    functions: dict[str, Any] = {mutant.change: FunctionType(mutant.code, {}, argdefs=(3,)) for mutant in all_mutants}
    assert functions["3  ->  4"](object(), 3) is False
    assert functions["return amount >= 3  ->  return None"](object()) is None
    assert functions["without: raise ValueError('a debt')"](object(), -1) is False
    with pytest.raises(ValueError, match="a debt"):
        functions["amount < 0  ->  amount <= 0"](object(), 0)
