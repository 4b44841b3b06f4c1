"""
The proof checker beside what SymPy offers for the same question (attnsym must be installed).

    python benchmarks/derivations.py

Every step of `score-variance` is an equality that holds under the assumptions it cites. Each contender is asked of each
step: is it true? SymPy's own tools see the same expressions in the same notation; they have no way to be told of
assumptions on random components, which is the point: their share of accepted steps stands beside their time. Times are
medians over rounds in which the contenders take turns. The last lines time all derivations and the whole command,
import included, as processor time.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sympy

from attnsym.symbolic import DERIVATIONS, derive, prove

ROOT = Path(__file__).parent.parent
ROUNDS = 7


def checker(step: Any) -> bool:
    """Both decision procedures, under what the step cites."""
    return bool(prove(step.lhs, step.rhs, assuming=step.cites))


def simplify(step: Any) -> bool:
    """SymPy: the difference simplifies to 0."""
    return bool(sympy.simplify(step.lhs - step.rhs) == 0)


def equals(step: Any) -> bool:
    """SymPy: `equals` says True."""
    return step.lhs.equals(step.rhs) is True


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def main() -> int:
    steps = derive("score-variance").steps
    contenders = {"attnsym": checker, "sympy.simplify": simplify, "Expr.equals": equals}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    accepted: dict[str, int] = {}
    for _ in range(ROUNDS):
        for name, contender in contenders.items():
            sympy.core.cache.clear_cache()
            spent, verdicts = timed(lambda contender=contender: [contender(step) for step in steps])
            times[name].append(spent / len(steps))
            accepted[name] = sum(verdicts)
    ours = statistics.median(times["attnsym"])
    print(f"{len(steps)} true steps of score-variance, median of {ROUNDS} rounds")
    for name in contenders:
        spent = statistics.median(times[name])
        print(
            f"{name:>15}: {1e3 * spent:8.2f} ms a step, {spent / ours:6.1f} x, accepts {accepted[name]} of {len(steps)}"
        )
    spent, _ = timed(lambda: [derivation.check() for derivation in DERIVATIONS.values()])
    count = sum(len(derivation.steps) for derivation in DERIVATIONS.values())
    print(f"all {len(DERIVATIONS)} derivations, {count} steps: {spent:.2f} s, {1e3 * spent / count:.1f} ms a step")
    code = (
        "import sys, time; from analysis.cli import main; main(['verify']); print(time.process_time(), file=sys.stderr)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stderr
        for _ in range(3)
    ]
    print(f"attnsym verify, import included: {min(map(float, runs)):.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
