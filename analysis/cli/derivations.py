"""`attnsym derive`, `attnsym verify`, `attnsym prove` and `attnsym compute`."""

from __future__ import annotations

from typing import Annotated

import typer

from analysis.cli._app import EXIT_FAILED_VERDICT, JsonOption, app, console, print_json, text_list

ConventionOption = Annotated[str, typer.Option(help="columns (kᵀq) or rows (qkᵀ).")]


@app.command("derive")
def derive_command(
    key: Annotated[str, typer.Argument(help="Key of the derivation; `attnsym list` shows all.")],
    without: Annotated[list[str] | None, typer.Option("--without", help="Withdraw an assumption; may repeat.")] = None,
    format: Annotated[str | None, typer.Option("--format", help="unicode (default), latex or mathml.")] = None,
    convention: ConventionOption = "columns",
    json: JsonOption = False,
) -> int:
    """Show a derivation step by step, each step with its rule and the assumptions that it cites."""
    from attnsym.symbolic import derive
    from attnsym.symbolic.typeset.printing import Convention

    derivation = derive(key)
    for item in without or ():
        derivation = derivation.without(item)
    pages = {"unicode": derivation.to_unicode, "latex": derivation.to_latex, "mathml": derivation.to_mathml}
    if json and format is not None:
        raise ValueError(f"--json has a form of its own: leave out --format {format}")
    page = "unicode" if format is None else format
    if page not in pages:
        raise ValueError(f"--format must be unicode, latex or mathml: got {format!r}")
    if convention not in ("columns", "rows"):
        raise ValueError(f"--convention must be columns or rows: got {convention!r}")
    orientation: Convention = "rows" if convention == "rows" else "columns"
    verdict = derivation.check()
    weakest = derivation.weakest_by_statement() if verdict else ()
    if json:
        needs = [
            {"statement": str(own.equation), "sets": [[str(item) for item in items] for items in own.sets]}
            for own in weakest
        ]
        print_json({**derivation.to_record(), "weakest_assumptions": needs})
    else:
        out = console()
        out.print(pages[page](orientation), soft_wrap=True)
        if weakest and page == "unicode":
            out.print("\nWithin the vocabulary of assumptions, each holds already under")
            for own in weakest:
                out.print("\n".join(f"  {text}" for text in str(own).splitlines()), soft_wrap=True)
    return 0 if verdict else EXIT_FAILED_VERDICT


@app.command("verify")
def verify_command(
    keys: Annotated[list[str] | None, typer.Argument(help="Keys of derivations; all when none is given.")] = None,
    json: JsonOption = False,
) -> int:
    """Check every step of the derivations by both decision procedures."""
    import time

    from attnsym.symbolic import DERIVATIONS, derive
    from attnsym.symbolic.derivation.checking import check

    rows = []
    for key in keys or DERIVATIONS:
        started = time.perf_counter()
        derivation = derive(key)
        verdict = derivation.check() if json else check(derivation, name_moments=False)  # a record asks for all of it
        rows.append((derivation, verdict, time.perf_counter() - started))
    if json:
        print_json({"derivations": [{**d.to_record(), "seconds": round(seconds, 6)} for d, _, seconds in rows]})
    else:
        out = console()
        for derivation, verdict, seconds in rows:
            out.print(
                f"{verdict.truth.value:8}{derivation.key:28}{len(derivation.steps):3} steps  "
                f"{seconds * 1e3:7.1f} ms   {derivation.statement}"
            )
            if not verdict:
                out.print(f"        {verdict}")
            for axiom in verdict.axioms:
                out.print(f"        trusts: {axiom}")
        passed = sum(bool(verdict) for _, verdict, _ in rows)
        out.print(f"{passed} of {len(rows)} derivations TRUE")
    return 0 if all(verdict for _, verdict, _ in rows) else EXIT_FAILED_VERDICT


@app.command("prove")
def prove_command(
    lhs: Annotated[str, typer.Argument(help='Left side, such as "Var(Sum(q[i]*k[i], i))".')],
    rhs: Annotated[str, typer.Argument(help='Right side, such as "d_k".')],
    assume: Annotated[
        list[str] | None,
        typer.Option("--assume", help='Assumptions, such as "independent(q,k), zero_mean(q)"; may repeat.'),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Decide an equality of your own at every size, or show a finite case that contradicts it."""
    from attnsym.symbolic import prove

    verdict = prove(lhs, rhs, [item for text in assume or () for item in text_list(text)])
    if json:
        print_json(
            {
                "verdict": verdict.truth.value,
                "reason": verdict.reason,
                "witness": None if verdict.witness is None else str(verdict.witness),
                "finite_moments": list(verdict.moments),
            }
        )
    else:
        console().print(str(verdict), soft_wrap=True)
    return 0 if verdict else EXIT_FAILED_VERDICT


@app.command("compute")
def compute_command(
    expression: Annotated[str, typer.Argument(help='What to compute, such as "E(Dot(k,q)**6)".')],
    assume: Annotated[
        list[str] | None,
        typer.Option("--assume", help='Assumptions, such as "independent(q,k), gaussian(q)"; may repeat.'),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Compute the closed form of an expectation, variance, covariance or cumulant, or say what is missing for one."""
    from attnsym.symbolic import NotDetermined, closed_form

    try:
        form = closed_form(expression, [item for text in assume or () for item in text_list(text)])
    except NotDetermined as lack:
        if json:
            print_json({"value": None, "missing": list(lack.missing), "partial": str(lack.partial)})
        else:
            console().print(str(lack), soft_wrap=True)
        return EXIT_FAILED_VERDICT
    if json:
        print_json(
            {
                "expression": expression,
                "value": str(form.value),
                "statement": str(form.statement),
                "assumptions": [str(item) for item in form.assumptions],
                "finite_moments": list(form.required),
            }
        )
    else:
        console().print(str(form), soft_wrap=True)
    return 0
