"""Does a test fail when the code is wrong? Changes one thing of a function at a time, and runs the tests that call it.

`python -m tests.mutants` changes what decides about a message: the ledgers, what is read in a refusal, how expressions are merged, and
what a relay clears. The tests of a room are collected once. Each change is tried in a process forked from there, so nothing is
imported again: the changed code takes the place of the function's own. Tests that run the changed line come first, the quickest of them
before the others. What they do not notice is tried with the contract on moto and mongomock, and with wrong calls. What that does not
notice either has survived, and is printed. What runs at import alone (constants, defaults of arguments, decorators) is not changed, and
neither is what only a type checker reads.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import os
import pickle
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, cast

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "onewrite"
# What is changed, and where its tests are.
TARGETS: dict[tuple[str, ...], list[str]] = {
    ("core",): [
        *(
            "core/ledgers/*.py",
            "core/judging.py",
            "core/pipeline.py",
            "core/write.py",
            "core/effect.py",
            "core/features/effects.py",
        ),
        *("core/features/tombstone.py", "core/features/pending.py", "core/features/event.py", "core/features/batches.py"),
    ],
    ("dynamodb",): [f"dynamodb/{name}.py" for name in ("expression", "dialect", "deletes", "flows", "layout")],
    ("mongodb",): [f"mongodb/{name}.py" for name in ("expression", "dialect", "deletes", "flows", "layout")],
    ("batch",): ["batch/order.py"],
    ("testing",): ["testing/explorer/judge.py"],
    ("identity",): ["identity/*.py"],
    ("sqs",): [f"sqs/{name}.py" for name in ("state", "waiting", "queue", "threads", "tasks", "worker")],
    ("operate", "engines/test_repairs.py"): ["operate/*.py", "operate/doctor/*.py"],
    ("outbox", "dynamodb", "mongodb"): ["outbox/passes.py", "dynamodb/outboxes.py", "mongodb/outboxes.py"],
}
# Slow cases too, because the others are a sample, in which most claims are tried on one of the stores.
CONTRACT = ("contract", "docs/test_mistakes.py", "--slow", "-k", "moto or mongomock or test_mistakes")
LONGEST = 15.0  # seconds of tests for each mutant, after which it has survived
SPARE = 10.0  # seconds that a test may take longer than it did, on a busy machine, before it counts as one that hangs

_SWAPPED: dict[type[ast.AST], Any] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a function, whose code object has this name and first line."""

    file: str
    name: str
    first_line: int
    line: int
    change: str
    code: CodeType


def mutants(file: Path) -> Iterator[Mutant]:
    """All of a file, each compiled."""
    tree = ast.parse(file.read_text(), str(file))
    for function in _functions(tree):
        first_line = min([function.lineno, *(each.lineno for each in function.decorator_list)])
        body = function.body
        for line, change in _changes(function):
            code = _code_of(compile(tree, str(file), "exec", dont_inherit=True), function.name, first_line)
            if code is not None:
                yield Mutant(str(file), function.name, first_line, line, change, code)
        function.body = body


def _functions(tree: ast.Module | ast.ClassDef) -> Iterator[Function]:
    """Those of the module and of its classes. Functions within a function belong to it."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node)


def _changes(function: Function) -> Iterator[tuple[int, str]]:
    """Changes the body of the function, and says how, until the next change is asked for."""
    original = function.body
    count = sum(1 for node in _nodes(original) for _ in _changed(node))
    for number in range(count):
        function.body = copy.deepcopy(original)
        choices = ((node, make) for node in _nodes(function.body) for make in _changed(node))
        node, (place, words, make) = next(islice(choices, number, None))
        before, line = ast.unparse(node), getattr(place, "lineno", function.lineno)
        make()
        ast.fix_missing_locations(function)
        yield line, words or f"{before}  ->  {ast.unparse(node)}"


def _nodes(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Those that do something when the function is called: no docstrings, no annotations, no parts of an f-string."""
    for statement in body:
        yield from _below(statement)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    yield node
    if isinstance(node, ast.Raise):  # it is left out as a whole; its words are no decision
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "format_spec", "type_params"):
            continue
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "cast":
            value = value[1:] if name == "args" else value  # noqa: PLW2901  # the type is for a type checker
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
                yield from _below(child)


