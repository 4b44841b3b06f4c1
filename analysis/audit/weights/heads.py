"""What one head's weights say of its scores, for isotropic tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.tensors.account import Account, account_of_moments
from analysis.audit.tensors.tokens import Side
from analysis.audit.weights.normalised import longest, normalised
from analysis.audit.weights.projections import (
    Grams,
    Projections,
    grams,
    key_head_of,
    rotary_average,
    rotary_rest,
)

Array = NDArray[Any]

_NAN = float("nan")


@dataclass(frozen=True, kw_only=True)
class HeadWeights:
    """
    One head of one layer, from its weights alone. NaN where a weight is not finite.

    The null: a token x after the norm has length √d_model and no preferred direction, E x xᵀ = I, and queries and keys
    come from tokens apart. Then q = W_qᵀ x + b_q and k = W_kᵀ x + b_k, with the norm's gain folded into W.

    Attributes
    ----------
    layer, head, key_head, d_model, d_k, scale : the head, its sizes, and the factor on kᵀq.
    score_variance : scale²·(‖W_q W_kᵀ‖²_F + ‖W_k b_q‖²): the variance among the scores of one query, which is all that
        softmax sees of their size. b_k adds the same to all of a query's scores and is left out; under rotary
        embedding, where it does not, it is in, and the variance is averaged over positions.
    largest_singular_value : of W_q W_kᵀ.
    score_bound : no |score| exceeds it for tokens of length √d_model, biases included; under rotary embedding at every
        distance.
    stable_rank, top_direction_share : ‖W_q W_kᵀ‖²_F over its largest singular value squared, and the inverse.
    symmetric_share : part of ‖W_q W_kᵀ‖²_F that is symmetric; ½ for independent projections, 1 where every token
        prefers its like.
    self_score : scale·tr(W_q W_kᵀ), the mean score of a token with itself above that with another.
    entropy_fraction : exact E[entropy]/log n_keys of Gaussian scores of this variance.
    entropy_bound_fraction : what that entropy cannot fall below for scores within the bound (Zhai et al. 2023,
        theorem 3.1, with ‖scores of a query‖ ≤ score_bound·√n_keys), over log n_keys.
    query_norm, key_norm, query_mean_share : rms ‖q‖, rms ‖k‖ about the keys' mean (√d_k for components of variance 1),
        and the part of E‖q‖² that the bias makes.
    factor_scale, factor_mean, factor_norm, factor_channel, factor_alignment : what multiplies to the variance, as in
        `HeadAudit`; the shared mean of the queries is their bias.
    largest_channel, largest_channel_share : the component without which least is left, and the part that goes with it.
    normalised : queries or keys pass a norm of their own after the projection. Then variance, norms and factors are
        those of the normalised vectors, exact for isotropic tokens, the bound is that of the norm's gains, and
        `self_score` is not known; the singular values stay those of W_q W_kᵀ.
    verdict : "near uniform", "saturated", "ordinary" or "not finite", by the limits of the audit of tensors.
    cause, cause_factor : the largest factor of a variance above 1 (of a near-uniform head the smallest), or None.
    """

    layer: str
    head: int
    key_head: int
    d_model: int
    d_k: int
    scale: float
    score_variance: float = _NAN
    largest_singular_value: float = _NAN
    score_bound: float = _NAN
    stable_rank: float = _NAN
    top_direction_share: float = _NAN
    symmetric_share: float = _NAN
    self_score: float = _NAN
    entropy_fraction: float = _NAN
    entropy_bound_fraction: float = _NAN
    query_norm: float = _NAN
    key_norm: float = _NAN
    query_mean_share: float = _NAN
    factor_scale: float = _NAN
    factor_mean: float = _NAN
    factor_norm: float = _NAN
    factor_channel: float = _NAN
    factor_alignment: float = _NAN
    largest_channel: int = -1
    largest_channel_share: float = _NAN
    normalised: bool = False
    verdict: str = "not finite"
    cause: str | None = None
    cause_factor: float = _NAN


@np.errstate(all="ignore")  # threads start with NumPy's own; what is not finite is told in words
def measure(layer: Projections, head: int, scale: float, n_keys: int) -> tuple[HeadWeights, Account]:
    """Return a head's numbers, entropy, verdict and cause left open, and the account that names the cause."""
    found = grams(layer, head)
    d_k, d_model = layer.query.shape[1:]
    key_head = key_head_of(layer, head)
    place: dict[str, Any] = {"layer": layer.name, "head": head, "key_head": key_head, "scale": scale}
    place |= {"d_model": d_model, "d_k": d_k}
    if not all(np.isfinite(x).all() for x in (found.query, found.key, found.bias_query, found.bias_key)):
        return HeadWeights(**place), Account()
    query, key = _sides(layer, head, found)
    keys, before = key.covariance, None
    if layer.rotary is not None:
        dims = layer.rotary_dims or d_k
        keys = rotary_average(key.second, layer.rotary, dims)
        before = rotary_rest(query.covariance, key.second, layer.rotary, dims), np.diag(key.second)
    account = account_of_moments(query, Side.known(np.zeros(d_k), keys), scale, before)
    top = _singular(found.query, found.key)
    bound = _bound(layer, head, found, top if layer.rotary is None else None, scale)
    square = float(np.vdot(found.query, found.key))
    fixed = layer.norm_query is not None or layer.norm_key is not None
    return HeadWeights(
        **place,
        score_variance=account.predicted_variance_covariances,
        largest_singular_value=top,
        score_bound=bound,
        stable_rank=_ratio(square, top * top),
        top_direction_share=_ratio(top * top, square),
        symmetric_share=(1 + _ratio(float(np.vdot(found.cross, found.cross.T)), square)) / 2,
        self_score=_NAN if fixed else scale * float(np.trace(found.cross)),
        normalised=fixed,
        entropy_bound_fraction=entropy_bound(bound * math.sqrt(n_keys), n_keys) / math.log(n_keys),
        query_norm=account.query_norm,
        query_mean_share=account.query_mean_share,
        key_norm=math.sqrt(float(np.trace(keys))),
        **{
            name: getattr(account, name)
            for name in HeadWeights.__dataclass_fields__
            if name.startswith(("factor_", "largest_channel"))
        },
    ), account


