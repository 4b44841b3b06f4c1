"""The command `attnsym`. Each command's module imports what it needs when it runs, so that `--help` stays fast."""

from __future__ import annotations

from analysis.cli import audit, confirm, derivations, explain, listing, predict, report, study  # noqa: F401
from analysis.cli._app import Command, app, main

# Importing a module registers its commands. The help page lists them as a user meets them, not by the alphabet.
_ORDER = ("list", "explain", "derive", "verify", "prove", "predict", "solve", "study", "confirm", "audit", "report")
app.registered_commands.sort(key=lambda command: _ORDER.index(command.name or ""))
for _command in app.registered_commands:
    _command.cls = Command

__all__ = ["app", "main"]
