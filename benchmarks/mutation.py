"""
How many small faults do the fast tests see?

    python benchmarks/mutation.py --sample 300 [--seed 0] [--only kernel] [--out FILE]

A mutant is one function with one operator, comparison, constant or condition changed. The tests are collected once and
run once, to see which of them reach which line, and how long they take. For a mutant a process is forked in which the
changed code takes the place of the old, in every reference to it, and the tests that reach its line are run, the quick
ones first, until one fails. Killed means that a test failed, or that they took far longer than without it. Survivors
are printed, to be read: each is a missing test, or no fault. Left alone are annotations, texts, what `raise` says, and
what runs once at import (defaults of arguments, constants of a module).
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import gc
import json
import os
import random
import resource
import signal
import sys
import time
import types
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def within(folder: str, names: str) -> list[str]:
    """Return the paths of modules of one folder."""
    return [f"{folder}/{name}.py" for name in names.split()]


# What is mutated, and the tests that may cover it.
GROUPS: dict[str, tuple[list[str], list[str]]] = {
    "core": (
        within("attnsym", "softmax heads masks norms positions attention backward tiling")
        + within("attnsym", "_scores _plain _rows _activations _sizes _score_tiles _blocks _backward_blocks"),
        ["tests/core"],
    ),
    "exact": (
        within("analysis/predict", "quadrature average maximum row_sums score_moments exact inverse crossing")
        + within("analysis/predict", "asymptotics score_law")
        + within("analysis/predict/mechanism", "key_law row evaluate largest largest_plane normal_plane two_points")
        + within("analysis/predict/mechanism", "columns query causal distinct grid lengths"),
        ["tests/predict"],
    ),
    "estimators": (
        within("analysis/measure/estimate", "accumulators estimators")
        + within("analysis/measure/draw", "conditional direct normals score_columns vectors"),
        ["tests/measure"],
    ),
    "kernel": (within("attnsym/symbolic/trusted", "kernel polynomial facts terms lemma labels"), ["tests/symbolic"]),
    "normal form": (within("attnsym/symbolic/trusted", "normal_form moments"), ["tests/symbolic"]),
}
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.USub: ast.UAdd, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
SPEAKING = frozenset({"__repr__", "__str__", "_repr_html_"})
KINDLY = frozenset({"strict", "casting", "order"})  # keyword arguments of which another value is rarely another result


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, object]]:
    """Yield (node, attribute, new value) of every mutant within a function."""
    skipped: set[ast.AST] = set()
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.AnnAssign | ast.arg):
            inner = node if isinstance(node, ast.Raise | ast.JoinedStr) else node.annotation
            skipped |= set(ast.walk(inner)) if inner else set()
        if isinstance(node, ast.keyword) and node.arg in KINDLY:
            skipped |= set(ast.walk(node))
        if isinstance(node, ast.FunctionDef):
            own = {part for statement in node.body for part in ast.walk(statement)}
            if node.name in SPEAKING:
                skipped |= own
            inside |= own
    for node in ast.walk(tree):
        if node in skipped or node not in inside:
            continue
        match node:
            case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.UnaryOp(op=op) | ast.AugAssign(op=op) if type(op) in SWAPS:
                yield node, "op", SWAPS[type(op)]()
            case ast.Compare(ops=[op]) if type(op) in SWAPS:
                yield node, "ops", [SWAPS[type(op)]()]
            case ast.Constant(value=bool() as value):
                yield node, "value", not value
            case ast.Constant(value=int() | float() as value):
                yield node, "value", value + 1
            case ast.IfExp(test=test) | ast.If(test=test) | ast.While(test=test):
                yield node, "test", ast.UnaryOp(ast.Not(), test)


def functions_of(old: types.CodeType, new: types.CodeType) -> Iterator[tuple[types.CodeType, types.CodeType]]:
    """Yield the outermost function codes of a module that differ between two compilations of it."""
    pairs = [
        (a, b) for a, b in zip(old.co_consts, new.co_consts, strict=False) if isinstance(a, types.CodeType) and a != b
    ]
    for before, after in pairs:
        is_body = not before.co_flags & 0x2 or not before.co_flags & 0x1  # of a class: not optimised, no new locals
        yield from functions_of(before, after) if is_body else [(before, after)]


def put_in(file: str, node: ast.AST, attribute: str, value: object, tree: ast.Module) -> bool:
    """Exchange the code of the function that a mutant changes, in every reference to it; False if none is loaded."""
    path = str(ROOT / file)
    old = compile(ast.parse(Path(path).read_text(encoding="utf-8")), path, "exec")
    setattr(node, attribute, value)
    new = compile(ast.fix_missing_locations(tree), path, "exec")
    changed = list(functions_of(old, new))
    found = False
    for item in gc.get_objects():
        if isinstance(item, types.FunctionType) and item.__code__.co_filename == path:
            for before, after in changed:
                if item.__code__ == before:
                    item.__code__ = after
                    found = True
        elif isinstance(item, functools._lru_cache_wrapper):
            item.cache_clear()
    return found


class Tests:
    """The tests of one group, collected once; which lines each reaches, and how long it takes."""

    def __init__(self, files: list[str]) -> None:
        self.files = {str(ROOT / file): file for file in files}
        self.items: list[pytest.Item] = []
        self.reach: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.seconds: list[float] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """What fails need not be made smaller."""
        from hypothesis import Phase, settings

        settings.register_profile("mutants", deadline=None, database=None, phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Look which test reaches what, then run the mutants; pytest's own loop is not wanted."""
        self.items = list(session.items)
        self.survey()
        self.work()
        return True

    def work(self) -> None:
        """Run the mutants; set by whoever made this."""

    def run(self, numbers: list[int]) -> Iterator[tuple[int, bool]]:
        """Run items by their numbers, in this process."""
        from _pytest.runner import runtestprotocol

        for place, number in enumerate(numbers):
            following = self.items[numbers[place + 1]] if place + 1 < len(numbers) else None
            with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
                reports = runtestprotocol(self.items[number], nextitem=following, log=False)
            yield number, not any(report.failed for report in reports)

    def survey(self) -> None:
        """Run all in a fork, with every line of the files noted."""

        def look() -> dict[str, Any]:
            reached: set[tuple[str, int]] = set()
            files = self.files

            def line(frame: types.FrameType, event: str, _: object) -> Any:
                reached.add((frame.f_code.co_filename, frame.f_lineno))
                return line

            def call(frame: types.FrameType, event: str, _: object) -> Any:
                return line(frame, event, None) if frame.f_code.co_filename in files else None

            import threading

            lines, seconds, failed = [], [], []
            started = time.process_time()
            threading.settrace(call)
            sys.settrace(call)
            for number, passed in self.run(list(range(len(self.items)))):
                sys.settrace(None)
                now = time.process_time()
                seconds.append(now - started)
                lines.append(sorted((files[path], at) for path, at in reached))
                failed += [] if passed else [self.items[number].nodeid]
                reached.clear()
                started = time.process_time()
                sys.settrace(call)
            sys.settrace(None)
            return {"lines": lines, "seconds": seconds, "failed": failed}

        found = forked(look, 3600)
        if found is None or found["failed"]:
            raise SystemExit(f"the tests fail without a mutant: {found and found['failed'][:3]}")
        self.seconds = found["seconds"]
        for number, lines in enumerate(found["lines"]):
            for file, at in lines:
                self.reach[file, at].append(number)

    def of(self, file: str, node: ast.AST, most: float) -> list[int]:
        """The tests that reach a node, the quick ones first, within `most` seconds in all."""
        rows = range(node.lineno, (node.end_lineno or node.lineno) + 1)  # type: ignore[attr-defined]
        numbers = sorted({n for row in rows for n in self.reach.get((file, row), ())}, key=self.seconds.__getitem__)
        kept, total = [], 0.0
        for number in numbers:
            total += self.seconds[number]
            if kept and total > most:
                break
            kept.append(number)
        return kept


