"""Sentences about other maps: differences and mixtures of heads, random features, retrieval, and rank over depth."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import FloatArray
from analysis.confront.claims.softmax import SOFTMAX_SATURATION
from analysis.confront.published.ground import Claimed, Derived, Follows
from analysis.confront.published.numbers import Numbers, cells
from analysis.confront.published.sentence import Sentence
from analysis.predict.exact import expected_power_sum, expected_sink_weight

_UNIT = ("zero_mean(q)", "zero_mean(k)", "unit_variance(q)", "unit_variance(k)")
_RAMSAUER = "Ramsauer et al. 2020, Hopfield Networks is All You Need"
_WEIGHTS = (0.2, 0.4, 0.8, 1.0)


def map_noise(cell: Cell) -> float:
    """Return E Σ(p - λp' - E)² for rows of 64 normal scores: common noise (1 - λ)², independent noise 1 + λ²."""
    one = float(expected_power_sum(2, 64, sigma=1.0)) - 1 / 64
    return float(one * ((1 - cell.weight) ** 2 if cell.noise == "common" else 1 + cell.weight**2))


def single_map_noise(cell: Cell) -> float:
    """Return the same of a single map."""
    return map_noise(Cell((("noise", cell.noise), ("weight", 0.0))))


def map_noise_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return Σ(p - λp' - (1 - λ)/n)² of two maps with one noise or independent noise."""
    first = attnsym.softmax(rng.standard_normal((replicates, 64)))
    second = first if cell.noise == "common" else attnsym.softmax(rng.standard_normal((replicates, 64)))
    return np.asarray(np.sum((first - cell.weight * second - (1 - cell.weight) / 64) ** 2, axis=1))


def mixing_weight(cell: Cell) -> float:
    """Return the weight of each of the heads that are mixed: an average, or squares that sum to 1."""
    return float(1 / cell.heads if cell.mixing == "average" else cell.heads**-0.5)


def mixed_squares(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return squared scores of heads mixed with equal weights before softmax."""
    query, key = rng.standard_normal((2, replicates, cell.heads, 1, 16))
    return np.asarray((mixing_weight(cell) * attnsym.attention_scores(query, key)[..., 0, 0].sum(axis=1)) ** 2)


def feature_mean(cell: Cell) -> float:
    """Return E of a positive random feature's estimate over exp(qᵀk), by quadrature: both vectors of length r."""
    z, mass = np.polynomial.hermite_e.hermegauss(120)
    length = cell.r * math.sqrt(2 + 2 * cell.cosine)  # ‖q + k‖
    estimate = np.exp(length * z - cell.r**2) @ mass / math.sqrt(2 * math.pi)
    return float(estimate / math.exp(cell.r**2 * cell.cosine))


def feature_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return estimates over exp(qᵀk), the score through the core, for one pair of length r in the plane."""
    query = np.array([[cell.r, 0.0]])
    key = cell.r * np.array([[cell.cosine, math.sqrt(1 - cell.cosine**2)]])
    score = float(attnsym.attention_scores(query, key, scale=1.0)[0, 0])
    feature = rng.standard_normal((replicates, 2))
    return np.asarray(np.exp((feature @ (query + key).T)[:, 0] - cell.r**2 - score))


def feature_square_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return squared relative errors of one feature."""
    return np.asarray((feature_draws(cell, rng, replicates) - 1.0) ** 2)


def feature_relative_variance(cell: Cell) -> float:
    """Return e^(‖q + k‖²) - 1."""
    return math.expm1(cell.r**2 * (2 + 2 * cell.cosine))


def layer_order(cell: Cell) -> float:
    """Return the order with which the distance from rank one after a layer follows that before it, at its size."""
    x = np.random.default_rng(0).standard_normal((8, 8))
    x -= x.mean(axis=0)

    def left(size: float) -> float:
        out = attnsym.scaled_dot_product_attention(size * x, size * x, size * x) + cell.skip * size * x
        return float(np.linalg.norm(out - out.mean(axis=0)))

    return math.log(left(cell.size) / left(cell.size / 2)) / math.log(2)


def missed(cell: Cell) -> float:
    """Return 1 - max p where one key leads all others alike by the cell's lead."""
    row = np.zeros(cell.n_keys)
    row[0] = cell.lead
    return float(attnsym.softmax(row)[1:].sum())


@cache
def retrieved_weight(cell: Cell) -> float:
    """Return E of a Gaussian pattern's weight on itself: others score N(0, (c‖x‖)²), itself c‖x‖², c = d_k^(-power)."""
    from scipy.stats import chi2

    scale, places = float(cell.d_k) ** -cell.power, (np.arange(24) + 0.5) / 24
    squares = chi2(cell.d_k).ppf(places)
    weights = [
        float(expected_sink_weight(cell.n_keys - 1, sigma=scale * math.sqrt(square), sink=scale * square))
        for square in squares
    ]
    return float(np.mean(weights))


def retrieved(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the weight on itself of a pattern that is asked for among n, at scale d_k^(-power)."""
    patterns = rng.standard_normal((replicates, cell.n_keys, cell.d_k))
    scale = float(cell.d_k) ** -cell.power
    return np.asarray(attnsym.attention_weights(patterns[:, :1], patterns, scale=scale)[:, 0, 0])


def memories(power: float, *widths: int) -> tuple[Cell, ...]:
    """Return cells of 2^(d_k/4) patterns."""
    return tuple(Cell((("power", power), ("d_k", d), ("n_keys", 2 ** (d // 4)))) for d in widths)


MAP_SENTENCES = (
    Sentence(
        "differential-cancels-noise",
        "Subtracting one attention map from another cancels attention noise.",
        "Ye et al. 2024, Differential Transformer, arXiv:2410.05258",
        ("that the noise is common to both maps", "cancels: leaves less than one map has; 64 normal scores"),
        (
            *(
                Numbers(
                    "the noise of p - λp', as no more than that of p",
                    single_map_noise,
                    map_noise,
                    cells(noise=(noise,), weight=_WEIGHTS),
                    "at most",
                    regime=regime,
                    sample=map_noise_draws,
                    smallest=cells(noise=(noise,), weight=(0.0, 0.01)),
                )
                for noise, regime in (
                    ("common", "one noise in both maps"),
                    ("independent", "independent noise in the two maps"),
                )
            ),
            Follows("Var(q[i] - k[i])", "0", ("same(q, k)",), regime="one noise in both maps"),
            Follows("Var(q[i] - k[i])", "0", ("independent(q, k)", *_UNIT), regime="independent noise in the two maps"),
        ),
        depends_on="how far the noise of the two maps is correlated",
        remark="At weights 1 and λ the variance is 1 - 2λρ + λ². The authors speak of noise that both maps share.",
    ),
    Sentence(
        "talking-heads-keep-the-scale",
        "Mixing the scores of heads before softmax keeps their scale.",
        "common code for Shazeer et al. 2020, Talking-Heads Attention",
        ("uncorrelated scores; the sum of the squared mixing weights",),
        tuple(
            Numbers(
                "the variance of a mixed score",
                lambda c: 1.0,
                lambda c: c.heads * mixing_weight(c) ** 2,
                cells(mixing=(mixing,), heads=(2, 4, 8, 16)),
                regime=regime,
                sample=mixed_squares,
            )
            for mixing, regime in (("squares", "squared weights that sum to 1"), ("average", "an average of heads"))
        ),
        depends_on="the sum of the squared mixing weights",
    ),
    Sentence(
        "positive-features-estimate-softmax",
        "Positive random features estimate exp(qᵀk) without bias and with low variance.",
        "Choromanski et al. 2020, Rethinking Attention with Performers",
        ("the length of q + k", "low: a relative variance of at most 1 for one feature"),
        (
            Numbers(
                "the mean estimate, as a share",
                lambda c: 1.0,
                feature_mean,
                cells(cosine=(0.0,), r=(0.25, 0.5, 0.75)),
                sample=feature_draws,
            ),
            Numbers(
                "the relative variance of one feature",
                lambda c: 1.0,
                feature_relative_variance,
                cells(cosine=(0.0,), r=(0.25, 0.4, 0.55)),
                "at most",
                regime="short vectors",
                sample=feature_square_draws,
                replicates=40_000,
            ),
            Numbers(
                "the relative variance of one feature",
                lambda c: 1.0,
                feature_relative_variance,
                cells(cosine=(0.0,), r=(16**0.25, 64**0.25, 256**0.25)),
                "at most",
                regime="the lengths of heads of 16, 64 and 256 at scale 1/√d_k",
                undrawn="a few rare draws would decide their mean",
            ),
        ),
        depends_on="how long q + k is: the relative variance is e^(‖q+k‖²) - 1",
        remark="The authors bound the error for vectors of bounded length.",
    ),
    Sentence(
        "attention-loses-rank",
        "Deep stacks of attention lose rank doubly exponentially: what is left of it is cubed at each layer.",
        "Dong, Cordonnier and Loukas 2021, Attention is Not All You Need: Pure Attention Loses Rank Doubly "
        "Exponentially with Depth, who say it of attention without skip connections",
        ("no skip connection; the smallest model of it: one head, identity projections, tokens near one another",),
        tuple(
            Numbers(
                "the order with which the distance from rank one falls per layer",
                lambda c: 3.0,
                layer_order,
                cells(skip=(skip,), size=(0.4, 0.2, 0.1, 0.05)),
                "limit",
                regime=regime,
            )
            for skip, regime in ((0.0, "without a skip connection"), (1.0, "with a skip connection"))
        ),
        depends_on="whether there is a skip connection",
    ),
    Sentence(
        "gap-saturates",
        "The error of retrieving the best pattern is exponentially small in its separation from the others.",
        _RAMSAUER,
        ("one strict maximum",),
        (
            Claimed(SOFTMAX_SATURATION),
            Derived("softmax-saturation"),
            Numbers(
                "the weight that misses the best of 16, as at most 15 e^(-lead)",
                lambda c: (c.n_keys - 1) * math.exp(-c.lead),
                missed,
                cells(n_keys=(16,), lead=(0.0, 2.0, 4.0, 8.0)),
                "at most",
            ),
        ),
    ),
    Sentence(
        "retrieval-capacity-is-exponential",
        "The number of random patterns that one update retrieves grows exponentially with their dimension.",
        _RAMSAUER,
        ("the inverse temperature; the smallest model of it: a Gaussian pattern asks for itself among 2^(d_k/4)",),
        tuple(
            Numbers(
                f"the weight of the pattern that is asked for, at inverse temperature {words}",
                lambda c: 0.5,
                retrieved_weight,
                memories(power, *widths),
                "at least",
                regime=f"inverse temperature {words}",
                sample=retrieved,
                replicates=400,
                smallest=memories(power, 4, 8, 12, 16, 20, 24, 28),
            )
            for power, words, widths in ((0.0, "1", (16, 32, 48)), (0.5, "1/√d_k", (32, 48, 64)))
        ),
        depends_on="the inverse temperature: at 1/√d_k it is about e^(√d_k - 1/2)",
    ),
)
