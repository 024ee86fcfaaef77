"""`python -m tests.chaos --minutes 10`: breaks workers, servers and connections for so long, and counts what came of it."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence

from onewrite.testing import ProgramMissing
from onewrite.testing.servers.process import _spawner
from tests.chaos.report import table, verdict
from tests.chaos.rounds import ROUND_SECONDS, Result, play_round
from tests.chaos.setups import SETUPS, ControlSetup

CONTROL_ROUNDS = 5  # how often the control may fail to lose anything
_SHORTEST_ROUND = 8.0  # seconds, in which a failover fits; a setup that has less for all of its time has one round of that
_EXAMPLES = 50  # of what is wrong; if much is, they are all alike
_SHARES = {
    "dynoxide": 0.15,
    "mongod": 0.15,
    "dynoxide-unharmed": 0.2,
    "mongod-unharmed": 0.2,
    "replica-set": 0.25,
    "control": 0.05,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    _end_in_order()
    _say(f"seed {options.seed}")
    total = sum(_SHARES[name] for name in options.only)
    results: list[Result] = []
    try:
        for name in options.only:
            seconds = options.minutes * 60 * _SHARES[name] / total
            results += [run(name, seconds, options.seed, _say)]
    except ProgramMissing as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    finally:
        if results:
            _say(table(results))
    lines, code = verdict(results)
    _say("\n".join(lines))
    return code


def run(name: str, seconds: float, seed: int, say: Callable[[str], None]) -> Result:
    """Rounds on one setup for so long; the control goes on until it has lost something, or has failed to for too long."""
    result = Result(SETUPS[name].name, SETUPS[name] is ControlSetup)
    shortest = min(_SHORTEST_ROUND, seconds)
    end = time.monotonic() + seconds
    with SETUPS[name]() as setup:
        while not result.counts["rounds"] or end - time.monotonic() >= shortest or _must_go_on(result):
            number = result.counts["rounds"] + 1
            length = min(ROUND_SECONDS, max(end - time.monotonic(), shortest))
            round_result = play_round(setup, f"r{number}", length, f"{seed} {name} {number}")
            result.counts += round_result.counts
            result.examples = (result.examples + round_result.examples)[:_EXAMPLES]
            say(_progress(round_result, number))
    return result


def _must_go_on(result: Result) -> bool:
    return result.must_lose and not result.ok and result.counts["rounds"] < CONTROL_ROUNDS


def _progress(round_result: Result, number: int) -> str:
    names = ("messages", "deliveries", "lost", "doubled", "events", "copies", "events lost", "events out of order")
    return f"{round_result.setup}, round {number}: " + ", ".join(f"{round_result.counts[name]} {name}" for name in names)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10.0, help="how long to go on, without starting and healing servers"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="of all chance")
    parser.add_argument("--only", nargs="+", choices=[*SETUPS], default=[*SETUPS], help="which servers to attack")
    options = parser.parse_args(arguments)
    if options.minutes <= 0:
        parser.error("--minutes must be more than 0")
    return options


def _end_in_order() -> None:
    """Ctrl-C and SIGTERM remove what was started; a second one must not disturb that."""
    # The thread that starts servers is made now: interrupted at that moment, it would be waited for without end at the exit.
    _spawner.submit(int).result()

    def interrupt(number: int, frame: object) -> None:
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signal_number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, interrupt)


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
