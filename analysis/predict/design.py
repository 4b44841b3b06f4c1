"""What attention scores look like at initialisation, and which scale would mend them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from analysis.predict.design_advice import advice
from analysis.predict.initialisation import read_initialisation
from analysis.predict.largest_score import largest_score
from analysis.predict.mechanism.setting import read_mechanism
from analysis.predict.to_six_digits import to_six_digits
from analysis.vocabulary.numbers import number, positive_integer, shown
from analysis.vocabulary.scale import ScaleLike, resolve_scale
from attnsym._page import Page

BFLOAT16_DIGITS = 8  # of the significand, the hidden one counted


@dataclass(frozen=True, repr=False)
class Design(Page):
    """
    The scores of one head at initialisation.

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
    query_gradient_norm : float
        Root mean square of ‖∂(g·p)/∂q‖ for g ~ N(0, I), q before a QK-norm; infinite for that norm at d_k below 3.
    largest_score : float
        E of the largest of the n_keys scores.
    bfloat16_error : float
        Half the distance between bfloat16 numbers of that size: what rounding it moves the logarithm of a weight by.
    """

    score_variance: float
    entropy: float
    entropy_fraction: float
    effective_keys: float
    max_weight: float
    gradient_norm: float
    scale: float
    advice: tuple[str, ...]
    query_gradient_norm: float
    largest_score: float
    bfloat16_error: float

    def _line(self) -> str:
        return f"score variance {self.score_variance:.4g}, {self.entropy_fraction:.2%} of log n_keys"

    def __str__(self) -> str:
        """Return the numbers, and the advice below them."""
        numbers = {name: value for name, value in vars(self).items() if name != "advice"}
        width = max(map(len, numbers))
        return "\n".join([*(f"{name:{width}} {value:.6g}" for name, value in numbers.items()), *self.advice])


def design(
    *,
    d_model: int,
    d_k: int,
    n_keys: int,
    init: str = "normal:0.02",
    norm: Literal["none", "layer", "rms"] = "layer",
    norm_gain: ArrayLike = 1.0,
    token_correlation: float = 0.0,
    scale: ScaleLike = None,
    softcap: float | None = None,
    qk_norm: Literal["l2", "rms"] | None = None,
    qk_gain: ArrayLike = 1.0,
    sink: float | None = None,
    rotary: bool = False,
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
        1/d_k as scale). See `read_initialisation`.
    norm : {"none", "layer", "rms"}
        Before the projections. Without one the components of tokens are taken to have mean square 1.
    norm_gain : float or array_like of shape (d_model,), optional
        Gains of that norm.
    token_correlation : float
        ρ in [0, 1): the mean cosine between tokens.
    scale : {"sqrt", "unscaled"}, number, expression or callable, optional
        None is 1/√d_k, 1 for "t5", 1/d_k for "mup" and 1 for qk_norm="l2".
    softcap, sink : float, optional
    qk_norm : {"l2", "rms"}, optional
        Of query and key: cosines of temperature scale, or scale·d_k, times the gain.
    qk_gain : float or array_like of shape (d_k,), optional
        Product of the gains of query and key, one number or one a component.
    rotary : bool, optional
        Whether query and key are rotated by their positions, which needs an even d_k and changes no number here.

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
    standard vectors times a_q a_k ‖x‖² √(1 - ρ), ‖x‖² = d_model times the mean square of the gains, and the exact
    expectations apply where all cosines between tokens are ρ. The variance needs no Gaussian law. Errors: cosines of
    random tokens scatter by 1/√d_model about their mean, and components of q and k of uniform projections are sums of
    d_model terms; both change expectations by O(1/d_model). Unequal gains of a QK-norm leave the variance exact,
    (scale·d_k)² mean(gain²)/d_k, and the law of a cosine up to O(1/d_k). Beside a soft-cap the numbers are right to six
    digits from d_k = 64 on, else to rounding.

    Source: rotation invariance of Gaussian projections; Bienaymé for the variance.
    """
    model, width, keys = (positive_integer(n, v) for n, v in (("d_model", d_model), ("d_k", d_k), ("n_keys", n_keys)))
    _check(keys, width, norm, qk_norm, rotary)
    correlation = number("token_correlation", token_correlation)
    if not 0 <= correlation < 1:
        raise ValueError(f"token_correlation must be in [0, 1): got {shown(token_correlation)}")
    if qk_norm is not None and correlation:
        raise ValueError("token_correlation goes without qk_norm: keys that share a part have no exact cosines here")
    token_square = model * _mean_square("norm_gain", norm_gain, model, needs=norm != "none", of="norm layer or rms")
    cosine_gain = math.sqrt(_mean_square("qk_gain", qk_gain, width, needs=qk_norm is not None, of="qk_norm"))
    law = read_initialisation(init, model, width)
    factor = abs(resolve_scale(_usual(law.scale, qk_norm) if scale is None else scale)(width, keys))
    ratio = law.query * law.key * token_square * math.sqrt(1 - correlation)
    where: dict[str, Any] = {"d_k": width, "softcap": softcap, "sink": sink}
    for name, values in (("softcap", softcap), ("sink", sink)):
        if getattr(read_mechanism(**{name: values}), name).ndim:
            raise ValueError(f"{name} must be one number here: got {shown(values)}")
    if qk_norm is not None:
        where["score"], ratio = "cosine", cosine_gain * (width if qk_norm == "rms" else 1)
    where["scale"] = effective = factor * ratio
    if not 1e-150 < ratio < 1e150:
        raise ValueError(f"init and gains must make scores of a size that a float holds: got a factor of {ratio:.3g}")
    if not effective < 1e150:
        raise ValueError(f"scale must make scores of a size that a float holds: got {factor:.3g}")
    variance = effective**2 / width if qk_norm is not None else effective**2 * width
    entropy = to_six_digits("entropy", keys, where)
    largest = largest_score(keys, width, effective, is_cosine=qk_norm is not None, softcap=softcap)
    return Design(
        score_variance=variance,
        entropy=entropy,
        entropy_fraction=entropy / math.log(keys),
        effective_keys=math.exp(entropy),
        max_weight=to_six_digits("max_weight", keys, where),
        gradient_norm=math.sqrt(to_six_digits("jacobian_frobenius_squared", keys, where)),
        scale=factor,
        advice=advice(
            variance, entropy / math.log(keys), largest, bfloat16_error(largest), keys, where, ratio,
            is_gaussian=law.is_gaussian or qk_norm is not None,
            equal_gains=np.ptp(np.asarray(qk_gain, dtype=np.float64)) == 0,
            rotary=rotary,
        ),
        query_gradient_norm=_query_gradient(keys, where) / (law.query * math.sqrt(token_square)),
        largest_score=largest,
        bfloat16_error=bfloat16_error(largest),
    )  # fmt: skip


