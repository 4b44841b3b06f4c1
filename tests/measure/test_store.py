"""A study killed at any moment resumes to the same bits; what is not its store is refused by name."""

import functools
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from analysis import Study, StudyInterrupted, run_study
from analysis.cli import main
from analysis.measure.draw import samplers

ROOT = Path(__file__).parent.parent.parent
STUDY = {"d_k": [4, 16], "n_keys": 256, "scale": "sqrt", "statistic": ("mean", "median"), "seed": 3, "workers": 1}
LONG = {"replicates": 120_000}  # 16 shards, most of a second
LENGTH = {"replicates": 40_000}  # 6 shards

SCRIPT = """
import sys
from analysis import run_study
print("ready", flush=True)
run_study("entropy", d_k=[4, 16], n_keys=256, scale="sqrt", statistic=("mean", "median"), seed=3, workers=1,
          replicates=120_000, store=sys.argv[1]).to_json(sys.argv[2])
"""


@pytest.fixture(scope="module")
def uninterrupted() -> Study:
    return run_study("entropy", **STUDY, **LENGTH)


@pytest.fixture(scope="module")
def never_killed() -> tuple[Study, float]:
    """The study, and the seconds that it takes here and now."""
    start = time.monotonic()
    return run_study("entropy", **STUDY, **LONG), time.monotonic() - start


def start(store: Path, result: Path) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, str(store), str(result)]
    return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE)


def shards_in(store: Path) -> int:
    try:
        with closing(sqlite3.connect(store)) as connection, connection:
            return connection.execute("SELECT count(*) FROM shards").fetchone()[0]
    except sqlite3.Error:
        return 0


def kill_at_random_times(directory: Path, kills: int, seed: int, lifetime: float) -> Study:
    """Start one study again and again, kill each at a random time of its life, then let it finish."""
    store, result = directory / "study.db", directory / "study.json"
    killed, stages = 0, set()
    for delay in np.random.default_rng(seed).uniform(0.0, 0.6 * lifetime, kills):
        process = start(store, result)
        process.stdout.readline()  # imports are over: the clock of the kill starts
        time.sleep(delay)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.communicate()
        stages.add(shards_in(store))
    assert killed > kills // 4, "many of the processes must be killed alive for this test to mean anything"
    assert any(0 < stage < 16 for stage in stages), "and at least one must leave a part of the study behind"
    finisher = start(store, result)
    finisher.communicate(timeout=120)
    assert finisher.returncode == 0
    return Study.from_json(result)


@pytest.mark.slow
def test_ten_kills_lose_nothing(tmp_path, never_killed):
    study, lifetime = never_killed
    assert kill_at_random_times(tmp_path, 10, seed=1, lifetime=lifetime) == study


@pytest.mark.slow
def test_a_hundred_kills_lose_nothing(tmp_path, never_killed):
    study, lifetime = never_killed
    for batch in range(10):
        directory = tmp_path / str(batch)
        directory.mkdir()
        assert kill_at_random_times(directory, 10, seed=100 + batch, lifetime=lifetime) == study


def test_finished_shards_are_not_drawn_again(tmp_path, uninterrupted, monkeypatch):
    store = tmp_path / "study.db"
    assert run_study("entropy", **STUDY, **LENGTH, store=store) == uninterrupted
    monkeypatch.setattr(samplers, "draw", lambda *_: pytest.fail("drawn again"))
    assert run_study("entropy", **STUDY, **LENGTH, store=store) == uninterrupted


def test_a_store_grows_with_the_replicates(tmp_path):
    store = tmp_path / "study.db"
    run_study("entropy", **STUDY, replicates=20_000, store=store)
    assert run_study("entropy", **STUDY, **LENGTH, store=store) == run_study("entropy", **STUDY, **LENGTH)


def interrupt_after(monkeypatch, shards: int):
    draw, calls = samplers.draw, []

    def interrupting(*arguments):
        calls.append(arguments)
        if len(calls) > shards:
            raise KeyboardInterrupt
        return draw(*arguments)

    monkeypatch.setattr(samplers, "draw", interrupting)


def test_an_interrupt_keeps_what_is_done_and_says_how_to_resume(tmp_path, monkeypatch, uninterrupted):
    store = tmp_path / "study.db"
    with monkeypatch.context() as patch:
        interrupt_after(patch, 5)
        with pytest.raises(
            StudyInterrupted, match=r"kept in .*study\.db: run the same study with that store"
        ) as caught:
            run_study("entropy", **STUDY, **LENGTH, store=store)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert caught.value.study.rows == uninterrupted.rows[: len(caught.value.study.rows)]
    assert shards_in(store) == 5
    assert run_study("entropy", **STUDY, **LENGTH, store=store) == uninterrupted


def test_an_interrupt_without_a_store_gives_the_finished_cells(monkeypatch, uninterrupted):
    with monkeypatch.context() as patch:
        interrupt_after(patch, 4)
        with pytest.raises(StudyInterrupted, match="nothing was stored") as caught:
            run_study("entropy", **STUDY, **LENGTH)
    assert caught.value.study.rows == uninterrupted.rows[:2]


