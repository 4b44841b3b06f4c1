"""Sentences about long rows: dilution, scales that grow with the length, and the random energy model."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from analysis.confront.cell import Cell
from analysis.confront.published.draws import normal_rows
from analysis.confront.published.ground import Numbers, cells
from analysis.confront.published.sentence import Sentence
from analysis.predict.exact import (
    expected_entropy,
    expected_logsumexp,
    expected_max_weight,
    expected_power_sum,
    expected_sink_weight,
)

_CHIANG = "Chiang and Cholak 2022, Overcoming a Theoretical Limitation of Self-Attention"
_DERRIDA = "Derrida 1981, Random-Energy Model: An Exactly Solvable Model of Disordered Systems"
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


def leading_weight(n_keys: int, lead: float) -> float:
    """Return the weight of one key that leads all others alike by `lead`·log n."""
    return float(1 / (1 + (n_keys - 1) * float(n_keys) ** -lead))


def top_weight(cell: Cell) -> float:
    """Return the weight of one key that leads all others by the cell's gap, at scale log n."""
    return leading_weight(cell.n_keys, cell.gap)


def yarn_entropy(cell: Cell) -> float:
    """Return E H over 32768 keys with YaRN's factor for sixteen times the context, squared, on the scores."""
    return entropy(32768, cell.sigma * (1 + 0.1 * math.log(16)) ** 2)


def largest(n_keys: int, sigma: float) -> float:
    """Return the exact E max p for normal scores."""
    return float(expected_max_weight(n_keys, sigma=sigma))


def mean_causal_entropy(n_keys: int) -> float:
    """Return the mean of E H over the rows of a causal attention at σ = 1."""
    return float(np.sum(expected_entropy(np.arange(2, n_keys + 1), sigma=1.0)) / n_keys)  # a lone key has none


