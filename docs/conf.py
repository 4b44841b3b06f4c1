"""The documentation site: ``sphinx-build -W docs docs/_build/html``."""

import re
from importlib.metadata import version as installed

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

_LITERAL = re.compile(r"(``[^`]*``|`[^`]*`)")


def _keep_bars(app, what, name, obj, options, lines):
    """Write |x| as it stands: absolute values, where docutils would look for a substitution."""
    for number, line in enumerate(lines):
        parts = _LITERAL.split(line)
        lines[number] = "".join(part if i % 2 else part.replace("|", r"\|") for i, part in enumerate(parts))


def setup(app):
    """Sphinx calls this."""
    app.connect("autodoc-process-docstring", _keep_bars, priority=900)  # after numpydoc
