"""Quantities that only a mechanism makes worth a look: the weight of one key, of a sink, and row sums."""

from __future__ import annotations

from analysis.vocabulary.quantity import Exact, Quantity


def _share_words(value: float, n: int) -> str:
    return f"{value:.4%} of the row; {value * n:.4g} times 1/n_keys"


def _sink_words(value: float, n: int) -> str:
    return f"{value:.4%} of the row leaves the keys"


def _sum_words(value: float, n: int) -> str:
    return f"{value:.4g} where softmax always has 1"


def _deviation_words(value: float, n: int) -> str:
    return f"standard deviation {value**0.5:.4g} where softmax has 0"


_RECORDS = (
    Quantity(
        "key_weight", "p of key 0, or of --key", "1", "the weight of one key: of the needle, if there is one", "weight",
        value=lambda w: w[..., 0], at_equal=lambda n: 1.0 / n, at_one_hot=1.0,
        exact=Exact("E p_key", "expected_key_weight", _share_words),
    ),
    Quantity(
        "sink_weight", "1 − Σ p over the keys", "1", "what a sink takes from the keys", "weight of the sink",
        value=lambda w: 1.0 - w.sum(axis=-1), at_equal=lambda n: 0.0, at_one_hot=0.0,
        exact=Exact("E e^sink / (e^sink + Σ exp z)", "expected_sink_weight", _sink_words),
    ),
    Quantity(
        "row_sum", "Σ of the weights", "1", "the sum of a row of weights that need not be 1", "sum of the weights",
        value=lambda w: w.sum(axis=-1), at_equal=lambda n: 1.0, at_one_hot=1.0,
        exact=Exact("E Σ p", "expected_row_sum", _sum_words), aliases={"row_sum_variance": "variance"},
    ),
    Quantity(
        "row_sum_variance", "Var Σ of the weights", "1", "how much row sums differ", "variance of the sum",
        value=lambda w: w.sum(axis=-1), at_equal=lambda n: 0.0, at_one_hot=0.0,
        exact=Exact("Var Σ p", "row_sum_variance", _deviation_words, statistic="variance", is_monotone=False),
    ),
)  # fmt: skip
ROW_SHARES = {record.name: record for record in _RECORDS}
# What a study draws: the variance of a row's sum is a statistic of it.
STUDIED = {name: record for name, record in ROW_SHARES.items() if name != "row_sum_variance"}
