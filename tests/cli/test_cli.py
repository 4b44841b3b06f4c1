"""The command as a user meets it: results on stdout, one sentence on stderr, exit codes, no traceback."""

import numpy as np
import pytest

import attnsym
from analysis.cli import main

SUBCOMMANDS = [
    "list",
    "explain",
    "derive",
    "verify",
    "prove",
    "compute",
    "predict",
    "solve",
    "study",
    "confirm",
    "published",
    "audit",
    "compare",
    "report",
]


def run(capsys, *arguments):
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_help_lists_every_command(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    listed = [line.split()[0] for line in out.split("Commands:")[1].splitlines() if line.strip()]
    assert [word for word in listed if word in SUBCOMMANDS] == SUBCOMMANDS


def test_version(capsys):
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.startswith(f"attnsym {attnsym.__version__} (numpy ")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "corrupt.npz").write_bytes(b"PK\x03\x04 not a zip")
    (tmp_path / "notes.txt").write_text("hello")
    np.savez(tmp_path / "mismatch.npz", q=np.zeros((1, 2, 3, 8)), k=np.zeros((1, 2, 3, 16)))
    return tmp_path


BAD = {
    "no such command": (["frobnicate"], "frobnicate"),
    "missing option": (["explain", "--query", "1"], "--keys"),
    "not a number": (["explain", "--query", "x", "--keys", "1"], "'x'"),
    "ragged": (["explain", "--query", "1,2", "--keys", "1,2;3"], "keys"),
    "unknown derivation": (["derive", "score-varience"], "score-varience"),
    "unknown assumption": (["derive", "score-variance", "--without", "gravity"], "gravity"),
    "hostile expression": (["prove", "__import__('os').system('touch canary')", "1"], "__import__"),
    "unknown quantity": (["predict", "entropie", "--d-k", "4", "--n-keys", "4"], "entropie"),
    "negative d_k": (["predict", "entropy", "--d-k", "-4", "--n-keys", "4"], "d_k"),
    "zero keys": (["predict", "entropy", "--d-k", "4", "--n-keys", "0"], "n_keys"),
    "fractional d_k": (["study", "entropy", "--d-k", "1.5", "--n-keys", "4"], "1.5"),
    "scale none": (["study", "entropy", "--d-k", "4", "--n-keys", "4", "--scale", "none"], "none"),
    "hostile scale": (["predict", "entropy", "--d-k", "4", "--n-keys", "4", "--scale", "exit()"], "exit"),
    "unknown claim": (["confirm", "score-varience"], "score-varience"),
    "negative replicates": (["study", "score", "--d-k", "4", "--replicates", "-5"], "replicates"),
    "negative target": (["solve", "entropy", "-4", "--n-keys", "8"], "-4"),
    "option misspelt beside a negative target": (["solve", "entropy", "-4", "--n-kyes", "8"], "--n-keys"),
    "target out of reach": (["solve", "entropy_fraction", "1.5", "--n-keys", "8"], "1.5"),
    "missing file": (["audit", "absent.npz"], "absent.npz"),
    "empty file": (["audit", "empty.npz"], "empty.npz"),
    "corrupt file": (["audit", "corrupt.npz"], "corrupt.npz"),
    "foreign file": (["audit", "notes.txt"], "notes.txt"),
    "shapes that do not fit": (["audit", "mismatch.npz"], "d_k"),
    "missing module": (["audit", "--callable", "no_such_module:f"], "no_such_module"),
    "seed": (["confirm", "--seed", "abc"], "'abc'"),
    "budget": (["confirm", "--budget=1m"], "'1m'"),
    "target": (["solve", "entropy_fraction", "abc", "--n-keys", "4"], "'abc'"),
    "format of JSON": (["derive", "score-mean", "--format", "latex", "--json"], "leave out --format latex"),
    "division by zero": (["prove", "1/0", "0"], "'1/0' divides by zero"),
    "unwritable report": (["report", "--output", "absent/report.html"], "absent"),
    "unwritable study": (["study", "score", "--d-k", "4", "--replicates", "10", "--output", "absent/s.json"], "absent"),
}


@pytest.mark.parametrize(("arguments", "named"), BAD.values(), ids=list(BAD))
def test_bad_input_gets_one_sentence_and_exit_code_2(capsys, monkeypatch, files, arguments, named):
    monkeypatch.chdir(files)
    code, out, err = run(capsys, *arguments)
    assert code == 2, (out, err)
    lines = err.strip().splitlines()
    assert lines[-1].startswith("attnsym: error: ")
    assert named in lines[-1]
    assert "Traceback" not in err
    assert not (files / "canary").exists()


def test_a_failed_verdict_exits_1(capsys):
    assert run(capsys, "prove", "E(q[i])", "1", "--assume", "zero_mean(q)")[0] == 1
    assert run(capsys, "derive", "score-variance", "--without", "independent(q,k)")[0] == 1
