"""Sentences about the length of a row: what dilutes, what keeps a row as sharp, and which scale is critical."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import exp1

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import FloatArray
from analysis.confront.published.draws import normal_rows
from analysis.confront.published.entropy import DERRIDA, critical, entropy, fraction
from analysis.confront.published.numbers import Numbers, cells
from analysis.confront.published.sentence import Sentence
from analysis.predict.exact import expected_entropy, expected_max_weight, expected_power_sum, expected_sink_weight

_CHIANG = "Chiang and Cholak 2022, Overcoming a Theoretical Limitation of Self-Attention"
_SSMAX = "Nakanishi 2025, Scalable-Softmax Is Superior for Attention, arXiv:2501.19399"
_CHEN = "Chen, Lin, Polyanskiy and Rigollet 2026, Critical Attention Scaling in Long-Context Transformers"
_SIXTEENFOLD = cells(n_keys=(256, 1024, 16384))


def leading_weight(n_keys: int, lead: float) -> float:
    """Return the weight of one key that leads all others alike by `lead`, through the core."""
    row = np.zeros(n_keys)
    row[0] = lead
    return float(attnsym.softmax(row)[0])


def log_lead(cell: Cell) -> float:
    """Return the weight of a key that leads all others alike by the cell's lead times log n."""
    return leading_weight(cell.n_keys, cell.lead * math.log(cell.n_keys))


def root_lead(cell: Cell) -> float:
    """Return the weight of a key that leads all others alike by 1, at inverse temperature 2 σ_c."""
    return leading_weight(cell.n_keys, 2 * critical(cell.n_keys))


