"""Packs the library, code of yours and what it needs, for Lambda.

    python3.13 infra/package.py                                        the order-history example, as dist/function.zip
    python3.13 infra/package.py --install "pymongo>=4.13" shop/        a package or a module of yours, with a requirement
    python3.13 infra/package.py --layer --output dist/layer.zip        a layer with the library alone
    python3.13 infra/package.py --output /package shop/                a folder, for a container image

It packs what pip has resolved and checked, and of yours all that can be imported or read by what is imported; what it leaves out it names.

Run it with the Python of Lambda's runtime: the wheels are chosen and the bytecode is written for the version that runs it.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection, Sequence
from email.parser import HeaderParser
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "src" / "onewrite"
EXAMPLE = ROOT / "examples" / "order_history"
# What needs a terminal or a test has no place in a function, nor has the command. Nothing else in the library imports these.
NOT_FOR_LAMBDA = {"operate", "__main__.py", "testing"}
# boto3 and what it needs are part of Lambda's Python, and would be nine tenths of the package.
RUNTIME_HAS = {"boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3"}
MACHINES = {"arm64": "aarch64", "x86_64": "x86_64"}
# The C library of Amazon Linux 2, on which Python 3.11 runs, and of Amazon Linux 2023. A wheel for a later one does not load.
GLIBC = 26 if sys.version_info < (3, 12) else 34
OLDEST_GLIBC = 17  # that of manylinux2014
# What pip notes about this machine: where something came from, and what else of it was installed here.
NOTES = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
# The same for every file and every run: the same source makes the same bytes, and nothing is deployed that did not change.
WRITE_TIME = (1980, 1, 1, 0, 0, 0)
READABLE, EXECUTABLE = 0o644, 0o755

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
    if not LIBRARY.is_dir():
        sys.exit(
            f"There is no {LIBRARY}: clone the repository first, and run infra/package.py there. It packs the library from its own clone."
        )
    architecture = _of_this_machine() if options.architecture == "native" else options.architecture
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        code = folder / "python" if options.layer else folder
        requirements = [*options.install, *(("boto3",) if options.with_boto3 else ())]
        left_out: list[str] = []
        if requirements or options.requirements:
            install(code, requirements, options.requirements, architecture)
            left_out += remove(code, {"onewrite"}, "this checkout's is packed")
            if not options.with_boto3:
                left_out += remove(code, RUNTIME_HAS, "Lambda's Python has it")
        left_out += copy(LIBRARY, code, NOT_FOR_LAMBDA)
        describe(code)
        for source in options.source or ([] if options.layer else [EXAMPLE]):
            left_out += copy(source, code)
        compile_all(folder)
        write(folder, options.output)
    sys.stdout.write("".join(f"left out: {line}\n" for line in left_out))
    sys.stdout.write(f"{options.output}: Python {sys.version_info.major}.{sys.version_info.minor}, {architecture}\n")
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="*", type=_importable, help="a package or module of yours (default: the example)")
    output = ROOT / "dist" / "function.zip"
    parser.add_argument(
        "--output", type=Path, default=output, help="a .zip, otherwise a folder (default: dist/function.zip)"
    )
    parser.add_argument("--install", action="append", default=[], metavar="REQUIREMENT", help="as pip takes it")
    parser.add_argument("--requirements", type=_existing, action="append", default=[], help="a file of requirements")
    about = "the function's (default: arm64); native is that of this machine"
    parser.add_argument("--architecture", choices=[*MACHINES, "native"], default="arm64", help=about)
    parser.add_argument("--layer", action="store_true", help="a layer")
    parser.add_argument("--with-boto3", action="store_true", help="a boto3 of its own, in place of the runtime's")
    return parser


def _existing(name: str) -> Path:
    path = Path(name).absolute()  # a link keeps its own name, by which it is imported
    if not path.exists():
        raise argparse.ArgumentTypeError(f"there is no {name}")
    return path


def _importable(name: str) -> Path:
    path = _existing(name)
    module = path.name if path.is_dir() else path.name.removesuffix(".py")
    if not module.isidentifier():
        raise argparse.ArgumentTypeError(f"{name} cannot be imported: give the folder of a package, or a .py file")
    return path


def _of_this_machine() -> str:
    machine = platform.machine().lower()
    architecture = {
        **{machine_name: lambda_name for lambda_name, machine_name in MACHINES.items()},
        "arm64": "arm64",
        "amd64": "x86_64",
    }.get(machine)
    return architecture or sys.exit(f"Lambda has no {machine}: say --architecture.")


# ---------------------------------------------------------------- what is needed


def install(target: Path, requirements: list[str], files: list[Path], architecture: str) -> None:
    """Installs wheels for the function's processor, whatever this machine's is. What must be built is refused by pip.

    It is one call of pip: what it has resolved from the indexes that the files name, and whose hashes it has checked, is what is
    there then. To ask a second time, by name and version, could get something else of the same name.
    """
    machine = MACHINES[architecture]
    names = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC, OLDEST_GLIBC - 1, -1)]
    names.append(f"manylinux2014_{machine}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"]
    command += ["--only-binary=:all:", "--implementation=cp", "--no-compile", f"--target={target}"]
    command += [f"--python-version={sys.version_info.major}.{sys.version_info.minor}"]
    command += [f"--platform={name}" for name in names]
    command += [*requirements, *(f"--requirement={path}" for path in files)]
    if code := subprocess.run(command, check=False).returncode:  # noqa: S603  # what was asked for, and no shell
        sys.exit(code)  # pip has said what is wrong
    shutil.rmtree(target / "bin", ignore_errors=True)  # scripts, which name this machine's Python


def remove(target: Path, names: Collection[str], reason: str) -> list[str]:
    """Takes those distributions out again, and names them."""
    removals: list[str] = []
    for information in sorted(target.glob("*.dist-info")):
        about = HeaderParser().parsestr((information / "METADATA").read_text())
        if re.sub(r"[-_.]+", "-", about["Name"]).lower() not in names:
            continue
        with (information / "RECORD").open(newline="") as record:
            record_paths = [Path(os.path.normpath(target / row[0])) for row in csv.reader(record)]
        paths = [path for path in record_paths if path.is_relative_to(target)]  # scripts stand elsewhere, and are gone
        for path in paths:
            path.unlink(missing_ok=True)
        for folder in {parent for path in paths for parent in path.parents if target in parent.parents}:
            if folder.is_dir() and not any(path.is_file() for path in folder.rglob("*")):
                shutil.rmtree(folder)
        removals.append(f"{about['Name']} {about['Version']} ({reason})")
    return removals


# ---------------------------------------------------------------- the package


def copy(source: Path, folder: Path, not_for_lambda: Collection[str] = ()) -> list[str]:
    """Copies a package or module, data included, and names what it leaves out: hidden files, tests that nothing imports, and links that lead out."""
    folder.mkdir(exist_ok=True)
    if (folder / source.name).exists():
        sys.exit(f"{source.name} is in the package already: {source} would be mixed with it.")
    if source.is_file():
        shutil.copy(source, folder)
        return []
    left_out: list[str] = []

    def names_to_ignore(parent: str, names: list[str]) -> set[str]:
        at = Path(parent)
        reasons = {name: "hidden" for name in names if name.startswith(".")}
        if at == source:
            reasons |= {name: "not for Lambda" for name in names if name in not_for_lambda}
        reasons |= {name: reason for name in names if (reason := _cannot_be_copied(at / name, source))}
        if "tests" in names and (at / "tests").is_dir() and not _names_tests(source):
            reasons["tests"] = "no other module names it"
        left_out.extend(f"{(at / name).relative_to(source.parent)} ({reasons[name]})" for name in sorted(reasons))
        return {*reasons, "__pycache__"}

    try:
        shutil.copytree(source, folder / source.name, ignore=names_to_ignore)
    except shutil.Error as error:
        sys.exit("\n".join(f"{path} cannot be copied: {reason}" for path, _, reason in error.args[0]))
    return left_out


def _cannot_be_copied(path: Path, source: Path) -> str | None:
    """Why this is left out of the package. What a link leads to within the package is copied in its place."""
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a loop of links, before Python 3.13
        return "a link to nothing"
    if not target.is_relative_to(source.resolve()):
        return "a link out of the package"
    folders = [parent for parent in path.parents if parent.is_relative_to(source)]
    if target.is_dir() and any(folder.resolve() == target for folder in folders):
        return "a link to a folder that it is in"
    return None if target.is_dir() or target.is_file() else "neither a file nor a folder"


def _names_tests(source: Path) -> bool:
    """Whether any module outside of folders called tests has that word in it: it might import one of them."""
    modules = (path for path in source.rglob("*.py") if "tests" not in path.relative_to(source).parts)
    return any(re.search(rb"\btests\b", path.read_bytes()) for path in modules)


def describe(folder: Path) -> None:
    """The library's licence and what is said of it, as an installation has them: importlib.metadata knows its version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    information = folder / f"{project['name']}-{project['version']}.dist-info"
    (information / "licenses").mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", information / "licenses")
    fields = {
        "Metadata-Version": "2.4",
        "Name": project["name"],
        "Version": project["version"],
        "Summary": project["description"],
        "License-Expression": project["license"],
        "License-File": "LICENSE",
        "Requires-Python": project["requires-python"],
    }
    (information / "METADATA").write_text("".join(f"{name}: {value}\n" for name, value in fields.items()))


def compile_all(folder: Path) -> None:
    # In the order of no hash, and with nothing else that the environment tells Python, or the same source would make other bytes.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-c", COMPILE, str(folder)]
    subprocess.run(command, check=True, env={**environment, "PYTHONHASHSEED": "0"})  # noqa: S603  # our own


def write(folder: Path, target: Path) -> None:
    for note in [path for path in folder.rglob("*.dist-info/*") if path.name in NOTES]:
        note.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix != ".zip":
        if target.exists():
            sys.exit(f"{target} is there already, and what is in it would get into the package. Remove it first.")
        shutil.copytree(folder, target)
        return
    with ZipFile(target, "w") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = ZipInfo(path.relative_to(folder).as_posix(), WRITE_TIME)
            entry.external_attr = (EXECUTABLE if path.stat().st_mode & 0o100 else READABLE) << 16
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
