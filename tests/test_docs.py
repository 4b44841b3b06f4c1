"""The site's reference page names every public name, and nothing else."""

import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("package", ["attnsym", "attnsym.symbolic", "analysis"])
def test_the_reference_lists_the_public_names(package):
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    section = page[page.index(f"\n## {package}\n") :].split("\n## ")[1]
    listed = set(re.findall(r"^   (\w+)$", section, re.M)) | set(re.findall(r"`(\w+)`", section))
    assert listed == set(importlib.import_module(package).__all__)


def test_every_page_is_reached_from_the_index():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in [*DOCS.glob("*.md"), *DOCS.glob("notebooks/*.md")]:
        name = str(page.relative_to(DOCS).with_suffix(""))
        assert name == "index" or re.search(rf"^{name}$", index, re.M), f"{name} is in no table of contents"