def forked(work: Any, limit: float) -> Any:
    """Return what `work` returns, from a fork that has `limit` seconds of processor time; None if it does not end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
        signal.alarm(int(20 * limit) + 60)  # a lock waits without taking time
        answer = None
        try:
            answer = work()
        except BaseException as error:  # a mutant may raise anything, SystemExit among it
            answer = {"failed": [repr(error)[:200]]}
        finally:
            with os.fdopen(writing, "w") as pipe:
                json.dump(answer, pipe)
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def main() -> int:
    """Run a sample and print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=100, help="mutants of each group; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=GROUPS, help="one group")
    parser.add_argument("--most", type=float, default=15.0, help="seconds of tests for one mutant")
    parser.add_argument("--again", help="a file that --out wrote: only what survived there")
    parser.add_argument("--out", help="a file to which every mutant is written, one JSON object a line")
    options = parser.parse_args()
    options.out, options.again = (path and str(Path(path).resolve()) for path in (options.out, options.again))
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "HYPOTHESIS_STORAGE_DIRECTORY": os.devnull}
    os.chdir(ROOT)
    for group in GROUPS if options.only is None else [options.only]:
        child = os.fork()  # each group in a process of its own: pytest is to be started once in a process
        if child == 0:
            os._exit(run_group(group, options))
        if os.waitpid(child, 0)[1]:
            return 1
    return 0


