"""The Pythons of Lambda's runtimes that this machine has, and what a runtime has beside its Python."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
# boto3 and what it needs, as modules: all of them are plain Python, the same for every version.
SDK = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six", "urllib3")


@cache
def pythons() -> Mapping[str, Path]:
    """The versions that can be had here: those on PATH and those of pyenv, and the one that runs this."""
    paths = {version: path for version in VERSIONS if (path := _on_path(version) or _of_pyenv(version))}
    return {**paths, f"{sys.version_info.major}.{sys.version_info.minor}": Path(sys.executable)}


def _on_path(version: str) -> Path | None:
    program = shutil.which(f"python{version}")
    return Path(program) if program and _is(Path(program), version) else None


def _of_pyenv(version: str) -> Path | None:
    homes = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*"))
    return next((path for home in reversed(homes) if _is(path := home / "bin" / "python", version)), None)


def _is(python: Path, version: str) -> bool:
    """Whether it starts, is that version and can install: a name on PATH may be a stub that knows of no such version."""
    program = "import pip, sys; print(*sys.version_info[:2], sep='.')"
    try:
        process = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return re.fullmatch(re.escape(version), process.stdout.strip()) is not None


def home(python: Path) -> Path:
    """The folder that a Python is installed in, with its bin and lib."""
    program = "import sys; print(sys.base_prefix)"
    return Path(subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip())


def sdk_into(folder: Path) -> Path:
    """A folder with what Lambda's Python has beside the standard library."""
    for name in SDK:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = Path(spec.origin)
        if origin.name == "__init__.py":
            shutil.copytree(origin.parent, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(origin, folder)
    return folder
