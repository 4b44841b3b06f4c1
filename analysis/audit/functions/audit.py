"""Audit of an attention function: what it computes, read from outside, and what is wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from analysis.audit.functions.adapter import LAYOUTS, Arguments, Caller, CallFailed, axes
from analysis.audit.functions.probes.masks import probe_mask
from analysis.audit.functions.probes.normalisation import probe_normalisation, probe_rows
from analysis.audit.functions.probes.range import probe_gradient, probe_grouped, probe_range
from analysis.audit.functions.probes.scale import probe_exactness, probe_scale
from analysis.audit.functions.probes.structure import (
    probe_crosstalk,
    probe_dependence,
    probe_determinism,
    probe_heads,
    probe_locality,
)
from analysis.audit.functions.probes.visibility import probe_causal, probe_default_visibility
from analysis.audit.functions.result import CallableAudit
from analysis.audit.functions.session import Session, Sizes
from analysis.vocabulary.scale import ScaleLike, resolve_scale
from analysis.vocabulary.text import printable


def audit_callable(
    attention: Callable[..., Any],
    *,
    layout: str | None = None,
    num_heads: int = 3,
    d_k: int = 16,
    intended_scale: ScaleLike = None,
    mask_means: str = "keep",
    framework: str | None = None,
    seed: int = 0,
) -> CallableAudit:
    """
    Audit an attention function as a black box.

    Parameters
    ----------
    attention : callable
        (query, key, value[, mask][, causal]) -> output, or a tuple that starts with it, of NumPy, torch or JAX arrays.
        Mask, causal flag and number of heads are found by their usual names (attn_mask, mask, is_causal, causal,
        num_heads, …); bind other arguments with `functools.partial`.
    layout : str, optional
        Axes in order, b(atch), h(eads), s(equence), d, or m for heads·d in one axis: "bhsd", "bshd", "sbhd", "hsd",
        "bsd", "sd", "bsm", …. By default the first that the function accepts.
    num_heads, d_k : int
        Sizes to audit with; ``num_heads`` must be the function's own where heads are in one axis with d.
    intended_scale : optional
        What the scale is meant to be, as everywhere ("sqrt", "unscaled", number, expression, callable). None only names
        the scale found; any difference from an intended one is an error.
    mask_means : {"keep", "drop"}
        What True means in the function's boolean mask.
    framework : {"numpy", "torch", "jax"}, optional
        Arrays to call it with; by default NumPy, then those already imported, whichever it accepts first.
    seed : int
        Of the random inputs.

    Returns
    -------
    CallableAudit
        Findings and the recovered facts.

    Raises
    ------
    ValueError
        When the function can be called in no way, with its own last complaint; for an unknown layout or word.

    Notes
    -----
    Weights are read exactly through one-hot values. q = a·e₁ on every row, k₀ = b·e₁ and other keys b·e₂ make
    log(w₀/w_j) = scale·a·b, whatever the normaliser; repeated at (4·d_k, H), (d_k, 2·H) and twice the keys it gives the
    scale's law. Probes that need an earlier one to pass are skipped, and say so.
    """
    if mask_means not in ("keep", "drop"):
        raise ValueError(f"mask_means must be 'keep' or 'drop': got {mask_means!r}")
    if not callable(attention):
        raise ValueError(f"attention must be callable: got {type(attention).__name__}")
    for name, value in (("num_heads", num_heads), ("d_k", d_k)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1 + (name == "d_k"):
            raise ValueError(f"{name} must be a whole number of at least {1 + (name == 'd_k')}: got {value!r}")
    intended = None if intended_scale is None else resolve_scale(intended_scale)
    session = _open(attention, layout, framework, Sizes(heads=int(num_heads), d_k=int(d_k)), mask_means, seed)
    try:
        probe_heads(session, layout is not None)
        _run(session, intended, "" if intended is None else intended.label)
    except CallFailed as error:
        session.skipped["rest"] = str(error)
    return CallableAudit.of(session, getattr(attention, "__name__", type(attention).__name__), intended)


def _run(s: Session, intended: Callable[[int, int], float] | None, label: str) -> None:
    """Go through the probes; structural failures that hide the weights end the audit."""
    if not (probe_determinism(s) and probe_dependence(s) and probe_locality(s)):
        return
    probe_normalisation(s)
    if not (probe_crosstalk(s) and probe_rows(s)):
        return
    for probe in (
        probe_default_visibility,
        lambda s: probe_scale(s, intended, label),
        probe_exactness,
        probe_causal,
        probe_mask,
        probe_range,
        probe_grouped,
        probe_gradient,
    ):
        try:
            probe(s)
        except CallFailed as error:
            s.skipped[getattr(probe, "__name__", "scale").removeprefix("probe_")] = str(error)


def _open(
    function: Callable[..., Any], layout: str | None, framework: str | None, sizes: Sizes, mask_means: str, seed: int
) -> Session:
    """Find framework, precision, layout and lengths with which the function can be called."""
    arguments = Arguments.of(function)
    layouts = [layout] if layout is not None else _order(arguments)
    for name in layouts:
        axes(name)
    if framework not in (None, "numpy", "torch", "jax"):
        raise ValueError(f"framework must be numpy, torch or jax: got {framework!r}")
    if framework not in (None, "numpy"):
        __import__(framework)
    complaint = "it was never called"
    for equal in (False, True):
        works: list[Session] = []
        for kind in ("numpy", "torch", "jax"):
            # a function may import its framework only when it runs: look again at every turn
            if kind != framework and (framework or kind not in ("numpy", *sys.modules)):
                continue
            for dtype in _types(kind):
                for name in layouts:
                    session = _session(Caller(function, kind, dtype, name, arguments), sizes, equal, mask_means, seed)
                    try:
                        session.caller(*session.draw())
                        works.append(session)
                    except CallFailed as error:
                        complaint = str(error)
                if works:
                    return _best(works, equal)
    raise ValueError(f"the function could not be called in layout {', '.join(layouts)}: {printable(complaint)}")


def _types(framework: str) -> tuple[str, ...]:
    """Return the input types to try: JAX computes in float32 unless it was told otherwise."""
    if framework == "jax" and not sys.modules["jax"].config.jax_enable_x64:
        return ("float32",)
    return ("float64", "float32")


def _order(arguments: Arguments) -> list[str]:
    """Return the layouts to try: merged heads first where the function takes a number of heads."""
    merged = [name for name in LAYOUTS if "m" in name]
    return [*merged, *(n for n in LAYOUTS if n not in merged)] if arguments.heads else list(LAYOUTS)


def _session(caller: Caller, sizes: Sizes, equal: bool, mask_means: str, seed: int) -> Session:
    batch, heads = axes(caller.layout)
    own = Sizes(
        batch=sizes.batch if batch else 1,
        heads=sizes.heads if heads else 1,
        n_queries=sizes.n_keys if equal else sizes.n_queries,
        n_keys=sizes.n_keys,
        d_k=sizes.d_k,
    )
    return Session(caller, own, np.random.default_rng(seed), mask_means)


def _best(works: list[Session], equal: bool) -> Session:
    """Prefer a layout in which values stay with their head; where lengths must be equal, several layouts run."""
    chosen = works[0]
    if len(works) > 1 and equal:
        for session in works:
            trial = _session(session.caller, session.sizes, equal, session.mask_means, 0)
            try:
                if probe_locality(trial) and not trial.findings:
                    chosen = session
                    break
            except CallFailed:
                continue
    if equal:
        chosen.report(
            "equal-lengths-only",
            f"{chosen.sizes.n_queries} queries with {chosen.sizes.n_keys} keys work; 5 with 7 do not.",
        )
    return chosen
