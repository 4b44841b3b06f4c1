"""The names that arguments take, for type checkers; at run time each is looked up where it is used."""

from __future__ import annotations

from typing import Literal, TypeAlias

QuantityName: TypeAlias = Literal[
    "score",
    "score_variance",
    "entropy",
    "entropy_fraction",
    "effective_keys",
    "logsumexp",
    "power_sum_2",
    "power_sum_3",
    "jacobian_trace",
    "jacobian_norm",
    "jacobian_frobenius_squared",
    "dead_row",
    "max_weight",
    "score_gradient_norm",
    "query_gradient_norm",
    "query_gradient_squared",
    "key_weight",
    "sink_weight",
    "row_sum",
    "row_sum_variance",
]
SolvableName: TypeAlias = Literal[
    "score",
    "score_variance",
    "entropy",
    "entropy_fraction",
    "logsumexp",
    "power_sum_2",
    "power_sum_3",
    "jacobian_trace",
    "max_weight",
    "key_weight",
    "sink_weight",
    "row_sum",
    "row_sum_variance",
]
ExpandedName: TypeAlias = Literal[
    "logsumexp", "entropy", "jacobian_trace", "power_sum_2", "jacobian_frobenius_squared", "max_weight"
]
StatisticName: TypeAlias = Literal["mean", "variance", "rms", "median"]
ScoreName: TypeAlias = Literal["dot", "cosine"]
NormalizerName: TypeAlias = Literal["softmax", "sigmoid", "relu"]
NormName: TypeAlias = Literal["l2", "rms"]
SamplerName: TypeAlias = Literal["auto", "direct", "conditional"]
PrecisionName: TypeAlias = Literal["double", "single"]
