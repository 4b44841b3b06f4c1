"""Sentences about how concentrated a row is, for scores of a given spread."""

from __future__ import annotations

import math

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import FloatArray
from analysis.confront.claims.softmax import ENTROPY_LOWER_BOUND
from analysis.confront.published.draws import normal_rows
from analysis.confront.published.ground import Claimed
from analysis.confront.published.numbers import Numbers, cells
from analysis.confront.published.sentence import Sentence
from analysis.predict.exact import expected_entropy, expected_logsumexp, expected_power_sum

DERRIDA = "Derrida 1981, Random-Energy Model: An Exactly Solvable Model of Disordered Systems"
GIORLANDINO = (
    "Giorlandino and Goldt 2025, Two Failure Modes of Deep Transformers and How to Avoid Them: A Unified Theory of "
    "Signal Propagation at Initialisation, arXiv:2505.24333"
)
_ZHAI = "Zhai et al. 2023, Stabilizing Transformer Training by Preventing Attention Entropy Collapse"
_LONG = cells(n_keys=(64, 1024, 16384))


def entropy(n_keys: int, sigma: float) -> float:
    """Return the exact E H for normal scores."""
    return float(expected_entropy(n_keys, sigma=sigma))


def fraction(n_keys: int, sigma: float) -> float:
    """Return E H/log n."""
    return entropy(n_keys, sigma) / math.log(n_keys)


def critical(n_keys: int) -> float:
    """Return σ_c = √(2 log n)."""
    return math.sqrt(2 * math.log(n_keys))


