"""Ways out of a study: JSON that comes back equal, tables, data frames, progress, and the command."""

import contextlib
import errno
import io
import json
import math
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from analysis import Study, run_study
from analysis.cli import main
from analysis.measure.run.progress import progress_bar

ROOT = Path(__file__).parent.parent.parent
HOSTILE = "<script>alert(1)</script>[bold]&\"'"


@pytest.fixture(scope="module")
def study() -> Study:
    return run_study("entropy", d_k=[4, 16], n_keys=5, statistic=("mean", "median", 0.9), replicates=2000, workers=1)


# JSON


def test_json_comes_back_equal(study, tmp_path):
    study.to_json(tmp_path / "study.json")
    assert Study.from_json(tmp_path / "study.json") == study
    document = json.loads((tmp_path / "study.json").read_text())
    assert document["seed"] == 0
    assert set(document["versions"]) == {"attnsym", "numpy", "scipy", "machine"}
    assert list(tmp_path.iterdir()) == [tmp_path / "study.json"], "no temporary file stays behind"


def test_json_is_strict_for_every_float(study, tmp_path):
    odd = replace(study.rows[0], estimate=math.inf, interval=(-math.inf, 5e-324), prediction=None, z_score=-0.0)
    odd = Study((odd,), name=HOSTILE, seed=2**80)
    odd.to_json(tmp_path / "s.json")
    json.loads((tmp_path / "s.json").read_text(), parse_constant=lambda token: pytest.fail(token))
    assert Study.from_json(tmp_path / "s.json") == odd


