"""The installed command, as a process: what lies in the folder where it starts is the user's business."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attnsym import __main__ as command

ROOT = Path(__file__).parent.parent.parent
SCRIPT = "import sys; from attnsym.__main__ import main; sys.exit(main())"  # what pip writes into `bin/attnsym`


def run(folder, *arguments, first=""):
    """Run in `folder` with `first` before the sources on PYTHONPATH."""
    path = os.pathsep.join(filter(None, [str(first), str(ROOT)]))
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.fixture(params=["package", "module"])
def rival(request, tmp_path):
    """A folder that holds another `analysis`, and an attention function in a module beside it."""
    target = tmp_path / ("analysis/__init__.py" if request.param == "package" else "analysis.py")
    target.parent.mkdir(exist_ok=True)
    target.write_text("OWNER = 'somebody else'\n", encoding="utf-8")
    (tmp_path / "mine.py").write_text("from attnsym import scaled_dot_product_attention as attend\n", encoding="utf-8")
    return tmp_path


def test_a_folder_named_analysis_does_not_take_the_command_over(rival, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    by_module = run(rival, "-m", "attnsym", "explain", "--query", "1", "--keys", "0,1")
    by_script = run(elsewhere, "-c", SCRIPT, "explain", "--query", "1", "--keys", "0,1", first=rival)
    assert by_module.returncode == by_script.returncode == 0, by_module.stderr + by_script.stderr
    assert by_module.stdout == by_script.stdout != ""


@pytest.mark.slow
def test_processes_and_functions_are_found_beside_a_folder_named_analysis(rival):
    study = run(rival, "-m", "attnsym", "study", "score", "--d-k", "4", "--replicates", "100", "--processes")
    assert (study.returncode, study.stderr) == (0, "")
    audit = run(rival, "-m", "attnsym", "audit", "--callable", "mine:attend")
    assert (audit.returncode, audit.stderr) == (0, "")


@pytest.mark.parametrize("ours_listed", [True, False])
def test_only_rivals_in_front_move(monkeypatch, tmp_path, ours_listed):
    rivals = [tmp_path / name for name in ("one", "two")]
    for folder in rivals:
        (folder / "analysis").mkdir(parents=True)
        (folder / "analysis" / "__init__.py").touch()
    (tmp_path / "plain").mkdir()
    one, two, plain = str(rivals[0]), str(rivals[1]), str(tmp_path / "plain")
    monkeypatch.setattr(sys, "path", [one, plain, str(ROOT), two] if ours_listed else [one, plain, two])
    command.prefer_own_analysis()
    assert sys.path == [plain, str(ROOT), one, two]
