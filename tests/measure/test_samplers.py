"""Two samplers, one law; and the quantities that both compute, against the plain definition in long arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from analysis.measure.draw.cell import StudyCell
from analysis.measure.draw.normals import NormalBlock
from analysis.measure.draw.samplers import draw
from analysis.measure.draw.score_columns import ScoreColumns, TameColumns
from analysis.measure.draw.vectors import common_part
from analysis.vocabulary.laws import law_pair
from analysis.vocabulary.quantities import QUANTITIES
from attnsym import softmax
from attnsym.softmax import softmax_jacobian

KS_LEVEL = 1e-5  # chance of a false alarm of each comparison


def make_cell(law=("normal", "normal"), **changes) -> StudyCell:
    settings = {
        "name": "test",
        "quantity": "entropy",
        "law_name": "normal",
        "d_k": 6,
        "n_keys": 5,
        "scale": 0.6,
        "scale_name": "0.6",
        "alignment": 0.0,
        "key_correlation": 0.0,
        "score": "dot",
        "score_name": "dot",
        "softcap": None,
        "is_causal": False,
        "sampler": "direct",
        "precision": "double",
    }
    return StudyCell(laws=law if callable(law) else law_pair(law), **{**settings, **changes})


def values(replicates=6000, entropy=0, **changes) -> np.ndarray:
    return draw(make_cell(**changes), np.random.SeedSequence(entropy), replicates)


def assert_same_law(a: np.ndarray, b: np.ndarray):
    assert stats.ks_2samp(a, b, method="asymp").pvalue > KS_LEVEL
    # KS is blind to small changes in the tails: compare the means of value and square too
    for power in (1, 2):
        x, y = a**power, b**power
        error = math.sqrt(x.var() / x.size + y.var() / y.size)
        assert abs(x.mean() - y.mean()) <= 5 * error


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"scale": 1.0, "d_k": 60, "n_keys": 12},
        {"d_k": 1, "n_keys": 2},
        {"softcap": 0.7},
        {"key_correlation": 0.5, "alignment": 0.6},
        {"key_correlation": -0.2},
        {"law": ("uniform", "normal")},
        {"precision": "single"},
        {"scale": -1.0, "precision": "single", "d_k": 60},
    ],
    ids=str,
)
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_both_samplers_have_one_law(quantity, settings):
    if quantity == "score" and "key_correlation" in settings:
        settings = {"alignment": settings.get("alignment", 0.3)}
    if quantity == "logsumexp" and "key_correlation" in settings:
        pytest.skip("sees what keys share, which the conditional sampler does not draw")
    direct = values(quantity=quantity, **settings)
    conditional = values(quantity=quantity, sampler="conditional", entropy=1, **settings)
    assert_same_law(direct, conditional)


def test_normals_in_single_precision_are_the_polar_form_of_their_words():
    """Two normals from each word; the smallest radius word gives the largest normal, √(2 log 2³³)."""
    block = NormalBlock(5, 3, np.float32)
    drawn = block.fill(np.random.default_rng(3)).copy()
    words = np.random.default_rng(3).integers(0, 2**64 - 1, 9, dtype=np.uint64, endpoint=True).view(np.uint32)
    angle, uniform = (
        words.reshape(2, 3, 3)[0].view(np.int32) * (math.pi / 2**31),
        (words.reshape(2, 3, 3)[1] + 0.5) / 2**32,
    )
    radius = np.sqrt(-2.0 * np.log(uniform))
    expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:5]
    np.testing.assert_allclose(drawn, expected, rtol=0, atol=2e-6)
    assert block.block.shape == (6, 3)

    class Zeros:
        def integers(self, low, high, size, dtype, endpoint):
            return np.zeros(size, dtype=dtype)

    assert block.fill(Zeros()).max() == pytest.approx(math.sqrt(2 * math.log(2**33)), rel=1e-6)
    factor = np.array([1.0, 2.0, -3.0], dtype=np.float32)
    np.testing.assert_allclose(block.fill(np.random.default_rng(3), factor), drawn * factor, rtol=1e-6)


def standing_still(rng, d_k, n_keys):
    return rng.standard_normal(d_k), rng.standard_normal((n_keys, d_k))


@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": "conditional"},
        {"sampler": "conditional", "precision": "single", "n_keys": 7},
        {"sampler": "conditional", "quantity": "query_gradient_norm"},
        {"sampler": "direct"},
        {"sampler": "direct", "quantity": "query_gradient_norm", "is_causal": True},
        {"law": standing_still},
    ],
)
def test_the_first_values_of_a_longer_run_are_the_shorter_run(settings):
    size = make_cell(**settings).chunk + 3  # the second is in the middle of a chunk
    long = values(2 * size, **settings)
    assert np.array_equal(values(20, **settings), long[:20])
    assert np.array_equal(values(size, **settings), long[:size])
    assert len(np.unique(long)) == len(long)


def test_the_comparison_would_catch_one_percent():
    # the negative control: a scale off by 3 % at ten times the draws is told apart
    direct = values(60_000, d_k=64, n_keys=8, scale=0.125)
    wrong = values(60_000, d_k=64, n_keys=8, scale=0.125 * 1.03, sampler="conditional", entropy=1)
    with pytest.raises(AssertionError):
        assert_same_law(direct, wrong)


@pytest.mark.parametrize(("alignment", "rho", "n"), [(0.3, 0.0, 4), (0.5, 0.4, 6), (0.0, -0.25, 5), (0.7, 1.0, 3)])
@pytest.mark.parametrize("law", [("normal", "normal"), ("uniform", "laplace"), (stats.gamma(2), stats.norm(3, 2))])
def test_correlations_are_as_asked(alignment, rho, n, law):
    seen = {}

    def spy(query, key, scale):
        seen["q"], seen["k"] = query[:, 0], key
        return query[:, 0, 0]

    values(40_000, quantity=spy, law=law, alignment=alignment, key_correlation=rho, n_keys=n, d_k=1)
    q, k = seen["q"][:, 0], seen["k"][:, :, 0]
    wanted = np.full((n + 1, n + 1), rho)
    wanted[0, :] = wanted[:, 0] = alignment
    np.fill_diagonal(wanted, 1.0)
    found = np.corrcoef(np.column_stack([q, k]), rowvar=False)
    # Var of a correlation coefficient is at most about kurtosis/n; 8 covers the heaviest of these laws
    assert np.abs(found - wanted).max() < 5 * math.sqrt(8 / len(q))
    assert abs(k.mean() - _moment(law[1], "mean")) < 5 * k[:, 0].std() / math.sqrt(len(q))
    assert k.var() == pytest.approx(_moment(law[1], "var"), rel=5 * math.sqrt(8 / len(q)))


def _moment(law, which: str) -> float:
    return float(getattr(law, which)()) if not isinstance(law, str) else {"mean": 0.0, "var": 1.0}[which]


def test_correlations_that_cannot_be_are_not_a_number():
    assert math.isnan(common_part(0.5, 0.0, 5))
    assert math.isnan(common_part(0.0, -0.26, 5))
    assert common_part(0.5, 0.0, 4) == 0.0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_normal_blocks_are_normal(n, dtype):
    block = NormalBlock(n, 30_000 // n, dtype).fill(np.random.default_rng(3))
    assert block.shape == (n, 30_000 // n)
    assert block.dtype == dtype
    assert stats.kstest(block.ravel().astype(float), "norm").pvalue > KS_LEVEL
    if n > 1:  # the two halves of a Box-Muller pair are independent
        first, last = block[0].astype(float), block[-1].astype(float)
        assert abs(np.corrcoef(first, last)[0, 1]) < 5 / math.sqrt(first.size)
        assert abs(np.corrcoef(first**2, last**2)[0, 1]) < 5 / math.sqrt(first.size)


def test_single_precision_tail_is_normal_to_five_deviations():
    block = NormalBlock(64, 1 << 15, np.float32)
    rng, total, beyond = np.random.default_rng(8), 0, np.zeros(3)
    for _ in range(8):
        x = np.abs(block.fill(rng))
        total += x.size
        beyond += [np.count_nonzero(x > limit) for limit in (3.0, 4.0, 4.5)]
    expected = total * 2 * stats.norm.sf([3.0, 4.0, 4.5])
    assert np.all(np.abs(beyond - expected) < 5 * np.sqrt(expected))


# The same scores, three ways: exact rationals, the weights of the core, and the columns of the fast path.

ROWS = {
    "uniform": [0.0, 0.0, 0.0, 0.0],
    "tied maxima": [3.0, 3.0, -1.0, 0.5],
    "spread": [1.0, -2.0, 0.25, 0.0],
    "nearly one-hot": [0.0, -20.0, -25.0, -21.5],
    "one-hot beyond rounding": [50.0, 0.0, -5.0, 2.0],
    "one key": [7.0],
    "two keys": [0.0, -45.0],
}


def exact(scores: list[float]) -> dict[str, float]:
    top = max(scores)
    e = [Fraction(math.exp(x - top)) for x in scores]
    p = [part / sum(e) for part in e]
    trace = sum(x * (1 - x) for x in p)
    frobenius = sum((x * (i == j) - x * y) ** 2 for i, x in enumerate(p) for j, y in enumerate(p))
    entropy = math.fsum(-float(x) * (math.log(x) if x < 0.5 else math.log1p(-float(1 - x))) for x in p)
    return {
        "entropy": entropy,
        "effective_keys": math.exp(entropy),
        "jacobian_trace": float(trace),
        "jacobian_norm": math.sqrt(frobenius),
        "jacobian_frobenius_squared": float(frobenius),
        "dead_row": float(trace < Fraction(1, 1000)),
        "max_weight": float(max(p)),
        "power_sum_2": float(sum(x**2 for x in p)),
        "power_sum_3": float(sum(x**3 for x in p)),
        "entropy_fraction": entropy / math.log(len(p)) if len(p) > 1 else math.nan,
    }


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("quantity", [name for name, record in QUANTITIES.items() if record.reads == "weights"])
def test_quantities_keep_their_digits(quantity, name):
    record = QUANTITIES[quantity]
    if len(ROWS[name]) < record.least_keys:
        pytest.skip("not defined for so few keys")
    scores = np.array(ROWS[name])
    columns = np.repeat(scores[:, None], 3, axis=1)
    wanted = exact(ROWS[name])[quantity]
    from_weights = record.value(softmax(scores)[None, :])[0]
    of_columns = ScoreColumns(columns.copy(), np.empty_like(columns))
    from_scores = record.from_columns(of_columns) if record.from_columns else record.value(of_columns.weights())
    # 64 eps: a sum of four terms and one cancellation against at most 20 of them. The core's entropy sees weights only,
    # of which the one next to 1 is rounded.
    rounding = 2.0**-52 if "entropy" in quantity or quantity == "effective_keys" else 1e-300
    assert from_weights == pytest.approx(wanted, rel=64 * 2.0**-52, abs=rounding)
    assert from_scores == pytest.approx(
        np.full(3, wanted), rel=64 * 2.0**-52, abs=1e-300 if record.from_columns else rounding
    )


@pytest.mark.parametrize("name", ROWS)
def test_jacobian_products_keep_their_digits(name):
    scores = np.array(ROWS[name])
    upstream = np.random.default_rng(0).standard_normal(scores.size)
    columns = np.column_stack([scores, np.zeros_like(scores), scores])
    g = np.column_stack([upstream, upstream, upstream])
    found = ScoreColumns(columns, np.empty_like(columns)).times_jacobian(g)
    p = [Fraction(math.exp(x - max(ROWS[name]))) for x in ROWS[name]]
    p = [part / sum(p) for part in p]
    mean = sum(x * Fraction(u) for x, u in zip(p, upstream, strict=True))
    wanted = [float(x * (Fraction(u) - mean)) for x, u in zip(p, upstream, strict=True)]
    assert found[:, 0] == pytest.approx(wanted, rel=1e-13, abs=1e-300)
    assert found[:, 2] == pytest.approx(wanted, rel=1e-13, abs=1e-300)
    uniform = softmax_jacobian(np.full(scores.size, 1 / scores.size)) @ upstream
    assert found[:, 1] == pytest.approx(uniform, abs=1e-15)


def test_tame_entropy_agrees_with_the_careful_one():
    scores = np.random.default_rng(2).uniform(-20, 20, (9, 500))
    careful = ScoreColumns(scores.copy(), np.empty_like(scores)).entropy()
    assert TameColumns(scores, np.empty_like(scores)).entropy() == pytest.approx(careful, abs=50 * 2.0**-52 * 20)


def test_causal_values_are_means_over_rows():
    found = values(4000, is_causal=True, n_keys=3, d_k=4, scale=0.5).mean()
    rows = [values(40_000, n_keys=n, d_k=4, scale=0.5, entropy=n).mean() for n in (1, 2, 3)]
    assert rows[0] == 0.0
    assert found == pytest.approx(np.mean(rows), abs=5 * 0.2 / math.sqrt(4000))


def test_a_callable_law_draws_one_replicate_at_a_time():
    def fixed(rng, d_k, n_keys):
        return rng.choice([-1.0, 1.0], d_k), np.eye(n_keys, d_k)

    found = values(100, quantity="score", law=fixed, d_k=4, scale=0.5)
    assert set(found) == {-0.5, 0.5}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"law": lambda rng, d_k, n_keys: (np.ones(3), np.ones((n_keys, d_k)))}, "must return query"),
        ({"quantity": lambda query, key, scale: np.ones(3)}, "one value per replicate"),
        ({"quantity": lambda query, key, scale: np.full(len(query), np.nan)}, "not a finite number"),
        ({"quantity": "score", "scale": 1e308, "d_k": 64}, "not a finite number"),
    ],
)
def test_what_a_callable_gets_wrong_is_said(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        values(10, **changes)
