"""Every claim by every route: its record, its derivation, its prediction against a second one, its measurement."""

import ast
import math
import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import integrate, stats

import analysis
from analysis import CLAIMS, AtMost, ClaimVerdict, Exactly, Fits, Identity, ToLeadingOrder, confirm
from analysis.confront import claims
from analysis.predict.asymptotics import normal_maximum
from attnsym.symbolic import DERIVATIONS

CELLS = [(claim, cell) for claim in CLAIMS for cell in claim.cells]
BY_KEY = {claim.key: claim for claim in CLAIMS}


def name(value):
    return getattr(value, "key", str(value))


# The record.


@pytest.mark.parametrize("claim", CLAIMS, ids=name)
def test_a_claim_tells_what_it_means(claim):
    assert claim.statement
    assert claim.assumptions
    assert claim.source
    assert claim.mistake
    assert 2 <= sum(claim.meaning.count(stop) for stop in (". ", "; ")) + claim.meaning.endswith(".") <= 4
    assert type(claim.relation) in (Exactly, Identity, ToLeadingOrder, AtMost, Fits)


def test_keys_are_unique():
    assert len(BY_KEY) == len(CLAIMS)


def test_the_usual_telling_is_called_too_simple():
    assert "the gradient vanishes, is too simple" in BY_KEY["query-gradient-mean"].meaning


@pytest.mark.parametrize("claim", CLAIMS, ids=name)
def test_a_claim_travels_to_another_process(claim):
    assert pickle.loads(pickle.dumps(claim)).cells == claim.cells


# Route 1: derivations.


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim.derivation], ids=name)
def test_a_derived_claim_names_a_derivation(claim):
    assert claim.route in ("derived", "derived in part")
    assert claim.derivation in DERIVATIONS  # each of them is proved in tests/symbolic


# Route 2: predictions.


@pytest.mark.parametrize("claim", CLAIMS, ids=name)
def test_prediction_and_rival_differ_somewhere(claim):
    def differ(cell):
        prediction, rival = claim.prediction(cell), claim.rival(cell)
        if isinstance(claim.relation, Fits):
            prediction, rival = prediction.ppf(0.9), rival.ppf(0.9)
        assert math.isfinite(prediction), cell
        assert math.isfinite(rival), cell
        return prediction != rival

    assert any(map(differ, claim.cells))


def _exact_rows(claim):
    """The exact expectation behind a statement to leading order, where one is known."""
    exact = {
        "entropy-high-temperature": lambda c: (
            math.log(c.n_keys)
            - analysis.expected_entropy(c.n_keys, d_k=c.d_k, scale=1 / (c.temperature * math.sqrt(c.d_k)))
        ),
        "entropy-fall-unscaled": lambda c: analysis.expected_entropy(c.n_keys, d_k=c.d_k, scale=c.scale),
        "largest-weight-unscaled": lambda c: 1 - analysis.expected_max_weight(c.n_keys, d_k=c.d_k, scale=c.scale),
        "fixed-scale-length": lambda c: analysis.expected_entropy(c.n_keys, d_k=c.d_k) / math.log(c.n_keys),
        "jacobian-trace-unscaled": lambda c: analysis.expected_jacobian_trace(c.n_keys, d_k=c.d_k, scale=c.scale),
        "jacobian-trace-scaled": lambda c: analysis.expected_jacobian_trace(c.n_keys, d_k=c.d_k),
        "two-key-gradient": lambda c: (
            0.25 - analysis.expected_jacobian_trace(2, d_k=c.d_k, scale=1 / (c.temperature * math.sqrt(c.d_k))) / 2
        ),
        "query-gradient-rms": lambda c: np.sqrt(
            analysis.expected_query_gradient_squared(c.n_keys, d_k=c.d_k, scale=c.scale)
        ),
        "query-gradient-scaled": lambda c: np.sqrt(analysis.expected_query_gradient_squared(c.n_keys, d_k=c.d_k)),
    }[claim.key]
    return [(cell, float(exact(cell))) for cell in claim.cells if cell.get("law", "normal") == "normal"]


LEADING = [
    "entropy-high-temperature",
    "entropy-fall-unscaled",
    "largest-weight-unscaled",
    "fixed-scale-length",
    "jacobian-trace-unscaled",
    "jacobian-trace-scaled",
    "two-key-gradient",
    "query-gradient-rms",
    "query-gradient-scaled",
]


@pytest.mark.parametrize("key", LEADING)
def test_the_constant_of_a_rate_is_right_and_tight(key):
    claim = BY_KEY[key]
    used = [
        abs(exact - claim.prediction(cell)) / claim.relation.allowance(claim.prediction(cell), cell)
        for cell, exact in _exact_rows(claim)
    ]
    assert max(used) <= 1.0
    assert max(used) >= 0.5  # a constant twice too large would allow a wrong claim


def test_moments_of_the_score_agree_with_the_independent_module():
    from analysis.predict.score_moments import score_moments

    for law in ("normal", "rademacher", "uniform", "laplace", "student_t10"):
        found = score_moments(4, scale="unscaled", law=law)
        for claim_key, value in (("score-mean", found.mean), ("score-variance", found.variance)):
            claim = BY_KEY[claim_key]
            (cell,) = (c for c in claim.cells if (c.law, c.d_k) == (law, 4))
            assert claim.prediction(cell) == pytest.approx(value, abs=1e-12)


