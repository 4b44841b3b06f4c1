"""`attnsym derive`, `verify` and `prove`: output, JSON, exit codes, and sentences for bad input."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from analysis.cli import main


def run(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_derive(capsys):
    code, out, err = run(capsys, "derive", "score-variance")
    assert (code, err) == (0, "")
    assert "Var(kᵀq) = d_k" in out
    assert "independence [A1]" in out
    assert "TRUE" in out


def test_derive_without(capsys):
    code, out, _ = run(capsys, "derive", "score-variance", "--without", "independent(q, k)")
    assert code == 1
    assert "✗ breaks" in out
    assert "k = q" in out


def test_derive_formats(capsys):
    code, out, _ = run(capsys, "derive", "score-mean", "--format", "latex")
    assert code == 0
    assert r"\mathbb{E}" in out
    code, out, _ = run(capsys, "derive", "score-mean", "--format", "mathml", "--convention", "rows")
    assert code == 0
    assert ElementTree.fromstring(out).tag == "section"


def test_derive_json(capsys):
    code, out, _ = run(capsys, "derive", "score-mean", "--json")
    record = json.loads(out)
    assert code == 0
    assert record["verdict"] == "TRUE"
    assert record["assumptions"] == ["independent(q, k)", "zero_mean(q)"]
    (needs,) = record["weakest_assumptions"]
    assert needs["statement"] == "E[kᵀq] = 0"
    assert needs["sets"][0][0] == "uncorrelated(q, k)"
    assert [step["rule"] for step in record["steps"]][-1] == "moments"


def test_verify(capsys):
    code, out, _ = run(capsys, "verify", "score-mean", "softmax-saturation")
    assert code == 0
    assert "2 of 2 derivations TRUE" in out
    assert "trusts: " in out


def test_verify_json(capsys):
    code, out, _ = run(capsys, "verify", "score-mean", "--json")
    assert code == 0
    assert json.loads(out)["derivations"][0]["verdict"] == "TRUE"


def test_prove(capsys):
    given = "independent(q,k), uncorrelated(q), zero_mean(q), zero_mean(k), unit_variance(q), unit_variance(k)"
    code, out, _ = run(capsys, "prove", "Var(Sum(q[i]*k[i], i))", "d_k", "--assume", given)
    assert code == 0
    assert out.startswith("TRUE")
    code, out, _ = run(capsys, "prove", "Var(Sum(q[i]*k[i], i))", "d_k")
    assert code == 1
    assert out.startswith("FALSE")
    code, out, _ = run(capsys, "prove", "E(p[i]**2)", "1", "--assume", "exchangeable(p)", "--json")
    assert code == 1
    assert json.loads(out)["verdict"] == "UNKNOWN"


@pytest.mark.parametrize(
    "arguments",
    [
        ("derive", "nonsense"),
        ("derive", "score-mean", "--format", "pdf"),
        ("derive", "score-mean", "--convention", "diagonal"),
        ("derive", "score-mean", "--without", "gaussian(q)"),
        ("derive",),
        ("verify", "nonsense"),
        ("prove", "E(q[i])"),
        ("prove", "__import__('os')", "0"),
        ("prove", "E(q[1])", "0"),
        ("prove", "E(q[i])", "0", "--assume", "magic(q)"),
        ("prove", "9**9**9", "0"),
    ],
)
def test_bad_input(capsys, arguments):
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err