def _changed(node: ast.AST) -> Iterator[tuple[ast.AST, str, Any]]:
    """The changes of one node: what is changed, words, where its text before and after does not say enough, and what makes the change."""
    match node:
        case ast.Compare(ops=ops):
            for place, operator in enumerate(ops):
                if (to := _SWAPPED.get(type(operator))) is not None:
                    yield node, "", lambda place=place, to=to: ops.__setitem__(place, to())
        case ast.BoolOp(op=operator) | ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _SWAPPED:
            yield node, "", lambda: setattr(node, "op", _SWAPPED[type(operator)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, "", lambda: node.__dict__.update(op=ast.Not(), operand=ast.UnaryOp(ast.Not(), operand))
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(
            test, ast.Compare | ast.UnaryOp
        ):
            yield test, f"not ({ast.unparse(test)})", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.Constant(value=bool() as value):
            yield node, "", lambda: setattr(node, "value", not value)
        case ast.Constant(value=int() as value):
            yield node, "", lambda: setattr(node, "value", value + 1)
        case ast.Constant(value=str() as value) if value:
            yield node, "", lambda: setattr(node, "value", f"{value}!")
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and not value.value):
            yield node, "", lambda: setattr(node, "value", ast.Constant(None))
    for name in ("body", "orelse"):
        block: Any = getattr(node, name, None)
        for place, statement in enumerate(block if isinstance(block, list) else []):
            if isinstance(statement, ast.Raise | ast.AugAssign | ast.Continue) or (
                isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call | ast.YieldFrom | ast.Yield)
            ):
                words = f"without: {ast.unparse(statement).partition(chr(10))[0]}"
                yield statement, words, lambda block=block, place=place: block.__setitem__(place, ast.Pass())


def _code_of(code: CodeType, name: str, first_line: int) -> CodeType | None:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if (each.co_name, each.co_firstlineno) == (name, first_line):
                return each
            if (found := _code_of(each, name, first_line)) is not None:
                return found
    return None


class Trial:
    """A plugin of pytest: where it would run the tests that it has collected, the mutants are tried with them."""

    def __init__(self, chosen: Sequence[Mutant], jobs: int) -> None:
        self._chosen, self._jobs = chosen, jobs
        self.ends: dict[int, str] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        lines, took = _in_child(lambda: self._observed(session.items))
        tests: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)  # by the line that they run
        for item in sorted(session.items, key=lambda item: took.get(item.nodeid, 0.0)):
            for line in lines.get(item.nodeid, ()):
                tests[line].append(item)
        functions: dict[tuple[str, int], list[FunctionType]] = defaultdict(list)
        gc.unfreeze()  # what is frozen is not among the objects
        for function in gc.get_objects():
            if isinstance(function, FunctionType):
                functions[function.__code__.co_filename, function.__code__.co_firstlineno].append(function)
        running: dict[int, int] = {}
        for number, mutant in enumerate(self._chosen):
            place = mutant.file, mutant.first_line
            # A function that is called has run its first line.
            items = _first_seconds(dict.fromkeys([*_varied(tests[mutant.file, mutant.line]), *_varied(tests[place])]), took)
            if not items or not functions[place]:
                self.ends[number] = "not tried" if items else "not called"
                continue
            if len(running) == self._jobs:
                self._wait(running)
            limit = SPARE + 3 * sum(took[item.nodeid] for item in items)
            if not (child := os.fork()):
                _quiet()
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, limit)
                try:
                    for function in functions[place]:
                        function.__code__ = mutant.code
                except ValueError:  # another number of variables from outside
                    os._exit(2)
                _forget()
                os._exit(int(any(map(_fails, items))))
            running[child] = number
        while running:
            self._wait(running)
        return True

    def _wait(self, running: dict[int, int]) -> None:
        child, status = os.wait()
        ends = {0: "survived", 1: "killed", 2: "not tried"}
        self.ends[running.pop(child)] = ends.get(os.waitstatus_to_exitcode(status), "killed")

    def _observed(self, items: Sequence[pytest.Item]) -> tuple[dict[str, set[tuple[str, int]]], dict[str, float]]:
        """Which lines each test runs, and how long it takes. A test that fails without a change is of no use."""
        lines: dict[str, set[tuple[str, int]]] = {}
        took: dict[str, float] = {}
        files = {mutant.file for mutant in self._chosen}
        for item in items:
            seen: set[tuple[str, int]] = set()

            def note(frame: Any, event: str, _: object, seen: set[tuple[str, int]] = seen) -> Any:
                code = frame.f_code
                if code.co_filename not in files:
                    return None
                seen.add((code.co_filename, code.co_firstlineno if event == "call" else frame.f_lineno))
                return note

            _forget()  # or a test that finds the answer in a cache would not be known to call the function
            begin = time.perf_counter()
            sys.settrace(note)
            threading.settrace(note)
            failed = _fails(item)
            sys.settrace(None)
            threading.settrace(cast("Any", None))
            if not failed:
                lines[item.nodeid], took[item.nodeid] = seen, time.perf_counter() - begin
        return lines, took


