"""Every argument of run_study with values that nobody should pass: a result, or a sentence that names the argument."""

import inspect
import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hostile_values import CALLABLES, CONTAINERS, NUMBERS, OTHERS, TEXTS
from scipy import stats

from analysis import run_study
from analysis.cli import main
from analysis.measure.run import effort
from analysis.measure.run.store import Store

ROOT = Path(__file__).parent.parent.parent
BASE = {"d_k": 3, "n_keys": 4, "replicates": 20, "workers": 1}
ARGUMENTS = list(inspect.signature(run_study).parameters)


@pytest.mark.filterwarnings("ignore:Casting complex")  # SciPy's own, of stats.norm(1j)
@pytest.mark.parametrize("statistic", ["median", pytest.param("mean", marks=pytest.mark.slow)])  # the mean is predicted
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_hostile_values_end_in_a_result_or_a_sentence(argument, statistic, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for value in [*NUMBERS, *TEXTS, *CONTAINERS, *CALLABLES, *OTHERS]:
        given = {**BASE, "statistic": statistic, argument: value}
        if argument == "max_replicates":
            given |= {"target_rse": 0.1, "statistic": "mean"}
        before = np.geterr()
        try:
            with np.errstate(all="raise"):
                study = run_study(given.pop("quantity", "entropy"), **given)
        except (ValueError, TypeError, OSError) as error:
            sentence = str(error)
            assert "\n" not in sentence, (value, sentence)
            assert any(name in sentence for name in [argument, "replicates"]), (value, sentence)
        else:
            assert all(math.isfinite(row.estimate) for row in study.rows), value
        assert np.geterr() == before


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n_keys": 2**50}, r"d_k and n_keys: one replicate at d_k=3, n_keys=1125899906842624, .* holds 1\.1e\+15"),
        ({"d_k": 2**53 + 1}, r"d_k must be a whole number of at least 1 and at most 9007199254740992"),
        ({"replicates": 10**30}, r"replicates must be .* at most 9007199254740992"),
        ({"replicates": 2**53}, r"replicates asks for \d\.\de\+16 random numbers, some .* years of 1 workers"),
        ({"target_rse": 1e-12}, r"target_rse asks for .* replicates at d_k=3"),
        ({"target_rse": 1e-8}, r"target_rse asks for .* random numbers, some .* years"),
        ({"target_rse": 5e-324}, r"target_rse asks for inf replicates"),
        ({"workers": 10**6}, r"workers must be .* at most 1024"),
        ({"law": stats.norm}, r"law must be a frozen distribution, with parentheses: got scipy\.stats\.norm, unfrozen"),
        ({"law": ("normal", stats.gamma)}, r"law must be a frozen distribution"),
        ({"law": stats.gamma(-1)}, r"law gamma\(-1\) has parameters outside the domain of gamma"),
        ({"law": lambda rng, d_k: None}, r"law must be callable with \(rng, d_k, n_keys\)"),
        ({"law": lambda rng, d, n: (np.ones(d) * 1j, np.ones((n, d)))}, r"law '<lambda>' must return real numbers"),
        ({"score": lambda query: None}, r"score must be callable with \(query, key\)"),
        ({"store": ":memory:"}, r"store must be the path of a file: got ':memory:'"),
        ({"store": 3}, r"store must be the path of a file: got 3"),
        ({"seed": 10**5000}, r"seed must be a whole number of at most 4096 bits"),
    ],
)
def test_what_cannot_end_or_be_is_refused_at_once(changes, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        run_study("entropy", **{**BASE, **changes})


def test_a_cap_makes_any_target_possible():
    row = run_study("entropy", d_k=4, n_keys=4, scale="sqrt", target_rse=1e-300, max_replicates=np.int8(100)).rows[0]
    assert row.replicates == 100


def test_minutes_of_work_are_announced(capsys):
    effort.check_effort("replicates", 5e8, 1, shown=True)
    assert capsys.readouterr().err == ""
    effort.check_effort("replicates", 3.6e12, 2, shown=True)
    assert (
        capsys.readouterr().err == "attnsym: replicates asks for 3.6e+12 random numbers, some 10 hours of 2 workers\n"
    )
    effort.check_effort("replicates", 3.6e12, 2, shown=False)
    assert capsys.readouterr().err == ""
    with pytest.raises(ValueError, match=r"budget asks for .* years"):
        effort.check_effort("budget", 1e18, 2, shown=False)


@pytest.mark.parametrize("state", ["raise", "warn", "call"])
@pytest.mark.parametrize("setting", [{}, {"sampler": "direct", "precision": "single"}, {"law": stats.gamma(2)}])
def test_the_callers_error_state_changes_nothing(state, setting):
    settings = {"d_k": 64, "n_keys": 8, "scale": [1.0, 30.0], "replicates": 2000, "statistic": ("mean", "variance")}
    plain = run_study("jacobian_norm", **settings, **setting, workers=2)
    with np.errstate(all=state, call=lambda *_: pytest.fail("heard of an underflow")):
        assert run_study("jacobian_norm", **settings, **setting, workers=2) == plain
        assert set(np.geterr().values()) == {state}


def test_a_script_without_a_guard_is_told_so(tmp_path):
    script = tmp_path / "plain.py"
    study = "run_study('score', d_k=2, replicates=10, workers=1, executor='processes')"
    script.write_text(f"from analysis import run_study\n{study}\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120
    )
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("OSError: a worker process ended without an answer")
    assert "plain.py runs again in every worker: put what it does under if __name__ == '__main__':" in last
    assert run.stderr.count("Traceback") == 1


class FullDisk:
    """A connection whose disk is full from some statement on."""

    def __init__(self, connection, after):
        self.connection, self.left = connection, after

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def execute(self, statement, *arguments):
        if statement.startswith(("INSERT", "COMMIT")):
            self.left -= 1
            if self.left < 0:
                raise sqlite3.OperationalError("database or disk is full")
        return self.connection.execute(statement, *arguments)


@pytest.mark.parametrize("after", [0, 3])
def test_a_full_disk_loses_nothing_that_was_computed(tmp_path, monkeypatch, after):
    settings = {"d_k": [4, 8], "n_keys": 8, "replicates": 200_000, "workers": 1}
    opened = Store._open

    def fill(self, identity):
        opened(self, identity)
        self._connection = FullDisk(self._connection, after)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "_open", fill)
        with pytest.warns(RuntimeWarning, match=r"store .*s\.db cannot be written \(database or disk is full\)"):
            study = run_study("entropy", **settings, store=tmp_path / "s.db")
    assert study == run_study("entropy", **settings)
    assert run_study("entropy", **settings, store=tmp_path / "s.db") == study


