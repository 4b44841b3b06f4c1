"""Audit of weights: what W_q and W_k alone say of a model's scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit.tensors import verdicts
from analysis.audit.tensors.account import Account
from analysis.audit.weights.checked import NormTensors, as_projections
from analysis.audit.weights.heads import HeadWeights, measure
from analysis.audit.weights.normalised import KINDS
from analysis.audit.weights.projections import Projections
from analysis.audit.weights.result import WeightsAudit
from analysis.vocabulary.numbers import LARGEST_WHOLE, shown
from analysis.vocabulary.scale import Scale, ScaleLike, resolve_scale
from analysis.vocabulary.text import printable
from attnsym._threads import available_workers, one_blas_thread

Array = NDArray[Any]

N_KEYS = 1024
PARALLEL_WEIGHTS = 2**20


def audit_weights(
    w_query: Any,
    w_key: Any,
    *,
    num_heads: int,
    num_key_value_heads: int | None = None,
    bias_query: Any = None,
    bias_key: Any = None,
    norm_gain: Any = None,
    scale: ScaleLike = None,
    names: Sequence[str] | None = None,
    rotary: str | None = None,
    n_keys: int = N_KEYS,
    norm: str | None = None,
    norm_bias: Any = None,
    qk_norm: str | None = None,
    query_gain: Any = None,
    key_gain: Any = None,
) -> WeightsAudit:
    """
    Audit the query and key projections of one or several layers, for tokens without a preferred direction.

    Parameters
    ----------
    w_query, w_key : array_like, sequence of array_like, or mapping of name to array_like
        Per layer (d_model, heads·d_k), applied as x @ w: the transpose of a torch ``Linear.weight``.
    num_heads, num_key_value_heads : int
        Heads of w_query, and of w_key where they are fewer (grouped heads: head h reads key head h // (H / H_kv)).
    bias_query, bias_key : as the weights, optional
        (heads·d_k,) per layer.
    norm_gain : as the weights, optional
        (d_model,): the gain of the norm before the projections.
    scale : {"sqrt", "unscaled"}, None, number, expression or callable
        The factor on kᵀq; None is 1/√d_k.
    names : sequence of str, optional
        The layers' names; by default ``layer0``, … or the keys of the mapping.
    rotary : {"half", "interleaved"}, optional
        Rotary embedding turns components i and i + d_k/2, or 2i and 2i + 1: variances are then averaged over positions.
    n_keys : int
        At which the entropy of such scores is told.
    norm : {"rms", "layer"}, optional
        The norm before the projections; "layer" takes off each token's mean. By default "layer" where `norm_bias` is
        given.
    norm_bias : as the weights, optional
        (d_model,): what that norm adds.
    qk_norm : {"rms", "layer", "l2"}, optional
        Each head's queries and keys are normalised after the projection (and before rotary embedding).
    query_gain, key_gain : as the weights, optional
        (d_k,), or (heads, d_k): the gains of that norm. Of shape (heads·d_k,) they say that one norm is taken over all
        heads; its length is then held at its root mean square.

    Returns
    -------
    WeightsAudit
        One `HeadWeights` per layer and head, in order; its null stands in `WeightsAudit.null`.

    Raises
    ------
    ValueError
        For shapes, head counts or settings that do not fit.

    Notes
    -----
    With G_q = W_qᵀ W_q and G_k = W_kᵀ W_k of shape (d_k, d_k), ‖W_q W_kᵀ‖²_F = tr(G_q G_k) and the largest singular
    value is √λ_max(G_q G_k): no matrix of shape (d_model, d_model) is ever made. Products of weights no finer than
    float32 are float32 sums, so that numbers hold to about 10⁻⁵. The moments of normalised queries and keys are those
    of a Gaussian direction, by quadrature (see `unit_moments`).
    """
    if qk_norm is None and (query_gain is not None or key_gain is not None):
        raise ValueError(f"query_gain and key_gain belong to a qk_norm: pass one of {', '.join(KINDS)}")
    given = {"w_query": w_query, "w_key": w_key, "bias_query": bias_query, "bias_key": bias_key}
    given |= {"norm_gain": norm_gain, "norm_bias": norm_bias, "query_gain": query_gain, "key_gain": key_gain}
    key_heads = num_heads if num_key_value_heads is None else num_key_value_heads
    layers = [
        as_projections(
            name, *parts[:6], num_heads=num_heads, key_heads=key_heads, rotary=rotary, norm=norm,
            query_norm=None if qk_norm is None else NormTensors(qk_norm, parts[6]),
            key_norm=None if qk_norm is None else NormTensors(qk_norm, parts[7]),
        )
        for name, *parts in _columns(given, names)
    ]  # fmt: skip
    fetch = [partial(_given, layer) for layer in layers]
    return audit_projections(fetch, scale=resolve_scale(scale), n_keys=n_keys, source="arrays")


def _given(layer: Projections) -> Projections:
    return layer


@np.errstate(all="ignore")  # what is not finite is found and told in words
def audit_projections(
    layers: Sequence[Callable[[], Projections]], *, scale: Scale, n_keys: int, source: str, notes: Sequence[str] = ()
) -> WeightsAudit:
    """Audit layers one after the other, each fetched at its turn; `audit_weights` and `audit_checkpoint` end here."""
    if isinstance(n_keys, bool) or not isinstance(n_keys, int) or not 2 <= n_keys <= LARGEST_WHOLE:
        raise ValueError(f"n_keys must be a whole number of at least 2, and below 2^53: got {shown(n_keys)}")
    found: list[tuple[HeadWeights, Account]] = []
    with one_blas_thread(), ThreadPoolExecutor(available_workers()) as pool:
        for load in layers:
            layer = load()
            one = partial(measure, layer, scale=scale(layer.query.shape[1], n_keys), n_keys=n_keys)
            run = pool.map if layer.query.size >= PARALLEL_WEIGHTS else map
            found += run(one, range(layer.query.shape[0]))
    heads = tuple(map(partial(_judged, n_keys), *_told(found, n_keys)))
    return WeightsAudit(source, scale.label, n_keys, tuple(notes), heads, tuple(layers), scale)


def _told(
    found: list[tuple[HeadWeights, Account]], n_keys: int
) -> tuple[list[HeadWeights], list[Account], list[float]]:
    """Return heads, accounts, and the exact entropy fraction at each head's variance."""
    from analysis.predict.exact import expected_entropy

    variances = np.array([head.score_variance for head, _ in found])
    finite = np.isfinite(variances)
    fractions = np.full(len(found), np.nan)
    if finite.any():
        fractions[finite] = expected_entropy(n_keys, sigma=np.sqrt(variances[finite])) / np.log(n_keys)
    return [head for head, _ in found], [account for _, account in found], fractions.tolist()


def _judged(n_keys: int, head: HeadWeights, account: Account, fraction: float) -> HeadWeights:
    if not np.isfinite(fraction):
        return head
    uniform, saturated = fraction > verdicts.NEAR_UNIFORM, fraction < verdicts.SATURATED_ENTROPY
    reason = verdicts.cause(account, head.d_k, near_uniform=uniform, within_row_variance=head.score_variance)
    return replace(
        head,
        entropy_fraction=fraction,
        verdict="near uniform" if uniform else "saturated" if saturated else "ordinary",
        cause=None if reason is None else reason.words,
        cause_factor=head.cause_factor if reason is None else reason.factor,
    )


def _columns(given: Mapping[str, Any], names: Sequence[str] | None) -> list[tuple[Any, ...]]:
    """Return (name, w_query, w_key, biases, gain) per layer of arrays, lists or mappings of arrays."""
    if isinstance(names, str):
        raise ValueError(f"names must be a sequence of layer names, such as [{names!r}]: got one string")
    first = given["w_query"]
    kind = Mapping if isinstance(first, Mapping) else list | tuple if isinstance(first, list | tuple) else None
    present = {what: part for what, part in given.items() if part is not None}
    if absent := {"w_query", "w_key"} - set(present):
        raise ValueError(f"{' and '.join(sorted(absent))} must be an array, or one for each layer: got None")
    for what, part in present.items():
        if isinstance(part, Mapping | list | tuple) != (kind is not None) or (
            kind is not None and not isinstance(part, kind)
        ):
            raise ValueError(f"w_query and {what} must both be an array, a list or a mapping of one array per layer")
    if isinstance(first, Mapping):
        missing = [(what, name) for what, part in present.items() for name in first if name not in part]
        if missing:
            raise ValueError(
                f"{missing[0][0]} must have the layers of w_query: {printable(str(missing[0][1]))} is missing"
            )
        chosen = [str(name) for name in first] if names is None else list(names)
        lists = {what: [part[name] for name in first] for what, part in present.items()}
    else:
        lists = {what: list(part) if kind is not None else [part] for what, part in present.items()}
        chosen = [f"layer{i}" for i in range(len(lists["w_query"]))] if names is None else list(names)
    count = len(lists["w_query"])
    for what, column in (lists | {"names": chosen}).items():
        if len(column) != count:
            raise ValueError(f"{what} and w_query must count the same layers: got {len(column)} and {count}")
    return list(zip(chosen, *(lists.get(what, [None] * count) for what in given), strict=True))
