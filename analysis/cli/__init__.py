"""The command `attnsym`. Each command's module imports what it needs when it runs, so that `--help` stays fast."""

from __future__ import annotations

from analysis.cli import audit, confirm, derivations, explain, listing, predict, report, study  # noqa: F401
from analysis.cli._app import app, main

# Importing a module registers its commands with `app`, in the order of the help page.

__all__ = ["app", "main"]