def at_shorter(function: Callable[[int], float], cell: Cell) -> float:
    """Return the value at a row sixteen times shorter."""
    return float(function(cell.n_keys // 16))


LENGTH_SENTENCES = (
    Sentence(
        "fixed-scale-dilutes",
        "At a fixed scale attention becomes uniform as rows grow.",
        f"{_CHIANG}; Nakanishi 2025, Scalable-Softmax Is Superior for Attention",
        ("scores whose spread does not grow with n",),
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
        "log-n-keeps-a-gap-decisive",
        "Multiplied by log n, the scores let the best key keep the larger part of the weight at every length.",
        _CHIANG,
        ("by how much the best key leads, in scores before the factor",),
        (
            Numbers(
                "the weight of the best key",
                lambda c: 0.5,
                top_weight,
                cells(gap=(1.5,), n_keys=(8, 1024, 65536)),
                "at least",
                regime="a lead above 1",
            ),
            Numbers(
                "the weight of the best key",
                lambda c: 0.5,
                top_weight,
                cells(gap=(0.5,), n_keys=(8, 1024, 65536)),
                "at least",
                regime="a lead below 1",
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
            ),
        ),
        depends_on="whether the best key leads by more than 1, and how far the other scores spread",
    ),
    Sentence(
        "ssmax-prevents-fading",
        "Scores multiplied by s·log n keep the weight of the best key from fading as rows grow.",
        "Nakanishi 2025, Scalable-Softmax Is Superior for Attention, arXiv:2501.19399",
        ("s times the lead of the best key",),
        (
            Numbers(
                "the largest weight of normal scores at s = .43, against a row sixteen times shorter",
                lambda c: at_shorter(lambda n: largest(n, 0.43 * math.log(n)), c),
                lambda c: largest(c.n_keys, 0.43 * math.log(c.n_keys)),
                cells(n_keys=(1024, 16384)),
                "at least",
                regime="normal scores, whose lead grows with n",
                sample=normal_rows("largest", lambda c: 0.43 * math.log(c.n_keys)),
            ),
            Numbers(
                "the weight of a key that leads by 1.5, at s = 1",
                lambda c: at_shorter(lambda n: leading_weight(n, 1.5), c),
                lambda c: leading_weight(c.n_keys, 1.5),
                cells(n_keys=(1024, 16384)),
                "at least",
                regime="s times the lead above 1",
            ),
            Numbers(
                "the weight of a key that leads by 1.5, at s = .43",
                lambda c: at_shorter(lambda n: leading_weight(n, 0.43 * 1.5), c),
                lambda c: leading_weight(c.n_keys, 0.43 * 1.5),
                cells(n_keys=(1024, 16384)),
                "at least",
                regime="s times the lead below 1",
            ),
        ),
        depends_on="whether s times the lead of the best key exceeds 1",
        remark="The paper itself names the lead 1/s as the border.",
    ),
    Sentence(
        "log-n-keeps-the-entropy",
        "A scale proportional to log n makes the entropy independent of the length.",
        "Su 2021, on the entropy invariance of attention (blog); read for normal scores",
        ("normal scores, σ = κ log n with κ = .2",),
        (
            Numbers(
                "the entropy, against a row sixteen times shorter",
                lambda c: at_shorter(lambda n: entropy(n, 0.2 * math.log(n)), c),
                lambda c: entropy(c.n_keys, 0.2 * math.log(c.n_keys)),
                cells(n_keys=(256, 4096, 65536)),
                within=0.05,
                sample=normal_rows("entropy", lambda c: 0.2 * math.log(c.n_keys)),
            ),
        ),
        remark="What keeps the fraction H/log n at c is σ = √(2(1 - c) log n), to leading order.",
    ),
    Sentence(
        "sqrt-log-n-keeps-the-fraction",
        "At σ = √(2(1 - c) log n) the entropy is the fraction c of log n at every length.",
        f"{_DERRIDA}, below its critical point, applied to attention",
        ("c = .9; normal scores",),
        (
            Numbers(
                "E H/log n",
                lambda c: 0.9,
                lambda c: fraction(c.n_keys, math.sqrt(0.2 * math.log(c.n_keys))),
                cells(n_keys=(16, 1024, 65536)),
                "limit",
                sample=normal_rows("fraction", lambda c: math.sqrt(0.2 * math.log(c.n_keys))),
            ),
        ),
    ),
    Sentence(
        "yarn-temperature",
        "The temperature .1 ln s + 1, squared on the scores, keeps attention as sharp when the context grows s times.",
        "Peng et al. 2023, YaRN: Efficient Context Window Extension of Large Language Models; they fitted perplexity",
        ("the spread of the scores; from 2048 to 32768 keys",),
        (
            Numbers(
                "the entropy in the long context",
                lambda c: entropy(2048, c.sigma),
                yarn_entropy,
                cells(sigma=(1.83,)),
                within=0.05,
                regime="σ = 1.83",
            ),
            Numbers(
                "the entropy in the long context",
                lambda c: entropy(2048, c.sigma),
                yarn_entropy,
                cells(sigma=(1.0,)),
                within=0.05,
                regime="σ = 1",
            ),
        ),
        depends_on="the spread of the scores",
    ),
    Sentence(
        "longrope-factor",
        "The factor √(1 + log(L'/L)/log L) keeps attention as sharp when the context grows from L to L'.",
        "Ding et al. 2024, LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens",
        ("σ = 1; from 2048 to 32768 keys", "whether it multiplies query and key both"),
        (
            Numbers(
                "H/log n in the long context",
                lambda c: fraction(2048, 1.0),
                lambda c: fraction(32768, c.factor),
                cells(factor=(math.sqrt(math.log(32768) / math.log(2048)),)),
                within=0.01,
                regime="once on the score",
            ),
            Numbers(
                "H/log n in the long context",
                lambda c: fraction(2048, 1.0),
                lambda c: fraction(32768, c.factor),
                cells(factor=(math.log(32768) / math.log(2048),)),
                within=0.01,
                regime="on query and on key",
            ),
        ),
        depends_on="whether the score gets the factor once or twice",
    ),
    Sentence(
        "entropy-falls-by-half-the-variance",
        "The entropy of a row is log n - σ²/2.",
        f"{_DERRIDA}, high-temperature phase; common in analyses of attention",
        ("σ well below √(2 log n)",),
        (
            Numbers(
                "E H",
                lambda c: math.log(c.n_keys) - critical(c.n_keys) ** 2 / 8,
                lambda c: entropy(c.n_keys, critical(c.n_keys) / 2),
                cells(n_keys=(1024, 16384, 1048576)),
                within=0.03,
                regime="σ = σ_c/2",
                sample=normal_rows("entropy", lambda c: critical(c.n_keys) / 2),
            ),
            Numbers(
                "E H",
                lambda c: math.log(c.n_keys) - (0.9 * critical(c.n_keys)) ** 2 / 2,
                lambda c: entropy(c.n_keys, 0.9 * critical(c.n_keys)),
                cells(n_keys=(1024, 16384, 1048576)),
                within=0.03,
                regime="σ = .9 σ_c",
                sample=normal_rows("entropy", lambda c: 0.9 * critical(c.n_keys)),
            ),
        ),
        depends_on="how far σ is below √(2 log n)",
    ),
    Sentence(
        "sharp-transition",
        "At σ = √(2 log n) a row freezes sharply: beyond it its entropy is a negligible share of log n.",
        f"{_DERRIDA}, for the model; Giorlandino and Goldt 2025, Two Failure Modes of Deep Transformers and How to "
        "Avoid Them: A Unified Theory of Signal Propagation at Initialisation, arXiv:2505.24333, for attention; read "
        "at practical lengths",
        ("n → ∞",),
        (
            Numbers(
                "E H/log n at σ_c",
                lambda c: 0.0,
                lambda c: fraction(c.n_keys, critical(c.n_keys)),
                cells(n_keys=(64, 1024, 1048576)),
                within=0.1,
                sample=normal_rows("fraction", lambda c: critical(c.n_keys)),
            ),
        ),
        remark="The share falls only as 1/√log n: .37 at 1024 keys, .28 at a million.",
    ),
    Sentence(
        "frozen-participation",
        "Above the transition E Σp² is 1 - σ_c/σ.",
        f"the frozen phase of the random energy model; {_DERRIDA}, for the model",
        ("σ = 2 σ_c",),
        (
            Numbers(
                "E Σp²",
                lambda c: 0.5,
                lambda c: float(expected_power_sum(2, c.n_keys, sigma=2 * critical(c.n_keys))),
                cells(n_keys=(16, 1024, 10**9)),
                "limit",
                sample=normal_rows("squares", lambda c: 2 * critical(c.n_keys)),
            ),
        ),
    ),
    Sentence(
        "weights-are-log-normal",
        "The weights are log-normal, with log(n p) of mean -σ²/2.",
        "Nahshan et al. 2023, Linear Log-Normal Attention with Unbiased Concentration",
        ("normal scores of fixed spread, n → ∞",),
        (
            Numbers(
                "the mean of log(n p) at σ = 1",
                lambda c: -0.5,
                lambda c: math.log(c.n_keys) - float(expected_logsumexp(c.n_keys, sigma=1.0)),
                _LONG,
                "limit",
            ),
        ),
    ),
    Sentence(
        "causal-entropy-as-of-whole-rows",
        "Under a causal mask the mean entropy at initialisation is that of a row of n keys.",
        "common telling",
        ("that most rows see fewer keys",),
        (
            Numbers(
                "the mean over rows of E H",
                lambda c: entropy(c.n_keys, 1.0),
                lambda c: mean_causal_entropy(c.n_keys),
                cells(n_keys=(16, 64, 256)),
                within=0.05,
            ),
        ),
        remark="It is less by nearly one nat: the mean of log i over i = 1 … n is log n - 1.",
    ),
)