def entropy_bound(norm: float, n_keys: int) -> float:
    """
    Return the least entropy of softmax over scores s of ‖s − mean‖ ≤ norm, in nats.

    log(1 + (n − 1)β) + norm·√(n(n − 1))·β/(1 + (n − 1)β), β = exp(−norm·√(n/(n − 1))): one score stands out of n − 1
    equal ones (Zhai et al. 2023, "Stabilizing transformer training by preventing attention entropy collapse").
    """
    gap = norm * math.sqrt(n_keys / (n_keys - 1))
    rest = (n_keys - 1) * math.exp(-gap)
    return math.log1p(rest) + (gap * rest / (1 + rest) if rest > 0 else 0.0)


def _singular(query: Array, key: Array) -> float:
    """Return the largest singular value of W_q W_kᵀ: the root of the largest eigenvalue of √G_q G_k √G_q."""
    values, vectors = np.linalg.eigh(query)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return math.sqrt(max(float(np.linalg.eigvalsh(root.T @ key @ root)[-1]), 0.0))


def _norm(gram: Array) -> float:
    return math.sqrt(max(float(np.linalg.eigvalsh(gram)[-1]), 0.0))


def _sides(layer: Projections, head: int, found: Grams) -> tuple[Side, Side]:
    """Return the moments of queries and keys as they enter the product, before rotary embedding."""
    sides = []
    for norm, place, mean, covariance in (
        (layer.norm_query, head, found.bias_query, found.query),
        (layer.norm_key, key_head_of(layer, head), found.bias_key, found.key),
    ):
        sides.append(Side.known(*((mean, covariance) if norm is None else normalised(norm, place, mean, covariance))))
    return sides[0], sides[1]


def _bound(layer: Projections, head: int, found: Grams, singular: float | None, scale: float) -> float:
    """
    Return what no |score| exceeds.

    Scale times |xᵀW_q W_kᵀy| + |xᵀW_q b_k| + |b_qᵀW_kᵀy| + |b_qᵀb_k| at most, ‖x‖ = ‖y‖ = √d_model; where the vectors
    are normalised, the same with gains for W. `singular` is None where q and k are turned against each other.
    """
    heads, d_k, d_model = layer.query.shape
    lengths, biases, gains = [], [], []
    for norm, place, count, gram, bias in (
        (layer.norm_query, head, heads, found.query, found.bias_query),
        (layer.norm_key, key_head_of(layer, head), layer.key.shape[0], found.key, found.bias_key),
    ):
        if norm is None:
            lengths.append(_norm(gram) * math.sqrt(d_model))
            biases.append(float(np.linalg.norm(bias)))
        else:
            length, gain, offset = longest(norm, place, count, d_k)
            lengths.append(length * float(gain.max()))
            biases.append(offset)
            gains.append(length * gain)
    if len(gains) == 2 and singular is not None:
        both = float((gains[0] * gains[1]).max())
    else:
        both = lengths[0] * lengths[1] if gains or singular is None else singular * d_model
    return abs(scale) * (both + lengths[0] * biases[1] + biases[0] * lengths[1] + biases[0] * biases[1])


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0 else _NAN
