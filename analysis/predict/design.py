"""What attention scores look like at initialisation, and which scale would mend them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from analysis.predict.exact import expected_entropy, expected_jacobian_frobenius_squared, expected_max_weight
from analysis.predict.inverse import scale_for
from analysis.vocabulary.numbers import number, positive, positive_integer
from analysis.vocabulary.scale import ScaleLike, resolve_scale

# Entropy fractions beyond which a row says next to nothing of its scores, or looks at next to one key.
SPREAD, SHARP = 0.98, 0.35
NAMED_INITS = ("xavier", "xavier-head", "linear", "t5", "mup")


@dataclass(frozen=True)
class Design:
    """
    The scores of one head at initialisation, for tokens of squared length d_model.

    Attributes
    ----------
    score_variance : float
        That softmax sees: Var(s₁ - s₂)/2, without a soft-cap; of cosines τ²/d_k.
    entropy, entropy_fraction, effective_keys : float
        E of the entropy in nats (with a sink over n_keys + 1 weights), over log n_keys, and exp(entropy).
    max_weight, gradient_norm : float
        E max p, and the root mean square of ‖J‖_F, the gradient by the scores for an upstream of N(0, I).
    scale : float
        The factor of kᵀq, or the temperature of cosines.
    advice : tuple of str
        What is off and what would mend it, each with the derivation or prediction behind it.
    """

    score_variance: float
    entropy: float
    entropy_fraction: float
    effective_keys: float
    max_weight: float
    gradient_norm: float
    scale: float
    advice: tuple[str, ...]


def design(
    *,
    d_model: int,
    d_k: int,
    n_keys: int,
    init: str = "normal:0.02",
    norm: Literal["none", "layer", "rms"] = "layer",
    token_correlation: float = 0.0,
    scale: ScaleLike = None,
    softcap: float | None = None,
    qk_norm: Literal["l2", "rms"] | None = None,
    sink: float | None = None,
) -> Design:
    """
    Predict the scores of one head before training.

    Parameters
    ----------
    d_model, d_k, n_keys : int
        At least 1; n_keys at least 2.
    init : str
        Law of the projections: "normal:STD", "uniform:BOUND", "xavier" (query, key and value packed in one matrix),
        "xavier-head" (a matrix a head), "linear" (uniform within 1/√d_model), "t5" or "mup" (normal, 1/√d_model, with
        1/d_k as scale).
    norm : {"none", "layer", "rms"}
        Before the projections, with gains of 1. Without one the components of tokens are taken to have mean square 1.
    token_correlation : float
        ρ in [0, 1): the mean cosine between tokens.
    scale : {"sqrt", "unscaled"}, number, expression or callable, optional
        None is 1/√d_k, 1 for "t5", 1/d_k for "mup" and 1 for qk_norm="l2".
    softcap, sink : float, optional
    qk_norm : {"l2", "rms"}, optional
        Of query and key, with gains of 1: cosines of temperature scale, or scale·d_k.

    Returns
    -------
    Design

    Raises
    ------
    ValueError
        One sentence naming the argument.

    Notes
    -----
    Given tokens, q and k of Gaussian projections are Gaussian with deviations a_q‖x‖ and a_k‖x‖: kᵀq is that of
    standard vectors times a_q a_k d_model √(1 - ρ), and the exact expectations apply. For uniform projections the
    components of q and k are sums of d_model terms, Gaussian up to errors of order 1/d_model.

    Source: rotation invariance of Gaussian projections; Bienaymé for the variance.
    """
    model, width, keys = (positive_integer(n, v) for n, v in (("d_model", d_model), ("d_k", d_k), ("n_keys", n_keys)))
    if keys < 2:
        raise ValueError(f"n_keys must be at least 2 here: got {keys}")
    if norm not in ("none", "layer", "rms"):
        raise ValueError(f"norm must be none, layer or rms: got {norm!r}")
    if qk_norm not in (None, "l2", "rms"):
        raise ValueError(f"qk_norm must be l2 or rms: got {qk_norm!r}")
    correlation = number("token_correlation", token_correlation)
    if not 0 <= correlation < 1:
        raise ValueError(f"token_correlation must be in [0, 1): got {token_correlation!r}")
    if qk_norm is not None and correlation:
        raise ValueError("token_correlation goes without qk_norm: keys that share a part have no exact cosines here")
    query, key = deviations(init, model, width)
    usual = {"t5": "unscaled", "mup": "1/d_k"}.get(init, "unscaled" if qk_norm == "l2" else "sqrt")
    factor = abs(resolve_scale(usual if scale is None else scale)(width, keys))
    where: dict[str, Any] = {"d_k": width, "softcap": softcap, "sink": sink}
    if qk_norm is None:
        ratio = query * key * model * math.sqrt(1 - correlation)
        effective, variance = factor * ratio, (factor * ratio) ** 2 * width
    else:
        where["score"] = "cosine"
        effective = factor * width if qk_norm == "rms" else factor
        ratio, variance = effective / factor if factor else 1.0, effective**2 / width
    where["scale"] = effective
    entropy = float(expected_entropy(keys, **where))
    fraction = entropy / math.log(keys)
    gradient = math.sqrt(float(expected_jacobian_frobenius_squared(keys, **where)))
    advice = _advice(fraction, variance, keys, where, ratio, init)
    largest = float(expected_max_weight(keys, **where))
    return Design(variance, entropy, fraction, math.exp(entropy), largest, gradient, factor, advice)


def deviations(init: str, d_model: int, d_k: int) -> tuple[float, float]:
    """Return the deviations of the entries of the projections of query and key."""
    kind, _, size = init.partition(":") if isinstance(init, str) else ("", "", "")
    if kind in ("normal", "uniform") and size:
        try:
            value = positive("init", float(size))
        except ValueError:
            raise ValueError(f"init {kind} needs a number above 0 after the colon: got {init!r}") from None
        return (value, value) if kind == "normal" else (value / math.sqrt(3), value / math.sqrt(3))
    known = {
        "xavier": math.sqrt(2 / (4 * d_model)),
        "xavier-head": math.sqrt(2 / (d_model + d_k)),
        "linear": 1 / math.sqrt(3 * d_model),
        "t5": 1 / math.sqrt(d_model),
        "mup": 1 / math.sqrt(d_model),
    }
    if init not in known:
        raise ValueError(f"init must be normal:STD, uniform:BOUND or one of {', '.join(NAMED_INITS)}: got {init!r}")
    return (known[init] / math.sqrt(d_k) if init == "t5" else known[init]), known[init]


def _advice(
    fraction: float, variance: float, n_keys: int, where: dict[str, Any], ratio: float, init: str
) -> tuple[str, ...]:
    """Say what is off, and which scale would mend it."""
    lines = [f"The scores have variance {variance:.4g} (derivation score-variance)."]
    if fraction > SPREAD:
        lines.append(f"Weights are nearly uniform: {fraction:.2%} of log n_keys (expected_entropy).")
    elif fraction < SHARP:
        lines.append(f"Weights are nearly one-hot: {fraction:.2%} of log n_keys (expected_entropy).")
    else:
        lines.append(f"Weights are neither uniform nor one-hot: {fraction:.2%} of log n_keys (expected_entropy).")
    if where.get("score") != "cosine" and not 0.25 <= variance <= 4:
        lines.append(f"A scale of {1 / (ratio * math.sqrt(where['d_k'])):.4g} gives variance 1 (scale-uniqueness).")
    if not SHARP <= fraction <= SPREAD:
        mechanism = {name: where[name] for name in ("softcap", "sink", "score") if where.get(name) is not None}
        try:
            found = float(scale_for("entropy_fraction", 0.9, n_keys, d_k=where["d_k"], **mechanism)) / ratio
            lines.append(f"A scale of {found:.4g} gives 90% of log n_keys (scale_for).")
        except ValueError as error:
            lines.append(f"No one scale gives 90% of log n_keys: {error}.")
    if init.startswith(("uniform", "xavier", "linear")):
        lines.append("Uniform projections are Gaussian up to errors of order 1/d_model.")
    return tuple(lines)
