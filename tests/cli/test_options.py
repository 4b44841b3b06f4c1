"""
Every option and argument of every command with values that nobody means: an answer or one sentence, and soon.

They are read off the commands, so that a new one is swept without an edit here.
"""

import contextlib
import io
import sys
import typing
import warnings
from pathlib import Path

import numpy as np
import pytest

from analysis.cli import app, main

# What each command is otherwise given, arguments first; several where options go with different inputs.
BASES = {
    "list": [["claims"]],
    "explain": [["--query", "1,2", "--keys", "0,1;1,1"]],
    "derive": [["score-mean"]],
    "verify": [["score-mean"]],
    "prove": [["E(q[i])", "0", "--assume", "zero_mean(q)"]],
    "compute": [["Var(Sum(q[i]*k[i], i))", "--assume", "independent(q,k), zero_mean(q)"]],
    "predict": [
        ["entropy", "--d-k", "4", "--n-keys", "4"],
        ["key_weight", "--sigma", "1", "--n-keys", "4", "--causal"],
        ["row_sum", "--sigma", "1", "--n-keys", "4", "--normalizer", "sigmoid"],
    ],
    "solve": [["entropy_fraction", "0.5", "--n-keys", "8"]],
    "design": [
        ["--d-model", "64", "--d-k", "4", "--n-keys", "4"],
        ["--d-model", "64", "--d-k", "4", "--n-keys", "4", "--qk-norm", "rms"],
    ],
    "length": [["--n-keys", "4,16"]],
    "study": [
        ["entropy", "--d-k", "4", "--n-keys", "4", "--replicates", "100"],
        ["row_sum", "--d-k", "4", "--n-keys", "4", "--replicates", "100", "--normalizer", "sigmoid"],
    ],
    "confirm": [["score-mean", "--budget", "0.01"]],
    "published": [["key-bias-matters"]],
    "audit": [
        ["--example"],
        ["--callable", "attnsym:scaled_dot_product_attention"],
        ["weights.npz", "--weights", "--num-heads", "2"],
        ["run", "--weights", "--num-heads", "2"],
    ],
    "compare": [["tensors.npz", "tensors.npz"], ["weights.npz", "weights.npz", "--weights", "--num-heads", "2"]],
    "report": [["--no-confirm"]],
}
STEERING = "\x1b[31m\u202e"
WHOLE = ["-1", "0", "9223372036854775808", "1" + "0" * 30]
REAL = ["nan", "inf", "-inf", "1e308", "1e-320", "-1", "0"]
TEXT = ["", ",", "nan", "-inf", "1e308", "1e-320", "9" * 30, "-1", "0", STEERING, "a" * 5000]


def swept():
    """Yield command, base, what is changed in it (an option, or the place of an argument) and the values given."""
    for command in app.registered_commands:
        names = vars(sys.modules[command.callback.__module__]) | {"Path": Path}
        hints = typing.get_type_hints(command.callback, names, include_extras=True)
        place = 0
        for name, hint in hints.items():
            kind, *details = typing.get_args(hint) or (hint,)
            if not details or "bool" in str(kind):
                continue
            values = WHOLE if "int" in str(kind) else REAL if "float" in str(kind) else TEXT
            if type(details[0]).__name__ == "ArgumentInfo":
                changed, place = place, place + 1
            else:
                declared = [word for word in details[0].param_decls or () if word.startswith("--")]
                changed = (declared or ["--" + name.replace("_", "-")])[0]
            for base in BASES[command.name]:
                yield command.name, base, changed, values


SWEPT = list(swept())


def command_line(command, base, changed, value):
    if isinstance(changed, str) and changed not in base:
        return [command, *base, changed, value]
    place = changed if isinstance(changed, int) else base.index(changed) + 1
    if place < len(base) and not (isinstance(changed, int) and base[place].startswith("--")):
        return [command, *base[:place], value, *base[place + 1 :]]
    return [command, value, *base]


def check(arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    shown = out.getvalue() + err.getvalue()
    assert code in (0, 1, 2), (arguments, code)
    assert shown.replace("\n", "").isprintable(), (arguments, shown)
    if code == 2:
        *stages, sentence = err.getvalue().splitlines()
        assert sentence.startswith("attnsym: error: "), (arguments, shown)
        assert not stages or arguments[0] == "report", (arguments, shown)  # which tells its stages
        assert len(err.getvalue()) < 1500, (arguments, shown)
    else:
        assert err.getvalue() == "" or arguments[0] == "report", (arguments, shown)
        assert " -0 " not in shown, (arguments, shown)


def test_options_and_arguments_are_found():
    found = {(command, changed) for command, _, changed, _ in SWEPT}
    assert {("study", "--target-rse"), ("audit", "--tokens"), ("length", "--plot"), ("derive", "--without")} <= found
    assert {("solve", 1), ("published", 0), ("compare", 1)} <= found
    assert {command.name for command in app.registered_commands} == set(BASES)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with tensors, a checkpoint and a run of two, where a report draws little."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("analysis.cli.report._D_K", (4,))
    monkeypatch.setattr("analysis.show.report._render", lambda *_: "page")
    q, k = np.random.default_rng(0).standard_normal((2, 1, 2, 6, 4))
    np.savez("tensors.npz", q=q, k=k)
    weights = {f"layers.0.self_attn.{name}_proj.weight": np.eye(8) for name in "qk"}
    np.savez("weights.npz", **weights)
    for step in (1, 2):
        Path("run", f"checkpoint-{step}").mkdir(parents=True)
        np.savez(f"run/checkpoint-{step}/model.npz", **weights)


@pytest.mark.parametrize("command", BASES)
def test_what_steers_a_terminal_is_shown_escaped(command, files):
    for name, base, changed, values in SWEPT:
        if name == command and values is TEXT and base is BASES[name][0]:
            check(command_line(name, base, changed, STEERING))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "base", "changed", "values"),
    SWEPT,
    ids=[f"{command} {changed} {BASES[command].index(base)}" for command, base, changed, _ in SWEPT],
)
def test_any_value_is_answered_or_refused_in_one_sentence(command, base, changed, values, files):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the caller would see it
        for value in values:
            check(command_line(command, base, changed, value))
