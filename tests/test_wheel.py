"""The wheel holds all that the commands need: installed apart from the sources, it writes the report."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_makes_the_report_and_audits_the_example(tmp_path):
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("attnsym-*.whl")
    site, empty = tmp_path / "site", tmp_path / "empty"
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True)
    empty.mkdir()
    environment = os.environ | {"PYTHONPATH": str(site)}

    def run(*arguments):
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=True).stdout

    assert run("-c", "import analysis, attnsym; print(analysis.__file__, attnsym.__file__)").count(str(site)) == 2
    assert "layer0" in run("-m", "analysis", "audit", "--example")
    assert "wrote report.html" in run("-m", "analysis", "report", "--no-confirm")
    assert (empty / "report.html").stat().st_size > 100_000
    assert (site / "attnsym" / "py.typed").exists()
    assert (site / "analysis" / "py.typed").exists()
