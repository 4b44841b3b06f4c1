"""NumPy's error state, warnings, random state, threads, folder and environment belong to the caller of `analysis`."""

import inspect
import os
import warnings

import numpy as np
import pytest
import threadpoolctl

import analysis
from attnsym import scaled_dot_product_attention

Q, K = np.random.default_rng(0).standard_normal((2, 1, 2, 9, 4))
SIZES = (Q, Q * 1e200, Q * 0, Q * 1e-320)
HUGE = {"sigma": (0.0, 1e-300, 1.0, 40.0, 1e5)}
WIDE = {"d_k": (1, 4, 10**6), "scale": 1e-3}


def expectations(function, *first, by_sigma=True):
    """Call an expectation over the ends of its arguments."""
    return lambda path: [
        function(*first, n, **by) for n in (1, 2, 10**6) for by in ((HUGE, WIDE) if by_sigma else (WIDE,))
    ]


def history(path):
    file = path / "history.jsonl"
    file.write_text("", encoding="utf-8")
    return analysis.read_history(file)


def files(path):
    np.savez(path / "tensors.npz", q=Q, k=K)
    return analysis.audit_files([path / "tensors.npz"])


def law(path):
    law = analysis.score_distribution(3, scale=1e-3)
    ends = np.array([-np.inf, -1e300, -1.0, 0.0, 1e-300, 1.0, np.inf])
    return [law.pdf(ends), law.cdf(ends), law.ppf([0.0, 1e-300, 0.5, 1.0]), law.rvs(3, random_state=0), law.stats()]


CALLS = {
    "apply_clip": None,  # a model's weights, as clip_model: tests/audit
    "audit_callable": lambda path: str(analysis.audit_callable(scaled_dot_product_attention)),
    "audit_checkpoint": None,  # as audit_weights, of a file: tests/audit
    "audit_example": lambda path: str(analysis.audit_example()),
    "audit_files": files,
    "audit_tensors": lambda path: [str(analysis.audit_tensors(q, K)) for q in SIZES],
    "audit_trends": None,  # of numbers that audits returned: tests/audit
    "compare_audits": None,
    "audit_weights": lambda path: [
        str(analysis.audit_weights(w, w[::-1], num_heads=2)) for w in (Q[0, 0, :8], Q[0, 0, :8] * 0)
    ],
    "clip_factors": lambda path: [
        analysis.clip_factors((1e-320, 3.0, 1e300, np.nan), target) for target in (1e-3, 1.0)
    ],
    "clip_model": None,
    "confirm": lambda path: str(analysis.confirm(analysis.CLAIMS[:3], budget=0.02)),
    "expected_entropy": expectations(analysis.expected_entropy),
    "expected_jacobian_frobenius_squared": expectations(analysis.expected_jacobian_frobenius_squared),
    "expected_jacobian_trace": expectations(analysis.expected_jacobian_trace),
    "expected_key_weight": expectations(analysis.expected_key_weight),
    "expected_logsumexp": expectations(analysis.expected_logsumexp),
    "expected_max_weight": lambda path: [
        analysis.expected_max_weight(10**6, **HUGE),
        analysis.expected_max_weight(2, d_k=64),
    ],
    "expected_power_sum": expectations(analysis.expected_power_sum, 3),
    "expected_query_gradient_squared": expectations(analysis.expected_query_gradient_squared, by_sigma=False),
    "expected_row_sum": lambda path: [analysis.expected_row_sum(n, **HUGE) for n in (1, 10**6)],
    "expected_sink_weight": lambda path: [analysis.expected_sink_weight(n, sink=0.5, **HUGE) for n in (1, 10**6)],
    "gradient_decay": None,  # of claims and docs: tests/predict
    "high_temperature": lambda path: [analysis.high_temperature("entropy", n, 0.1) for n in (2, 10**6)],
    "low_temperature": lambda path: [analysis.low_temperature("entropy", n, 1e6) for n in (2, 10**6)],
    "normal_maximum": None,
    "random_energy": lambda path: [analysis.random_energy("entropy", 1024, sigma) for sigma in (1e-3, 3.0, 1e6)],
    "read_history": history,
    "run_study": lambda path: analysis.run_study(
        "entropy", d_k=(1, 64), n_keys=8, scale=("sqrt", 1e9, 0), replicates=200, workers=2
    ).to_records(),
    "row_sum_variance": lambda path: [analysis.row_sum_variance(n, **HUGE) for n in (1, 10**6)],
    "scale_for": lambda path: [
        analysis.scale_for("entropy_fraction", target, 128, **by)
        for target in (0.999, 0.01)
        for by in ({}, {"d_k": 64})
    ],
    "score_distribution": law,
    "score_moments": None,
    "watch": None,  # a model's forward pass: tests/audit
    "write_report": None,  # matplotlib and SymPy work under their own error state: tests/show
}


def test_every_function_is_called_or_says_where():
    public = {name for name in analysis.__all__ if inspect.isfunction(getattr(analysis, name))}
    assert public <= set(CALLS) | {"design", "length"}


def surroundings():
    generator = np.random.get_state()  # noqa: NPY002 the caller's, to be left alone
    return {
        "errors": np.geterr(),
        "filters": list(warnings.filters),
        "random": (generator[0], generator[1].tolist(), *generator[2:]),
        "threads": [(pool["filepath"], pool["num_threads"]) for pool in threadpoolctl.threadpool_info()],
        "folder": os.getcwd(),
        "environment": dict(os.environ),
    }


@pytest.fixture(scope="module", autouse=True)
def loaded():
    """Load what is loaded on first use, which is not for us to hold to any state."""
    analysis.expected_entropy(2, sigma=1.0)
    analysis.score_distribution(3).ppf(0.7)
    analysis.audit_tensors(Q, K)
    analysis.confirm(analysis.CLAIMS[:1], budget=0.01)
    analysis.run_study("entropy", d_k=1, n_keys=2, replicates=100, workers=2)


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if call])
def test_nothing_of_the_callers_breaks_a_call_or_is_changed(name, tmp_path):
    with np.errstate(all="raise"):
        before = surroundings()
        CALLS[name](tmp_path)
        assert surroundings() == before
