"""`onewrite worker --processes`: what the process does that starts the others."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from math import inf
from pathlib import Path

import pytest

from onewrite.operate import main
from onewrite.operate.early import EarlySignals
from onewrite.operate.processes import Processes, watch_parent
from onewrite.operate.worker import _of_process


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


def test_the_pause_is_short_again_after_a_process_that_has_worked_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert Lives(monkeypatch, [(1, 1), (1, 1), (500, 1), (1, 0)]).run() == 0
    pauses = [record.getMessage().rpartition("another one starts in ")[2] for record in caplog.records]
    assert [pause for pause in pauses if pause.endswith(" s")] == ["1 s", "2 s", "1 s"]


def test_a_process_that_dies_again_and_again_is_started_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    lives = Lives(monkeypatch, [(None, 0)], [(0.2, 1)] * 1000)
    lives.stop_at = 6300
    assert lives.run() == 1, "it was dead when it was to stop"
    assert 100 <= lives.started[1] <= 115


@pytest.mark.slow
def test_the_arguments_of_the_command_may_end_with_what_is_no_option(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "--queue-url", "https://q/1/2", "--processes", "2", "--", "nowhere_to_be_found:handler"]) == 2
    err = capfd.readouterr().err
    assert err.count("there is no module 'nowhere_to_be_found'") >= 2


def test_the_later_processes_have_the_next_ports_and_files() -> None:
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