def shaped_entropy(cell: Cell) -> float:
    """Return the entropy of a row whose centred scores have the cell's norm, in one key or shared by half of them."""
    row = np.zeros(cell.n_keys)
    row[: 1 if cell.shape == "one key" else cell.n_keys // 2] = 1.0
    row -= row.mean()
    return float(attnsym.entropy(attnsym.softmax(row * cell.norm / np.linalg.norm(row))))


def least_entropy(cell: Cell) -> float:
    """Return the authors' bound for centred scores of this norm: the entropy of one key that stands apart."""
    n = cell.n_keys
    lead = cell.norm * math.sqrt(n / (n - 1))
    rest = (n - 1) * math.exp(-lead)
    return float(math.log1p(rest) + lead * rest / (1 + rest))


def spread_entropy(cell: Cell) -> float:
    """Return the entropy of 64 normal scores, or of scores ±σ in halves, of the cell's variance."""
    if cell.shape == "normal":
        return entropy(64, cell.sigma)
    return float(attnsym.entropy(attnsym.softmax(cell.sigma * np.repeat([1.0, -1.0], 32))))


def twice_border(cell: Cell) -> float:
    """Return 2√(2/(1 - ρ))·√log n, twice the border for correlation ρ."""
    return 2 * math.sqrt(2 / (1 - cell.correlation) * math.log(cell.n_keys))


def correlated_squares(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return Σp² of rows of scores of that spread that share a normal part."""
    shared, own = rng.standard_normal((replicates, 1)), rng.standard_normal((replicates, cell.n_keys))
    scores = math.sqrt(cell.correlation) * shared + math.sqrt(1 - cell.correlation) * own
    return np.asarray(np.sum(attnsym.softmax(twice_border(cell) * scores) ** 2, axis=1))


def at_half(cell: Cell) -> float:
    """Return the entropy of normal scores at half the standard deviation."""
    return entropy(64, cell.sigma / 2)


ENTROPY_SENTENCES = (
    Sentence(
        "entropy-bounded-by-spectral-norm",
        "The entropy of a row is at least a bound that falls exponentially with the norm of its scores.",
        f"{_ZHAI}, abstract",
        ("the norm of the centred row, which the spectral norm of all logits bounds",),
        (
            Claimed(ENTROPY_LOWER_BOUND),
            Numbers(
                "the entropy, one key apart or half of the keys",
                least_entropy,
                shaped_entropy,
                cells(n_keys=(16,), shape=("one key", "half"), norm=(0.5, 2.0, 4.0, 8.0)),
                "at least",
            ),
        ),
        remark="The bound is attained: where one key stands apart from all others alike.",
    ),
    Sentence(
        "large-norm-means-collapse",
        "A large norm of the scores means that the entropy has collapsed.",
        f"as {_ZHAI}, is often retold; they prove the bound in one direction",
        ("how the scores of that norm are arranged", "collapsed: below a twentieth of log n"),
        tuple(
            Numbers(
                "the entropy at norm 60",
                lambda c: 0.05 * math.log(c.n_keys),
                shaped_entropy,
                cells(norm=(60.0,), shape=(shape,), n_keys=(4, 16, 64, 256)),
                "at most",
                regime=regime,
            )
            for shape, regime in (("one key", "one key stands apart"), ("half", "half of the keys share the top"))
        ),
        depends_on="how many keys share the large scores",
    ),
    Sentence(
        "variance-collapses-the-entropy",
        "The larger the variance of the scores, the lower the entropy of softmax.",
        "Hong and Lee 2025, Variance Sensitivity Induces Attention Entropy Collapse and Instability in Transformers",
        ("that the scores keep their shape as they grow; 64 keys",),
        (
            Numbers(
                "E H of normal scores, as no more than at half the standard deviation",
                at_half,
                spread_entropy,
                cells(shape=("normal",), n_keys=(64,), sigma=(1.0, 2.0, 4.0, 8.0)),
                "at most",
                regime="normal scores at both variances",
                sample=normal_rows("entropy", lambda c: float(c.sigma)),
            ),
            Numbers(
                "the entropy of scores ±σ, as no more than that of normal scores at half the standard deviation",
                at_half,
                spread_entropy,
                cells(shape=("halves",), n_keys=(64,), sigma=(2.0, 4.0, 8.0)),
                "at most",
                regime="two values in halves, against normal scores",
            ),
        ),
        depends_on="whether the scores keep their shape: what counts is how far the few largest stand out",
    ),
    Sentence(
        "entropy-falls-by-half-the-variance",
        "The entropy of a row is log n - σ²/2.",
        f"{DERRIDA}, high-temperature phase; common in analyses of attention",
        ("σ well below √(2 log n)", "about: within 3 %"),
        tuple(
            Numbers(
                "E H",
                lambda c: math.log(c.n_keys) - (c.share * critical(c.n_keys)) ** 2 / 2,
                lambda c: entropy(c.n_keys, c.share * critical(c.n_keys)),
                cells(share=(share,), n_keys=(1024, 16384, 1048576)),
                within=0.03,
                regime=regime,
                sample=normal_rows("entropy", lambda c: c.share * critical(c.n_keys)),
                smallest=cells(share=(share,), n_keys=(2, 3, 4)),
            )
            for share, regime in ((0.5, "σ = σ_c/2"), (0.9, "σ = .9 σ_c"))
        ),
        depends_on="how far σ is below √(2 log n)",
    ),
    Sentence(
        "sharp-transition",
        "At σ = √(2 log n) a row freezes: its entropy is a negligible share of log n.",
        f"{DERRIDA}, for the model; {GIORLANDINO}, for attention",
        ("n → ∞", "negligible: a tenth"),
        (
            Numbers(
                "E H/log n at σ_c, as falling like (2/√π)/√log n",
                lambda c: 2 / math.sqrt(math.pi * math.log(c.n_keys)),
                lambda c: fraction(c.n_keys, critical(c.n_keys)),
                cells(n_keys=(1024, 10**6, 10**9, 10**12)),
                "limit",
                regime="n → ∞",
                sample=normal_rows("fraction", lambda c: critical(c.n_keys)),
            ),
            Numbers(
                "E H/log n at σ_c",
                lambda c: 0.1,
                lambda c: fraction(c.n_keys, critical(c.n_keys)),
                cells(n_keys=(64, 1024, 16384, 1048576)),
                "at most",
                regime="practical lengths",
                sample=normal_rows("fraction", lambda c: critical(c.n_keys)),
                smallest=cells(n_keys=(2,)),
            ),
        ),
        depends_on="the length: the share falls only as 1/√log n, to .37 at 1024 keys and .28 at a million",
    ),
    Sentence(
        "frozen-participation",
        "Above the transition E Σp² is 1 - σ_c/σ.",
        f"the frozen phase of the random energy model; {DERRIDA}, for the model",
        ("σ = 2 σ_c",),
        (
            Numbers(
                "E Σp²",
                lambda c: 0.5,
                lambda c: float(expected_power_sum(2, c.n_keys, sigma=2 * critical(c.n_keys))),
                cells(n_keys=(16, 1024, 10**6, 10**9)),
                "limit",
                sample=normal_rows("squares", lambda c: 2 * critical(c.n_keys)),
            ),
        ),
    ),
    Sentence(
        "correlated-tokens-freeze-later",
        "For tokens of correlation ρ rows freeze at the inverse temperature β√log n with β = √(2/(1 - ρ)).",
        GIORLANDINO,
        ("normal scores with one correlation ρ = 1/2 within a row", "n → ∞; judged by E Σp², which is 1 - β_c/β above"),
        (
            Numbers(
                "E Σp² at twice that temperature",
                lambda c: 0.5,
                lambda c: float(expected_power_sum(2, c.n_keys, sigma=math.sqrt(1 - c.correlation) * twice_border(c))),
                cells(correlation=(0.5,), n_keys=(16, 1024, 10**6, 10**9)),
                "limit",
                sample=correlated_squares,
            ),
        ),
        remark="What two scores share shifts the whole row, and softmax removes it: the variance that counts is "
        "(1 - ρ) of the whole.",
    ),
    Sentence(
        "weights-are-log-normal",
        "The weights are log-normal, with log(n p) of mean -σ²/2.",
        "Nahshan, Kampeas and Haleva 2024, Linear Log-Normal Attention with Unbiased Concentration, arXiv:2311.13541",
        ("normal scores of fixed spread, n → ∞",),
        (
            Numbers(
                "the mean of log(n p) at σ = 1",
                lambda c: -0.5,
                lambda c: math.log(c.n_keys) - float(expected_logsumexp(c.n_keys, sigma=1.0)),
                _LONG,
                "limit",
                sample=normal_rows("logarithm", lambda c: 1.0),
            ),
        ),
    ),
)
