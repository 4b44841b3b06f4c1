"""Random claims against an oracle of this file's own: laws of a few outcomes, with nothing of the checker's."""

import contextlib
import os
import random
from fractions import Fraction
from itertools import combinations, product
from math import prod

import pytest
import sympy

from attnsym.symbolic import (
    Cov,
    Dot,
    E,
    Sum,
    Truth,
    Var,
    closed_form,
    d_k,
    delta,
    i,
    j,
    k,
    k2,
    l,
    prove,
    q,
    r,
)

VECTORS = {"q": q, "k": k, "k2": k2}
NAMES = {vector: name for name, vector in VECTORS.items()}
FACTS = [
    *(f"{kind}({name})" for name in VECTORS for kind in ("zero_mean", "unit_variance", "uncorrelated", "constant")),
    *(f"{kind}({name})" for name in VECTORS for kind in ("independent_components", "identical", "mean_variance")),
    *(f"{kind}({one}, {two})" for one, two in combinations(VECTORS, 2) for kind in ("independent", "uncorrelated")),
    *(f"{kind}({one}, {two})" for one, two in combinations(VECTORS, 2) for kind in ("same", "aligned")),
    *(f"independent_pairs({one}, {two})" for one, two in combinations(VECTORS, 2)),
    "independent(q, k, k2)",
    "independent_of(q, k, k2)",
    "fourth_moment(q)",
    "second_moments(k)",
    "moment(q, 2, 1)",
    "moment(k, 4, 1)",
    "law(q, sign)",
]


