"""Wordings that were once claimed and are false: for each the exact case that shows it, and what stands now."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

import attnsym
from analysis import CLAIMS, expected_jacobian_trace
from analysis.confront.cell import Cell

BY_KEY = {claim.key: claim for claim in CLAIMS}


def test_in_one_row_the_entropy_is_not_its_variance_up_to_second_order():
    """H = log n - v/2 + O(v²) fails: the residual of the row (0, 0, t) is -μ₃/3, of order v^1.5."""
    for t in (0.2, 0.02):
        row = np.array([0.0, 0.0, t])
        third = float(np.mean((row - row.mean()) ** 3))
        residual = attnsym.entropy(attnsym.softmax(row)) - (math.log(3) - row.var() / 2)
        assert residual == pytest.approx(-third / 3, rel=0.2)
        assert abs(residual) / row.var() ** 2 > 0.3 / t
    assert "a single row" in BY_KEY["entropy-high-temperature"].statement


def sign_differences(d_k):
    """The law of S₁ - S₂ of sign vectors: 2m with m = B(2 d_k, 1/2) - d_k."""
    m = np.arange(-min(d_k, 400), min(d_k, 400) + 1)
    return 2.0 * m, stats.binom.pmf(m + d_k, 2 * d_k, 0.5)


def test_sign_vectors_have_other_constants_for_good():
    """Two keys: E tr J and E H of sign vectors tend to 1.0020 and 1.00055 times what holds for a density."""
    for key, limit in (("jacobian-trace-unscaled", 1.00204), ("entropy-fall-unscaled", 1.00055)):
        ratios = []
        for d_k in (256, 4096, 65536):
            difference, mass = sign_differences(d_k)
            p = special.expit(difference)
            value = 2 * p * (1 - p) if key.startswith("jacobian") else special.entr(p) + special.entr(1 - p)
            ratios.append(float(value @ mass) / BY_KEY[key].predict(Cell((("d_k", d_k), ("n_keys", 2)))))
        assert ratios == sorted(ratios)
        assert ratios[-1] == pytest.approx(limit, abs=3e-5)  # where it stays
        assert all(cell.law != "rademacher" for cell in BY_KEY[key].cells)
    normal = expected_jacobian_trace(2, d_k=4096, scale="unscaled")
    claim = BY_KEY["jacobian-trace-unscaled"]
    assert normal / claim.predict(Cell((("d_k", 4096), ("n_keys", 2)))) == pytest.approx(1.0, abs=2e-4)


def test_the_query_gradient_of_sign_vectors_has_another_constant():
    """Two keys: ‖∂(g·p)/∂q‖ = p(1-p)|g₁-g₂|‖k₁-k₂‖ with ‖k₁-k₂‖² = 4m and S₁-S₂ twice a sum of m signs."""
    claim, ratios = BY_KEY["query-gradient-mean"], []
    for d_k in (1024, 4096):
        m = np.arange(d_k // 2 - 12 * math.isqrt(d_k), d_k // 2 + 12 * math.isqrt(d_k))
        half = np.arange(-60, 61)
        heads = (m[:, None] + half) / 2
        chance = np.where((m[:, None] + half) % 2 == 0, stats.binom.pmf(heads, m[:, None], 0.5), 0.0)
        p = special.expit(2.0 * half)
        value = (chance * p * (1 - p)).sum(axis=1) * 2 * np.sqrt(m) @ stats.binom.pmf(m, d_k, 0.5)
        ratios.append(value * 2 / math.sqrt(math.pi) / claim.predict(Cell((("d_k", d_k), ("n_keys", 2)))))
    assert ratios == pytest.approx([1.002, 1.002], abs=1.5e-3)
    assert ratios[1] > 1.001
    assert all(cell.law != "rademacher" for cell in claim.cells)


def test_correlation_alone_does_not_give_the_variance_of_an_aligned_score():
    """Let kᵢ = qᵢ with probability 1/2 and be independent otherwise: ρ = 1/2, and Var S is 28 at d_k = 16, not 20."""
    normal_to_4 = {2: Fraction(1, 12), -2: Fraction(1, 12), 1: Fraction(1, 6), -1: Fraction(1, 6), 0: Fraction(1, 2)}
    first = second = Fraction(0)
    for (q, own), (e, other) in itertools.product(normal_to_4.items(), repeat=2):
        for k in (q, e):
            first, second = first + own * other * q * k / 2, second + own * other * (q * k) ** 2 / 2
    assert first == Fraction(1, 2)
    settings = {"statistic": "variance", "law": "normal", "d_k": 16, "alignment": 0.5, "scale": "unscaled"}
    claimed = BY_KEY["score-aligned"].predict(Cell(tuple(settings.items())))
    assert 16 * (second - first**2) == 28
    assert claimed == 20.0
    assert "gaussian_pairs(q, k)" in BY_KEY["score-aligned"].assumptions
    assert any("√(1 - ρ²) e" in text for text in BY_KEY["score-aligned-laws"].assumptions)


def own_weight(d_k, n_keys):
    """E of a vector's weight on itself; given ‖q‖ it is 1/(1 + X), whose mean is ∫ e^(-t) (E e^(-tx))^(n - 1) dt."""
    z, z_mass = np.polynomial.hermite_e.hermegauss(80)
    t, t_mass = np.polynomial.laguerre.laggauss(120)
    r_squared = stats.chi2(d_k).ppf((np.arange(60) + 0.5) / 60)
    means = []
    for square in r_squared:
        r = math.sqrt(square / d_k)
        inner = np.exp(-t[:, None] * np.exp(r * z - square / math.sqrt(d_k))) @ z_mass / math.sqrt(2 * math.pi)
        means.append(float(inner ** (n_keys - 1) @ t_mass))
    return float(np.mean(means))


def test_not_every_token_attends_to_itself():
    assert own_weight(16, 128) == pytest.approx(0.254, abs=0.01)  # "every token attends to itself" is false here
    assert own_weight(16, 8) > 0.7
    assert own_weight(16, round(math.exp(math.sqrt(16) - 0.5))) == pytest.approx(0.5, abs=0.06)
    assert "e^(√d_k - 1/2) keys" in BY_KEY["score-self"].meaning


def test_the_rival_of_the_other_laws_is_about_the_rate():
    """Once it was log n, which nobody takes for the entropy: now it can pass at d_k = 4, and not at 64."""
    claim = BY_KEY["entropy-other-laws"]
    for cell in claim.cells:
        prediction, rival = claim.prediction(cell), claim.rival(cell)
        slack = claim.relation.allowance(prediction, cell) + claim.relation.allowance(rival, cell)
        if cell.d_k != 16:
            assert (abs(prediction - rival) > slack) is (cell.d_k == 64)


def test_checks_of_code_are_told_apart():
    checks = {claim.key for claim in CLAIMS if claim.is_code_check}
    assert checks == {"softcap-bound", "cosine-score-bound", "variance-denominator", "independent-streams"}
