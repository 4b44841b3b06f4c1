"""`attnsym list`: what can be derived and what is claimed."""

from __future__ import annotations

from analysis.cli._app import JsonOption, app, console, print_json


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """List the derivations and the claims."""
    from analysis.confront.claims import CLAIMS
    from attnsym.symbolic import DERIVATIONS

    if as_json:
        derivations = [{"key": key, "title": derivation.title} for key, derivation in DERIVATIONS.items()]
        claims = [
            {
                "key": claim.key,
                "route": claim.route,
                "derivation": claim.derivation,
                "statement": claim.statement,
                "meaning": claim.meaning,
                "assumptions": list(claim.assumptions),
                "source": claim.source,
                "cells": len(claim.cells),
            }
            for claim in CLAIMS
        ]
        print_json({"derivations": derivations, "claims": claims})
        return
    out = console()
    width = max(len(key) for key in (*DERIVATIONS, *(claim.key for claim in CLAIMS)))
    out.print(f"{len(DERIVATIONS)} derivations (attnsym derive KEY)")
    for key, derivation in DERIVATIONS.items():
        out.print(f"  {key:{width}}  {derivation.title}")
    out.print(f"\n{len(CLAIMS)} claims (attnsym confirm KEY)")
    for claim in CLAIMS:
        out.print(f"  {claim.key:{width}}  {claim.route:13}  {claim.statement}")