class Outcomes:
    """A joint law of q, k and k2 with d components each, as a list of outcomes."""

    def __init__(self, rng):
        self.d = rng.choice([1, 2, 2])
        marginals = [
            [(1, Fraction(1, 2)), (-1, Fraction(1, 2))],
            [(0, Fraction(1, 2)), (2, Fraction(1, 2))],
            [(2, Fraction(1, 5)), (Fraction(-1, 2), Fraction(4, 5))],
            [(3, Fraction(1))],
        ]
        kinds = {name: (rng.randrange(5), rng.choice([1, 1, -1, 2])) for name in VECTORS}
        shared = rng.choice(marginals[:3])
        fresh = {name: rng.choice(marginals) if rng.random() < 0.4 else marginals[0] for name in VECTORS}
        lists = [shared, *(fresh[name] for name in VECTORS for _ in range(self.d) if kinds[name][0] in (0, 1, 3))]
        lists += [fresh["q"]] * self.d
        self.outcomes = []
        for drawn in product(*lists):
            weight = prod((probability for _, probability in drawn), start=Fraction(1))
            common, *values = (Fraction(value) for value, _ in drawn)
            like, own = values[len(values) - self.d :], iter(values)
            outcome = {}
            for name, (kind, sign) in kinds.items():
                mine = [next(own) for _ in range(self.d)] if kind in (0, 1, 3) else like
                outcome[name] = {
                    0: mine,
                    1: mine,
                    2: [sign * common] * self.d,
                    3: [common * value for value in mine],
                    4: [sign * value if sign != 2 else value + 1 for value in mine],
                }[kind]
            self.outcomes.append((weight, outcome))

    def mean(self, function):
        return sum((weight * function(outcome) for weight, outcome in self.outcomes), Fraction(0))

    def table(self, places):
        found = {}
        for weight, outcome in self.outcomes:
            key = tuple(outcome[name][n] for name, n in places)
            found[key] = found.get(key, 0) + weight
        return found

    def independent(self, groups):
        parts = [self.table(group) for group in groups]
        joint = self.table([place for group in groups for place in group])
        return all(
            joint.get(sum(keys, ()), 0)
            == prod((part[key] for part, key in zip(parts, keys, strict=True)), start=Fraction(1))
            for keys in product(*parts)
        )

    def holds(self, text):
        kind, inside = text[:-1].split("(")
        names = [name.strip() for name in inside.split(",")]
        components = [(name, n) for name in names if name in VECTORS for n in range(self.d)]

        def moment(*places):
            return self.mean(lambda o: prod((o[a][n] for a, n in places), start=Fraction(1)))

        def covariance(one, two):
            return moment(one, two) - moment(one) * moment(two)

        def alike(values):
            return len(set(values)) == 1

        if kind == "independent":
            return self.independent([[(name, n) for n in range(self.d)] for name in names])
        if kind == "independent_of":
            return self.independent([components[: self.d], components[self.d :]])
        if kind == "independent_components":
            return self.independent([[place] for place in components])
        if kind == "independent_pairs":
            return self.independent([[(name, n) for name in names] for n in range(self.d)])
        if kind == "uncorrelated":
            pairs = [pair for pair in combinations(components, 2) if len(names) == 1 or pair[0][0] != pair[1][0]]
            return all(covariance(*pair) == 0 for pair in pairs)
        if kind == "law":
            return all(self.table([place]) == {(1,): Fraction(1, 2), (-1,): Fraction(1, 2)} for place in components)
        if kind == "moment":
            return all(moment(*[place] * int(names[1])) == int(names[2]) for place in components)
        return {
            "zero_mean": lambda: all(moment(place) == 0 for place in components),
            "unit_variance": lambda: all(covariance(place, place) == 1 for place in components),
            "mean_variance": lambda: alike(map(moment, components)) and alike(covariance(p, p) for p in components),
            "identical": lambda: alike(frozenset(self.table([place]).items()) for place in components),
            "fourth_moment": lambda: alike(moment(*[place] * 4) for place in components),
            "constant": lambda: all(alike(o[names[0]]) for _, o in self.outcomes),
            "same": lambda: all(o[names[0]] == o[names[1]] for _, o in self.outcomes),
            "aligned": lambda: alike(covariance((names[0], n), (names[1], n)) for n in range(self.d)),
            "second_moments": lambda: True,
        }[kind]()

    def one_rho(self, facts):
        aligned = [text[8:-1].split(", ") for text in facts if text.startswith("aligned")]
        values = [
            self.mean(lambda o, a=a, b=b: o[a][0] * o[b][0])
            - self.mean(lambda o, a=a: o[a][0]) * self.mean(lambda o, b=b: o[b][0])
            for a, b in aligned
        ]
        return len(set(values)) < 2

    def value(self, node, scope, outcome=None):
        """The value of an expression, by the plainest of readings."""
        if node.is_Rational:
            return Fraction(int(node.p), int(node.q))
        if node == d_k:
            return Fraction(self.d)
        if isinstance(node, sympy.Indexed):
            return outcome[NAMES[node.base]][scope[node.indices[0]] - 1]
        if isinstance(node, sympy.KroneckerDelta):
            return Fraction(int(scope[node.args[0]] == scope[node.args[1]]))
        if isinstance(node, sympy.Add):
            return sum((self.value(part, scope, outcome) for part in node.args), Fraction(0))
        if isinstance(node, sympy.Mul):
            result = Fraction(1)
            for part in node.args:
                result *= self.value(part, scope, outcome)
            return result
        if isinstance(node, sympy.Pow):
            return self.value(node.args[0], scope, outcome) ** int(node.args[1])
        if isinstance(node, sympy.Sum):
            body, (index, _, _), *rest = node.args
            inner = sympy.Sum(body, *rest) if rest else body
            return sum((self.value(inner, {**scope, index: n}, outcome) for n in range(1, self.d + 1)), Fraction(0))
        if isinstance(node, E):
            return self.mean(lambda o: self.value(node.args[0], scope, o))
        if isinstance(node, (Var, Cov)):
            one, two = node.args[0], node.args[-1]
            means = [self.mean(lambda o, x=x: self.value(x, scope, o)) for x in (one, two)]
            return self.mean(lambda o: self.value(one, scope, o) * self.value(two, scope, o)) - means[0] * means[1]
        raise AssertionError(node)


