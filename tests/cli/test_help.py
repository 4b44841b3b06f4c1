"""Help, examples, names nearly right, ranges: what somebody at a prompt meets first."""

import json
import shlex

import pytest

from analysis import audit_files, confirm, run_study
from analysis.cli import main
from analysis.cli._app import int_list
from analysis.cli._examples import EXAMPLES
from attnsym.symbolic import derive

SLOW = ("report", "confirm", "audit --callable", "verify", "published", "compare")  # the last needs files of one's own
QUICK = [line for lines in EXAMPLES.values() for line in lines if not line.removeprefix("attnsym ").startswith(SLOW)]


def test_the_bare_command_says_where_to_begin(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    for line in ("attnsym report", "attnsym --help"):
        assert line in printed


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_ends_with_examples(command, capsys):
    assert main([command, "-h"]) == 0
    short = capsys.readouterr().out
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out == short
    assert f"Usage: attnsym {command}" in short
    for line in EXAMPLES[command]:
        assert line in short


@pytest.mark.parametrize("line", QUICK)
def test_examples_run(line, capsys):
    assert main(shlex.split(line)[1:]) == (1 if "--without" in line else 0)  # a withdrawn assumption is no pass
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["derive", "score-varience"], "'score-variance'"),
        (["predict", "entrpy", "--sigma", "1", "--n-keys", "3"], "'entropy'"),
        (["solve", "max_wight", ".5", "--n-keys", "3"], "'max_weight'"),
        (["study", "jacobian_trce", "--d-k", "3", "--n-keys", "3"], "'jacobian_trace'"),
        (["study", "score", "--d-k", "3", "--law", "laplas"], "'laplace'"),
        (["confirm", "scor-mean"], "'score-mean'"),
        (["list", "quantites"], "'quantities'"),
    ],
)
def test_a_name_nearly_right_is_suggested(arguments, meant, capsys):
    assert main(arguments) == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_underscores_hyphens_and_capitals_are_one_name():
    assert derive("Score_Variance") is derive("score-variance")
    settings = {"d_k": 4, "n_keys": 4, "replicates": 100}
    assert run_study("Jacobian-Trace", **settings).rows == run_study("jacobian_trace", **settings).rows
    with pytest.raises(ValueError, match="unknown derivation 3: known are score-mean"):
        derive(3)


def test_one_key_and_one_file_need_no_list(tmp_path):
    confirmation = confirm("score_mean", budget=0.05)
    assert [result.claim.key for result in confirmation.claims] == ["score-mean"]
    with pytest.raises(ValueError, match="unknown claim 'nothing'"):
        confirm("nothing")
    with pytest.raises(OSError, match=r"none\.npz"):
        audit_files(str(tmp_path / "none.npz"))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("16:128:2x", [16, 32, 64, 128]),
        ("16:100:2x", [16, 32, 64]),
        ("16:64", [16, 32, 64]),
        ("10:50:20", [10, 30, 50]),
        ("3,1e3", [3, 1000]),
        ("1:1:2x", [1]),
        ("1e0:1e2:10x", [1, 10, 100]),
    ],
)
def test_ranges_and_powers_of_ten_are_whole_numbers(text, numbers):
    assert int_list(text, "--d-k") == numbers


@pytest.mark.parametrize(
    "text", ["4:1", "1:8:1x", "1:8:0", "1:8:0x", "0:8:2x", "a:8", "1:2:3:4", "::", "1e-3", "1:1e9:1"]
)
def test_ranges_without_sense_are_refused(text):
    with pytest.raises(ValueError, match="--d-k takes"):
        int_list(text, "--d-k")


@pytest.mark.parametrize("what", ["quantities", "laws", "assumptions"])
def test_lists_name_what_other_commands_take(what, capsys):
    assert main(["list", what, "--json"]) == 0
    names = [item["name"] for item in json.loads(capsys.readouterr().out)]
    assert main(["list", what]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)
    assert len(names) > 5
