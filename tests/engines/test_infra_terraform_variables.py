"""The Terraform module's variables: what AWS would refuse, or what would do harm, is refused before anything is made.

The variables are in files of their own, so terraform checks them with no provider; and it checks all cases in one plan.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment import TERRAFORM
from tests.support.packages import ROOT
from tests.support.settings import BAD, BAD_RELAY, BAD_SERVICE, GOOD, GOOD_RELAY, GOOD_SERVICE, SERVICE, WORKER
from tests.support.terraform import Terraform

pytestmark = pytest.mark.slow

FILES = sorted(TERRAFORM.glob("variables-*.tf"))
REQUIRED: dict[str, Any] = {"name": "shop", "package": "code.zip", "handler": "shop.handler"}

# The relay's stack, whose other variables are the module's.
RELAY = [ROOT / "infra" / "examples" / "relay" / "variables.tf"]
CONTAINERS = [ROOT / "infra" / "service" / "variables.tf"]


def refusals(
    folder: Path, cases: list[dict[str, Any]], files: Sequence[Path] = FILES, required: Mapping[str, Any] = REQUIRED
) -> dict[int, set[str]]:
    """What terraform has against each case. The values come in a variable, since it stops at the first wrong literal."""
    terraform = Terraform.within(folder)
    for path in files:
        folder.joinpath("module").mkdir(exist_ok=True)
        shutil.copy(path, folder / "module")
    folder.joinpath("code.zip").touch()
    given = {f"case_{number}": {**required, **case} for number, case in enumerate(cases)}
    modules = {name: {"source": "./module", **_references(name, values)} for name, values in given.items()}
    folder.joinpath("main.tf.json").write_text(json.dumps({"variable": {"cases": {}}, "module": modules}, indent=1))
    folder.joinpath("cases.tfvars.json").write_text(json.dumps({"cases": given}))
    assert terraform("init", "-input=false").returncode == 0
    plan = terraform("plan", "-json", "-input=false", "-var-file=cases.tfvars.json")
    found: dict[int, set[str]] = defaultdict(set)
    for number, detail in _diagnostics(plan.stdout, folder / "main.tf.json"):
        found[number].add(detail)
    return found


def _references(name: str, values: Mapping[str, Any]) -> dict[str, str]:
    return {variable: f"${{var.cases.{name}.{variable}}}" for variable in values}


def _diagnostics(stdout: str, main: Path) -> Iterator[tuple[int, str]]:
    lines = main.read_text().splitlines()
    for line in map(json.loads, stdout.splitlines()):
        if diagnostic := line.get("diagnostic"):
            at = diagnostic["range"]["start"]["line"]
            number = re.search(r"case_(\d+)", lines[at - 1])
            assert number is not None, diagnostic
            null = re.search(r"module\.case_\d+\.var\.(\w+) .* set to null", diagnostic["detail"].replace("\n", " "))
            yield int(number[1]), f"{null[1]}: null" if null else diagnostic["detail"]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[int, set[str]]:
    return refusals(tmp_path_factory.mktemp("bad"), [case for case, _ in BAD])


def test_valid_variables_are_accepted(tmp_path: Path) -> None:
    found = refusals(tmp_path, GOOD)
    assert {number: (GOOD[number], details) for number, details in found.items()} == {}


@pytest.mark.parametrize("number", range(len(BAD)), ids=[says for _, says in BAD])
def test_invalid_variable_is_refused_with_the_reason(refused: dict[int, set[str]], number: int) -> None:
    (refusal,) = refused[number]
    assert refusal.startswith(BAD[number][1])


@pytest.mark.parametrize(
    ("files", "required", "good", "bad"),
    [(RELAY, {"name": "relay"}, GOOD_RELAY, BAD_RELAY), (CONTAINERS, {**SERVICE, **WORKER}, GOOD_SERVICE, BAD_SERVICE)],
    ids=["relay", "service"],
)
def test_variables_of_relay_and_service_are_validated(
    tmp_path: Path,
    files: list[Path],
    required: dict[str, Any],
    good: list[dict[str, Any]],
    bad: list[tuple[dict[str, Any], str]],
) -> None:
    cases = [*good, *(case for case, _ in bad)]
    found = refusals(tmp_path, cases, files, required)
    assert set(found) == set(range(len(good), len(cases)))
    for number, (_, says) in enumerate(bad, len(good)):
        (refusal,) = found[number]
        assert refusal.startswith(says)
