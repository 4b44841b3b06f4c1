"""Around the scores: projections of tokens before them, rotary positions in them, the sum of values after them."""

from __future__ import annotations

from typing import Any

import sympy
from sympy import Integer

from attnsym.symbolic.derivation.derivation import Derivation
from attnsym.symbolic.derivation.steps import Axiom, Equation, Known
from attnsym.symbolic.derivation.writing import chain, line
from attnsym.symbolic.language.notation import (
    X2,
    Y2,
    E,
    Sum,
    Var,
    W_k,
    W_q,
    X,
    Y,
    a,
    b,
    beta,
    c,
    d_k,
    d_model,
    delta,
    i,
    n_keys,
    p,
    rho,
    t,
    vector,
    x,
)

TOKENS = "independent(W_q, W_k)"
WITHIN = ("independent_components(W_q)", "independent_components(W_k)")
CENTRED = ("zero_mean(W_q)", "zero_mean(W_k)")
SIZED = ("moment(W_q, 2, 1/d_model)", "moment(W_k, 2, 1/d_model)")


def _over_model(body: Any, index: Any) -> Any:
    """Sum over the components of a token, also where nothing but the fixed numbers x and β is summed."""
    return sympy.Sum(body, (index, 1, d_model))


def projected_score_variance() -> Derivation:
    """Projections with entries of variance 1/d_model: Var = d_k ‖x‖²‖β‖²/d_model², and d_k after a norm."""
    query = Sum(W_q[i, a] * x[a], a)
    key = Sum(W_k[i, b] * beta[b], b)
    score = Sum(query * key, i)
    lengths = _over_model(x[a] ** 2, a) * _over_model(beta[a] ** 2, a)
    first = Axiom(
        "the token x leaves a norm: Σₐ xₐ² = d_model", Equation(_over_model(x[a] ** 2, a), d_model), supposed=True
    )
    second = Axiom(
        "the token β leaves a norm as well: Σₐ βₐ² = d_model",
        Equation(_over_model(beta[a] ** 2, a), d_model),
        supposed=True,
    )
    return Derivation(
        key="projected-score-variance",
        title="a fresh layer: the variance of the score of two tokens, by its projections",
        chains=(
            chain(
                Var(score),
                line(
                    "Bienaymé",
                    Sum(Var(query * key), i),
                    TOKENS,
                    WITHIN[0],
                    CENTRED[0],
                    note="The rows of a projection are independent.",
                ),
                line("definition of variance", Sum(E(query**2 * key**2) - E(query * key) ** 2, i)),
                line("independence", Sum(E(query**2) * E(key**2) - E(query) ** 2 * E(key) ** 2, i), TOKENS),
                line("linearity", Sum(E(query**2) * E(key**2) - Sum(E(W_q[i, a]) * x[a], a) ** 2 * E(key) ** 2, i)),
                line("moments", Sum(E(query**2) * E(key**2), i), "zero_mean(W_q)"),
                line(
                    "lone factors vanish",
                    Sum(Sum(E(W_q[i, a] ** 2) * x[a] ** 2, a) * Sum(E(W_k[i, b] ** 2) * beta[b] ** 2, b), i),
                    *WITHIN,
                    *CENTRED,
                ),
                line("moments", Sum(lengths / d_model**2, i), *SIZED),
                line("evaluate", d_k * lengths / d_model**2),
                heading="Two tokens x and β of any length",
            ),
            chain(
                d_k * lengths / d_model**2,
                line(
                    "known",
                    d_k,
                    known=(
                        Known(first, d_k * _over_model(beta[a] ** 2, a) / d_model**2),
                        Known(second, d_k / d_model),
                    ),
                ),
                heading="Two tokens that leave a norm",
            ),
        ),
        source="derived here",
        remark=(
            "x and β are the two tokens, held fixed. The law of the entries does not matter, nor whether the tokens "
            "resemble one another: the same d_k stands for a token with itself. Over a row, though, tokens with a "
            "common part give scores with a common part, which softmax does not see. Entries of variance v instead of "
            "1/d_model multiply the result by (v d_model)²; the gains of a norm multiply the components of its token."
        ),
    )