def change(document, path, value):
    for step in path[:-1]:
        document = document[step]
    document[path[-1]] = value


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (["format"], "other", "does not say format"),
        (["format_version"], 2, "this version reads 1"),
        (["rows"], {}, "rows is not a list"),
        (["rows", 0], {}, "exactly the fields"),
        (["rows", 0, "d_k"], "4", "d_k is '4', not int"),
        (["rows", 0, "d_k"], True, "d_k is True, not int"),
        (["rows", 0, "calibrated"], 1, "calibrated is 1, not bool"),
        (["rows", 0, "interval"], [1.0], "interval is not a pair"),
        (["rows", 0, "estimate"], None, "estimate is None, not float"),
        (["rows", 0, "estimate"], [1], r"estimate is \[1\], not float"),
        (["seed"], 1.5, "seed is 1.5, not int"),
        (["versions"], [], "versions is not a table"),
    ],
)
def test_other_json_is_refused(study, tmp_path, path, value, sentence):
    target = tmp_path / "s.json"
    study.to_json(target)
    document = json.loads(target.read_text())
    change(document, path, value)
    target.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=rf"s\.json is not a study written by attnsym: .*{sentence}"):
        Study.from_json(target)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": NaN}', "[" * 100_000, "\xff\xfe", '{"format": "attnsym-study"}']
)
def test_files_that_are_no_study_are_refused(tmp_path, text):
    (tmp_path / "s.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="is not a study written by attnsym"):
        Study.from_json(tmp_path / "s.json")


def test_a_failing_write_keeps_the_old_file(study, tmp_path, monkeypatch):
    target = tmp_path / "s.json"
    study.to_json(target)
    before = target.read_bytes()

    def full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        run_study("score", d_k=2, replicates=10, workers=1).to_json(target)
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


def test_a_failing_write_names_the_path_of_the_caller(study, tmp_path):
    target = tmp_path / "absent" / "s.json"
    with pytest.raises(FileNotFoundError, match=f"^cannot write {re.escape(str(target))}: No such file"):
        study.to_json(target)


def test_a_place_that_cannot_be_written_is_refused_before_the_simulation(capsys, tmp_path, monkeypatch):
    def never(*arguments, **settings):
        raise AssertionError("the simulation has begun")

    monkeypatch.setattr("analysis.measure.study.run_study", never)
    for place, reason in ((tmp_path / "absent" / "s.json", "No such file"), (tmp_path, "Is a directory")):
        assert main(["study", "score", "--d-k", "4", "--output", str(place)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"attnsym: error: --output: cannot write {place}: {reason}")
    assert list(tmp_path.iterdir()) == []


def test_what_was_computed_is_printed_even_if_it_cannot_be_written(capsys, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    target = tmp_path / "s.json"
    arguments = ["study", "score", "--d-k", "4", "--replicates", "10", "--workers", "1", "--output", str(target)]
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert "mean of score" in captured.out
    assert captured.err == f"attnsym: error: cannot write {target}: No space left on device\n"
    assert list(tmp_path.iterdir()) == []


# Tables


def test_records_carry_every_field(study):
    records = study.to_records()
    assert len(records) == 2 * 2 * 3
    assert records[0]["interval"][0] < records[0]["estimate"] < records[0]["interval"][1]
    assert {"quantity", "law", "d_k", "standard_error", "prediction", "z_score", "sampler", "calibrated"} <= set(
        records[0]
    )


def test_data_frame(study):
    pytest.importorskip("pandas")
    frame = study.to_dataframe()
    assert frame.shape == (12, len(study.to_records()[0]) + 1)
    assert [*zip(frame["interval_low"], frame["interval_high"], strict=True)] == [row.interval for row in study.rows]
    assert list(frame["d_k"].unique()) == [4, 16]
    assert list(Study((), name="x", seed=0).to_dataframe().columns) == list(frame.columns)


def test_without_pandas_the_line_to_install_is_named(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        study.to_dataframe()


def test_the_notebook_table_escapes_names(study):
    hostile = Study(tuple(replace(row, quantity=HOSTILE, scale=HOSTILE) for row in study.rows), name=HOSTILE, seed=0)
    text = hostile._repr_html_()
    assert "<script" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;[bold]&amp;&quot;&#x27;") > len(study.rows)
    assert Study((), name="empty", seed=0)._repr_html_().startswith("<table>")


def test_the_figure_has_no_display(study):
    figure = study.plot()
    assert len(figure.axes) >= 1


# Progress


def drawn(console: Console) -> str:
    with progress_bar("entropy[bold]", 100, shown=True, console=console) as advance:
        advance(50)
        advance(50)
    return console.file.getvalue()


def test_progress_has_a_rate_and_the_time_left_on_a_terminal():
    text = drawn(Console(file=io.StringIO(), force_terminal=True, width=120))
    assert "entropy[bold]" in text
    assert "100%" in text
    assert "0:00:00" in text


def test_there_is_no_progress_in_a_pipe():
    assert drawn(Console(file=io.StringIO(), force_terminal=False)) == ""
    with progress_bar("x", 1, shown=False) as advance:
        advance(1)


COMMAND = ["study", "entropy", "--d-k", "4", "--n-keys", "10", "--replicates", "300000"]


def test_the_command_is_silent_on_stderr_in_a_pipe(capfd):
    assert main(COMMAND) == 0
    piped = capfd.readouterr()
    assert piped.err == ""
    assert "\x1b" not in piped.out


def test_the_command_shows_a_bar_on_a_terminal():
    status, text = run_on_a_terminal([sys.executable, "-m", "analysis", *COMMAND])
    assert status == 0
    assert "entropy" in text
    assert "replicates/s" in text


def run_on_a_terminal(command: list[str]) -> tuple[int, str]:
    """Run with stderr on a pseudo-terminal, reading along so that the command never waits for us."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=follower, cwd=ROOT, env=environment)
    os.close(follower)
    received = b""
    with contextlib.suppress(OSError):  # how a pseudo-terminal says that nobody writes any more
        while part := os.read(leader, 1 << 16):
            received += part
    os.close(leader)
    return process.wait(timeout=60), received.decode()


# Command


def test_the_table_of_the_command(capsys):
    assert main(["study", "score", "--d-k", "4,64", "--statistic", "variance", "--scale", "unscaled"]) == 0
    text = capsys.readouterr().out
    assert "variance of score, law normal, 100,000 replicates, conditional sampler" in text
    assert text.count("unscaled") == 2
    assert " 64 " in text


def test_the_json_of_the_command_is_the_study(capsys, tmp_path):
    arguments = ["study", "entropy", "--d-k", "4", "--n-keys", "5,7", "--scale", "1/d_k,0.5", "--statistic", "mean,0.9"]
    arguments += ["--law", "uniform,normal", "--softcap", "3", "--replicates", "500", "--seed", "3", "--name", "mine"]
    assert main([*arguments, "--json", "--output", str(tmp_path / "s.json")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((tmp_path / "s.json").read_text())
    expected = run_study(
        "entropy",
        d_k=4,
        n_keys=[5, 7],
        scale=["1/d_k", 0.5],
        statistic=["mean", 0.9],
        law=("uniform", "normal"),
        softcap=3,
        replicates=500,
        seed=3,
        name="mine",
    )
    assert Study.from_json(tmp_path / "s.json") == expected


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing", "--d-k", "4", "--n-keys", "5"], "unknown quantity 'nothing'"),
        (["entropy", "--d-k", "four", "--n-keys", "5"], "--d-k takes whole numbers separated by commas: got 'four'"),
        (["entropy", "--d-k", "-4", "--n-keys", "5"], "d_k must be a whole number of at least 1: got -4"),
        (["entropy", "--d-k", "4"], "n_keys is missing"),
        (["entropy", "--d-k", "4", "--n-keys", "5", "--scale", "none"], "scale 'none' is ambiguous"),
        (["entropy", "--d-k", "4", "--n-keys", "5", "--scale", "__import__('os')"], "__import__"),
        (["entropy", "--d-k", "4", "--n-keys", "5", "--law", "cauchy"], "unknown law 'cauchy'"),
        (["score", "--d-k", "4", "--target-rse", "0.1"], "is exactly 0"),
        (["score", "--d-k", "4", "--store", "no/such/folder/s.db"], "must be a file in a folder that exists"),
        (["score", "--d-k", "4", "--replicates", "9", "--output", "no/such/folder/s.json"], "No such file"),
        (["score", "--d-k", "4", "--dask", "tcp://x:1", "--processes"], "leave out --processes"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, sentence, capsys):
    assert main(["study", *arguments]) == 2
    errors = capsys.readouterr().err
    assert sentence in errors
    assert errors.count("\n") == 1


@pytest.mark.slow
def test_the_grid_of_the_guide_meets_its_predictions(capsys):
    arguments = ["study", "entropy", "--d-k", "1,4,16,64,256,1024,4096", "--n-keys", "10,128,1024", "--json"]
    assert main(arguments) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 42
    assert all(abs(row["z_score"]) < 5 for row in rows)
