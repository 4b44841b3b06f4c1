"""Sentences about what bounds the scores: norms on query and key, caps, clips, and what a 16-bit logit can hold."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.bounded import COSINE_SCORE_BOUND, COSINE_SCORE_VARIANCE, SOFTCAP_BOUND
from analysis.confront.claims.draws import FloatArray
from analysis.confront.published.draws import normal_rows
from analysis.confront.published.ground import Claimed
from analysis.confront.published.numbers import Numbers, cells
from analysis.confront.published.scores import cosine_squares, cosine_variance
from analysis.confront.published.sentence import Sentence
from analysis.predict.exact import expected_entropy

_GEMMA = "Gemma Team 2024, Gemma 2: Improving Open Language Models at a Practical Size"
_HENRY = "Henry, Dachapally, Pawar and Chen 2020, Query-Key Normalization for Transformers, arXiv:2010.04245"
_WORTSMAN = (
    "Wortsman et al. 2023, Small-scale Proxies for Large-scale Transformer Training Instabilities, arXiv:2309.14322"
)
_GROWN = (1.0, 2.0, 4.0, 8.0)


def largest_cosine_score(cell: Cell) -> float:
    """Return the largest |score| of L2-normalised vectors, parallel and opposite ones, at a scale."""
    x = np.random.default_rng(0).standard_normal((16, 64))
    return float(np.abs(attnsym.attention_scores(x, np.concatenate([x, -x]), score="cosine", scale=cell.scale)).max())


def layer_norm(x: FloatArray) -> FloatArray:
    """Return vectors with their mean over components taken off and divided by their root mean square: unit gains."""
    return np.asarray(attnsym.qk_norm(x - x.mean(axis=-1, keepdims=True), kind="rms"))


def largest_layer_normed(cell: Cell) -> float:
    """Return the largest |score| of layer-normalised vectors, parallel and opposite ones among them."""
    x = layer_norm(np.random.default_rng(cell.d_k).standard_normal((16, cell.d_k)))
    return float(np.abs(attnsym.attention_scores(x, np.concatenate([x, -x]))).max())


def largest_normed(cell: Cell) -> float:
    """Return the largest |score| at 1/√d_k of vectors normed to length 1 or to root mean square 1."""
    kind: Literal["l2", "rms"] = "l2" if cell.norm == "length" else "rms"
    x = attnsym.qk_norm(np.random.default_rng(cell.d_k).standard_normal((16, cell.d_k)), kind=kind)
    return float(np.abs(attnsym.attention_scores(x, np.concatenate([x, -x]))).max())


def largest_grown(cell: Cell) -> float:
    """Return the largest score after both projections have grown by the cell's factor, as a share of that before."""
    rng = np.random.default_rng(64)
    query, key = rng.standard_normal((2, 16, 64)) * 4.0

    def largest(factor: float) -> float:
        left, right = factor * query, factor * key
        if cell.norm:
            gain = factor if cell.norm == "its gains grow" else 1.0
            left, right = (gain * attnsym.qk_norm(x, kind="rms") for x in (left, right))
        return float(attnsym.attention_scores(left, right).max())

    return largest(cell.factor) / largest(1.0)


def capped(cell: Cell) -> float:
    """Return the score that a soft-cap of 50 makes of the cell's score."""
    return float(
        attnsym.attention_scores(np.array([[float(cell.score)]]), np.ones((1, 1)), scale=1.0, softcap=50.0)[0, 0]
    )


def bfloat16_spacing(cell: Cell) -> float:
    """Return the distance to the next bfloat16, which is the upper half of a float32."""
    bits = np.array([cell.logit], dtype=np.float32).view(np.uint32)
    return float((bits + 0x10000).view(np.float32)[0] - bits.view(np.float32)[0])


