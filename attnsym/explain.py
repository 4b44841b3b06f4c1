"""One query's attention, number by number: products, scores, exponentials, weights, output."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attnsym._page import Page, aligned
from attnsym._plain import masked_scores, plain_output, with_sink
from attnsym._scores import read_inputs
from attnsym._settings import read_settings
from attnsym._validate import Array, as_array, finite_number, real_array
from attnsym.softmax import entropy, softmax_in_place

WHAT_WEIGHTS_ARE = (
    "The weights are shares of a mixture: they say how much of each value enters the output. "
    "They are not probabilities that an answer is right."
)

_EXP_SAFE = 100.0


@dataclass(frozen=True)
class KeyStep:
    """
    What one key contributes to the query's output.

    Attributes
    ----------
    key_index : int
        Position of the key, from 0.
    key, products : tuple of float, d_k each
        The key's components, and each times the query's.
    product_sum : float
        kᵀq, the sum of the products.
    score : float
        What enters softmax: scale · kᵀq, soft-capped and masked where asked (−inf: may not attend).
    exponential : float
        exp(score − shift).
    weight : float
        The exponential divided by the sum of all of them.
    value, contribution : tuple of float, d_v each, or None
        The key's value, and weight · value; None where no values were given.
    """

    key_index: int
    key: tuple[float, ...]
    products: tuple[float, ...]
    product_sum: float
    score: float
    exponential: float
    weight: float
    value: tuple[float, ...] | None
    contribution: tuple[float, ...] | None


@dataclass(frozen=True, repr=False)
class Explanation(Page):
    """
    One query's attention, step by step; ``print`` shows it as a table.

    Attributes
    ----------
    query : tuple of float, d_k
    scale : float
        The factor on kᵀq.
    shift : float
        Subtracted from every score before exp, so that no exponential overflows: 0 while all scores are moderate,
        else the largest score. It cancels in the weights.
    rows : tuple of KeyStep
        One for each key, in order.
    exponential_sum : float
        The sum of the exponentials, that of the sink among them.
    entropy : float
        Of the weights, in nats, from 0 (one key takes all) to log n_keys (equal shares); a sink counts as one more key.
    output : tuple of float, d_v, or None
        The sum of the contributions.
    sink, sink_weight : float or None
        The sink's logit and its share, None without a sink.
    """

    query: tuple[float, ...]
    scale: float
    shift: float
    rows: tuple[KeyStep, ...]
    exponential_sum: float
    entropy: float
    output: tuple[float, ...] | None
    sink: float | None = None
    sink_weight: float | None = None

    def __str__(self) -> str:
        """Return the steps as a table, with what the weights mean below it."""
        shifted = "exp(score)" if self.shift == 0 else f"exp(score - {_number(self.shift)})"
        header = ["key", "products", "kᵀq", "score", shifted, "weight"]
        lines = [[str(r.key_index), _vector(r.products), *map(_number, _scalars(r))] for r in self.rows]
        if self.output is not None:
            header += ["value", "weight · value"]
            for line, row in zip(lines, self.rows, strict=True):
                line += [_vector(row.value or ()), _vector(row.contribution or ())]
        if self.sink is not None and self.sink_weight is not None:
            known = [self.sink, math.exp(self.sink - self.shift), self.sink_weight]
            lines.append(["sink", "", "", *map(_number, known), *[""] * (len(header) - 6)])
        sums = f"sum of exponentials {_number(self.exponential_sum)}, entropy {_number(self.entropy)} nats"
        text = [f"query {_vector(self.query)}, d_k = {len(self.query)}, scale = {_number(self.scale)}", ""]
        text += [*aligned([header, *lines]), "", sums]
        if self.output is not None:
            text.append(f"output {_vector(self.output)}")
        return "\n".join([*text, "", *textwrap.wrap(WHAT_WEIGHTS_ARE, 100)])

    def _line(self) -> str:
        return (
            f"{len(self.rows)} keys, d_k = {len(self.query)}, scale {self.scale:.4g}, entropy {self.entropy:.4g} nats"
        )


@np.errstate(all="ignore")
def explain(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike | None = None,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    attn_mask: npt.ArrayLike | None = None,
    sink: float | None = None,
) -> Explanation:
    """
    Show how attention gets one query's output, number by number.

    Parameters
    ----------
    query : array_like, (d_k,)
        One query; a number stands for d_k = 1.
    key : array_like, (n_keys, d_k)
        The keys as rows; (n_keys,) stands for d_k = 1.
    value : array_like, (n_keys, d_v), optional
        The values as rows; (n_keys,) stands for d_v = 1.
    scale : float, optional
        The factor on kᵀq; None is 1/√d_k.
    softcap : float, optional
        Scores become softcap · tanh(score / softcap).
    attn_mask : array_like, (n_keys,), optional
        Boolean (True = may attend) or floating (added to the scores).
    sink : float, optional
        A logit whose exponential is added to the sum; it gets a share and gives nothing.

    Returns
    -------
    Explanation
        The rows hold float64 numbers of the attention core itself: scores of `attention_scores`, weights of
        `attention_weights`, output of `scaled_dot_product_attention`.

    Raises
    ------
    ValueError
        For shapes that do not fit, no key, or a component that is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> result = explain(1.0, [0.0, np.log(3.0)], [2.0, 6.0], scale=1)
    >>> [row.weight for row in result.rows], result.output
    ([0.25, 0.75], (5.0,))
    """
    settings = read_settings(scale=scale, softcap=softcap, sink=None if sink is None else finite_number(sink, "sink"))
    q, k = _one_query(query), _vectors(key, "key")
    v = None if value is None else _vectors(value, "value")
    mask = None if attn_mask is None else as_array(attn_mask, "attn_mask")
    if k.shape[0] == 0:
        raise ValueError("key must hold at least one key to explain: got none")
    if mask is not None and mask.shape != k.shape[:1]:
        raise ValueError(f"attn_mask must have one entry for each of {k.shape[0]} keys: got shape {mask.shape}")
    x = read_inputs(q[None], k, v, settings, mask)
    if not isinstance(x.scale, float):
        raise ValueError(f"scale must be one number to explain one query: got {scale!r}")
    scores = masked_scores(x, settings)
    logits = scores[0] if x.offset is None else with_sink(scores, x.offset)[0]
    weights = softmax_in_place(logits.copy())
    output = None if v is None else plain_output(x, settings)[0]
    shift = 0.0 if not np.any(np.abs(logits[logits > -np.inf]) > _EXP_SAFE) else float(logits.max())
    exponentials = np.exp(logits - shift)
    rows = tuple(
        KeyStep(
            key_index=j,
            key=_floats(k[j]),
            products=_floats(q * k[j]),
            product_sum=float(q @ k[j]),
            score=float(logits[j]),
            exponential=float(exponentials[j]),
            weight=float(weights[j]),
            value=None if v is None else _floats(v[j]),
            contribution=None if v is None else _floats(weights[j] * v[j]),
        )
        for j in range(k.shape[0])
    )
    return Explanation(
        query=_floats(q),
        scale=x.scale,
        shift=shift,
        rows=rows,
        exponential_sum=float(exponentials.sum()),
        entropy=float(entropy(weights)),
        output=None if output is None else _floats(output),
        sink=None if sink is None else float(logits[-1]),
        sink_weight=None if sink is None else float(weights[-1]),
    )


def _one_query(query: npt.ArrayLike) -> Array:
    q = np.atleast_1d(_finite(query, "query"))
    if q.ndim != 1:
        raise ValueError(f"query must be one vector (d_k,): got shape {q.shape}")
    return q


def _vectors(x: npt.ArrayLike, name: str) -> Array:
    array = _finite(x, name)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ValueError(f"{name} must hold one vector a row, two axes: got shape {array.shape}")
    return array


def _finite(x: npt.ArrayLike, name: str) -> Array:
    array = real_array(x, name).astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must hold finite numbers to be explained: got NaN or infinity")
    return array


def _floats(x: Array) -> tuple[float, ...]:
    return tuple(float(component) for component in x)


def _scalars(row: KeyStep) -> tuple[float, float, float, float]:
    return row.product_sum, row.score, row.exponential, row.weight


def _number(x: float) -> str:
    return "-inf" if x == -math.inf else f"{x:.6g}"


def _vector(x: tuple[float, ...]) -> str:
    shown = [_number(component) for component in x[:4]] + (["…"] if len(x) > 4 else [])
    return shown[0] if len(x) == 1 else f"({', '.join(shown)})"
