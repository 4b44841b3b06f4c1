"""The built-in claims, one record each, by topic."""

from __future__ import annotations

from analysis.claims.bounded import BOUNDED_CLAIMS
from analysis.claims.dependence import DEPENDENCE_CLAIMS
from analysis.claims.entropy import ENTROPY_CLAIMS
from analysis.claims.gradient import GRADIENT_CLAIMS
from analysis.claims.length import LENGTH_CLAIMS
from analysis.claims.method import METHOD_CLAIMS
from analysis.claims.query_gradient import QUERY_GRADIENT_CLAIMS
from analysis.claims.scores import SCORE_CLAIMS
from analysis.claims.softmax import SOFTMAX_CLAIMS

CLAIMS = (
    *SCORE_CLAIMS,
    *DEPENDENCE_CLAIMS,
    *SOFTMAX_CLAIMS,
    *ENTROPY_CLAIMS,
    *LENGTH_CLAIMS,
    *GRADIENT_CLAIMS,
    *QUERY_GRADIENT_CLAIMS,
    *BOUNDED_CLAIMS,
    *METHOD_CLAIMS,
)
