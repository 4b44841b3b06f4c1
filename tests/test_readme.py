"""What the README, the guides and the docstrings tell a reader to run, runs."""

import contextlib
import doctest
import importlib
import io
import re
from pathlib import Path

import pytest

from analysis import PUBLISHED

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in ("attnsym", "analysis")
    for path in sorted((ROOT / package).rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run_and_print_what_the_page_shows(page, tmp_path, monkeypatch):
    """Blocks of one page share a namespace; a ```text block after a ```python block is its output, to the letter."""
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": page.stem}
    for code, shown in re.findall(r"^```python\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", text, flags=re.M | re.S):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, page.name, "exec"), namespace)
        if shown:
            assert printed.getvalue() == shown


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_of_docstrings_print_what_they_show(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > found.failed == 0


def test_contributing_names_what_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:attnsym|analysis|tests|benchmarks|\.ci)/[\w./]*)`", text)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_ci_runs_the_readme_test_command():
    commands = [line for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines() if "pytest" in line]
    assert len(commands) == 1
    assert commands[0] in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_readme_links_exist():
    made = {f"sentences/{sentence.key}.md" for sentence in PUBLISHED}  # by docs/conf.py
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert target in made or (page.parent / target).exists(), f"{page.name} links to {target}"
