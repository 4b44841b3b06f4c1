"""The names that type checkers know are those that are there, and a misspelt one is caught before anything runs."""

import subprocess
import sys
from typing import get_args

import pytest

from analysis.predict.of_quantity import exact_of
from analysis.vocabulary import names
from analysis.vocabulary.quantities import QUANTITIES
from analysis.vocabulary.row_shares import STUDIED

RECORDS = QUANTITIES | STUDIED
ALIASES = {alias: record for record in RECORDS.values() for alias in record.aliases}

SCRIPT = """\
from collections.abc import Callable
from typing import Any

from analysis import expected_entropy, expected_key_weight, expected_power_sum, low_temperature, run_study, scale_for

number: float = expected_entropy(10, d_k=64) + expected_power_sum(2, 10, sigma=1.0) + expected_key_weight(10, sigma=1.0)
capped: float = expected_entropy(10, d_k=64, softcap=5.0, bias=[0.0] * 10, score="cosine")
several = expected_entropy([10, 20], sigma=1.0)
study = run_study("entropy", d_k=(4, 8), n_keys=4, statistic=("mean", 0.9), sampler="direct", precision="single")
rows: int = len(study.rows)


def squares(query: Any, key: Any, scale: float) -> Any:
    return (scale * query @ key.swapaxes(-1, -2)).sum(axis=(-1, -2)) ** 2


own: Callable[..., Any] = squares
run_study(own, d_k=4, n_keys=4, score="cosine", normalizer="softmax", qk_norm="rms")
scale_for("entropy_fraction", 0.5, 128, d_k=64)
low_temperature("max_weight", 10, 5.0)
"""
WRONG = """\
from analysis import low_temperature, run_study, scale_for

run_study("entrpy", d_k=4, n_keys=4)
run_study("entropy", d_k=4, n_keys=4, statistic="meen")
run_study("entropy", d_k=4, n_keys=4, sampler="exact")
run_study("entropy", d_k=4, n_keys=4, precision="half")
run_study("entropy", d_k=4, n_keys=4, normalizer="softplus")
scale_for("jacobian_norm", 0.5, 128)
low_temperature("entrpy", 10, 5.0)
"""
ARRAYS = """\
from analysis import expected_entropy

number: float = expected_entropy([10, 20], sigma=1.0)
expected_entropy(10, sigma=1.0, score="cosin")
"""


def test_every_quantity_is_named():
    assert set(get_args(names.QuantityName)) == {*RECORDS, *ALIASES}
    monotone = {name for name, record in (RECORDS | ALIASES).items() if record.exact and exact_of(record).is_monotone}
    assert set(get_args(names.SolvableName)) == monotone


@pytest.mark.slow
def test_a_users_script_is_checked_before_it_runs(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "right.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    (tmp_path / "arrays.py").write_text(ARRAYS, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", "--no-pretty"]
    options = ["--cache-dir", str(tmp_path / "cache"), "--ignore-missing-imports", "--follow-imports=silent"]
    done = subprocess.run(
        [*command, *options, "right.py", "wrong.py", "arrays.py"], cwd=tmp_path, capture_output=True, text=True
    )
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line for line in lines if line.startswith("right.py")] == [], done.stdout
    found = {int(line.split(":")[1]) for line in lines if line.startswith("wrong.py") and "[arg-type]" in line}
    assert found == set(range(3, len(WRONG.splitlines()) + 1)), done.stdout + done.stderr
    assert {int(line.split(":")[1]) for line in lines if line.startswith("arrays.py")} == {3, 4}, done.stdout