def bfloat16_error(score: float) -> float:
    """Return half the distance between bfloat16 numbers at that size, 0 at 0."""
    return 2.0 ** (math.frexp(score)[1] - 1 - BFLOAT16_DIGITS) if score else 0.0


def _check(n_keys: int, d_k: int, norm: Any, qk_norm: Any, rotary: Any) -> None:
    if n_keys < 2:
        raise ValueError(f"n_keys must be at least 2 here: got {n_keys}")
    if not isinstance(norm, str) or norm not in ("none", "layer", "rms"):
        raise ValueError(f"norm must be none, layer or rms: got {shown(norm)}")
    if qk_norm is not None and (not isinstance(qk_norm, str) or qk_norm not in ("l2", "rms")):
        raise ValueError(f"qk_norm must be l2 or rms: got {shown(qk_norm)}")
    if not isinstance(rotary, bool | np.bool_):
        raise ValueError(f"rotary must be True or False: got {shown(rotary)}")
    if rotary and d_k % 2:
        raise ValueError(f"rotary turns pairs of components, so d_k must be even: got {d_k}")


def _usual(scale: str, qk_norm: str | None) -> str:
    """Return the scale that belongs to an initialisation, or to cosines."""
    return "unscaled" if qk_norm == "l2" and scale == "sqrt" else scale


def _mean_square(argument: str, gain: Any, length: int, *, needs: bool, of: str) -> float:
    """Read gains, one or one a component, and return their mean square."""
    try:
        gains = np.asarray(gain)
        numeric = gains.dtype.kind in "iuf" and gains.shape in ((), (length,))
    except (TypeError, ValueError):
        numeric = False
    if not numeric or not np.isfinite(gains).all() or not gains.any():
        raise ValueError(f"{argument} must be a finite number other than 0, or {length} of them: got {shown(gain)}")
    with np.errstate(all="ignore"):
        square = float(np.mean(np.square(gains.astype(np.float64))))
    if not needs and not np.all(gains == 1):
        raise ValueError(f"{argument} needs {of}: got it without")
    if not 0 < square < math.inf:
        raise ValueError(f"{argument} must have a square that a float holds: got {shown(gain)}")
    return square


def _query_gradient(n_keys: int, where: dict[str, Any]) -> float:
    """Return the root mean square for a standard query; infinite where the norm of a short query makes it so."""
    if where.get("score") == "cosine" and where["d_k"] < 3:
        return math.inf
    return math.sqrt(to_six_digits("query_gradient", n_keys, where))
