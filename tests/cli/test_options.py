"""
Every option of every command with values that nobody means: an answer or one sentence, and soon.

The options are read off the commands, so that a new one is swept without an edit here.
"""

import contextlib
import io
import sys
import typing
import warnings
from pathlib import Path

import pytest

from analysis.cli import app, main

BASE = {
    "explain": ["--query", "1,2", "--keys", "0,1;1,1"],
    "derive": ["score-mean"],
    "verify": ["score-mean"],
    "prove": ["E(q[i])", "0", "--assume", "zero_mean(q)"],
    "compute": ["Var(Sum(q[i]*k[i], i))", "--assume", "independent(q,k), zero_mean(q)"],
    "predict": ["entropy", "--d-k", "4", "--n-keys", "4"],
    "solve": ["entropy_fraction", "0.5", "--n-keys", "8", "--d-k", "4"],
    "study": ["entropy", "--d-k", "4", "--n-keys", "4", "--replicates", "100"],
    "confirm": ["score-mean", "--budget", "0.01"],
    "audit": ["--example"],
}
STEERING = "\x1b[31m\u202e"
WHOLE = ["-1", "0", "9223372036854775808", "1" + "0" * 30]
REAL = ["nan", "inf", "-inf", "1e308", "1e-320", "-1", "0"]
TEXT = ["", ",", "nan", "-inf", "1e308", "1e-320", "9" * 30, "-1", "0", STEERING, "a" * 5000]


def options():
    """Yield command, option and values (whole numbers, numbers or text) of every option that takes one."""
    for command in app.registered_commands:
        if command.name not in BASE:
            continue
        names = vars(sys.modules[command.callback.__module__]) | {"Path": Path}
        hints = typing.get_type_hints(command.callback, names, include_extras=True)
        for name, hint in hints.items():
            kind, *details = typing.get_args(hint) or (hint,)
            if details and type(details[0]).__name__ == "OptionInfo" and "bool" not in str(kind):
                declared = [word for word in details[0].param_decls or () if word.startswith("--")]
                values = WHOLE if "int" in str(kind) else REAL if "float" in str(kind) else TEXT
                yield command.name, (declared or ["--" + name.replace("_", "-")])[0], values


OPTIONS = list(options())


def command_line(command, option, value):
    base = [command, *BASE[command]]
    if option not in base:
        return [*base, option, value]
    place = base.index(option) + 1
    return [*base[:place], value, *base[place + 1 :]]


def check(arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    shown = out.getvalue() + err.getvalue()
    assert code in (0, 1, 2), (arguments, code)
    assert shown.replace("\n", "").isprintable(), (arguments, shown)
    if code == 2:
        assert err.getvalue().startswith("attnsym: error: "), (arguments, shown)
        assert err.getvalue().count("\n") == 1, (arguments, shown)
        assert len(err.getvalue()) < 1500, (arguments, shown)
    else:
        assert err.getvalue() == "", (arguments, shown)
        assert " -0 " not in shown, (arguments, shown)


def test_options_are_found():
    found = {(command, option) for command, option, _ in OPTIONS}
    assert {("study", "--target-rse"), ("audit", "--num-heads"), ("derive", "--without")} <= found


@pytest.mark.parametrize("command", BASE)
def test_what_steers_a_terminal_is_shown_escaped(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for option in (option for name, option, values in OPTIONS if name == command and values is TEXT):
        check(command_line(command, option, STEERING))


@pytest.mark.slow
@pytest.mark.parametrize(("command", "option", "values"), OPTIONS, ids=[f"{c} {o}" for c, o, _ in OPTIONS])
def test_any_value_is_answered_or_refused_in_one_sentence(command, option, values, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the caller would see it
        for value in values:
            check(command_line(command, option, value))
