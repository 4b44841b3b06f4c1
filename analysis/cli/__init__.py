"""The command `attnsym`. Each command's module imports what it needs when it runs, so that `--help` stays fast."""

from __future__ import annotations

from analysis.cli import (  # noqa: F401
    audit,
    compare,
    confirm,
    derivations,
    design,
    explain,
    length,
    listing,
    predict,
    published,
    report,
    study,
)
from analysis.cli._app import Command, app, main
from analysis.cli._examples import EXAMPLES

# Importing a module registers its commands. The help page lists them in the order of their
# examples, as a user meets them.
app.registered_commands.sort(key=lambda command: list(EXAMPLES).index(command.name or ""))
for _command in app.registered_commands:
    _command.cls = Command
    # The \b keeps click from filling the lines into a paragraph.
    _command.epilog = "\n  ".join(("\b\nExamples:", *EXAMPLES[_command.name or ""]))

__all__ = ["app", "main"]
