"""Packs the library, code of yours and what it needs, for Lambda.

    python3.13 infra/package.py                                        the order-history example, as dist/function.zip
    python3.13 infra/package.py --install "pymongo>=4.13" shop/        a package or a module of yours, with a requirement
    python3.13 infra/package.py --layer --output dist/layer.zip        a layer with the library alone
    python3.13 infra/package.py --output /package shop/                a folder, for a container image

Run it with the Python of Lambda's runtime: the wheels are chosen and the bytecode is written for the version that runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "src" / "onewrite"
EXAMPLE = ROOT / "examples" / "order_history"
# What needs a terminal or a test has no place in a function, nor has the command. Nothing else in the library imports these.
COMMANDS = {"operate", "__main__.py"}
NOT_FOR_LAMBDA = {*COMMANDS, "testing"}
NO_CODE = {"tests", "__pycache__"}
# boto3 and what it needs are part of Lambda's Python, and would be nine tenths of the package.
RUNTIME_HAS = {"boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3"}
MACHINES = {"arm64": "aarch64", "x86_64": "x86_64"}
# The C library of Amazon Linux 2, on which Python 3.11 runs, and of Amazon Linux 2023. A wheel for a later one does not load.
GLIBC = 26 if sys.version_info < (3, 12) else 34
OLDEST_GLIBC = 17  # that of manylinux2014
# The same for every file and every run: the same source makes the same bytes, and nothing is deployed that did not change.
WRITTEN = (1980, 1, 1, 0, 0, 0)
READABLE = 0o644 << 16

# Python compares no dates and reads no sources with bytecode of this kind. The usual kind holds the date of its source, which
# a package does not keep: Lambda would compile each module at every cold start, since it cannot write there.
COMPILE = """
import sys
from pathlib import Path
from py_compile import PycInvalidationMode, PyCompileError, compile

folder = Path(sys.argv[1])
for path in sorted(folder.rglob("*.py")):
    name = path.relative_to(folder).as_posix()  # this folder's own name would be in the bytecode, and is new each time
    try:
        compile(path, dfile=name, doraise=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    except PyCompileError as error:
        print(f"Without bytecode: {error}", file=sys.stderr)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    with TemporaryDirectory() as temporary:
        staged = Path(temporary)
        code = staged / "python" if options.layer else staged
        requirements = [*options.install, *(("boto3", "jmespath") if options.with_boto3 else ())]
        if requirements or options.requirements:
            install(code, requirements, options.requirements, options.architecture, leave_out=_left_out(options))
        _copy(LIBRARY, code, NO_CODE | NOT_FOR_LAMBDA)
        for source in options.source or ([] if options.layer else [EXAMPLE]):
            _copy(source, code, NO_CODE)
        compile_all(staged)
        write(staged, options.output)
    sys.stdout.write(f"{options.output}: Python {sys.version_info.major}.{sys.version_info.minor}, {options.architecture}\n")
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="*", type=_existing, help="a package or module of yours (default: the example)")
    output = ROOT / "dist" / "function.zip"
    parser.add_argument(
        "--output", type=Path, default=output, help="a .zip, otherwise a folder (default: dist/function.zip)"
    )
    parser.add_argument("--install", action="append", default=[], metavar="REQUIREMENT", help="as pip takes it")
    parser.add_argument("--requirements", type=_existing, action="append", default=[], help="a file of requirements")
    parser.add_argument("--architecture", choices=MACHINES, default="arm64", help="the function's (default: arm64)")
    parser.add_argument("--layer", action="store_true", help="a layer")
    parser.add_argument("--with-boto3", action="store_true", help="a boto3 of its own, in place of the runtime's")
    return parser


def _existing(name: str) -> Path:
    path = Path(name).resolve()
    if not path.exists():
        raise argparse.ArgumentTypeError(f"there is no {name}")
    return path


def _left_out(options: argparse.Namespace) -> set[str]:
    return set() if options.with_boto3 else RUNTIME_HAS


# ---------------------------------------------------------------- what is needed


def install(target: Path, requirements: list[str], files: list[Path], architecture: str, *, leave_out: set[str]) -> None:
    """Installs wheels for the function's processor, whatever this machine's is. What must be built is refused by pip."""
    machine = MACHINES[architecture]
    names = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC, OLDEST_GLIBC - 1, -1)]
    names.append(f"manylinux2014_{machine}")
    wanted = [
        "--only-binary=:all:",
        "--implementation=cp",
        f"--python-version={sys.version_info.major}.{sys.version_info.minor}",
    ]
    wanted += [f"--platform={name}" for name in names]
    given = [*requirements, *(f"--requirement={path}" for path in files)]
    with TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.json"
        _pip(*wanted, "--dry-run", "--ignore-installed", f"--target={temporary}", f"--report={report}", *given)
        found = json.loads(report.read_text())["install"]
        exact = Path(temporary) / "exact.txt"
        exact.write_text("".join(f"{line}\n" for line in _exactly(found, leave_out)))
        if exact.stat().st_size:
            _pip(*wanted, "--no-deps", "--no-compile", f"--target={target}", f"--requirement={exact}")
    shutil.rmtree(target / "bin", ignore_errors=True)  # scripts, which name this machine's Python


def _exactly(found: Iterable[Any], leave_out: set[str]) -> Iterator[str]:
    for each in found:
        name, version = each["metadata"]["name"].lower().replace("_", "-"), each["metadata"]["version"]
        if name not in leave_out:
            yield f"{name} @ {each['download_info']['url']}" if each["is_direct"] else f"{name}=={version}"


def _pip(*arguments: str) -> None:
    quietly = ["--quiet", "--disable-pip-version-check", "--root-user-action=ignore"]
    command = [sys.executable, "-m", "pip", "install", *quietly, *arguments]
    if code := subprocess.run(command, check=False).returncode:  # noqa: S603  # what was asked for, and no shell
        sys.exit(code)  # pip has said what is wrong


# ---------------------------------------------------------------- the package


def _copy(source: Path, folder: Path, left_out: set[str]) -> None:
    folder.mkdir(exist_ok=True)
    if source.is_file():
        shutil.copy(source, folder)
    else:
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns(*left_out), dirs_exist_ok=True)


def compile_all(folder: Path) -> None:
    # In the order of no hash, or the same source would make other bytes.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", COMPILE, str(folder)]
    subprocess.run(command, check=True, env=environment)  # noqa: S603  # our own


def write(folder: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix != ".zip":
        if target.exists():
            sys.exit(f"{target} is there already, and what is in it would get into the package. Remove it first.")
        shutil.copytree(folder, target)
        return
    with ZipFile(target, "w") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = ZipInfo(path.relative_to(folder).as_posix(), WRITTEN)
            entry.external_attr = READABLE
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
