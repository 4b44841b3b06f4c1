"""
How many small faults do the fast tests see?

    python benchmarks/mutation.py --sample 60 [--seed 0] [--only kernel]

A mutant is one file with one operator, comparison, constant or condition changed. It is run in a process of its own,
forked once the libraries are loaded, against the tests that cover its file. Killed means that a test failed, or that
they took ten times as long as without it. Survivors are printed, to be read: each is a missing test, or no fault.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import random
import resource
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).parent.parent

# What is mutated, and the tests that cover it.
GROUPS = {
    "core": (["attnsym/softmax.py", "attnsym/_scores.py", "attnsym/masks.py", "attnsym/heads.py"], ["tests/core"]),
    "blocks": (["attnsym/_blocks.py", "attnsym/_backward_blocks.py", "attnsym/tiling.py"], ["tests/core"]),
    "exact": (
        ["analysis/predict/quadrature.py", "analysis/predict/average.py", "analysis/predict/maximum.py"],
        ["tests/predict/test_exact.py", "tests/predict/test_exact_reference.py"],
    ),
    "estimators": (
        ["analysis/measure/estimate/accumulators.py", "analysis/measure/estimate/estimators.py"],
        ["tests/measure/test_estimators.py", "tests/measure/test_study.py"],
    ),
    "kernel": (
        ["attnsym/symbolic/trusted/kernel.py", "attnsym/symbolic/trusted/polynomial.py"],
        ["tests/symbolic"],
    ),
    "normal form": (
        ["attnsym/symbolic/trusted/normal_form.py", "attnsym/symbolic/trusted/moments.py"],
        ["tests/symbolic"],
    ),
}
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.USub: ast.UAdd, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, object]]:
    """Yield (node, attribute, new value) of every mutant; annotations and messages of errors are left alone."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.AnnAssign | ast.arg):
            inner = node if isinstance(node, ast.Raise) else node.annotation
            skipped |= set(ast.walk(inner)) if inner else set()
        if isinstance(node, ast.FunctionDef) and node.returns:
            skipped |= set(ast.walk(node.returns))
    for node in ast.walk(tree):
        if node in skipped:
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


class Mutated(MetaPathFinder, SourceFileLoader):
    """Loads one module from a changed tree."""

    def __init__(self, name: str, path: Path, tree: ast.Module) -> None:
        SourceFileLoader.__init__(self, name, str(path))
        self.tree = tree

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find the one module."""
        return spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname: str) -> object:
        """Compile the changed tree."""
        return compile(ast.fix_missing_locations(self.tree), self.path, "exec")


def run(loader: Mutated | None, tests: list[str], limit: float) -> tuple[bool, float]:
    """Run the tests in a fork; return whether they passed, and the processor time."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        if loader:
            sys.meta_path.insert(0, loader)
        import pytest

        os._exit(int(pytest.main(["-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests])))
    _, status, used = os.wait4(child, 0)
    return status == 0, used.ru_utime + used.ru_stime


def main() -> int:
    """Run a sample and print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=60, help="mutants to run; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=GROUPS, help="one group")
    options = parser.parse_args()
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "HYPOTHESIS_STORAGE_DIRECTORY": os.devnull}
    os.chdir(ROOT)
    for library in ("numpy", "pytest", "scipy.integrate", "scipy.stats", "sympy"):
        importlib.import_module(library)  # the forks start with these loaded

    mutants = []
    for group, (files, _) in GROUPS.items():
        for file in files if options.only in (None, group) else ():
            count = sum(1 for _ in changes(ast.parse(Path(file).read_text(encoding="utf-8"))))
            mutants += [(group, file, number) for number in range(count)]
    chosen = random.Random(options.seed).sample(mutants, min(options.sample or len(mutants), len(mutants)))
    print(f"{len(mutants)} mutants, {len(chosen)} run")
    limits: dict[str, float] = {}
    survived = 0
    for group, file, number in sorted(chosen):
        tests = GROUPS[group][1]
        if group not in limits:
            passed, seconds = run(None, tests, 3600)
            if not passed:
                print(f"the tests of {group} fail without a mutant")
                return 1
            limits[group] = 10 * seconds + 10
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
        node, attribute, value = list(changes(tree))[number]
        before = ast.unparse(node)
        setattr(node, attribute, value)
        name = ".".join(Path(file).with_suffix("").parts)
        if run(Mutated(name, ROOT / file, tree), tests, limits[group])[0]:
            survived += 1
            after = ast.unparse(ast.fix_missing_locations(node))
            shown = "  ->  ".join(text.splitlines()[0] for text in (before, after))
            print(f"{file}:{getattr(node, 'lineno', 0)}: {shown}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
