"""Pack the library, your code, and its dependencies for Lambda.

    python3.13 infra/package.py                                        the order-history example, as dist/function.zip
    python3.13 infra/package.py --install "pymongo>=4.13" shop/        a package or module of yours, with a requirement
    python3.13 infra/package.py --layer --output dist/layer.zip        a layer with only the library
    python3.13 infra/package.py --output /package shop/                a folder, for a container image

The command names the files that it leaves out. Run it with the Python version of Lambda's runtime, because the wheels and the bytecode
are for the version that runs it.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "src" / "onewrite"
EXAMPLE = ROOT / "examples" / "order_history"
# The command, the worker, and the test kit are left out. The rest of the library never imports them.
NOT_FOR_LAMBDA = {"operate", "__main__.py", "sqs", "testing"}
# Lambda's Python includes boto3 and its dependencies, which would be nine tenths of the package.
RUNTIME_HAS = {"boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3"}
MODULES = {"python-dateutil": "dateutil"}
MACHINES = {"arm64": "aarch64", "x86_64": "x86_64"}
# The C library of Amazon Linux 2 (Python 3.11) and of Amazon Linux 2023. A wheel for a later one doesn't load.
GLIBC = 26 if sys.version_info < (3, 12) else 34
MIN_GLIBC = 17  # manylinux2014
# pip's notes about this machine, such as a distribution's origin and its scripts.
NOTES = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
# A constant time for every file: the same source gives the same bytes, so unchanged code is not deployed again.
WRITE_TIME = (1980, 1, 1, 0, 0, 0)
READABLE, EXECUTABLE = 0o644, 0o755


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    if not LIBRARY.is_dir():
        sys.exit(f"There is no {LIBRARY}. Run infra/package.py in a clone of the repository, because it packs that library.")
    architecture = _native_architecture() if options.architecture == "native" else options.architecture
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        code = folder / "python" if options.layer else folder
        left_out: list[str] = []
        if options.install or options.requirements:
            install(code, options.install, options.requirements, architecture)
            left_out += remove(code, {"onewrite"}, "this checkout's is packed")
            left_out += remove(code, RUNTIME_HAS, "Lambda's Python has it")
        left_out += copy(LIBRARY, code, NOT_FOR_LAMBDA)
        describe(code)
        for source in options.source or ([] if options.layer else [EXAMPLE]):
            left_out += copy(source, code)
        compiled = compile_all(folder)
        write(folder, options.output)
    report = "".join(f"left out: {line}\n" for line in left_out)
    sys.stdout.write(report.encode(errors="backslashreplace").decode())
    sys.stdout.write(compiled)
    sys.stdout.write(f"{options.output}: Python {sys.version_info.major}.{sys.version_info.minor}, {architecture}\n")
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="*", type=_importable, help="a package or module of yours (default: the example)")
    output = ROOT / "dist" / "function.zip"
    parser.add_argument("--output", type=Path, default=output, help="a .zip or a folder (default: dist/function.zip)")
    parser.add_argument("--install", action="append", default=[], metavar="REQUIREMENT", help="as pip takes it")
    parser.add_argument("--requirements", type=_existing, action="append", default=[], help="a file of requirements")
    about = "the function's (default: arm64); native is that of this machine"
    parser.add_argument("--architecture", choices=[*MACHINES, "native"], default="arm64", help=about)
    parser.add_argument("--layer", action="store_true", help="a layer")
    return parser


def _existing(name: str) -> Path:
    path = Path(name).absolute()  # a link keeps its own name, by which it is imported
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{name} doesn't exist")
    return path


def _importable(name: str) -> Path:
    path = _existing(name)
    module = path.name if path.is_dir() else path.name.removesuffix(".py")
    if not module.isidentifier():
        raise argparse.ArgumentTypeError(f"{name} isn't importable: expected a package's folder or a .py file")
    return path


def _native_architecture() -> str:
    machine = platform.machine().lower()
    names = {"aarch64": "arm64", "arm64": "arm64", "amd64": "x86_64", "x86_64": "x86_64"}
    return names.get(machine) or sys.exit(f"Lambda doesn't run on {machine}. Pass --architecture arm64 or x86_64.")


def install(target: Path, requirements: list[str], files: list[Path], architecture: str) -> None:
    """Install wheels for the function's processor, whatever this machine's is. pip refuses requirements that need a build.

    A single call of pip resolves the requirements from the files' indexes and checks their hashes. A second call by name and version
    could get another distribution of the same name.
    """
    machine = MACHINES[architecture]
    names = [f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC, MIN_GLIBC - 1, -1)]
    names.append(f"manylinux2014_{machine}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"]
    command += ["--only-binary=:all:", "--implementation=cp", "--no-compile", f"--target={target}"]
    command += [f"--python-version={sys.version_info.major}.{sys.version_info.minor}"]
    command += [f"--platform={name}" for name in names]
    command += [*requirements, *(f"--requirement={path}" for path in files)]
    if code := subprocess.run(command, check=False).returncode:  # noqa: S603  # the requested packages, without a shell
        sys.exit(code)  # pip has printed the problem
    shutil.rmtree(target / "bin", ignore_errors=True)  # scripts contain the path of this machine's Python


def remove(target: Path, distributions: Collection[str], reason: str) -> list[str]:
    """Remove these distributions, and return their names. Each has the module of the same name, or the one in `MODULES`."""
    removals: list[str] = []
    for name in sorted(distributions):
        for information in target.glob(f"{name.replace('-', '_')}-*.dist-info"):
            removals.append(f"{information.name.removesuffix('.dist-info').replace('-', ' ')} ({reason})")
            shutil.rmtree(information)
            shutil.rmtree(target / MODULES.get(name, name), ignore_errors=True)
            (target / f"{name}.py").unlink(missing_ok=True)
    return removals


def copy(source: Path, folder: Path, not_for_lambda: Collection[str] = ()) -> list[str]:
    """Copy a package or module with its data. Return the files that were left out: hidden files, unused tests, and links."""
    folder.mkdir(exist_ok=True)
    if (folder / source.name).exists():
        sys.exit(f"{source.name} is already in the package, so {source} would be mixed with it. Rename one of them.")
    if source.is_file():
        shutil.copy(source, folder)
        return []
    left_out: list[str] = []

    def names_to_ignore(parent: str, names: list[str]) -> set[str]:
        at = Path(parent)
        reasons = {name: "hidden" for name in names if name.startswith(".")}
        if at == source:
            reasons |= {name: "not for Lambda" for name in names if name in not_for_lambda}
        reasons |= {name: reason for name in names if (reason := _cannot_be_copied(at / name))}
        if "tests" in names and (at / "tests").is_dir() and not _names_tests(source):
            reasons["tests"] = "no other module names it"
        left_out.extend(f"{(at / name).relative_to(source.parent)} ({reasons[name]})" for name in sorted(reasons))
        return {*reasons, "__pycache__"}

    shutil.copytree(source, folder / source.name, ignore=names_to_ignore)
    return left_out


def _cannot_be_copied(path: Path) -> str | None:
    """Return why a path is left out of the package, or None."""
    if path.is_symlink():
        return "a link"
    if not path.name.isprintable():  # a zip holds names in UTF-8
        return "an unprintable name"
    return None if path.is_dir() or path.is_file() else "neither a file nor a folder"


def _names_tests(source: Path) -> bool:
    """Return whether a module outside of folders named tests contains that word, and so might import one of them."""
    modules = (path for path in source.rglob("*.py") if "tests" not in path.relative_to(source).parts)
    return any(re.search(rb"\btests\b", path.read_bytes()) for path in modules)


def describe(folder: Path) -> None:
    """Write the library's metadata and license, as an installation does, so that importlib.metadata knows its version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    information = folder / f"{project['name']}-{project['version']}.dist-info"
    (information / "licenses").mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", information / "licenses")
    fields = {"Metadata-Version": "2.4", "Name": project["name"], "Version": project["version"], "License-File": "LICENSE"}
    (information / "METADATA").write_text("".join(f"{name}: {value}\n" for name, value in fields.items()))


def compile_all(folder: Path) -> str:
    """Compile every module, and return the output: files that don't compile, which might never be imported, and the number of the others.

    Lambda can't store bytecode, so without it, each cold start compiles every module. Unchecked bytecode isn't compared with its source.
    Usual bytecode contains its source's date, which a package doesn't keep.
    """
    command = [sys.executable, "-P", "-m", "compileall", "-q", "--invalidation-mode=unchecked-hash"]
    command += ["-s", str(folder), str(folder)]  # otherwise the temporary folder's name would be in the bytecode
    # Without a hash seed and the environment's other settings for Python, the same source gives the same bytes.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONHASHSEED"] = "0"
    output = subprocess.run(command, check=False, env=environment, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603  # our own
    modules, compiled = (len([*folder.rglob(pattern)]) for pattern in ("*.py", "*.pyc"))
    return f"{output}compiled to bytecode: {compiled} of {modules} modules\n"


def write(folder: Path, target: Path) -> None:
    for note in [path for path in folder.rglob("*.dist-info/*") if path.name in NOTES]:
        note.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix != ".zip":
        if target.exists():
            sys.exit(f"{target} already exists, and its files would get into the package. Remove it first.")
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