def run_group(group: str, options: argparse.Namespace) -> int:
    """Run the mutants of one group."""
    files, paths = GROUPS[group]
    tests = Tests(files)
    told = os.fdopen(os.dup(1), "w")  # pytest takes the other for itself, and is not wanted there
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def work() -> None:
        mutants = []
        for file in files:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            mutants += [(file, number) for number, _ in enumerate(changes(tree))]
        wanted = min(options.sample or len(mutants), len(mutants))
        chosen = sorted(random.Random(options.seed).sample(mutants, wanted))
        if options.again:
            chosen = sorted(set(mutants) & set(survivors(options.again)))
            wanted = len(chosen)
        counts: dict[str, int] = defaultdict(int)
        for file, number in chosen:
            outcome, shown, spent = one(tests, file, number, options.most)
            counts[outcome] += 1
            if outcome in ("survived", "not reached"):
                print(f"  {outcome}: {shown}", file=told, flush=True)
            if options.out:
                with open(options.out, "a", encoding="utf-8") as out:
                    print(json.dumps([group, file, number, outcome, shown, round(spent, 2)]), file=out)
        alive = counts["survived"] + counts["not reached"]
        words = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        share = 1 - alive / max(1, wanted - counts["not loaded"])
        print(f"{group}: {wanted} of {len(mutants)} mutants: {words}; {share:.1%} killed", file=told, flush=True)

    tests.work = work  # type: ignore[method-assign]
    arguments = ["-q", "-n", "0", "-p", "no:cacheprovider", *paths]
    return int(pytest.main(arguments, plugins=[tests]))


def survivors(path: str) -> Iterator[tuple[str, int]]:
    """Yield the mutants that lived in an earlier run."""
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        _, file, number, outcome, *_ = json.loads(line)
        if outcome in ("survived", "not reached"):
            yield file, number


def one(tests: Tests, file: str, number: int, most: float) -> tuple[str, str, float]:
    """Run one mutant: what became of it, how it reads, and how long it took."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    node, attribute, value = list(changes(tree))[number]
    before = ast.unparse(node).splitlines()[0]
    numbers = tests.of(file, node, most)
    limit = 5 * sum(tests.seconds[number] for number in numbers) + 10

    def run() -> str:
        if not put_in(file, node, attribute, value, tree):
            return "not loaded"
        return "survived" if all(passed for _, passed in tests.run(numbers)) else "killed"

    started = time.perf_counter()
    answer = forked(run, limit) if numbers else "not reached"
    outcome = "killed" if answer is None or isinstance(answer, dict) else str(answer)
    setattr(node, attribute, value)
    after = ast.unparse(ast.fix_missing_locations(node)).splitlines()[0]
    at = getattr(node, "lineno", 0)
    return outcome, f"{file}:{at}: {before}  ->  {after}", time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
