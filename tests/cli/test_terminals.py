"""Where output goes: poor encodings, closing pipes, full disks, closed streams, strict Pythons, bare environments."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.cli import main

ROOT = Path(__file__).parent.parent.parent
COMMANDS = {
    "help": ["--help"],
    "help of a command": ["predict", "--help"],
    "list": ["list"],
    "explain": ["explain", "--query", "1", "--keys", "0,1"],
    "derive": ["derive", "score-variance"],
    "latex": ["derive", "score-mean", "--format", "latex"],
    "verify": ["verify", "score-mean", "score-variance"],
    "prove": ["prove", "E(q[i])", "0", "--assume", "zero_mean(q)"],
    "predict": ["predict", "entropy", "--d-k", "4", "--n-keys", "4"],
    "solve": ["solve", "entropy_fraction", "0.5", "--n-keys", "8", "--d-k", "4"],
    "study": ["study", "score", "--d-k", "4", "--replicates", "100"],
    "confirm": ["confirm", "score-mean", "--budget", "0.1"],
    "audit": ["audit", "--example"],
}
AS_JSON = {
    f"{name} --json": [*arguments, "--json"] for name, arguments in COMMANDS.items() if "--format" not in arguments
}


class Terminal(io.TextIOWrapper):
    """What Python opens on a terminal or file of this encoding."""

    def __init__(self, encoding):
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)

    def text(self):
        return self.buffer.getvalue().decode(self.encoding)


@pytest.mark.parametrize(
    ("encoding", "arguments"),
    [("ascii", line) for line in COMMANDS.values()] + [("cp1252", line) for line in AS_JSON.values()],
    ids=[*COMMANDS, *AS_JSON],
)
def test_any_encoding_takes_any_output(monkeypatch, encoding, arguments):
    out, err = Terminal(encoding), Terminal(encoding)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert main(arguments) == 0, err.text()
    assert out.text().strip()
    assert (sys.stdout, out.errors) == (out, "strict"), "the caller's streams are as they were"
    if arguments[-1] == "--json" and "--help" not in arguments:
        json.loads(out.text(), parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))


def test_what_an_encoding_lacks_is_spelled_out(monkeypatch):
    out = Terminal("ascii")
    monkeypatch.setattr(sys, "stdout", out)
    main(["derive", "score-variance"])
    assert "Var(k^Tq)" in out.text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full stands for a full disk")
@pytest.mark.parametrize("arguments", [["--help"], ["explain", "--query", "1", "--keys", "0", "--json"]])
def test_a_full_disk_is_told_and_is_no_verdict(arguments):
    with open("/dev/full", "w", encoding="utf-8") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "attnsym", *arguments], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (
        2,
        "attnsym: error: standard output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [("derive score-variance --without 'independent(q,k)'", 1), ("predict --help", 0)],
)
def test_a_pipe_that_closes_early_leaves_the_verdict(command, code):
    shell = f"{sys.executable} -m attnsym {command} | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", shell], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.stdout.strip(), ended.stderr) == (str(code), "")


@pytest.mark.parametrize(
    ("arguments", "closed", "code"),
    [
        ("explain --query 1 --keys 0", ">&- 2>&-", 0),
        ("explain --query x --keys 1", ">&- 2>&-", 2),
        ("explain --query x --keys 1", ">/dev/null 2>/dev/full", 2),
    ],
)
def test_closed_streams_are_no_failure(arguments, closed, code):
    ended = subprocess.run(["bash", "-c", f"{sys.executable} -m attnsym {arguments} {closed}"], cwd=ROOT, check=False)
    assert ended.returncode == code


def test_a_stop_before_the_command_has_loaded_is_told(monkeypatch, capsys):
    from attnsym import __main__ as command

    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(command.importlib, "import_module", interrupted)
    assert command.main() == 128 + signal.SIGINT
    assert capsys.readouterr().err == "attnsym: stopped\n"


STRICT = ["-OO", "-bb", "-X", "dev", "-W", "error"]  # no asserts, no docstrings; warnings, late closing too, are errors
STRANGE = {"LC_ALL": "tr_TR.ISO-8859-9", "HOME": "/nonexistent", "TERM": "dumb", "COLUMNS": "20"}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=list(COMMANDS))
def test_a_strict_python_in_a_strange_place(arguments):
    ended = subprocess.run(
        [sys.executable, *STRICT, "-m", "attnsym", *arguments], cwd=ROOT, env=os.environ | STRANGE,
        capture_output=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["study", "audit", "confirm"])
def test_an_empty_environment(command):
    ended = subprocess.run(
        [sys.executable, "-m", "attnsym", *COMMANDS[command]], cwd=ROOT, env={}, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
