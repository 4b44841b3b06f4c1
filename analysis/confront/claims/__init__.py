"""The built-in claims, one record each, by topic."""

from __future__ import annotations

from analysis.confront.claims.aligned import ALIGNED_CLAIMS
from analysis.confront.claims.bounded import BOUNDED_CLAIMS
from analysis.confront.claims.dependence import DEPENDENCE_CLAIMS
from analysis.confront.claims.entropy import ENTROPY_CLAIMS
from analysis.confront.claims.gradient import GRADIENT_CLAIMS
from analysis.confront.claims.initialisation import INITIALISATION_CLAIMS
from analysis.confront.claims.length import LENGTH_CLAIMS
from analysis.confront.claims.mechanisms import MECHANISM_CLAIMS
from analysis.confront.claims.method import METHOD_CLAIMS
from analysis.confront.claims.query_gradient import QUERY_GRADIENT_CLAIMS
from analysis.confront.claims.scores import SCORE_CLAIMS
from analysis.confront.claims.softmax import SOFTMAX_CLAIMS

CLAIMS = (
    *SCORE_CLAIMS,
    *DEPENDENCE_CLAIMS,
    *ALIGNED_CLAIMS,
    *SOFTMAX_CLAIMS,
    *ENTROPY_CLAIMS,
    *LENGTH_CLAIMS,
    *GRADIENT_CLAIMS,
    *QUERY_GRADIENT_CLAIMS,
    *BOUNDED_CLAIMS,
    *MECHANISM_CLAIMS,
    *INITIALISATION_CLAIMS,
    *METHOD_CLAIMS,
)
