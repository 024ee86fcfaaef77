"""Builds the wheel and the sdist, and tries the wheel as somebody would who has nothing else: `make dist`.

Each environment holds the wheel and what it asks for, and no checkout is on its path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# What each extra is for, and what it must do by itself.
EXTRAS = {
    "dynamodb": "from onewrite.dynamodb import GuardedTable",
    "mongodb": "from onewrite.mongodb import GuardedCollection",
    "aws": "from onewrite.operate import main; assert main(['--help']) == main(['worker', '--help']) == 0; from onewrite.aws_lambda import sqs_handler; from onewrite.identity import json_body; from onewrite.sqs import Worker",
    "async": "from onewrite.dynamodb import AsyncGuardedTable",
    "opentelemetry": "from onewrite.metrics import opentelemetry",
    "testing": "from onewrite.testing import explore, moto_table; moto_table()",
    "all": "from importlib.util import find_spec; assert find_spec('pymongo') and not find_spec('moto') and not find_spec('mongomock')",
    "all,testing": "from onewrite.testing import mongomock_collection; mongomock_collection()",
}
TEST = """
from onewrite import Message


def build(things):
    return lambda message: things.update_one({"_id": "t"}, {"$set": {"n": 1}}, upsert=True)


def test_a_set_is_safe(explore, mongomock_collection):
    explore(build, messages=[Message("m1")], world=mongomock_collection, observe=lambda things: things.find_one()).assert_effectively_once()
"""


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--quiet", "--installer", "uv", "--outdir", DIST, ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    check_contents(wheel, sdist)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for extra, code in EXTRAS.items():
            run(environment(place / extra, f"onewrite[{extra}] @ file://{wheel}"), "-c", code, quiet=True)
            print(f"onewrite[{extra}] works by itself")
        try_everything(place, place / "all,testing" / "bin")
        for version in PYTHONS:
            found = find_python(version)
            if found is None:
                print(f"Python {version} is not on this machine: not tried")
                continue
            run(
                environment(place / version, str(wheel), found),
                "-c",
                "import onewrite, sys; assert not {'boto3', 'pymongo'} & {*sys.modules}",
            )
            print(f"Python {version} imports onewrite alone")


def check_contents(wheel: Path, sdist: Path) -> None:
    """The wheel holds the package and its licence, and nothing else; the sdist what `make test` needs as well."""
    names = zipfile.ZipFile(wheel).namelist()
    tracked = subprocess.run(
        ["git", "ls-files", "src/onewrite"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    package = {name.removeprefix("src/") for name in tracked}
    beside = {name for name in names if name not in package}
    kinds = {re.sub(r"^onewrite-[^/]*\.dist-info/", "", name) for name in beside}
    assert package <= {*names}, sorted(package - {*names})
    assert kinds == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}, sorted(kinds)
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "Makefile",
        "pyproject.toml",
        "tests/conftest.py",
        "docs/tutorial.md",
    } <= held
    print(f"{wheel.name}: {len(names)} files, {wheel.stat().st_size // 1024} KB; {sdist.name}: {len(held)} files")


def try_everything(place: Path, binaries: Path) -> None:
    """Run the README's blocks, the demo, the command, and the pytest plugin in a project of its own."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    run(binaries / "python", "-c", "\n".join(blocks), cwd=place)
    run(binaries / "python", "-m", "demo", cwd=ROOT / "examples", quiet=True)
    run(binaries / "onewrite", "--version", cwd=place)
    project = place / "project"
    project.mkdir()
    (project / "test_thing.py").write_text(TEST)
    run("uv", "pip", "install", "--quiet", "--python", binaries / "python", "pytest")
    run(binaries / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", project, cwd=project)
    print("The README's blocks, the demo, the command and the pytest plugin work from the wheel")


def find_python(version: str) -> str | None:
    """The interpreter of that version on this machine. pyenv keeps on PATH only those that are in use."""
    of_pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [
        *of_pyenv.glob(f"{version}.*/bin/python"),
        *([Path(path)] if (path := shutil.which(f"python{version}")) else []),
    ]
    works = (each for each in found if subprocess.run([each, "-c", ""], capture_output=True, check=False).returncode == 0)
    return next(map(str, works), None)


def environment(folder: Path, requirement: str, python: str = sys.executable) -> Path:
    """The Python of a new environment that holds this and what it asks for."""
    run("uv", "venv", "--quiet", "--python", python, folder)
    run("uv", "pip", "install", "--quiet", "--python", folder / "bin" / "python", requirement)
    return folder / "bin" / "python"


def run(*command: object, cwd: Path | None = None, quiet: bool = False) -> None:
    subprocess.run(list(map(str, command)), cwd=cwd, check=True, stdout=subprocess.DEVNULL if quiet else None)  # ours


if __name__ == "__main__":
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras.keys() == {extra for tried in EXTRAS for extra in tried.split(",")}, "an extra is not tried"
    main()