def _varied(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The first case of each test, then the second of each, and so on: two tests differ more than two cases of one."""
    cases: Counter[str] = Counter()
    ranks: dict[pytest.Item, int] = {}
    for item in items:
        test = item.nodeid.partition("[")[0]
        ranks[item] = cases[test]
        cases[test] += 1
    return sorted(items, key=ranks.__getitem__)


def _first_seconds(items: Iterable[pytest.Item], took: Mapping[str, float]) -> list[pytest.Item]:
    """The first tests that together take no longer than LONGEST, or the first one alone."""
    chosen: list[pytest.Item] = []
    left = LONGEST
    for item in items:
        left -= took[item.nodeid]
        if chosen and left < 0:
            break
        chosen.append(item)
    return chosen


def _forget() -> None:
    """Empty all caches of ours. The module is a plugin, which pytest imports itself."""
    sys.modules["tests.support.measured"].forget()


def _fails(item: pytest.Item) -> bool:
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def _quiet() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _in_child(act: Any) -> Any:
    """What this returns in a process of its own, after which nothing of it is left here."""
    read, write = os.pipe()
    if not (child := os.fork()):
        with os.fdopen(os.dup(2), "w") as errors, os.fdopen(write, "wb") as to:
            _quiet()
            try:
                pickle.dump(act(), to)
            except BaseException:
                traceback.print_exc(file=errors)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as of:
        answer = pickle.load(of)  # noqa: S301  # what our own child has written
    os.waitpid(child, 0)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("files", nargs="*", help="parts of paths below src/onewrite; all targets without any")
    parser.add_argument("--sample", type=int, help="so many mutants of each file")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    begin = time.monotonic()
    ends: dict[Mutant, str] = {}
    for folders, patterns in TARGETS.items():
        files = [file for pattern in patterns for file in _files(pattern) if _is_asked_for(file, options.files)]
        chosen = [mutant for file in files for mutant in _sample(list(mutants(file)), options)]
        if chosen:
            ends |= _ends(folders, chosen, options.jobs)
    left = [mutant for mutant, end in ends.items() if end in ("survived", "not called")]
    if left:
        ends |= {mutant: end for mutant, end in _ends(CONTRACT, left, options.jobs).items() if end != "not called"}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant, end in ends.items():
        name = str(Path(mutant.file).relative_to(SOURCE))
        counts[name][end] += 1
        if end in ("survived", "not called"):
            print(f"{end}: {name}:{mutant.line} {mutant.name}: {mutant.change}")
    columns = ("killed", "survived", "not called", "not tried")
    print("\n" + "  ".join([f"{'':32}", *(f"{each:>10}" for each in columns)]))
    for name, count in [*sorted(counts.items()), ("all", sum(counts.values(), Counter()))]:
        print("  ".join([f"{name:32}", *(f"{count[each]:10}" for each in columns)]))
    print(f"{time.monotonic() - begin:.0f} seconds")


def _files(pattern: str) -> list[Path]:
    found = sorted(SOURCE.glob(pattern))
    if not found:
        raise SystemExit(f"TARGETS: src/onewrite/{pattern} names no file. Name the files that have taken its place.")
    return found


def _is_asked_for(file: Path, parts: Sequence[str]) -> bool:
    return not parts or any(part in str(file.relative_to(SOURCE)) for part in parts)


def _sample(found: list[Mutant], options: Any) -> list[Mutant]:
    if options.sample is None or options.sample >= len(found):
        return found
    return sorted(random.Random(options.seed).sample(found, options.sample), key=lambda mutant: mutant.line)


def _ends(where: Sequence[str], chosen: Sequence[Mutant], jobs: int) -> dict[Mutant, str]:
    """What became of each mutant under the tests of these folders, with the options of pytest that are among them."""
    ends: list[str] = _in_child(lambda: _tried(where, chosen, jobs))
    print(f"{where[0]}: {dict(Counter(ends))}", file=sys.stderr, flush=True)
    return dict(zip(chosen, ends, strict=True))


def _tried(where: Sequence[str], chosen: Sequence[Mutant], jobs: int) -> list[str]:
    trial = Trial(chosen, jobs)
    folders = [str(ROOT / "tests" / each) if (ROOT / "tests" / each).exists() else each for each in where]
    pytest.main(["-q", "-s", "-p", "no:cacheprovider", *folders], plugins=[trial])
    return [trial.ends[number] for number in range(len(chosen))]


if __name__ == "__main__":
    main()
