"""The documentation site: ``sphinx-build -W docs docs/_build/html``."""

import importlib
import re
from importlib.metadata import version as installed
from pathlib import Path

project = "attnsym"
author = "The attnsym developers"
copyright = author
version = release = installed("attnsym")
extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build", "readme_picture.py"]

default_role = "py:obj"  # single backticks in docstrings name Python objects
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_merge_streams = True
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"  # numpydoc's sections say types, shapes and units
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "furo"
html_title = "attnsym"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
templates_path = ["_templates"]

PACKAGES = {
    "attnsym": "The attention core.",
    "attnsym.symbolic": "Derivations, notation and the checker.",
    "analysis": "Predictions, studies, claims, audits, figures and the report.",
}


def reference_page():
    """Return the page of all public names, from the packages themselves: nothing can be missing from it."""
    lines = ["# API", "", "Every public name; each opens its own page.", ""]
    for package, words in PACKAGES.items():
        module = importlib.import_module(package)
        pages = sorted(name for name in module.__all__ if callable(getattr(module, name)))
        lines += [
            f"## {package}",
            "",
            words,
            "",
            "```{eval-rst}",
            f".. currentmodule:: {package}",
            "",
            ".. autosummary::",
        ]
        lines += ["   :toctree: generated", "   :nosignatures:", "", *(f"   {name}" for name in pages), "```", ""]
        others = ", ".join(f"`{name}`" for name in sorted(set(module.__all__) - set(pages)))
        lines += [f"Also: {others}.", ""] * bool(others)
    return "\n".join(lines)


Path(__file__).with_name("api.md").write_text(reference_page(), encoding="utf-8")


def sentence_page(view):
    """Return the page of one published sentence: its grounds, and its figures as they stand in the report."""
    lines = [
        f"# {view['key']}",
        "",
        f"**{_plain(view['verdict'])}.** {_plain(view['sentence'])}",
        "",
        f"Source: {_plain(view['source'])}.",
        "",
    ]
    if view["assumptions"]:
        lines += [f"Assumes or leaves out: {_plain('; '.join(view['assumptions']))}.", ""]
    for holds, regime, words in view["findings"]:
        where = f" ({regime})" if regime else ""
        lines += [f"- {FOUND.get(holds, holds)}{where}: {_plain(words)}"]
    lines += ["", _plain(view["remark"]), ""]
    for figure in view["figures"]:
        lines += ["```{raw} html", str(figure), "```", ""]
    lines += [line for words in view["plain"] for line in (_plain(words), "")]
    lines += [f"- {_plain(words)}" for words in view["table"]]
    return "\n".join(lines)


def _plain(words):
    """Keep what Markdown would read as emphasis or as a formula."""
    return re.sub(r"([*_$|<>])", r"\\\1", words)


FOUND = {"exactly": "Holds", "no": "Fails", "to leading order": "Holds to leading order"}


def sentence_pages():
    """Write the page of every published sentence, adjudicated anew."""
    from analysis import PUBLISHED
    from analysis.show.published_view import sentence_view

    folder = Path(__file__).with_name("sentences")
    folder.mkdir(exist_ok=True)
    for sentence in PUBLISHED:
        page = sentence_page(sentence_view(sentence.adjudicate()))
        (folder / f"{sentence.key}.md").write_text(page, encoding="utf-8")


sentence_pages()

_LITERAL = re.compile(r"(``[^`]*``|`[^`]*`)")


def _keep_bars(app, what, name, obj, options, lines):
    """Write |x| as it stands: absolute values, where docutils would look for a substitution."""
    for number, line in enumerate(lines):
        parts = _LITERAL.split(line)
        lines[number] = "".join(part if i % 2 else part.replace("|", r"\|") for i, part in enumerate(parts))


def setup(app):
    """Sphinx calls this."""
    app.connect("autodoc-process-docstring", _keep_bars, priority=900)  # after numpydoc