def leading_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the weight of a key of score 1.5 among normal scores, all times log n."""
    scores = rng.standard_normal((replicates, cell.n_keys))
    scores[:, 0] = 1.5
    return np.asarray(attnsym.softmax(math.log(cell.n_keys) * scores)[:, 0])


def shorter(cell: Cell, times: int = 16) -> Cell:
    """Return the cell of a row so many times shorter."""
    return Cell(tuple((name, value // times if name == "n_keys" else value) for name, value in cell.settings))  # type: ignore[operator]


def log_n_spread(cell: Cell) -> float:
    """Return σ = κ log n."""
    return float(cell.kappa * math.log(cell.n_keys))


def largest(cell: Cell) -> float:
    """Return the exact E max p for normal scores at s log n."""
    return float(expected_max_weight(cell.n_keys, sigma=log_n_spread(cell)))


def fixed_fraction_spread(cell: Cell) -> float:
    """Return √(.2 log n), at which H/log n should be .9."""
    return math.sqrt(0.2 * math.log(cell.n_keys))


def mean_causal_entropy(n_keys: int) -> float:
    """Return the mean of E H over the rows of a causal attention at σ = 1."""
    return float(np.sum(expected_entropy(np.arange(2, n_keys + 1), sigma=1.0)) / n_keys)  # a lone key has none


def causal_entropies(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return the mean entropy over the rows of causal attention with normal scores: one-hot keys."""
    scores = rng.standard_normal((max(64, replicates // cell.n_keys), cell.n_keys, cell.n_keys))
    weights = attnsym.attention_weights(scores, np.eye(cell.n_keys), scale=1.0, is_causal=True)
    return np.asarray(np.mean(attnsym.entropy(weights), axis=1))


def stretched(cell: Cell) -> Cell:
    """Return the cell of the long context, `times` 2048 keys, for a sampler."""
    return Cell((*cell.settings, ("n_keys", 2048 * cell.times)))


def yarn_spread(cell: Cell) -> float:
    """Return σ with YaRN's factor, squared on the scores."""
    return float(cell.sigma * (1 + 0.1 * math.log(cell.times)) ** 2)


def longrope_spread(cell: Cell) -> float:
    """Return LongRoPE's factor on a score of spread 1, as often as the cell says."""
    return float((1 + math.log(cell.times) / math.log(2048)) ** (cell.uses / 2))


def sphere_largest(n_keys: int, inverse_temperature: float) -> float:
    """
    Return E max p for n keys uniform on the sphere in three dimensions, whose cosines with a query are uniform.

    Given the largest cosine, L = β(1 + max), the others lie y = β(max - u) below it, uniform on (0, L), so that
    E max p = E ∫ e^(-t) ψ(t)^(n - 1) dt with ψ(t) = (E₁(t e^(-L)) - E₁(t))/L.
    """
    level = (np.arange(200) + 0.5) / 200
    reach = 2 * inverse_temperature * level ** (1 / n_keys)  # L, by its quantiles
    u = np.arange(-60.0, 4.0, 0.1)
    t = np.exp(u)
    small = np.minimum(u - reach[:, None], 0.0)  # log of t e^(-L); E₁(x) = -γ - log x + x + O(x²)
    first = np.where(small < -20.0, -np.euler_gamma - small, exp1(np.exp(np.maximum(u - reach[:, None], -20.0))))
    psi = (first - exp1(t)) / reach[:, None]
    return float(np.mean(np.sum(np.exp(u - t) * psi ** (n_keys - 1), axis=1)) * 0.1)


def sphere_weight(cell: Cell) -> float:
    """Return E max p there at inverse temperature n^power."""
    return sphere_largest(cell.n_keys, float(cell.n_keys) ** cell.power)


def sphere_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return largest weights of a query over directions in three dimensions."""
    query, key = rng.standard_normal((replicates, 1, 3)), rng.standard_normal((replicates, cell.n_keys, 3))
    weights = attnsym.attention_weights(query, key, score="cosine", scale=float(cell.n_keys) ** cell.power)
    return np.asarray(weights.max(axis=(1, 2)))


def squares_beyond(cell: Cell) -> float:
    """Return E Σp² of normal scores at 2 σ_c."""
    return float(expected_power_sum(2, cell.n_keys, sigma=2 * critical(cell.n_keys)))


LENGTH_SENTENCES = (
    Sentence(
        "fixed-scale-dilutes",
        "At a fixed scale attention becomes uniform as rows grow.",
        f"{_CHIANG}; {_SSMAX}",
        ("scores whose spread does not grow with n", "uniform: H/log n tends to 1"),
        (
            Numbers(
                "E H/log n at σ = 1",
                lambda c: 1.0,
                lambda c: fraction(c.n_keys, 1.0),
                cells(n_keys=(8, 256, 65536)),
                "limit",
                sample=normal_rows("fraction", lambda c: 1.0),
            ),
        ),
    ),
    Sentence(
        "bounded-scores-disperse",
        "While scores stay within a range, every weight is of order 1/n: softmax must disperse as rows grow.",
        "Veličković, Perivolaropoulos, Barbero and Pascanu 2024, softmax is not enough (for sharp "
        "out-of-distribution), arXiv:2410.01104, lemma 2.1",
        ("a range that does not grow with n",),
        (
            Numbers(
                "n times the largest weight at range 2, as at most e²",
                lambda c: math.exp(2.0),
                lambda c: c.n_keys * leading_weight(c.n_keys, 2.0),
                cells(n_keys=(8, 64, 1024)),
                "at most",
            ),
            Numbers(
                "n times the smallest weight at range 2, as at least e⁻²",
                lambda c: math.exp(-2.0),
                lambda c: c.n_keys * leading_weight(c.n_keys, -2.0),
                cells(n_keys=(8, 64, 1024)),
                "at least",
            ),
        ),
    ),
    Sentence(
        "log-n-keeps-a-gap-decisive",
        "Multiplied by log n, the scores let the best key keep the larger part of the weight at every length.",
        _CHIANG,
        ("by how much the best key leads, in scores before the factor",),
        (
            *(
                Numbers(
                    "the weight of the best key",
                    lambda c: 0.5,
                    log_lead,
                    cells(lead=(lead,), n_keys=(8, 1024, 65536)),
                    "at least",
                    regime=regime,
                    smallest=cells(lead=(lead,), n_keys=(2, 3, 4)),
                )
                for lead, regime in ((1.5, "a lead above 1"), (0.5, "a lead below 1"))
            ),
            Numbers(
                "the weight of a key that leads the mean by 1.5",
                lambda c: 0.5,
                lambda c: float(
                    expected_sink_weight(c.n_keys - 1, sigma=math.log(c.n_keys), sink=1.5 * math.log(c.n_keys))
                ),
                cells(n_keys=(8, 1024, 16384)),
                "at least",
                regime="a lead of 1.5 over the mean of normal scores of spread 1",
                sample=leading_draws,
                smallest=cells(n_keys=range(2, 9)),
            ),
        ),
        depends_on="whether the best key leads by more than 1, and how far the other scores spread",
    ),
    Sentence(
        "ssmax-prevents-fading",
        "Scores multiplied by s·log n keep the weight of the best key from fading as rows grow.",
        _SSMAX,
        ("s times the lead of the best key",),
        (
            Numbers(
                "the largest weight of normal scores at s = .43, against a row sixteen times shorter",
                lambda c: largest(shorter(c)),
                largest,
                cells(kappa=(0.43,), n_keys=(256, 1024, 16384)),
                "at least",
                regime="normal scores, whose lead grows with n",
                sample=normal_rows("largest", log_n_spread),
                smallest=cells(kappa=(0.43,), n_keys=(32, 64, 128)),
            ),
            *(
                Numbers(
                    f"the weight of a key that leads by 1.5, at s = {s:g}, against a row sixteen times shorter",
                    lambda c: log_lead(shorter(c)),
                    log_lead,
                    cells(lead=(1.5 * s,), n_keys=(256, 1024, 16384)),
                    "at least",
                    regime=regime,
                    smallest=cells(lead=(1.5 * s,), n_keys=(32, 64, 128)),
                )
                for s, regime in ((1.0, "s times the lead above 1"), (0.43, "s times the lead below 1"))
            ),
        ),
        depends_on="whether s times the lead of the best key exceeds 1",
        remark="The paper itself names the lead 1/s as the border.",
    ),
    Sentence(
        "log-n-keeps-the-entropy",
        "A scale proportional to log n makes the entropy independent of the length.",
        "Su, blog posts on entropy-invariant attention, with the factor log n to the base 512, as he recalls them in "
        "Entropy-Invariant Attention from the Perspective of the JL Lemma, 2023; read for normal scores",
        ("normal scores, σ = κ log n; the author derives it by an approximation", "independent: within 5 %"),
        tuple(
            Numbers(
                "the entropy, against a row sixteen times shorter",
                lambda c: entropy(shorter(c).n_keys, log_n_spread(shorter(c))),
                lambda c: entropy(c.n_keys, log_n_spread(c)),
                cells(kappa=(kappa,), n_keys=lengths),
                within=0.05,
                regime=regime,
                sample=normal_rows("entropy", log_n_spread),
                smallest=cells(kappa=(kappa,), n_keys=(32, 64, 128)),
            )
            for kappa, lengths, regime in (
                (0.4, (16384, 32768, 65536), "κ = .4, from a thousand keys on"),
                (0.2, (256, 4096, 65536), "κ = .2"),
            )
        ),
        depends_on="the factor of log n: near κ = .4 the entropy is flat from a thousand keys to a hundred thousand",
        remark="At 512 keys and σ = 1 the base 512 is κ = .16. What keeps the fraction H/log n at c is "
        "σ = √(2(1 - c) log n), to leading order.",
    ),
    Sentence(
        "sqrt-log-n-keeps-the-fraction",
        "At σ = √(2(1 - c) log n) the entropy is the fraction c of log n at every length.",
        f"{DERRIDA}, below its critical point, applied to attention",
        ("c = .9; normal scores",),
        (
            Numbers(
                "E H/log n",
                lambda c: 0.9,
                lambda c: fraction(c.n_keys, fixed_fraction_spread(c)),
                cells(n_keys=(16, 1024, 65536)),
                "limit",
                sample=normal_rows("fraction", fixed_fraction_spread),
            ),
        ),
    ),
    Sentence(
        "like-tokens-have-a-critical-scale",
        "At scale γ log n a token among tokens of inner product ρ is averaged away for γ below 1/(1 - ρ) and keeps to "
        "itself above it.",
        f"{_CHEN}, arXiv:2510.05554",
        ("unit vectors with one inner product ρ = 1/2, the authors' own simplified model", "n → ∞"),
        (
            Numbers(
                "its weight on itself at γ = 1.6, as less than in a row sixteen times shorter",
                lambda c: log_lead(shorter(c)),
                log_lead,
                cells(lead=(0.8,), n_keys=(256, 1024, 16384)),
                "at most",
            ),
            Numbers(
                "its weight on itself at γ = 2",
                lambda c: 0.5,
                log_lead,
                cells(lead=(1.0,), n_keys=(16, 1024, 16384)),
                "limit",
            ),
            Numbers(
                "its weight on itself at γ = 2.4, as more than in a row sixteen times shorter",
                lambda c: log_lead(shorter(c)),
                log_lead,
                cells(lead=(1.2,), n_keys=(256, 1024, 16384)),
                "at least",
            ),
        ),
    ),
    Sentence(
        "sphere-keys-have-a-critical-scale",
        "For keys uniform on the sphere in d dimensions a row selects at inverse temperature of order n^(2/(d - 1)), "
        "not log n.",
        "Bruno, Rigollet, Chen, Polyanskiy and Lin 2026, Scaling Limits of Long-Context Transformers, arXiv:2605.08505",
        ("d fixed as n grows; here d = 3, where it is n",),
        (
            Numbers(
                "the largest weight at inverse temperature n, against that of a row sixteen times shorter",
                lambda c: sphere_weight(shorter(c)),
                sphere_weight,
                cells(power=(1.0,), n_keys=(256, 1024, 4096)),
                "limit",
                sample=sphere_draws,
            ),
            Numbers(
                "the largest weight at √n, as less than in a row sixteen times shorter",
                lambda c: sphere_weight(shorter(c)),
                sphere_weight,
                cells(power=(0.5,), n_keys=(256, 1024, 4096)),
                "at most",
                sample=sphere_draws,
            ),
        ),
    ),
    Sentence(
        "gaps-decide-the-critical-scale",
        "The scale at which a row concentrates is set by how many keys come close to its best: (log n)^(1/2) for "
        "normal scores.",
        "Hayase and Karakida 2026, A Unified Framework for Critical Scaling of Inverse Temperature in Self-Attention, "
        "arXiv:2605.12697, abstract",
        ("n → ∞; the two rows here are normal scores, and one key that leads all others alike by 1",),
        (
            Numbers(
                "E Σp² of normal scores at 2√(2 log n)",
                lambda c: 0.5,
                squares_beyond,
                cells(n_keys=(16, 1024, 10**6, 10**9)),
                "limit",
                sample=normal_rows("squares", lambda c: 2 * critical(c.n_keys)),
            ),
            Numbers(
                "the weight of a key that leads by 1 at 2√(2 log n), as less than in a row sixteen times shorter",
                lambda c: root_lead(shorter(c)),
                root_lead,
                cells(n_keys=(16384, 2**18, 2**22)),
                "at most",
            ),
        ),
        remark="A key that leads all others alike by 1 needs a scale of log n.",
    ),
    Sentence(
        "yarn-temperature",
        "The temperature .1 ln s + 1, squared on the scores, keeps attention as sharp when the context grows s times.",
        "Peng, Quesnelle, Fan and Shippole 2023, YaRN: Efficient Context Window Extension of Large Language Models, "
        "arXiv:2309.00071; they fitted perplexity",
        ("the spread of the scores; from 2048 keys", "as sharp: E H within 5 %"),
        tuple(
            Numbers(
                "the entropy in the long context",
                lambda c: entropy(2048, c.sigma),
                lambda c: entropy(2048 * c.times, yarn_spread(c)),
                cells(sigma=(sigma,), times=(2, 4, 8, 16)),
                within=0.05,
                regime=f"σ = {sigma:g}",
                sample=lambda c, rng, count: normal_rows("entropy", yarn_spread)(stretched(c), rng, 100),
                smallest=cells(sigma=(sigma,), times=(1, 2)),
            )
            for sigma in (1.83, 1.0)
        ),
        depends_on="the spread of the scores",
    ),
    Sentence(
        "longrope-factor",
        "The factor √(1 + log(L'/L)/log L) keeps attention as sharp when the context grows from L to L'.",
        "Ding et al. 2024, LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens",
        ("σ = 1; from 2048 keys", "whether it multiplies query and key both", "as sharp: H/log n within 1 %"),
        tuple(
            Numbers(
                "E H/log n in the long context",
                lambda c: fraction(2048, 1.0),
                lambda c: fraction(2048 * c.times, longrope_spread(c)),
                cells(uses=(uses,), times=(2, 4, 8, 16)),
                within=0.01,
                regime=regime,
                sample=lambda c, rng, count: normal_rows("fraction", longrope_spread)(stretched(c), rng, 100),
            )
            for uses, regime in ((1, "once on the score"), (2, "on query and on key"))
        ),
        depends_on="whether the score gets the factor once or twice",
    ),
    Sentence(
        "causal-entropy-as-of-whole-rows",
        "Under a causal mask the mean entropy at initialisation is that of a row of n keys.",
        "common telling",
        ("that most rows see fewer keys", "about: within 5 %"),
        (
            Numbers(
                "the mean over rows of E H",
                lambda c: entropy(c.n_keys, 1.0),
                lambda c: mean_causal_entropy(c.n_keys),
                cells(n_keys=(16, 64, 256)),
                within=0.05,
                sample=causal_entropies,
                smallest=cells(n_keys=(2, 3)),
            ),
        ),
        remark="It is less by nearly one nat: the mean of log i over i = 1 … n is log n - 1.",
    ),
)
