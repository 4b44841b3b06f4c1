"""The site: every page is reached from its index."""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_every_page_is_reached_from_the_index():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in [*DOCS.glob("*.md"), *DOCS.glob("notebooks/*.md")]:
        name = str(page.relative_to(DOCS).with_suffix(""))
        assert name == "index" or re.search(rf"^{name}$", index, re.M), f"{name} is in no table of contents"