NORM_SENTENCES = (
    Sentence(
        "qk-norm-bounds-scores",
        "Scores of L2-normalised queries and keys lie between -scale and scale.",
        _HENRY,
        ("vectors that are not zero",),
        (
            Claimed(COSINE_SCORE_BOUND),
            Numbers(
                "the largest |score|, vectors parallel and opposite among them",
                lambda c: c.scale * (1 + 1e-12),
                largest_cosine_score,
                cells(scale=(1.0, 4.0, 16.0, 64.0)),
                "at most",
            ),
        ),
    ),
    Sentence(
        "qk-norm-needs-a-learned-scale",
        "Without a learned scale normalised scores are too small: their standard deviation is 1/√d_k.",
        f"{_HENRY}, for the learned scale; the standard deviation is common telling",
        ("query and key independent, one of them isotropic",),
        (
            Claimed(COSINE_SCORE_VARIANCE),
            Numbers(
                "the variance of a normalised score",
                lambda c: 1 / c.d_k,
                cosine_variance,
                cells(d_k=(8, 32, 128)),
                sample=cosine_squares,
            ),
        ),
    ),
    Sentence(
        "unit-length-bound-is-root-d",
        "After QK-norm has brought queries and keys to length 1, scores at 1/√d_k are bounded by √d_k.",
        "paiml/provable-contracts, attention-scaling-v1, score_bound_with_qknorm, common code",
        ("which norm: length 1, as it says, or root mean square 1", "bounded: as tightly as can be"),
        (
            Numbers(
                "the largest |score|",
                lambda c: math.sqrt(c.d_k),
                largest_normed,
                cells(norm=("root mean square",), d_k=(4, 16, 64)),
                regime="root mean square 1",
            ),
            Numbers(
                "the largest |score|",
                lambda c: math.sqrt(c.d_k),
                largest_normed,
                cells(norm=("length",), d_k=(4, 16, 64)),
                regime="length 1",
                smallest=cells(norm=("length",), d_k=(1, 2)),
            ),
        ),
        depends_on="whether the norm makes the root mean square 1: with length 1 the bound is 1/√d_k, d_k times less",
    ),
    Sentence(
        "layer-norm-bounds-logits",
        "LayerNorm on queries and keys bounds the logits by √d_k at scale 1/√d_k.",
        "Dehghani et al. 2023, Scaling Vision Transformers to 22 Billion Parameters, for the norm",
        ("unit gains; the bound is ours",),
        (
            Numbers(
                "the largest |score|, vectors parallel and opposite among them",
                lambda c: math.sqrt(c.d_k) * (1 + 1e-12),
                largest_layer_normed,
                cells(d_k=(4, 16, 64, 256)),
                "at most",
            ),
        ),
    ),
    Sentence(
        "qk-norm-stops-logit-growth",
        "LayerNorm on queries and keys stops the logits from growing with the weights.",
        _WORTSMAN,
        ("whether its gains stay as they are",),
        tuple(
            Numbers(
                "the largest score after both projections have grown, as a share",
                lambda c: 1.0,
                largest_grown,
                cells(norm=(norm,), factor=_GROWN),
                "at most",
                within=1e-6,
                regime=regime,
            )
            for norm, regime in (("its gains stay", "gains that stay"), ("its gains grow", "gains that grow as well"))
        ),
        depends_on="whether the norm's learned gains stay as they are",
        remark="The authors say that it mitigates the growth. How far logits grow with the learning rate is a matter "
        "of training, and not decided here.",
    ),
    Sentence(
        "soft-cap-bounds-logits",
        "A soft-cap keeps every logit between -cap and cap.",
        _GEMMA,
        (),
        (
            Claimed(SOFTCAP_BOUND),
            Numbers(
                "the score that a cap of 50 makes of a score",
                lambda c: 50.0,
                capped,
                cells(score=(1.0, 10.0, 100.0, 1000.0)),
                "at most",
            ),
        ),
    ),
    Sentence(
        "soft-cap-leaves-ordinary-scores",
        "A soft-cap of 50 leaves attention as it is until logits blow up.",
        f"{_GEMMA}, for the cap; as it is usually taken",
        ("how large ordinary scores are; 64 normal scores", "as it is: E H within 2 %"),
        tuple(
            Numbers(
                "E H with the cap, against E H without",
                lambda c: float(expected_entropy(c.n_keys, sigma=c.sigma)),
                lambda c: float(expected_entropy(c.n_keys, sigma=c.sigma, softcap=50.0)),
                cells(n_keys=(64,), sigma=spreads),
                within=0.02,
                regime=regime,
                sample=normal_rows("entropy", lambda c: float(c.sigma), softcap=50.0),
            )
            for spreads, regime in (
                ((1.0, 2.0, 3.0), "scores of spread up to 3"),
                ((15.0, 20.0, 30.0), "scores of spread 15 and more"),
            )
        ),
        depends_on="the spread of the scores",
    ),
    Sentence(
        "qk-clip-rescales",
        "Multiplying the query and the key projection by √γ each multiplies the largest logit by γ.",
        "Kimi Team 2025, Kimi K2: Open Agentic Intelligence, arXiv:2507.20534, on QK-Clip",
        ("nothing normalises query and key after the projection",),
        tuple(
            Numbers(
                "the largest score after √γ on each, as a share",
                lambda c: c.factor**2,
                largest_grown,
                cells(norm=(norm,), factor=(0.25, 0.5, 0.9)),
                within=1e-6,
                regime=regime,
            )
            for norm, regime in (("", "no norm after the projections"), ("its gains stay", "RMSNorm after them"))
        ),
        depends_on="whether a norm follows the projections",
        remark="The authors use it where no norm follows, and treat the rotary key that heads share apart.",
    ),
    Sentence(
        "bfloat16-loses-whole-units",
        "In bfloat16 logits of 128 and more are told apart only in whole units or coarser.",
        "common telling, as in discussions of logit growth",
        ("round to nearest, seven stored bits of significand",),
        (
            Numbers(
                "the spacing of bfloat16 numbers",
                lambda c: 1.0,
                bfloat16_spacing,
                cells(logit=(128.0, 256.0, 512.0, 1024.0)),
                "at least",
            ),
        ),
    ),
)
