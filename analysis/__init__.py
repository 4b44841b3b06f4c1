"""Predict, measure, confirm and audit attention scores."""

from __future__ import annotations

import importlib
from typing import Any

# Name -> module. Looked up on first use, so that `import analysis` costs no SciPy, SymPy or matplotlib.
_EXPORTS: dict[str, str] = {
    "CLAIMS": "claims",
    "AtMost": "relation_draws",
    "Claim": "claim",
    "ClaimVerdict": "confirmation",
    "Confirmation": "confirmation",
    "Exactly": "relation",
    "Fits": "relation_draws",
    "Identity": "relation_draws",
    "ToLeadingOrder": "relation",
    "confirm": "confirming",
    "expected_entropy": "exact",
    "expected_jacobian_frobenius_squared": "exact",
    "expected_jacobian_trace": "exact",
    "expected_logsumexp": "exact",
    "expected_max_weight": "exact",
    "expected_power_sum": "exact",
    "expected_query_gradient_squared": "exact",
    "scale_for": "exact_inverse",
    "score_distribution": "score_law",
    "score_moments": "moments",
    "gradient_decay": "decay",
    "high_temperature": "asymptotics",
    "low_temperature": "asymptotics",
    "normal_maximum": "asymptotics",
    "random_energy": "asymptotics",
    "HeadAudit": "audit.rows",
    "LayerAudit": "audit.rows",
    "Remedy": "audit.remedies",
    "TensorAudit": "audit.results",
    "audit_callable": "audit.callables",
    "CallableAudit": "audit.callable_results",
    "Finding": "audit.findings",
    "audit_example": "audit.files",
    "audit_files": "audit.files",
    "audit_tensors": "audit.tensors",
    "read_history": "audit.history",
    "watch": "audit.capture",
    "WatchRow": "audit.history",
    "Study": "study",
    "StudyInterrupted": "study",
    "StudyRow": "study",
    "run_study": "study",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"analysis.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module 'analysis' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