def rotary_scores() -> Derivation:
    """A rotation of pairs keeps lengths, same-place scores and the variance, and turns the mean by its cosine."""
    circle = Axiom("c = cos θ and t = sin θ, so that c² + t² = 1", Equation(c**2 + t**2, Integer(1)))
    turned, turned_2 = c * X - t * X2, t * X + c * X2
    key, key_2 = c * Y - t * Y2, t * Y + c * Y2
    pair = turned * Y + turned_2 * Y2
    names = ("X", "X2", "Y", "Y2")
    apart = "independent(X, X2, Y, Y2)"
    return Derivation(
        key="rotary-scores",
        title="rotary positions keep the variance of scores at every distance",
        chains=(
            chain(
                turned**2 + turned_2**2,
                line("expand", (c**2 + t**2) * (X**2 + X2**2)),
                line("known", X**2 + X2**2, known=(Known(circle, X**2 + X2**2),)),
                heading="Lengths",
            ),
            chain(
                turned * key + turned_2 * key_2,
                line("expand", (c**2 + t**2) * (X * Y + X2 * Y2)),
                line(
                    "known",
                    X * Y + X2 * Y2,
                    known=(Known(circle, X * Y + X2 * Y2),),
                    note="Query and key turned by the same angle: only the difference of their angles matters.",
                ),
                heading="The same place",
            ),
            chain(
                Var(pair),
                line("definition of variance", E(pair**2) - E(pair) ** 2),
                line("linearity", E(pair**2) - (c * E(X * Y) - t * E(X2 * Y) + t * E(X * Y2) + c * E(X2 * Y2)) ** 2),
                line(
                    "independence",
                    E(pair**2) - (c * E(X) * E(Y) - t * E(X2) * E(Y) + t * E(X) * E(Y2) + c * E(X2) * E(Y2)) ** 2,
                    apart,
                ),
                line("moments", E(pair**2), "zero_mean(X)", "zero_mean(X2)"),
                line(
                    "lone factors vanish",
                    c**2 * (E(X**2) * E(Y**2) + E(X2**2) * E(Y2**2)) + t**2 * (E(X2**2) * E(Y**2) + E(X**2) * E(Y2**2)),
                    apart,
                    "zero_mean(X)",
                    "zero_mean(Y)",
                ),
                line(
                    "moments",
                    2 * (c**2 + t**2),
                    *(f"{kind}({name})" for kind in ("zero_mean", "unit_variance") for name in names),
                ),
                line("known", 2, known=(Known(circle, 2),), note="Of each of the d_k/2 pairs, at every angle."),
                heading="The variance of a pair's part of the score, at the relative angle θ",
            ),
            chain(
                E(pair),
                line("linearity", c * E(X * Y) - t * E(X2 * Y) + t * E(X * Y2) + c * E(X2 * Y2)),
                line(
                    "independence",
                    c * E(X * Y) - t * E(X2) * E(Y) + t * E(X) * E(Y2) + c * E(X2 * Y2),
                    "uncorrelated(X2, Y)",
                    "uncorrelated(X, Y2)",
                ),
                line("moments", c * E(X * Y) + c * E(X2 * Y2), "zero_mean(X)", "zero_mean(X2)"),
                line(
                    "moments",
                    2 * rho * c,
                    "aligned(X, Y)",
                    "aligned(X2, Y2)",
                    "zero_mean(X)",
                    "zero_mean(X2)",
                ),
                heading="The mean of an aligned pair's part",
            ),
        ),
        source="derived here; the rotation is that of Su et al. 2021, RoFormer",
        remark=(
            "Here (X, X′) is a pair of query components and (Y, Y′) of the key. Independent vectors keep the variance "
            "d_k, so the scale 1/√d_k needs no change. What depends on the distance is the mean of scores of aligned "
            "vectors: ρ Σ 2 cos θ over the pairs, which falls off as fast pairs turn."
        ),
    )


def output_variance() -> Derivation:
    """The variance of an output is Σp², between 1/n_keys and 1."""
    v = vector("v")
    squares = Sum(p[i] ** 2, i)
    return Derivation(
        key="output-variance",
        title="the sum of squared weights is the variance that the output keeps of the values'",
        chains=(
            chain(
                Var(Sum(p[i] * v[i], i)),
                line("Bienaymé", Sum(Var(p[i] * v[i]), i), "uncorrelated(v)"),
                line("linearity", Sum(p[i] ** 2 * Var(v[i]), i)),
                line("moments", squares, "unit_variance(v)"),
                heading="The variance of an output component, given the weights",
            ),
            chain(
                1 / n_keys,
                line(
                    "compare terms",
                    squares,
                    relation="≤",
                    slack=Sum((p[i] - 1 / n_keys) ** 2, i),
                    note="With equality where all weights are 1/n_keys.",
                ),
                heading="At least 1/n_keys",
            ),
            chain(
                squares,
                line(
                    "compare terms",
                    1,
                    relation="≤",
                    slack=Sum((1 - delta(i, a)) * p[i] * p[a], i, a),
                    note="With equality where one weight is 1.",
                ),
                heading="At most 1",
            ),
        ),
        source="derived here",
        remark=(
            "vᵢ is one component of the i-th value. With values of a common mean the mean is kept whole. So attention "
            "that looks at everything alike divides the variance by the number of keys, and 1/Σp² counts the keys that "
            "it looks at."
        ),
    )
