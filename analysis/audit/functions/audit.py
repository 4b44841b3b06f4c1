"""Audit of an attention function: what it computes, read from outside, and what is wrong with it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from analysis.audit.functions.adapter import CallFailed
from analysis.audit.functions.comparison import compare
from analysis.audit.functions.modules import opened_module
from analysis.audit.functions.opening import FRAMEWORKS, TYPES, Wanted, open_session
from analysis.audit.functions.probes.crosstalk import probe_crosstalk, probe_rows
from analysis.audit.functions.probes.determinism import probe_dependence, probe_determinism, probe_linearity
from analysis.audit.functions.probes.exactness import probe_exactness
from analysis.audit.functions.probes.gradient import probe_gradient
from analysis.audit.functions.probes.grouped import probe_grouped
from analysis.audit.functions.probes.heads import probe_heads, probe_locality
from analysis.audit.functions.probes.intended import probe_intended
from analysis.audit.functions.probes.length import probe_length
from analysis.audit.functions.probes.masks import probe_mask
from analysis.audit.functions.probes.normalisation import probe_normalisation
from analysis.audit.functions.probes.range import probe_range
from analysis.audit.functions.probes.scale import probe_law, probe_scale
from analysis.audit.functions.probes.visibility import probe_causal, probe_default_visibility
from analysis.audit.functions.result import CallableAudit
from analysis.audit.functions.session import Session, Sizes
from analysis.vocabulary.numbers import shown
from analysis.vocabulary.scale import Scale, ScaleLike, resolve_scale

MOST_CHANNELS = 2**17
MOST_WEIGHTS = 2**23


def audit_callable(
    attention: Callable[..., Any],
    *,
    layout: str | None = None,
    num_heads: int = 3,
    d_k: int = 16,
    n_queries: int | None = None,
    n_keys: int | None = None,
    dtype: str | None = None,
    device: str | None = None,
    intended_scale: ScaleLike = None,
    intended_softcap: float | None = None,
    intended_sink: float | None = None,
    mask_means: str | None = None,
    framework: str | None = None,
    against: Callable[..., Any] | None = None,
    seed: int = 0,
) -> CallableAudit:
    """
    Audit an attention function as a black box.

    Parameters
    ----------
    attention : callable
        (query, key, value[, mask][, causal]) -> output, or a tuple that starts with it, of NumPy, torch or JAX arrays.
        Query, key, value, mask, padding mask, causal flag and number of heads are found by their usual names
        (attn_mask, mask, key_padding_mask, is_causal, causal, num_heads, …); bind other arguments with
        `functools.partial`. Of a ``nn.MultiheadAttention`` a copy with identity projections is audited.
    layout : str, optional
        Axes in order, b(atch), h(eads), s(equence), d, or m for heads·d in one axis: "bhsd", "bshd", "sbhd", "hsd",
        "bsd", "sd", "bsm", …. By default the first that the function accepts.
    num_heads, d_k, n_queries, n_keys : int
        Sizes to audit with, by default 3 heads of width 16, 5 queries and 7 keys (7 and 7 where only equal lengths are
        accepted), and some 200 keys once. ``num_heads`` must be the function's own where heads are in one axis with d.
    dtype : {"float64", "float32", "float16", "bfloat16"}, optional
        Of the inputs; by default the finest that is accepted.
    device : str, optional
        Of torch tensors, such as "cuda".
    intended_scale : optional
        What the scale is meant to be, as everywhere ("sqrt", "unscaled", number, expression, callable). None only names
        the scale found; any difference from an intended one is an error.
    intended_softcap, intended_sink : float, optional
        The cap, and the sink's logit, that are meant; infinity and minus infinity mean that there is none.
    mask_means : {"keep", "drop"}, optional
        What True means in the function's boolean masks; by default "keep", and in padding masks what is found.
    framework : {"numpy", "torch", "jax"}, optional
        Arrays to call it with; by default NumPy, then those already imported, whichever it accepts first.
    against : callable, optional
        A second function, such as another backend of the same model: differences in scale, masks, range and outputs
        become findings.
    seed : int
        Of the random inputs.

    Returns
    -------
    CallableAudit
        Findings and the recovered facts.

    Raises
    ------
    ValueError
        When the function can be called in no way, with its own last complaint; for an unknown layout or word, and for
        sizes that no audit ends with.

    Notes
    -----
    Weights are read exactly through one-hot values. One key at a time is turned from the last unit vector to the
    queries', q = a·e₁ and k = b·e₁: the logarithm of its weight, over the others', grows by scale·a·b, whatever the
    normaliser; repeated at 4·d_k, 2·H, and twice the keys, queries and batch items it gives the scale's law. Then
    vectors are drawn so that scores have a standard deviation near 1. Probes that need an earlier one to pass are
    skipped, and say so.
    """
    sizes, equal = _sizes(num_heads, d_k, n_queries, n_keys)
    _check(attention, mask_means, framework, dtype, intended_softcap, intended_sink)
    intended = None if intended_scale is None else resolve_scale(intended_scale)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0: got {shown(seed)}")
    wanted = Wanted(sizes, layout, framework, dtype, device, mask_means, seed, equal)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        session = _audited(attention, wanted, intended, intended_softcap, intended_sink)
        if against is not None:
            _check(against, mask_means, framework, dtype, None, None)
            compare(session, _audited(against, wanted, intended, intended_softcap, intended_sink))
    return CallableAudit.of(session, _name(attention), intended)


def _audited(
    attention: Callable[..., Any], wanted: Wanted, intended: Scale | None, softcap: float | None, sink: float | None
) -> Session:
    function, wanted, arguments, note = opened_module(attention, wanted)
    session = open_session(function, wanted, arguments)
    if note:
        session.report("identity-projections", note)
    session.facts["intended_zero"] = intended is not None and intended(session.sizes.d_k, session.sizes.n_keys) == 0
    try:
        probe_heads(session, wanted.layout is not None)
        _run(session, intended, softcap, sink)
    except CallFailed as error:
        session.skipped["rest"] = str(error)
    return session


def _run(s: Session, intended: Scale | None, softcap: float | None, sink: float | None) -> None:
    """Go through the probes; structural failures that hide the weights end the audit."""
    if not (probe_determinism(s) and probe_dependence(s) and probe_linearity(s) and probe_locality(s)):
        return
    probe_default_visibility(s)
    probe_normalisation(s)
    if not (probe_crosstalk(s) and probe_rows(s)):
        return
    label = "" if intended is None else intended.label
    probes: dict[str, Callable[[Session], None]] = {
        "scale": probe_scale,
        "exactness": probe_exactness,
        "law": lambda s: probe_law(s, intended, label),
        "intended": lambda s: probe_intended(s, softcap, sink),
        "causal": probe_causal,
        "mask": probe_mask,
        "range": probe_range,
        "length": probe_length,
        "grouped heads": probe_grouped,
        "gradient": probe_gradient,
    }
    for name, probe in probes.items():
        try:
            probe(s)
        except CallFailed as error:
            s.skipped[name] = str(error)
        except (ArithmeticError, ValueError, IndexError, np.linalg.LinAlgError) as error:
            # a stranger's outputs may be anything: a reading that they make meaningless is told, not raised
            s.skipped[name] = f"its outputs make no reading: {type(error).__name__}: {error}"


def _sizes(num_heads: int, d_k: int, n_queries: int | None, n_keys: int | None) -> tuple[Sizes, bool | None]:
    """Return the sizes, and whether lengths are fixed to be equal (None: found out)."""
    least = {"num_heads": 1, "d_k": 2, "n_queries": 2, "n_keys": 2}
    given = {"num_heads": num_heads, "d_k": d_k, "n_queries": n_queries, "n_keys": n_keys}
    for name, value in given.items():
        if value is None and name.startswith("n_"):
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least[name]:
            raise ValueError(f"{name} must be a whole number of at least {least[name]}: got {value!r}")
    if int(num_heads) * int(d_k) > MOST_CHANNELS:
        raise ValueError(
            f"num_heads times d_k must be at most {MOST_CHANNELS:,} for an audit to end: "
            f"got {int(num_heads) * int(d_k):,}"
        )
    keys = int(n_keys) if n_keys is not None else max(7, int(n_queries or 0) + 2 if n_queries else 7)
    queries = int(n_queries) if n_queries is not None else 5 if n_keys is None else keys
    if int(num_heads) * queries * keys > MOST_WEIGHTS:
        raise ValueError(
            f"num_heads times n_queries times n_keys must be at most {MOST_WEIGHTS:,} for an audit to end: "
            f"got {int(num_heads) * queries * keys:,}"
        )
    fixed = None if n_queries is None and n_keys is None else queries == keys
    return Sizes(heads=int(num_heads), d_k=int(d_k), n_queries=queries, n_keys=keys), fixed


def _check(
    attention: object, mask_means: str | None, framework: str | None, dtype: str | None, softcap: float | None,
    sink: float | None,
) -> None:  # fmt: skip
    if mask_means not in (None, "keep", "drop"):
        raise ValueError(f"mask_means must be 'keep' or 'drop': got {mask_means!r}")
    if not callable(attention):
        raise ValueError(f"attention must be callable: got {type(attention).__name__}")
    if framework not in (None, *FRAMEWORKS):
        raise ValueError(f"framework must be numpy, torch or jax: got {framework!r}")
    if dtype not in (None, *TYPES):
        raise ValueError(f"dtype must be one of {', '.join(TYPES)}: got {dtype!r}")
    for name, value in (("intended_softcap", softcap), ("intended_sink", sink)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value != value):
            raise ValueError(f"{name} must be a number: got {value!r}")


def _name(attention: object) -> str:
    try:
        name = getattr(attention, "__name__", None)
    except Exception:  # a stranger's object may raise anything when it is looked at
        name = None
    return name if isinstance(name, str) else type(attention).__name__
