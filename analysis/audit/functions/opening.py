"""Finds framework, type, layout and lengths with which a function can be called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.audit.functions.adapter import Caller, CallFailed
from analysis.audit.functions.arguments import CAUSALS, MASKS, PADDINGS, Arguments
from analysis.audit.functions.layouts import LAYOUTS, axes, layout_shape
from analysis.audit.functions.probes.heads import probe_locality
from analysis.audit.functions.session import Session, Sizes, distance
from analysis.vocabulary.text import printable

FRAMEWORKS = ("numpy", "torch", "jax")
TYPES = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Wanted:
    """What the user fixed: sizes and the way of calling; None is found out."""

    sizes: Sizes
    layout: str | None = None
    framework: str | None = None
    dtype: str | None = None
    device: str | None = None
    mask_means: str | None = None
    seed: int = 0
    equal: bool | None = None


def open_session(function: Callable[..., Any], wanted: Wanted, arguments: Arguments | None = None) -> Session:
    """
    Return a session with the first way of calling that works.

    Raises
    ------
    ValueError
        When none does, with the function's own last complaint.
    """
    names = Arguments.of(function) if arguments is None else arguments
    layouts = [wanted.layout] if wanted.layout is not None else _order(names)
    for name in layouts:
        axes(name)
    if wanted.framework not in (None, "numpy"):
        __import__(wanted.framework)
    complaint = "it was never called"
    for equal in (False, True) if wanted.equal is None else (wanted.equal,):
        for kind in FRAMEWORKS:
            # a function may import its framework only when it runs: look again at every turn
            if kind != wanted.framework and (wanted.framework or kind not in ("numpy", *sys.modules)):
                continue
            for dtype in _types(kind, wanted.dtype):
                works: list[Session] = []
                for name in layouts:
                    caller = Caller(function, kind, dtype, name, names, device=wanted.device)
                    session = _session(caller, wanted, equal)
                    try:
                        session.caller = _callable(session)
                        works.append(session)
                    except CallFailed as error:
                        if not complaint.startswith("the output"):  # the function ran: that tells more than a refusal
                            complaint = str(error)
                if works:
                    chosen = _best(works, wanted, equal)
                    chosen.caller = _guess_names(chosen)
                    return chosen
    raise ValueError(f"the function could not be called in layout {', '.join(layouts)}: {printable(complaint)}")


def _types(framework: str, dtype: str | None) -> tuple[str, ...]:
    """Return the input types to try: JAX computes in float32 unless it was told otherwise."""
    if dtype is not None:
        return (dtype,)
    if framework == "jax" and not sys.modules["jax"].config.jax_enable_x64:
        return ("float32",)
    return TYPES if framework == "torch" else TYPES[:3]


def _order(arguments: Arguments) -> list[str]:
    """Return the layouts to try: merged heads first where the function takes a number of heads."""
    merged = [name for name in LAYOUTS if "m" in name]
    return [*merged, *(n for n in LAYOUTS if n not in merged)] if arguments.heads else list(LAYOUTS)


def _session(caller: Caller, wanted: Wanted, equal: bool) -> Session:
    batch, heads = axes(caller.layout)
    own = replace(
        wanted.sizes,
        batch=wanted.sizes.batch if batch else 1,
        heads=wanted.sizes.heads if heads else 1,
        n_queries=wanted.sizes.n_keys if equal else wanted.sizes.n_queries,
    )
    return Session(caller, own, np.random.default_rng(wanted.seed), wanted.mask_means)


def _callable(session: Session) -> Caller:
    """Return the caller with the layout in which the output comes, the input's first; CallFailed where none fits."""
    q, k, v = session.draw()
    try:
        session.caller(q, k, v)
        return session.caller
    except CallFailed as error:
        given = session.caller.layout
        for other in LAYOUTS:
            same_axes = len(other.replace("m", "hd")) == len(given.replace("m", "hd"))
            if not same_axes or layout_shape(q.shape, other) == layout_shape(q.shape, given):
                continue
            moved = session.caller.using(output_layout=other)
            try:
                moved(q, k, v)
                return moved
            except CallFailed:
                continue
        raise error


def _best(works: list[Session], wanted: Wanted, equal: bool) -> Session:
    """Prefer a layout in which values stay with their head; where lengths must be equal, several layouts run."""
    if works[0].caller.arguments.heads and "m" in works[0].caller.layout:
        works = [session for session in works if "m" in session.caller.layout]
    chosen = works[0]
    if len(works) > 1 and equal:
        for session in works:
            trial = _session(session.caller, wanted, equal)
            try:
                if probe_locality(trial) and not trial.findings:
                    chosen = session
                    break
            except CallFailed:
                continue
    if equal and wanted.equal is None:
        chosen.report(
            "equal-lengths-only",
            f"{chosen.sizes.n_queries} queries with {chosen.sizes.n_keys} keys work; "
            f"{wanted.sizes.n_queries} with {wanted.sizes.n_keys} do not.",
        )
    return chosen


def _guess_names(s: Session) -> Caller:
    """Where a function takes ``**kwargs``, keep the names of a mask and a causal flag that change its output."""
    names = s.caller.arguments
    if not names.guess:
        return s.caller
    q, k, v = s.draw()
    n, m = s.sizes.n_queries, s.sizes.n_keys
    found = names
    try:
        plain = s.caller(q, k, v)
    except CallFailed:
        return s.caller
    hiding = np.where(np.arange(m) == 0, 0.0, -np.inf) * np.ones((n, m))
    hiding[np.isnan(hiding)] = 0.0
    trials: list[tuple[str, str, dict[str, Any]]] = []
    trials += [("causal", name, {"causal": True}) for name in CAUSALS if names.causal is None]
    if names.mask is None:
        trials += [("mask", name, {"mask": given}) for name in MASKS[:4] for given in (hiding == 0, hiding)]
    if names.padding is None and names.mask is None:
        padding = np.broadcast_to(np.arange(m) == 0, (s.sizes.batch, m)).copy()
        trials += [("padding", name, {"padding": padding}) for name in PADDINGS]
    for what, name, options in trials:
        if getattr(found, what) is not None:
            continue
        caller = s.caller.using(arguments=names.taking(**{what: name}))
        try:
            if distance(np.nan_to_num(caller(q, k, v, **options)), np.nan_to_num(plain)) > 0:
                found = found.taking(**{what: name})
        except CallFailed:
            continue
    return s.caller.using(arguments=found)