def test_an_interrupt_between_commit_and_begin_leaves_a_store_in_order(tmp_path):
    settings = {"d_k": 4, "n_keys": 8, "replicates": 200_000, "workers": 1}
    whole = run_study("entropy", **settings)

    class Interrupting(FullDisk):
        def execute(self, statement, *arguments):
            if statement == "BEGIN" and self.left > 0:
                self.left = 0
                raise KeyboardInterrupt
            return self.connection.execute(statement, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        opened = Store._open

        def interrupted(self, identity):
            opened(self, identity)
            self._connection = Interrupting(self._connection, 1)

        patch.setattr(Store, "_open", interrupted)
        patch.setattr("analysis.measure.run.store._COMMIT_EVERY", 0.0)
        with pytest.raises(KeyboardInterrupt, match="kept in"):
            run_study("entropy", **settings, store=tmp_path / "s.db")
    assert run_study("entropy", **settings, store=tmp_path / "s.db") == whole


def test_the_command_says_what_cannot_end(capsys):
    command = ["study", "entropy", "--d-k", "16", "--n-keys", "16", "--target-rse", "1e-12"]
    assert main(command) == 2
    assert "target_rse asks for" in capsys.readouterr().err


@pytest.mark.parametrize("budget", ["1e308", "1e10"])
def test_a_budget_that_cannot_end_is_refused(budget, capsys):
    assert main(["confirm", "score-mean", "--budget", budget]) == 2
    assert "budget" in capsys.readouterr().err