def test_score_fourth_moment_by_enumeration():
    claim = BY_KEY["score-fourth-moment"]
    scores = stats.binom(4, 0.5)  # of 4 products ±1, S = 2 B - 4
    (cell,) = (c for c in claim.cells if (c.law, c.d_k) == ("rademacher", 4))
    assert claim.prediction(cell) == pytest.approx(scores.expect(lambda b: (2 * b - 4.0) ** 4))


def test_variance_of_correlated_components_by_matrices():
    claim = BY_KEY["score-variance-correlated"]
    for cell in claim.cells:
        lags = np.abs(np.subtract.outer(np.arange(cell.d_k), np.arange(cell.d_k)))
        trace = np.trace(cell.correlation_q**lags @ np.asarray(cell.correlation_k, dtype=float) ** lags)
        assert claim.prediction(cell) == pytest.approx(trace, rel=1e-12)


def test_median_gap_of_normals_by_adaptive_quadrature():
    gap = normal_maximum(10).gap
    above, _ = integrate.quad(lambda x: 10 * stats.norm.pdf(x) * stats.norm.cdf(x - gap) ** 9, -8, 12, points=[1.5])
    assert above == pytest.approx(0.5, abs=1e-10)


def test_two_keys_have_an_exact_median():
    """Tr J = 2p(1 - p) falls in |S₁ - S₂|, which is √2 times a score in law: its median is known at every d_k."""
    claim = BY_KEY["jacobian-median-unscaled"]
    for cell in (cell for cell in claim.cells if cell.n_keys == 2):
        half = math.sqrt(2) * analysis.score_distribution(cell.d_k, "unscaled").ppf(0.75) / 2
        residual = 0.5 / math.cosh(half) ** 2 / claim.prediction(cell) - 1
        assert abs(residual) * math.sqrt(cell.d_k) <= claim.relation.constant


def test_the_largest_weight_rises_with_length_at_log_scale():
    claim = BY_KEY["log-length-scale"]
    rising = [claim.prediction(cell) for cell in claim.cells]
    falling = [claim.rival(cell) for cell in claim.cells]
    least = rising.index(min(rising))
    assert [cell.n_keys for cell in claim.cells] == [2, 8, 12, 64, 512]
    assert 0 < least < len(rising) - 1
    assert rising[: least + 1] == sorted(rising[: least + 1], reverse=True)
    assert rising[least:] == sorted(rising[least:])
    assert falling == sorted(falling, reverse=True)


# Route 3: measurement.


@pytest.mark.parametrize(("claim", "cell"), CELLS, ids=name)
def test_draws_are_numbers_one_per_replicate_and_repeat(claim, cell):
    first, second = (claim.sample(cell, np.random.default_rng(1), 8) for _ in range(2))
    assert first.shape == (8,)
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, second)


def test_claims_measure_directly():
    """Only the claim about the conditional sampler knows the samplers of studies; the others draw and call the core."""
    knowing = set()
    for path in Path(claims.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                words = f"{getattr(node, 'module', '')} {' '.join(alias.name for alias in node.names)}"
                knowing |= {path.stem} if "samplers" in words or "conditional" in words else set()
    assert knowing == {"method"}


def test_no_claim_is_rejected_at_a_small_budget():
    ends = [dict.fromkeys((claim.cells[0], claim.cells[-1])) for claim in CLAIMS]
    few = [
        replace(claim, grid=[{name: [value] for name, value in cell.settings} for cell in cells])
        for claim, cells in zip(CLAIMS, ends, strict=True)
    ]
    confirmation = confirm(few, budget=0.005, seed=3)
    assert [r.claim.key for r in confirmation.claims if r.verdict is ClaimVerdict.REJECTED] == []


def test_z_scores_are_standard_normal():
    keys = ("score-mean", "score-moments-general", "score-variance", "score-self", "cosine-variance", "alike-keys")
    scores: list[float] = []
    for seed in range(4):  # the level brings the critical z, to which cells must be calibrated, down to three
        for result in confirm([BY_KEY[key] for key in keys], budget=0.1, seed=seed, family_wise_alpha=0.5).claims:
            scores += [cell.z_score for cell in result.cells if cell.calibrated and cell.z_score is not None]
    assert len(scores) > 100
    assert stats.kstest(scores, "norm").pvalue > 1e-4


@pytest.mark.slow
def test_every_claim_is_confirmed_at_the_default_budget():
    confirmation = confirm(seed=1)
    assert confirmation.passed, str(confirmation)


def with_known_predictions(claim):
    """Return the claim with predictions and rivals computed once, quantiles of laws included."""

    def known(function):
        @cache
        def value(cell):
            found = function(cell)
            if not isinstance(claim.relation, Fits):
                return found
            quantiles = found.ppf(np.arange(1, claim.relation.classes) / claim.relation.classes)
            return SimpleNamespace(ppf=lambda levels: quantiles)

        return value

    return replace(claim, predict=claim.predict and known(claim.predict), rival=known(claim.rival))


@pytest.mark.slow
def test_chance_rejects_no_more_often_than_stated():
    """Over 200 seeds, a run of the whole set with one rejection or more happens at most at the family-wise level."""
    known, level, seeds = [with_known_predictions(claim) for claim in CLAIMS], 0.05, 200
    rejected = 0
    for seed in range(seeds):
        results = confirm(known, budget=0.01, seed=seed, family_wise_alpha=level).claims
        rejected += any(result.verdict is ClaimVerdict.REJECTED for result in results)
    assert rejected <= stats.binom.ppf(1 - 1e-3, seeds, level)
