"""What was done and what came of it, as a table and as a verdict. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tests.chaos.rounds import WRONG, Result


def table(results: Sequence[Result]) -> str:
    """A column for each setup; what must be nothing stands at the bottom."""
    lines = [["", *(result.setup for result in results)]]
    counted = dict.fromkeys(name for result in results for name in result.counts if name not in WRONG)
    lines += [[row, *(str(result.counts[row]) for result in results)] for row in (*counted, *WRONG)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(results) + 1)]
    return "\n".join(_align(line, widths) for line in lines)


def _align(line: Sequence[str], widths: Sequence[int]) -> str:
    title, *numbers = line
    cells = [title.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))]
    return "  ".join(cells).rstrip()


def verdict(results: Sequence[Result]) -> tuple[list[str], int]:
    """What the counts mean, and the exit code."""
    lines: list[str] = []
    for result in results:
        if result.must_lose:
            lines.append(_of_control(result))
        elif result.ok:
            lines.append(f"{result.setup}: each message took effect once, and each event was told once and in order.")
        else:
            wrong = ", ".join(f"{result.counts[name]} {name}" for name in WRONG if result.counts[name])
            lines += [f"{result.setup}: {wrong}.", *(f"  {example}" for example in result.examples)]
    return lines, 0 if all(result.ok for result in results) else 1


def _of_control(result: Result) -> str:
    if result.ok:
        return f"{result.setup}: lost {result.counts['lost']} messages, as it must: a loss would have been seen."
    return f"{result.setup}: lost nothing, which it must. This run could not have seen a loss, and proves nothing."