class Claims:
    """Expressions in moments, and others that equal them always, or under the facts, or not at all."""

    def __init__(self, rng):
        self.rng = rng

    def monomial(self, indices):
        rng, result = self.rng, sympy.Integer(self.rng.choice([1, 1, 2, -1]))
        for _ in range(rng.randint(1, 3)):
            result *= rng.choice([q, k, q, k, k2])[rng.choice(indices)]
        return result * (rng.choice([delta(*indices[:2]), 1]) if len(indices) > 1 else 1)

    def expression(self):
        rng = self.rng
        one, two = Sum(self.monomial([i]), i), Sum(self.monomial([j]), j)
        return rng.choice(
            [
                lambda: E(one),
                lambda: Var(one),
                lambda: Cov(one, two),
                lambda: E(Sum(self.monomial([i, j]), i, j)),
                lambda: E(self.monomial([l])) * E(one) / d_k,
                lambda: E(one) ** 2 + d_k,
                lambda: E(self.monomial([l]) * self.monomial([r])),
            ]
        )()

    def same_always(self, node):
        """Definitions and linearity, which need no fact."""
        if isinstance(node, Var):
            return E(node.args[0] ** 2) - E(node.args[0]) ** 2
        if isinstance(node, Cov):
            return E(node.args[0] * node.args[1]) - E(node.args[0]) * E(node.args[1])
        if isinstance(node, E) and isinstance(node.args[0], sympy.Sum):
            return sympy.Sum(E(node.args[0].args[0]), *node.args[0].args[1:])
        return node

    def under_facts(self, node):
        """Products of expectations, which some facts allow."""
        if isinstance(node, E):
            factors = sympy.Mul.make_args(sympy.expand(node.args[0]))
            return sympy.Mul(*(E(factor) for factor in factors))
        return node

    def draw(self):
        lhs = self.expression()
        always = self.rng.random() < 0.4
        change = self.same_always if always else self.under_facts
        rhs = lhs.replace(lambda node: isinstance(node, (E, Var, Cov)), change)
        if not always:
            rhs = self.rng.choice([rhs, rhs, 0 * rhs, rhs + 1, self.expression()])
        return lhs, sympy.sympify(rhs), always


def check(seed, count):
    rng = random.Random(seed)
    claims, counts = Claims(rng), dict.fromkeys(Truth, 0)
    for _ in range(count):
        law = Outcomes(rng)
        true = [text for text in rng.sample(FACTS, 14) if law.holds(text)]
        facts = tuple(true[: rng.randint(0, 6)])
        if not law.one_rho(true):
            continue
        lhs, rhs, always = claims.draw()
        verdict = prove(lhs, rhs, facts)
        counts[verdict.truth] += 1
        free = sorted({index for side in (lhs, rhs) for index in side.free_symbols} & {l, r}, key=str)
        scopes = [dict(zip(free, at, strict=True)) for at in product(range(1, law.d + 1), repeat=len(free))]
        differ = any(law.value(lhs, scope) != law.value(rhs, scope) for scope in scopes)
        assert not (verdict.truth is Truth.TRUE and differ), (lhs, rhs, facts, law.outcomes)
        assert not (always and verdict.truth is not Truth.TRUE), (lhs, rhs, facts)
        stronger = prove(lhs, rhs, true)
        assert not (stronger.truth is Truth.TRUE and differ), (lhs, rhs, true, law.outcomes)
        if verdict.truth is Truth.TRUE:
            assert stronger.truth is Truth.TRUE, (lhs, rhs, facts, true)
        if stronger.truth is Truth.FALSE:
            assert verdict.truth is not Truth.TRUE
    return counts


def test_claims_agree_with_an_oracle():
    counts = check(seed=0, count=25)
    assert counts[Truth.TRUE] > 4
    assert counts[Truth.FALSE] > 4


# FUZZ_SEEDS=22 makes it five thousand claims, ten minutes of two cores.
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 1 + int(os.environ.get("FUZZ_SEEDS", "3"))))
def test_many_claims_agree_with_an_oracle(seed):
    counts = check(seed, count=230)
    assert counts[Truth.UNKNOWN] < 40


NORMAL = (
    "independent(q, k)",
    "independent_components(q)",
    "independent_components(k)",
    "zero_mean(q)",
    "zero_mean(k)",
    "unit_variance(q)",
    "unit_variance(k)",
    "gaussian(q)",
    "gaussian(k)",
)


