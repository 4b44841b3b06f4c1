"""Sentences about what has been added to attention: norms, caps, positions, sinks, other normalisers, other maps."""

from __future__ import annotations

import math

import numpy as np

import attnsym
from analysis.confront.cell import Cell
from analysis.confront.claims.bounded import COSINE_SCORE_BOUND, COSINE_SCORE_VARIANCE, SOFTCAP_BOUND
from analysis.confront.claims.draws import FloatArray
from analysis.confront.published.draws import normal_rows
from analysis.confront.published.ground import Claimed, Follows, Numbers, cells
from analysis.confront.published.sentence import Sentence
from analysis.predict.exact import expected_entropy, expected_sink_weight

_ROUNDED = 1e-11
_UNIT = ("zero_mean(q)", "zero_mean(k)", "unit_variance(q)", "unit_variance(k)")


def layer_norm(x: FloatArray) -> FloatArray:
    """Return vectors with their mean over components taken off and divided by their root mean square: unit gains."""
    return np.asarray(attnsym.qk_norm(x - x.mean(axis=-1, keepdims=True), kind="rms"))


def largest_normed_score(cell: Cell) -> float:
    """Return the largest |score| of layer-normalised vectors, parallel and opposite ones among them."""
    x = layer_norm(np.random.default_rng(cell.d_k).standard_normal((16, cell.d_k)))
    return float(np.abs(attnsym.attention_scores(x, np.concatenate([x, -x]))).max())


def normed_after_projection(cell: Cell) -> float:
    """Return the largest score after both projections are multiplied by √γ = .5, as a share of that before."""
    rng = np.random.default_rng(cell.d_k)
    query, key = rng.standard_normal((2, 16, cell.d_k)) * 4.0
    norm = (lambda x: attnsym.qk_norm(x, kind="rms")) if cell.normed else (lambda x: x)
    before = attnsym.attention_scores(norm(query), norm(key)).max()
    return float(attnsym.attention_scores(norm(0.5 * query), norm(0.5 * key)).max() / before)


def shifted_difference(cell: Cell) -> float:
    """Return the largest change of a rotary score when both positions move by the cell's shift."""
    query, key = np.random.default_rng(cell.d_k).standard_normal((2, 4, cell.d_k))
    positions = np.array([0.0, 3.0, 10.0, 50.0])

    def scores(shift: float) -> FloatArray:
        return np.asarray(
            attnsym.attention_scores(attnsym.rotary(query, positions + shift), attnsym.rotary(key, positions + shift))
        )

    return float(np.abs(scores(cell.shift) - scores(0)).max())


def rotated_length_change(cell: Cell) -> float:
    """Return the largest relative change of a vector's length by its rotation."""
    x = np.random.default_rng(cell.d_k).standard_normal((8, cell.d_k))
    turned = attnsym.rotary(x, np.arange(8) * float(cell.shift))
    return float(np.abs(np.linalg.norm(turned, axis=1) / np.linalg.norm(x, axis=1) - 1).max())


def rotary_bound(d_k: int, distance: float) -> float:
    """Return the mean over j of |Σ e^(i m θ)| of the first j frequencies θ at distance m: the authors' bound."""
    angles = distance * 10000.0 ** (-np.arange(0, d_k, 2) / d_k)
    return float(np.mean(np.abs(np.cumsum(np.exp(1j * angles)))))


