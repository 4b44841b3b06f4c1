"""The quantities of a row of attention: adding one is adding its record to `QUANTITIES`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from analysis.vocabulary.numbers import shown
from analysis.vocabulary.quantity import Exact, Quantity
from analysis.vocabulary.row_formulas import (
    DEAD_TRACE,
    entropy_fraction,
    entropy_fraction_with_rest,
    entropy_with_rest,
    is_dead,
    itself,
    jacobian_norm,
    jacobian_trace,
    logsumexp,
    norm_of_columns,
    norm_of_keys,
    power_sum,
    power_sum_of_columns,
    trace_of_columns,
    trace_of_keys,
)
from analysis.vocabulary.row_shares import STUDIED
from attnsym._names import find_name
from attnsym.softmax import entropy


def find_quantity(name: object) -> Quantity:
    """Return the record of a name or an alias; ValueError with the closest name and those that are known."""
    return read_quantity(name)[0]


def read_quantity(name: object) -> tuple[Quantity, str | None]:
    """Return the record, and the statistic that the name fixes, as ``"score_variance"`` does."""
    if not isinstance(name, str):
        raise ValueError(f"quantity must be a name: got {shown(name)}")
    if name in QUANTITIES:  # at once: a study asks for every chunk
        return QUANTITIES[name], None
    known_records = QUANTITIES | STUDIED
    records = known_records | {alias: record for record in known_records.values() for alias in record.aliases}
    known = find_name("quantity", name, records)
    return records[known], records[known].aliases.get(known)


# What an exact value says.


def _spread(value: float, n: int) -> str:
    return f"standard deviation {math.sqrt(value):.6g}; softmax saturates as it grows beyond √(2 log n_keys)"


def _entropy_words(value: float, n: int) -> str:
    if n == 1:
        return "one key has no entropy"
    return f"{value / math.log(n):.2%} of log n_keys; as spread as {math.exp(value):.4g} equal weights"


def _trace_words(value: float, n: int) -> str:
    return (
        "one key: no gradient" if n == 1 else f"{value * n / (n - 1):.2%} of 1 - 1/n_keys, its value for equal weights"
    )


def _fraction_words(value: float, n: int) -> str:
    return f"as spread as {n**value:.4g} equal weights"


def _logsumexp_words(value: float, n: int) -> str:
    return f"{value - math.log(n):.6g} above log n_keys, its value for scores of 0"


def _square_words(value: float, n: int) -> str:
    return f"{1 / value:.4g} equal weights would give it; 1/n_keys if uniform, 1 if one-hot"


def _cube_words(value: float, n: int) -> str:
    return f"{value * n**2:.4g} times 1/n_keys², its value for equal weights; 1 if one-hot"


def _max_words(value: float, n: int) -> str:
    return f"{value * n:.4g} times 1/n_keys, its value for equal weights"


def _mean_square_words(norm: str) -> Callable[[float, int], str]:
    return lambda value, n: f"root mean square of {norm}: {math.sqrt(value):.4g}"


def _root_words(norm: str) -> Callable[[float, int], str]:
    return lambda value, n: f"root mean square of {norm}; the mean is smaller, and no exact value of it is known"


_J = "‖J‖_F, and of ‖J g‖ for g ~ N(0, I)"
_Q = "‖∂(gᵀp)/∂q‖ for g ~ N(0, I)"
_ROOT: dict[str, Any] = {"statistic": "rms", "of": lambda square, n: np.sqrt(square), "is_monotone": False}


# Each record: name, formula, unit, words, label; how its value comes from what it reads; limits; the exact value.
_RECORDS = (
    Quantity(
        "score", "scale·kᵀq", "1", "one score", "score",
        reads="score", value=itself, at_equal=lambda n: 0.0, at_one_hot=math.inf,
        exact=Exact("Var(scale·kᵀq)", "score_variance", _spread, statistic="variance"),
        aliases={"score_variance": "variance"},
    ),
    Quantity(
        "entropy", "−Σ p log p", "nats", "how evenly the weights are spread", "entropy (nats)",
        value=entropy, from_columns=lambda c: c.entropy(), only_entropy=True, beside_sink=entropy_with_rest,
        at_equal=math.log, at_one_hot=0.0,
        exact=Exact("E[-Σ p log p], nats", "expected_entropy", _entropy_words),
    ),
    Quantity(
        "entropy_fraction", "−Σ p log p / log n_keys", "1", "the entropy over its greatest value",
        "entropy / log n_keys",
        value=entropy_fraction, beside_sink=entropy_fraction_with_rest,
        at_equal=lambda n: 1.0, at_one_hot=0.0, least_keys=2,
        exact=Exact("E[-Σ p log p] / log n_keys", "expected_entropy", _fraction_words, of=lambda x, n: x / np.log(n)),
    ),
    Quantity(
        "effective_keys", "exp(−Σ p log p)", "keys", "how many equal weights have this entropy", "effective keys",
        value=lambda w: np.exp(entropy(w)), from_columns=lambda c: np.exp(c.entropy()),
        beside_sink=lambda w: np.exp(entropy_with_rest(w)),
        at_equal=float, at_one_hot=1.0,
    ),
    Quantity(
        "logsumexp", "log Σ exp score", "nats", "the log-partition function of a row of scores", "log Σ exp (nats)",
        reads="scores", value=logsumexp, from_columns=lambda c: c.top + np.log1p(c.rest),
        at_equal=math.log, at_one_hot=math.inf,
        exact=Exact("E log Σ exp z", "expected_logsumexp", _logsumexp_words),
    ),
    Quantity(
        "power_sum_2", "Σ p²", "1", "the inverse participation ratio", "Σ p²",
        value=power_sum(2), from_columns=power_sum_of_columns(2), at_equal=lambda n: 1.0 / n, at_one_hot=1.0,
        exact=Exact("E Σ p²", "expected_power_sum", _square_words, arguments=(2,)),
    ),
    Quantity(
        "power_sum_3", "Σ p³", "1", "the sum of the cubes of the weights", "Σ p³",
        value=power_sum(3), from_columns=power_sum_of_columns(3), at_equal=lambda n: n**-2.0, at_one_hot=1.0,
        exact=Exact("E Σ p³", "expected_power_sum", _cube_words, arguments=(3,)),
    ),
    Quantity(
        "jacobian_trace", "tr J = 1 − Σ p²", "1", "the trace of softmax's Jacobian J = diag(p) − p pᵀ", "tr J",
        value=jacobian_trace, from_columns=trace_of_columns, beside_sink=trace_of_keys,
        at_equal=lambda n: 1.0 - 1.0 / n, at_one_hot=0.0,
        exact=Exact("E tr J, J = diag(p) - p pᵀ", "expected_jacobian_trace", _trace_words),
    ),
    Quantity(
        "jacobian_norm", "‖J‖_F", "1", "the Frobenius norm of softmax's Jacobian", "‖J‖ (Frobenius)",
        value=jacobian_norm, from_columns=norm_of_columns, beside_sink=norm_of_keys,
        at_equal=lambda n: math.sqrt(n - 1) / n, at_one_hot=0.0,
        exact=Exact("√E ‖J‖_F²", "expected_jacobian_frobenius_squared", _root_words(_J), **_ROOT),
    ),
    Quantity(
        "jacobian_frobenius_squared", "‖J‖_F²", "1", "the square of jacobian_norm", "‖J‖² (Frobenius)",
        value=lambda w: jacobian_norm(w) ** 2, from_columns=lambda c: norm_of_columns(c) ** 2,
        beside_sink=lambda w: norm_of_keys(w) ** 2, at_equal=lambda n: (n - 1) / n**2, at_one_hot=0.0,
        exact=Exact("E ‖J‖_F²", "expected_jacobian_frobenius_squared", _mean_square_words(_J), is_monotone=False),
    ),
    Quantity(
        "dead_row", "1 where tr J < 1e-3, else 0", "1", "whether next to no gradient passes", "share of dead rows",
        value=lambda w: is_dead(jacobian_trace(w)), from_columns=lambda c: is_dead(trace_of_columns(c)),
        beside_sink=lambda w: is_dead(trace_of_keys(w)),
        at_equal=lambda n: float(1.0 - 1.0 / n < DEAD_TRACE), at_one_hot=1.0, is_event=True,
    ),
    Quantity(
        "max_weight", "max p", "1", "the largest weight", "largest weight",
        value=lambda w: np.asarray(w.max(axis=-1), dtype=np.float64), from_columns=lambda c: 1.0 / c.partition,
        at_equal=lambda n: 1.0 / n, at_one_hot=1.0,
        exact=Exact("E max p", "expected_max_weight", _max_words),
    ),
    Quantity(  # E‖J g‖² = E‖J‖_F² for g ~ N(0, I) independent of J
        "score_gradient_norm", "‖J g‖, g ~ N(0, I)", "1", "the gradient of g·p with respect to the scores",
        "‖∂L/∂scores‖",
        reads="score_gradient", value=itself, at_equal=lambda n: math.sqrt(n - 1) / n, at_one_hot=0.0,
        exact=Exact("√E ‖J g‖² = √E ‖J‖_F²", "expected_jacobian_frobenius_squared", _root_words(_J), **_ROOT),
    ),
    Quantity(
        "query_gradient_norm", "‖∂(g·p)/∂q‖ = scale·‖Kᵀ J g‖", "of k", "the gradient of g·p with respect to the query",
        "‖∂L/∂q‖",
        reads="query_gradient", value=itself, at_equal=lambda n: 0.0, at_one_hot=math.inf,
        exact=Exact("√E ‖∂(gᵀp)/∂q‖²", "expected_query_gradient_squared", _root_words(_Q), **_ROOT),
    ),
    Quantity(
        "query_gradient_squared", "‖∂(g·p)/∂q‖²", "of k²", "the square of query_gradient_norm", "‖∂L/∂q‖²",
        reads="query_gradient", value=np.square, at_equal=lambda n: 0.0, at_one_hot=math.inf, degree=2,
        exact=Exact("E ‖∂(gᵀp)/∂q‖²", "expected_query_gradient_squared", _mean_square_words(_Q), is_monotone=False),
    ),
)  # fmt: skip
QUANTITIES = {record.name: record for record in _RECORDS}
