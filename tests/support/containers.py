"""Builds and runs a Dockerfile where there is no Docker: each stage is a folder, and commands run with it as their root.

The base images' system is that of this machine, read-only, and their Python one that this machine has. Namespaces of Linux keep
what is mounted out of sight of everybody else; they need root.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SYSTEM = ("bin", "lib", "lib64", "usr", "etc", "opt")
# $0 is the new root, $1 the folder of a Python, and the rest is the command.
ENTER = """
set -e
root=$0; python=$1; shift
for each in {system} dev; do
    [ -e /$each ] || continue
    mkdir -p "$root/$each"
    mount --bind /$each "$root/$each"
    [ $each = dev ] || mount -o remount,ro,bind "$root/$each"
done
mount --bind "$python" "$root/usr/local"
mkdir -p "$root/proc"
mount -t proc proc "$root/proc"
exec chroot "$@"
""".format(system=" ".join(SYSTEM))


@dataclass(slots=True)
class Image:
    """What a stage has become."""

    root: Path
    python: Path
    environment: dict[str, str]
    folder: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    stop_signal: str = "SIGTERM"

    def start(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """The container's process, which is process 1 of its own. Without arguments it has those of the image."""
        return self._start([*self.entrypoint, *(arguments or self.command)], environment or {})

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> str:
        """Another command in the container, and what it prints."""
        process = self._start(command, environment or {})
        stdout, stderr = process.communicate(timeout=300)
        assert process.returncode == 0, stdout + stderr
        return stdout

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        given = [f"{name}={value}" for name, value in {**self.environment, **environment}.items()]
        within = ["env", "--ignore-environment", f"--chdir={self.folder}", *given, *command]
        enter = ["sh", "-c", ENTER, str(self.root), str(self.python), f"--userspec={self.user}", str(self.root), *within]
        unshared = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *enter]
        return subprocess.Popen(
            unshared, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


def possible() -> bool:
    try:
        return (
            subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False, capture_output=True).returncode
            == 0
        )
    except FileNotFoundError:
        return False


def instructions(dockerfile: Path) -> Iterator[tuple[str, str]]:
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        yield name, rest.strip()


class Build:
    """The instructions of a Dockerfile, carried out one by one."""

    def __init__(
        self, context: Path, folder: Path, pythons: Callable[[str], tuple[Path, dict[str, str]]], **arguments: str
    ) -> None:
        """`pythons` says for the name of a base image which Python it has, and which environment. `arguments` are those of --build-arg."""
        self._context, self._folder, self._pythons, self._given = context, folder, pythons, arguments
        self._arguments: dict[str, str] = {}
        self._stages: dict[str, Image] = {}
        self._image: Image | None = None
        self._ignored: list[str] = []

    def build(self, dockerfile: Path) -> Image:
        lines = dockerfile.with_name(f"{dockerfile.name}.dockerignore").read_text().splitlines()
        self._ignored = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
        for name, rest in instructions(dockerfile):
            getattr(self, f"_{name.lower()}")(rest)
        return self._current

    @property
    def _current(self) -> Image:
        assert self._image is not None, "a Dockerfile begins with FROM"
        return self._image

    def _value(self, text: str) -> str:
        known = {**self._arguments, **({} if self._image is None else self._image.environment)}
        return re.sub(r"\$\{?(\w+)\}?", lambda name: known[name[1]], text)

    def _arg(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        self._arguments[name] = self._given.get(name, value)

    def _from(self, rest: str) -> None:
        base, *name = self._value(rest).split(" AS ")
        python, environment = self._pythons(base)
        root = self._folder / f"stage{len(self._stages)}"
        for folder in ("tmp", "root"):
            (root / folder).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        self._image = Image(root, python, environment)
        self._stages[name[0] if name else str(root)] = self._image

    def _workdir(self, rest: str) -> None:
        self._current.folder = self._value(rest)
        self._inside(self._current.folder).mkdir(parents=True, exist_ok=True)

    def _copy(self, rest: str) -> None:
        words = self._value(rest).split()
        stage = [word.removeprefix("--from=") for word in words if word.startswith("--from=")]
        *sources, target = [word for word in words if not word.startswith("--")]
        for source in sources:
            path = self._stages[stage[0]].root / source.lstrip("/") if stage else self._context / source
            into = self._inside(target)
            into.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                left_out = None if stage else shutil.ignore_patterns(*self._ignored)
                shutil.copytree(path, into, ignore=left_out, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy(path, into)

    def _run(self, rest: str) -> None:
        self._current.run("sh", "-c", self._value(rest), environment=_for_pip())

    def _env(self, rest: str) -> None:
        for pair in rest.split():
            name, _, value = pair.partition("=")
            self._current.environment[name] = self._value(value)

    def _user(self, rest: str) -> None:
        self._current.user = rest

    def _entrypoint(self, rest: str) -> None:
        self._current.entrypoint = json.loads(rest)

    def _cmd(self, rest: str) -> None:
        self._current.command = json.loads(rest)

    def _stopsignal(self, rest: str) -> None:
        self._current.stop_signal = rest

    def _healthcheck(self, rest: str) -> None:
        """Docker asks it from outside. Whether its command exists is for the tests of that command."""

    def _expose(self, rest: str) -> None:
        """A remark for whoever runs the image."""

    def _inside(self, path: str) -> Path:
        """The place on this machine of a path in the container."""
        return self._current.root / os.path.join(self._current.folder, path).lstrip("/")  # noqa: PTH118  # "./" says: a folder


def _for_pip() -> dict[str, str]:
    """How this machine reaches the package index."""
    return {
        "HOME": "/root",
        **{name: value for name, value in os.environ.items() if name.startswith(("PIP_", "HTTPS_PROXY"))},
    }