def rotary_squares(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return squared scores of independent vectors at the cell's distance, per d_k."""
    query, key = rng.standard_normal((2, replicates, 1, cell.d_k))
    turned = attnsym.rotary(key, np.array([float(cell.distance)]))
    return np.asarray(attnsym.attention_scores(query, turned)[:, 0, 0] ** 2)


def alibi_distance(cell: Cell) -> float:
    """Return the mean distance of the last of n positions to what it attends to, under ALiBi and equal scores."""
    bias = attnsym.alibi_bias(8, cell.n_keys, cell.n_keys)[0, -1]
    weights = attnsym.softmax(bias)
    return float(weights @ np.arange(cell.n_keys)[::-1])


def total_weight(cell: Cell) -> float:
    """Return the weight that n equal real keys keep beside a sink of logit 0."""
    query = np.full((1, 1), float(cell.score) if not cell.below_log_n else float(cell.score) - math.log(cell.n_keys))
    weights = attnsym.attention_weights(query, np.ones((cell.n_keys, 1)), scale=1.0, sink=0.0)
    return float(weights.sum())


def sigmoid_row_sum(cell: Cell) -> float:
    """Return E of the row sum of sigmoid weights with bias -log n, by quadrature over one normal score."""
    z, mass = np.polynomial.hermite_e.hermegauss(200)
    scores = cell.sigma * z - math.log(cell.n_keys)
    return float(cell.n_keys * mass @ (1 / (1 + np.exp(-scores))) / math.sqrt(2 * math.pi))


def one_hot_rows(cell: Cell, rng: np.random.Generator, replicates: int) -> tuple[FloatArray, FloatArray]:
    """Return queries and keys whose scores are iid normal with the cell's spread: one-hot keys."""
    query = cell.sigma * rng.standard_normal((replicates, 1, cell.n_keys))
    return query, np.eye(cell.n_keys)


def sigmoid_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return row sums of the core's sigmoid weights."""
    query, key = one_hot_rows(cell, rng, replicates)
    return np.asarray(attnsym.attention_weights(query, key, scale=1.0, normalizer="sigmoid").sum(axis=(1, 2)))


def relu_draws(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return row sums of the core's ReLU weights, or sums of their squares: outputs of values all 1 or random."""
    query, key = one_hot_rows(cell, rng, replicates)
    weights = attnsym.attention_weights(query, key, scale=1.0, normalizer="relu")
    return np.asarray((weights if cell.of == "sum" else weights**2).sum(axis=(1, 2)))


def relu_mean(cell: Cell) -> float:
    """Return E Σp = σ/√(2π), or E Σp² = σ²/(2n)."""
    return float(cell.sigma / math.sqrt(2 * math.pi) if cell.of == "sum" else cell.sigma**2 / (2 * cell.n_keys))


def feature_mean(cell: Cell) -> float:
    """Return E of a positive random feature's estimate over exp(qᵀk), by quadrature: both vectors of length r."""
    z, mass = np.polynomial.hermite_e.hermegauss(120)
    length = cell.r * math.sqrt(2 + 2 * cell.cosine)  # ‖q + k‖
    estimate = np.exp(length * z - cell.r**2) @ mass / math.sqrt(2 * math.pi)
    return float(estimate / math.exp(cell.r**2 * cell.cosine))


def feature_relative_variance(cell: Cell) -> float:
    """Return e^(‖q + k‖²) - 1."""
    return math.expm1(cell.r**2 * (2 + 2 * cell.cosine))


def layer_slope(cell: Cell) -> float:
    """Return the order with which the distance from rank one after a layer follows that before it, where small."""
    x = np.random.default_rng(0).standard_normal((8, 8))
    x -= x.mean(axis=0)

    def left(size: float) -> float:
        out = attnsym.scaled_dot_product_attention(size * x, size * x, size * x) + cell.skip * size * x
        return float(np.linalg.norm(out - out.mean(axis=0)))

    return math.log(left(1e-2) / left(1e-3)) / math.log(10)


def mixed_squares(cell: Cell, rng: np.random.Generator, replicates: int) -> FloatArray:
    """Return squared scores of heads mixed with equal weights before softmax."""
    query, key = rng.standard_normal((2, replicates, cell.heads, 1, 16))
    return np.asarray((cell.weight * attnsym.attention_scores(query, key)[..., 0, 0].sum(axis=1)) ** 2)


def bfloat16_spacing(cell: Cell) -> float:
    """Return the distance to the next bfloat16, which is the upper half of a float32."""
    bits = np.array([cell.logit], dtype=np.float32).view(np.uint32)
    return float((bits + 0x10000).view(np.float32)[0] - bits.view(np.float32)[0])


MECHANISM_SENTENCES = (
    Sentence(
        "qk-norm-bounds-scores",
        "Scores of L2-normalised queries and keys lie between -scale and scale.",
        "Henry et al. 2020, Query-Key Normalization for Transformers",
        (),
        (Claimed(COSINE_SCORE_BOUND),),
    ),
    Sentence(
        "qk-norm-needs-a-learned-scale",
        "Without a learned scale normalised scores are too small: their standard deviation is 1/√d_k.",
        "Henry et al. 2020, Query-Key Normalization for Transformers",
        ("query and key independent, one of them isotropic",),
        (Claimed(COSINE_SCORE_VARIANCE),),
    ),
    Sentence(
        "layer-norm-bounds-logits",
        "LayerNorm on queries and keys bounds the logits by √d_k at scale 1/√d_k.",
        "Dehghani et al. 2023, Scaling Vision Transformers to 22 Billion Parameters",
        ("unit gains",),
        (
            Numbers(
                "the largest |score|",
                lambda c: math.sqrt(c.d_k) * (1 + 1e-12),
                largest_normed_score,
                cells(d_k=(4, 64, 256)),
                "at most",
            ),
        ),
    ),
    Sentence(
        "soft-cap-bounds-logits",
        "A soft-cap keeps every logit between -cap and cap.",
        "Gemma Team 2024, Gemma 2: Improving Open Language Models at a Practical Size, section 2",
        (),
        (Claimed(SOFTCAP_BOUND),),
    ),
    Sentence(
        "soft-cap-leaves-ordinary-scores",
        "A soft-cap of 50 leaves attention as it is until logits blow up.",
        "Gemma Team 2024, Gemma 2: Improving Open Language Models at a Practical Size, section 2; as it is usually "
        "taken",
        ("how large ordinary scores are; 64 normal scores",),
        (
            Numbers(
                "E H with the cap, against E H without",
                lambda c: float(expected_entropy(c.n_keys, sigma=c.sigma)),
                lambda c: float(expected_entropy(c.n_keys, sigma=c.sigma, softcap=50.0)),
                cells(sigma=(1.0, 3.0), n_keys=(64,)),
                within=0.02,
                regime="scores of spread up to 3",
                sample=normal_rows("entropy", lambda c: float(c.sigma), softcap=50.0),
            ),
            Numbers(
                "E H with the cap, against E H without",
                lambda c: float(expected_entropy(c.n_keys, sigma=c.sigma)),
                lambda c: float(expected_entropy(c.n_keys, sigma=c.sigma, softcap=50.0)),
                cells(sigma=(15.0, 30.0), n_keys=(64,)),
                within=0.02,
                regime="scores of spread 15 and more",
                sample=normal_rows("entropy", lambda c: float(c.sigma), softcap=50.0),
            ),
        ),
        depends_on="the spread of the scores",
    ),
    Sentence(
        "qk-clip-rescales",
        "Multiplying the query and the key projection by √γ each multiplies the largest logit by γ.",
        "Kimi Team 2025, Kimi K2: Open Agentic Intelligence (QK-Clip)",
        ("nothing normalises query and key after the projection",),
        (
            Numbers(
                "the largest score after √γ = .5 on each, as a share",
                lambda c: 0.25,
                normed_after_projection,
                cells(normed=(False,), d_k=(16, 64)),
                regime="no norm after the projections",
            ),
            Numbers(
                "the largest score after √γ = .5 on each, as a share",
                lambda c: 0.25,
                normed_after_projection,
                cells(normed=(True,), d_k=(16, 64)),
                regime="RMSNorm after the projections",
            ),
        ),
        depends_on="whether a norm follows the projections",
    ),
    Sentence(
        "rotary-sees-relative-positions",
        "Rotary embeddings make the score a function of the relative position alone and leave lengths as they are.",
        "Su et al. 2021, RoFormer: Enhanced Transformer with Rotary Position Embedding, section 3",
        (),
        (
            Numbers(
                "the change of a score when both positions move",
                lambda c: _ROUNDED,
                shifted_difference,
                cells(shift=(7, 1000), d_k=(16, 64)),
                "at most",
            ),
            Numbers(
                "the change of a length",
                lambda c: 1e-13,
                rotated_length_change,
                cells(shift=(7, 1000), d_k=(16, 64)),
                "at most",
            ),
        ),
    ),
    Sentence(
        "rotary-decays",
        "Scores under rotary embeddings decay with the distance.",
        "Su et al. 2021, RoFormer: Enhanced Transformer with Rotary Position Embedding, section 3.4.3 (long-term "
        "decay)",
        ("query and key alike in every pair of components; the authors bound a sum over frequencies",),
        (
            Numbers(
                "the bound at a distance, against the one at distance 0",
                lambda c: 0.7 * rotary_bound(c.d_k, 0.0),
                lambda c: rotary_bound(c.d_k, c.distance),
                cells(d_k=(64,), distance=(10, 50, 250)),
                "at most",
                regime="the bound for aligned query and key",
            ),
            Numbers(
                "E of the squared score, against .7 of that at distance 0",
                lambda c: 0.7,
                lambda c: 1.0,
                cells(d_k=(64,), distance=(10, 250)),
                "at most",
                regime="independent query and key",
                sample=rotary_squares,
            ),
        ),
        depends_on="whether query and key are aligned",
        remark="Between independent vectors the variance is d_k at every distance.",
    ),
    Sentence(
        "alibi-is-local",
        "Linear biases give each head a window of recent keys whose width does not depend on the length.",
        "Press, Smith and Lewis 2022, Train Short, Test Long: Attention with Linear Biases Enables Input Length "
        "Extrapolation, section 3",
        ("equal scores; the head of slope 1/2",),
        (
            Numbers(
                "the mean distance of what the last position attends to",
                lambda c: 1 / math.expm1(0.5),
                alibi_distance,
                cells(n_keys=(4, 16, 64)),
                "limit",
            ),
        ),
    ),
    Sentence(
        "off-by-one-lets-heads-be-silent",
        "With 1 added to its denominator softmax lets a head say nothing.",
        "Miller 2023, Attention Is Off By One (blog)",
        ("how far all scores lie below -log n",),
        (
            Numbers(
                "the weight left to the keys",
                lambda c: 0.1,
                total_weight,
                cells(below_log_n=(True,), score=(-3.0,), n_keys=(16, 64, 1024)),
                "at most",
                regime="scores of 3 below -log n",
            ),
            Numbers(
                "the weight left to the keys",
                lambda c: 0.1,
                total_weight,
                cells(below_log_n=(False,), score=(-3.0,), n_keys=(16, 64, 1024)),
                "at most",
                regime="scores of -3 at every length",
            ),
        ),
        depends_on="whether the scores fall below -log n",
    ),
    Sentence(
        "added-one-weighs-something",
        "The 1 that is added to softmax's denominator takes a noticeable share of the attention from the start.",
        "as Miller 2023, Attention Is Off By One (blog), is often retold",
        ("how many keys there are; normal scores of variance 1; noticeable: 5 %",),
        (
            Numbers(
                "the share that it takes",
                lambda c: 0.05,
                lambda c: float(expected_sink_weight(c.n_keys, sink=0.0, sigma=1.0)),
                cells(n_keys=(4, 8, 12)),
                "at least",
                regime="up to a dozen keys",
                sample=normal_rows("sink", lambda c: 1.0),
            ),
            Numbers(
                "the share that it takes",
                lambda c: 0.05,
                lambda c: float(expected_sink_weight(c.n_keys, sink=0.0, sigma=1.0)),
                cells(n_keys=(64, 256, 1024)),
                "at least",
                regime="64 keys and more",
                sample=normal_rows("sink", lambda c: 1.0),
            ),
        ),
        depends_on="the number of keys",
        remark="It is about e^(-σ²/2)/n: by 64 keys less than 1 %.",
    ),
    Sentence(
        "sigmoid-bias-keeps-row-sums",
        "A bias of -log n keeps the row sums of sigmoid attention near 1.",
        "Ramapuram et al. 2024, Theory, Analysis, and Best Practices for Sigmoid Self-Attention, arXiv:2409.04431",
        ("scores near 0",),
        (
            Numbers(
                "the mean row sum",
                lambda c: 1.0,
                sigmoid_row_sum,
                cells(sigma=(0.25,), n_keys=(64, 256)),
                within=0.1,
                regime="scores of spread 1/4",
                sample=sigmoid_draws,
            ),
            Numbers(
                "the mean row sum",
                lambda c: 1.0,
                sigmoid_row_sum,
                cells(sigma=(1.0,), n_keys=(64, 256)),
                within=0.1,
                regime="scores of spread 1",
                sample=sigmoid_draws,
            ),
        ),
        depends_on="the variance of the scores",
        remark="It tends to e^(σ²/2).",
    ),
    Sentence(
        "relu-over-n-keeps-the-output",
        "ReLU divided by the length keeps the size of the output when the length changes.",
        "Wortsman et al. 2023, Replacing softmax with ReLU in Vision Transformers",
        ("values that share a mean",),
        (
            Numbers(
                "E Σp at σ = 1",
                lambda c: 1 / math.sqrt(2 * math.pi),
                relu_mean,
                cells(sigma=(1.0,), of=("sum",), n_keys=(16, 64)),
                regime="values that are alike",
                sample=relu_draws,
            ),
            Numbers(
                "E Σp², the variance of the output for random values",
                lambda c: 1 / 32,
                relu_mean,
                cells(sigma=(1.0,), of=("squares",), n_keys=(16, 64)),
                regime="values of mean 0",
                sample=relu_draws,
            ),
        ),
        depends_on="whether the values share a mean",
    ),
    Sentence(
        "differential-cancels-noise",
        "Subtracting one attention map from another cancels attention noise.",
        "Ye et al. 2024, Differential Transformer",
        ("that the noise is common to both maps; equal weights of the maps",),
        (
            Follows("Var(q[i] - k[i])", "0", ("same(q, k)",), regime="one noise in both maps"),
            Follows("Var(q[i] - k[i])", "0", ("independent(q, k)", *_UNIT), regime="independent noise in the two maps"),
        ),
        depends_on="how far the noise of the two maps is correlated",
        remark="At weights 1 and λ the variance is 1 - 2λρ + λ²: independent noise adds.",
    ),
    Sentence(
        "talking-heads-keep-the-scale",
        "Mixing the scores of heads before softmax keeps their scale.",
        "Shazeer et al. 2020, Talking-Heads Attention; common code",
        ("uncorrelated scores; the sum of the squared mixing weights",),
        (
            Numbers(
                "the variance of a mixed score",
                lambda c: 1.0,
                lambda c: c.heads * c.weight**2,
                cells(heads=(8,), weight=(8**-0.5,)),
                regime="squared weights that sum to 1",
                sample=mixed_squares,
            ),
            Numbers(
                "the variance of a mixed score",
                lambda c: 1.0,
                lambda c: c.heads * c.weight**2,
                cells(heads=(8,), weight=(1 / 8,)),
                regime="an average of eight heads",
                sample=mixed_squares,
            ),
        ),
        depends_on="the sum of the squared mixing weights",
    ),
    Sentence(
        "positive-features-estimate-softmax",
        "Positive random features estimate exp(qᵀk) without bias and with low variance.",
        "Choromanski et al. 2020, Rethinking Attention with Performers",
        ("the length of q + k",),
        (
            Numbers(
                "the mean estimate, as a share", lambda c: 1.0, feature_mean, cells(r=(0.5, 2.0), cosine=(0.0, 0.5))
            ),
            Numbers(
                "the relative variance of one feature",
                lambda c: 1.0,
                feature_relative_variance,
                cells(r=(0.4, 0.5), cosine=(0.0,)),
                "at most",
                regime="short vectors",
            ),
            Numbers(
                "the relative variance of one feature",
                lambda c: 1.0,
                feature_relative_variance,
                cells(r=(64**0.25,), cosine=(0.0,)),
                "at most",
                regime="the lengths of a 64-wide head at scale 1/√d_k",
            ),
        ),
        depends_on="how long q + k is: the relative variance is e^(‖q+k‖²) - 1",
    ),
    Sentence(
        "attention-loses-rank",
        "Deep stacks of attention lose rank doubly exponentially: what is left of it is cubed at each layer.",
        "Dong, Cordonnier and Loukas 2021, Attention is Not All You Need: Pure Attention Loses Rank Doubly "
        "Exponentially with Depth, who say it of attention without skip connections",
        ("no skip connection; the smallest model of it: one head, identity projections, tokens near one another",),
        (
            Numbers(
                "the order with which the distance from rank one falls per layer",
                lambda c: 3.0,
                layer_slope,
                cells(skip=(0.0,)),
                within=1e-3,
                regime="without a skip connection",
            ),
            Numbers(
                "the order with which the distance from rank one falls per layer",
                lambda c: 3.0,
                layer_slope,
                cells(skip=(1.0,)),
                within=1e-3,
                regime="with a skip connection",
            ),
        ),
        depends_on="whether there is a skip connection",
    ),
    Sentence(
        "shared-keys-correlate-heads",
        "Heads that share their keys have correlated scores.",
        "common telling about multi-query attention, Shazeer 2019, Fast Transformer Decoding: One Write-Head is "
        "All You Need",
        ("independent queries of mean 0",),
        (
            Follows(
                "Cov(Dot(k, q), Dot(k2, q))", "0", ("independent(q, k, k2)", *_UNIT, "zero_mean(k2)"), follows=False
            ),
        ),
        remark="They are uncorrelated; their squares are not. Here q is the shared key, k and k2 are two queries.",
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
                cells(logit=(128.0, 256.0, 1000.0)),
                "at least",
            ),
        ),
    ),
)
