"""`onewrite worker --processes`: what the process does that starts the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from math import inf

import pytest

from onewrite.operate.early import EarlySignals
from onewrite.operate.processes import Processes, watch_parent
from onewrite.operate.worker import _of_process


class Child:
    """A process that ends with these codes, one after the other; None goes on for a look."""

    started: list[list[str]]
    codes: list[int | None]
    signals: list[int]

    def __init__(self, command: list[str], **_: object) -> None:
        self.started.append(command)
        self.pid = 7
        self.returncode: int | None = None

    def poll(self) -> int | None:
        self.returncode = self.codes.pop(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> type[Child]:
    Child.started, Child.codes, Child.signals = [], [], []
    monkeypatch.setattr(subprocess, "Popen", Child)
    return Child


def run(count: int, sleep: Callable[[float], None] = lambda _: None) -> int:
    now = iter(range(10_000))
    options = [["--processes", "1", "--health-port", str(80 + number)] for number in range(count)]
    several = Processes(["worker", "a:b"], options, clock=lambda: float(next(now)), sleep=sleep)
    return several.run(EarlySignals())


def test_each_process_has_options_of_its_own_and_all_end_in_order(child: type[Child]) -> None:
    child.codes = [0, None, 0]
    assert run(2) == 0
    common = [sys.executable, "-m", "onewrite", "worker", "a:b", "--processes", "1", "--health-port"]
    assert child.started == [[*common, "80"], [*common, "81"]]


def test_a_process_that_dies_is_started_anew(child: type[Child], caplog: pytest.LogCaptureFixture) -> None:
    child.codes = [
        -9,
        -9,
        -9,
        -9,
        -9,
        0,
    ]  # It is dead at each look, until it is started anew: after a second, then after two.
    assert run(1) == 0
    assert len(child.started) == 3
    assert caplog.text.count("another one starts in 1 s") == caplog.text.count("another one starts in 2 s") == 1


def test_the_pause_is_short_again_after_a_process_that_has_worked_for_long(
    child: type[Child], caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]

    def sleep(_: float) -> None:
        now[0] += 50

    child.codes = [-9, -9, None, -9, -9, 0]
    assert Processes(["worker", "a:b"], [[]], clock=lambda: now[0], sleep=sleep).run(EarlySignals()) == 0
    assert caplog.text.count("another one starts in 1 s") == len(child.started) - 1 == 2


class Lives:
    """Processes that live for so many seconds, one life after the other, and end with these codes. None: until a signal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lives: list[tuple[float | None, int]]) -> None:
        self.now, self._left, self.started, self.stop_at = 0.0, [*map(list, lives)], [0] * len(lives), inf
        world = self

        class Process:
            def __init__(self, command: list[str], **_: object) -> None:
                self.number = int(command[-1])
                world.started[self.number] += 1
                self.began, (self.life, self.code) = world.now, world._left[self.number].pop(0)
                self.pid, self.signalled = 100 + self.number, False
                self.returncode: int | None = None

            def poll(self) -> int | None:
                if self.returncode is None and (
                    self.signalled or (self.life is not None and world.now >= self.began + self.life)
                ):
                    self.returncode = self.code
                return self.returncode

            def send_signal(self, _: int) -> None:
                self.signalled = True

        monkeypatch.setattr(subprocess, "Popen", Process)

    def run(self) -> int:
        options = [["--health-port", str(number)] for number in range(len(self.started))]
        return Processes(["worker"], options, clock=lambda: self.now, sleep=self._sleep).run(EarlySignals())

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 100_000, "it does not end"
        if self.now >= self.stop_at:
            self.stop_at = inf
            signal.raise_signal(signal.SIGTERM)


def test_a_command_that_is_wrong_for_all_ends_with_the_code_of_a_wrong_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """They need not find out at the same moment, nor at the first start."""
    assert Lives(monkeypatch, [(1, 2)], [(1.5, 2)], [(1.2, 2)]).run() == 2
    assert Lives(monkeypatch, [(1, 2)] * 20, [(7, 2)] * 20).run() == 2


@pytest.mark.parametrize("code", [1, 2, 3, -9, -11, 137])
def test_what_one_dies_of_ends_none_of_the_others_and_it_is_started_anew(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a port that is taken, which is wrong for one alone, and is mended by another start."""
    lives = Lives(monkeypatch, [(None, 0)], [(1, code), (1, code), (None, 0)], [(None, 0)])
    lives.stop_at = 3600
    assert lives.run() == 0
    assert lives.started == [1, 3, 1]


@pytest.mark.parametrize("codes", [[1], [1, 2], [1, 2, 2, 2]], ids=str)
def test_what_all_die_of_after_they_have_worked_is_waited_out(codes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a token that has expired, or a queue that was deleted: at first they lose it, and then they cannot begin without it."""
    one: list[tuple[float | None, int]] = [(500, codes[0]), *[(2.0, code) for code in codes[1:]], (None, 0)]
    lives = Lives(monkeypatch, one, one)
    lives.stop_at = 3600
    assert lives.run() == 0
    assert lives.started == [len(codes) + 1] * 2


def test_a_process_that_dies_again_and_again_is_started_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    lives = Lives(monkeypatch, [(None, 0)], [(0.2, 1)] * 1000)
    lives.stop_at = 6300
    assert lives.run() == 1, "it was dead when it was to stop"
    assert 100 <= lives.started[1] <= 115


def test_each_signal_is_passed_on_once(child: type[Child]) -> None:
    child.codes = [None, None, None, -signal.SIGTERM]
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) <= 2:
            signal.raise_signal(signal.SIGTERM)

    former = signal.getsignal(signal.SIGTERM)
    assert run(1, sleep) == 0
    assert child.signals == [signal.SIGTERM] * 2
    assert signal.getsignal(signal.SIGTERM) is former


def test_the_later_processes_have_the_next_ports_and_files() -> None:
    from pathlib import Path  # noqa: PLC0415  # used here alone

    assert _of_process(0, None, None) == ["--processes", "1"]
    assert _of_process(0, 80, Path("alive")) == ["--processes", "1", "--health-port", "80", "--liveness-file", "alive"]
    assert _of_process(2, 80, Path("alive")) == ["--processes", "1", "--health-port", "82", "--liveness-file", "alive.2"]


def test_a_process_stops_when_the_one_that_started_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()
    watch_parent(stopped.set)
    monkeypatch.setenv("ONEWRITE_WORKER_PARENT", "1234")
    parents = iter([1234, 1])
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    watch_parent(stopped.set, sleep=lambda _: None)
    assert stopped.wait(30)