def test_the_command_stops_with_130(tmp_path, monkeypatch, capsys):
    interrupt_after(monkeypatch, 1)
    arguments = ["study", "score", "--d-k", "4", "--scale", "sqrt", "--store", str(tmp_path / "s.db"), "--workers", "1"]
    assert main([*arguments, "--replicates", "200000"]) == 130
    assert "run the same study with that store again to resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seed": 4}, r"seed is 3 there and 4 here"),
        ({"seed": 0}, r"seed is 3 there and 0 here"),
        ({"d_k": [4, 32]}, r"d_k is \[4, 16\] there and \[4, 32\] here"),
        ({"scale": "unscaled"}, r"scale is \['sqrt'\] there"),
        ({"law": "uniform"}, r"law is 'normal' there and 'uniform' here; sampler is"),
        ({"softcap": 3.0}, r"softcap is None there and 3.0 here"),
        ({"statistic": "mean"}, r"statistic is"),
        ({"name": "other"}, r"name is 'entropy' there and 'other' here"),
        ({"precision": "single"}, r"precision is 'double' there"),
        ({"sampler": "direct"}, r"sampler is 'conditional' there"),
    ],
)
def test_another_study_is_refused_by_name(tmp_path, changes, sentence):
    store = tmp_path / "study.db"
    run_study("entropy", **STUDY, replicates=100, store=store)
    kept = store.read_bytes()
    with pytest.raises(ValueError, match=sentence):
        run_study("entropy", **{**STUDY, **changes}, replicates=100, store=store)
    assert store.read_bytes() == kept


def test_other_library_versions_are_refused(tmp_path, monkeypatch):
    run_study("entropy", **STUDY, replicates=100, store=tmp_path / "s.db")
    monkeypatch.setattr("analysis.measure.run.store.library_versions", lambda: {"numpy": "1.0"})
    with pytest.raises(ValueError, match=r"versions is .* there and \{'numpy': '1.0'\} here"):
        run_study("entropy", **STUDY, replicates=100, store=tmp_path / "s.db")


def damage(store: Path, kind: str) -> None:
    data = bytearray(store.read_bytes())
    if kind == "text":
        store.write_text("these are no shards\n" * 100)
    elif kind == "truncated":
        store.write_bytes(data[: len(data) // 2])
    elif kind == "foreign":
        store.unlink()
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("CREATE TABLE people (name TEXT)")
    elif kind == "one bit of a result":
        with closing(sqlite3.connect(store)) as connection, connection:
            (blob,) = connection.execute("SELECT result FROM shards").fetchone()
            flipped = bytes([blob[0] ^ 1]) + blob[1:]
            connection.execute("UPDATE shards SET result = ?", (flipped,))
    elif kind == "no identity":
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("DELETE FROM study")
    elif kind == "identity is no table":
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("UPDATE study SET identity = '[1]'")
    elif kind == "other schema":
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("PRAGMA user_version = 99")


DAMAGES = ["text", "truncated", "foreign", "one bit of a result", "no identity", "identity is no table", "other schema"]


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_store_is_reported_and_left_alone(tmp_path, kind):
    store = tmp_path / "study.db"
    run_study("entropy", **STUDY, replicates=3000, store=store)
    damage(store, kind)
    kept = store.read_bytes()
    with pytest.raises(ValueError, match=r"study\.db (is|was)"):
        run_study("entropy", **STUDY, replicates=3000, store=store)
    assert store.read_bytes() == kept


def test_every_flipped_byte_is_refused_or_harmless(tmp_path):
    store = tmp_path / "study.db"
    arguments = {**STUDY, "d_k": 4, "statistic": "mean", "replicates": 3000}
    right = run_study("entropy", **arguments, store=store)
    whole = store.read_bytes()
    for position in np.random.default_rng(0).integers(0, len(whole), 60):
        broken = bytearray(whole)
        broken[position] ^= 0xFF
        store.write_bytes(broken)
        try:
            outcome = run_study("entropy", **arguments, store=store)
        except (ValueError, OSError) as error:
            outcome = str(error)
        assert outcome == right or str(store) in outcome, position


def test_a_store_in_use_is_not_shared(tmp_path):
    store = tmp_path / "study.db"
    with closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("CREATE TABLE x (y)")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OSError, match="in use by another process"):
            run_study("entropy", **STUDY, replicates=100, store=store)


@pytest.mark.parametrize("place", [".", "missing/study.db"])
def test_a_store_needs_a_place(tmp_path, place):
    with pytest.raises(OSError, match="must be a file in a folder that exists"):
        run_study("entropy", **STUDY, replicates=100, store=tmp_path / place)


def power_of_first(query, key, scale, *, power):
    return query[:, 0, 0] ** power


def test_nameless_callables_cannot_be_stored(tmp_path):
    with pytest.raises(ValueError, match="law is a callable without a name"):
        run_study("score", d_k=2, law=lambda rng, d, n: (rng.random(d),) * 2, replicates=10, store=tmp_path / "s")
    with pytest.raises(ValueError, match="scale is a callable without a name"):
        run_study("score", d_k=2, scale=["sqrt", lambda d, n: 1.0], replicates=10, store=tmp_path / "s")
    with pytest.raises(ValueError, match="quantity is a callable without a name"):
        run_study(functools.partial(power_of_first, power=2), d_k=2, n_keys=1, replicates=10, store=tmp_path / "s")
    run_study(lambda q, k, s: q[:, 0, 0], d_k=2, n_keys=1, name="mine", replicates=10, store=tmp_path / "named.db")