def false_equalities(seed, count):
    """Expectations of random polynomials in normal vectors, and numbers that they are not."""
    rng = random.Random(seed)
    score = Dot(k, q)
    for _ in range(count):
        left = rng.choice(
            [
                score ** rng.randint(1, 6),
                score ** rng.randint(1, 3) * Sum(q[i] ** rng.randint(1, 3), i),
                (score + rng.randint(-2, 2)) ** rng.randint(2, 4),
                Sum(q[i] ** rng.randint(1, 4) * k[i] ** rng.randint(1, 4), i) ** rng.randint(1, 2),
                q[j] ** rng.randint(1, 8) * Dot(q, q),
                Dot(q, q) ** rng.randint(1, 3),
            ]
        )
        value = closed_form(E(left), NORMAL).value
        wrong = rng.choice(
            [
                value + rng.choice([1, -1, sympy.Rational(1, 10**9)]),
                value + d_k * rng.choice([1, -2]),
                value + (d_k - 1) * (d_k - 2) * (d_k - 3) * (d_k - 4),
                value * 2 + 1 / d_k,
                value + (d_k - 1) * rng.choice([1, 3]),
                value - d_k**2,
            ]
        )
        yield E(left), sympy.expand(wrong)


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 25), *(pytest.param(seed, 100, marks=pytest.mark.slow) for seed in range(1, 6))]
)
def test_false_equalities_of_normal_moments_are_refuted(seed, count):
    for lhs, rhs in false_equalities(seed, count):
        verdict = prove(lhs, rhs, NORMAL)
        assert verdict.truth is Truth.FALSE, (lhs, rhs, verdict.reason)


WORDS = ["E(", "Var(", "Cov(", "Sum(", "Dot(", "D(", "sqrt(", "log(", "exp(", "(", ")", ",", "+", "-", "*", "/", "**"]
WORDS += [
    "q[i]",
    "k[j]",
    "q",
    "k",
    "p[i]",
    "s[i]",
    "K[i,r]",
    "H",
    "d_k",
    "n_keys",
    "2",
    "0",
    "1/2",
    "i",
    "j",
    "rho",
    "c",
]
WORDS += ["beta[i]", "W[i,j]", "v[i]", "[", "]", "u", "w[i]", "mu_q", "Cumulant(", "moment(", "delta(", "1e3", "4"]


def shuffled(rng, count):
    """Nearly well-formed text: expressions put together from the vocabulary, with a slip now and then."""

    def build(depth):
        kind = rng.randrange(8) if depth else rng.randrange(2)
        if kind < 2:
            return rng.choice(WORDS[17:44])
        if kind < 5:
            return f"{build(depth - 1)}{rng.choice('+-*/')}{build(depth - 1)}"
        if kind == 5:
            return f"({build(depth - 1)})**{rng.choice(['2', '3', '1/2', '-1', 'd_k'])}"
        name = rng.choice(["E", "Var", "sqrt", "log", "exp", "Sum", "Dot", "D", "Cov", "WeightedMean", "Cumulant"])
        more = f",{build(0)}" if name in ("Sum", "Dot", "D", "Cov", "WeightedMean", "Cumulant") else ""
        return f"{name}({build(depth - 1)}{more})"

    for _ in range(count):
        text = build(rng.randint(1, 4)) if rng.random() < 0.8 else "".join(rng.choices(WORDS, k=rng.randint(1, 9)))
        yield text


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 150), *(pytest.param(seed, 1500, marks=pytest.mark.slow) for seed in range(1, 4))]
)
def test_no_text_ends_in_a_traceback(seed, count):
    rng, read = random.Random(seed), 0
    facts = ["zero_mean(q)", "independent(q, k)", "aligned(q, k)", "unit(w)", "same(q, k)", "given(p)", "identical(v)"]
    for text in shuffled(rng, count):
        with contextlib.suppress(ValueError):
            prove(text, rng.choice(["0", text, "d_k", "q[i]"]), rng.sample(facts, rng.randint(0, 3)))
            read += 1
    assert read > count // 30
