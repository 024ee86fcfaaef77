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
    health: list[str] = field(default_factory=list)

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
        variables = [f"{name}={value}" for name, value in {**self.environment, **environment}.items()]
        inner_command = ["env", "--ignore-environment", f"--chdir={self.folder}", *variables, *command]
        enter = [
            "sh",
            "-c",
            ENTER,
            str(self.root),
            str(self.python),
            f"--userspec={self.user}",
            str(self.root),
            *inner_command,
        ]
        isolated_command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *enter]
        return subprocess.Popen(
            isolated_command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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
        name, _, arguments = line.partition(" ")
        yield name, arguments.strip()


class Build:
    """The instructions of a Dockerfile, carried out one by one."""

    def __init__(
        self, context: Path, folder: Path, pythons: Callable[[str], tuple[Path, dict[str, str]]], **arguments: str
    ) -> None:
        """`pythons` says for the name of a base image which Python it has, and which environment. `arguments` are those of --build-arg."""
        self._context, self._folder, self._pythons, self._given_arguments = context, folder, pythons, arguments
        self._arguments: dict[str, str] = {}
        self._stages: dict[str, Image] = {}
        self._image: Image | None = None
        self._ignored_names: list[str] = []

    def build(self, dockerfile: Path) -> Image:
        lines = dockerfile.with_name(f"{dockerfile.name}.dockerignore").read_text().splitlines()
        self._ignored_names = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
        for name, text in instructions(dockerfile):
            getattr(self, f"_{name.lower()}")(text)
        return self._current

    @property
    def _current(self) -> Image:
        assert self._image is not None, "a Dockerfile begins with FROM"
        return self._image

    def _value(self, text: str) -> str:
        variables = {**self._arguments, **({} if self._image is None else self._image.environment)}
        return re.sub(r"\$\{?(\w+)\}?", lambda name: variables[name[1]], text)

    def _arg(self, text: str) -> None:
        name, _, value = text.partition("=")
        self._arguments[name] = self._given_arguments.get(name, value)

    def _from(self, text: str) -> None:
        base, *name = self._value(text).split(" AS ")
        python, environment = self._pythons(base)
        root = self._folder / f"stage{len(self._stages)}"
        for folder in ("tmp", "root"):
            (root / folder).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        self._image = Image(root, python, environment)
        self._stages[name[0] if name else str(root)] = self._image

    def _workdir(self, text: str) -> None:
        self._current.folder = self._value(text)
        self._inside(self._current.folder).mkdir(parents=True, exist_ok=True)

    def _copy(self, text: str) -> None:
        words = self._value(text).split()
        stage = [word.removeprefix("--from=") for word in words if word.startswith("--from=")]
        *sources, target = [word for word in words if not word.startswith("--")]
        for source in sources:
            path = self._stages[stage[0]].root / source.lstrip("/") if stage else self._context / source
            into = self._inside(target)
            into.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                left_out = None if stage else shutil.ignore_patterns(*self._ignored_names)
                shutil.copytree(path, into, ignore=left_out, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy(path, into)

    def _run(self, text: str) -> None:
        self._current.run("sh", "-c", self._value(text), environment=_for_pip())

    def _env(self, text: str) -> None:
        for pair in text.split():
            name, _, value = pair.partition("=")
            self._current.environment[name] = self._value(value)

    def _user(self, text: str) -> None:
        self._current.user = text

    def _entrypoint(self, text: str) -> None:
        self._current.entrypoint = json.loads(text)

    def _cmd(self, text: str) -> None:
        self._current.command = json.loads(text)

    def _stopsignal(self, text: str) -> None:
        self._current.stop_signal = text

    def _healthcheck(self, text: str) -> None:
        self._current.health = json.loads(text.partition("CMD ")[2])

    def _expose(self, text: str) -> None:
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
