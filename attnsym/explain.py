"""One query's attention, number by number: products, scores, exponentials, weights, output."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attnsym._plain import masked_scores, plain_output, plain_weights
from attnsym._scores import read_inputs
from attnsym._settings import read_settings
from attnsym._validate import Array, as_array, real_array
from attnsym.softmax import entropy

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


@dataclass(frozen=True)
class Explanation:
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
        The sum of the exponentials.
    entropy : float
        Of the weights, in nats, from 0 (one key takes all) to log n_keys (equal shares).
    output : tuple of float, d_v, or None
        The sum of the contributions.
    """

    query: tuple[float, ...]
    scale: float
    shift: float
    rows: tuple[KeyStep, ...]
    exponential_sum: float
    entropy: float
    output: tuple[float, ...] | None

    def __str__(self) -> str:
        """Return the steps as a table, with what the weights mean below it."""
        shifted = "exp(score)" if self.shift == 0 else f"exp(score - {_number(self.shift)})"
        header = ["key", "products", "kᵀq", "score", shifted, "weight"]
        lines = [[str(r.key_index), _vector(r.products), *map(_number, _scalars(r))] for r in self.rows]
        if self.output is not None:
            header += ["value", "weight · value"]
            for line, row in zip(lines, self.rows, strict=True):
                line += [_vector(row.value or ()), _vector(row.contribution or ())]
        sums = f"sum of exponentials {_number(self.exponential_sum)}, entropy {_number(self.entropy)} nats"
        text = [f"query {_vector(self.query)}, d_k = {len(self.query)}, scale = {_number(self.scale)}", ""]
        text += [*_aligned([header, *lines]), "", sums]
        if self.output is not None:
            text.append(f"output {_vector(self.output)}")
        return "\n".join([*text, "", *textwrap.wrap(WHAT_WEIGHTS_ARE, 100)])


@np.errstate(all="ignore")
def explain(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    value: npt.ArrayLike | None = None,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    attn_mask: npt.ArrayLike | None = None,
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
    settings = read_settings(scale=scale, softcap=softcap)
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
    scores, weights = masked_scores(x, settings)[0], plain_weights(x, settings)[0]
    output = None if v is None else plain_output(x, settings)[0]
    shift = 0.0 if not np.any(np.abs(scores[scores > -np.inf]) > _EXP_SAFE) else float(scores.max())
    exponentials = np.exp(scores - shift)
    rows = tuple(
        KeyStep(
            key_index=j,
            key=_floats(k[j]),
            products=_floats(q * k[j]),
            product_sum=float(q @ k[j]),
            score=float(scores[j]),
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


def _aligned(table: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
