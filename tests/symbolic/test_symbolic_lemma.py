"""The parts of the kernel by hand: how many sizes decide, labels, polynomials, and who is apart from whom."""

from fractions import Fraction

import pytest

from attnsym.symbolic.trusted.facts import Facts
from attnsym.symbolic.trusted.labels import entangled, matchings, rename, signature
from attnsym.symbolic.trusted.lemma import degrees, inverse_power, points, sorts
from attnsym.symbolic.trusted.moments import MOMENT
from attnsym.symbolic.trusted.polynomial import (
    Budget,
    NotCovered,
    TooLarge,
    inverted,
    multiply,
    raised,
    reduced,
    vanishes,
)
from attnsym.symbolic.trusted.terms import (
    ONE,
    Add,
    Component,
    Mean,
    Mul,
    Number,
    Parameter,
    Power,
    Size,
    Sum,
    denominator_power,
    quarter_root,
    weight,
)

NOTHING = Facts()
ISOTROPIC = Facts(["isotropic(u)"])
SMALL_W = Facts(["moment(W, 2, 1/d_model)"])
HYPOTHESIS = Facts(["induction_hypothesis(S)"])
Q, U, S = Component("q", (1,)), Component("u", (1,)), Component("S")
INVERSE_Z, EXP = Component("1/Z"), Component("exp s", (1,))


@pytest.mark.parametrize(
    ("term", "sort", "facts", "expected"),
    [
        (ONE, "d_k", NOTHING, (0, 0)),
        (Q, "d_k", NOTHING, (0, 0)),
        (Size("d_k"), "d_k", NOTHING, (1, 1)),
        (Size("d_k"), "n_keys", NOTHING, (0, 0)),
        (Size("d_k", 1), "d_k", NOTHING, (1, 0)),
        (Size("d_k", 3), "d_k", NOTHING, (2, 1)),
        (Size("d_k", -1), "d_k", NOTHING, (0, -1)),
        (Size("d_k", -4), "d_k", NOTHING, (-2, -2)),
        (Parameter("⁴√d_k", 3), "d_k", NOTHING, (1, 0)),
        (Parameter("⁴√d_k", 5), "d_k", NOTHING, (2, 1)),
        (Parameter("⁴√d_k", 4), "n_keys", NOTHING, (0, 0)),
        (Parameter("m_2(u)", 2), "d_k", ISOTROPIC, (0, -2)),
        (Parameter("m_2(u)", -1), "d_k", ISOTROPIC, (1, 0)),
        (Parameter("m_3(u)"), "d_k", ISOTROPIC, (0, -2)),
        (Parameter("σ_u", 2), "d_k", ISOTROPIC, (0, -1)),
        (Parameter("μ_u"), "d_k", ISOTROPIC, (0, -1)),
        (Parameter("ρ"), "d_k", Facts(["isotropic(u)", "aligned(u, w)"]), (0, -1)),
        (Parameter("ρ", 3), "d_k", Facts(["isotropic(u)", "aligned(u, w)"]), (0, -2)),
        (Parameter("ρ"), "d_k", Facts(["aligned(q, k)"]), (0, 0)),
        (Component("C_q", (1, 2)), "d_model", Facts(["moment(q, 2, 1/d_model)"]), (0, -1)),
        (Add((Size("d_k", 4), Size("d_k", -2))), "d_k", NOTHING, (2, -1)),
        (Add(()), "d_k", NOTHING, (0, 0)),
        (Mul((Size("d_k", 4), Size("d_k", -2))), "d_k", NOTHING, (1, 1)),
        (Power(Size("d_k", 3), 2), "d_k", NOTHING, (4, 2)),
        (Power(Size("d_k", 3), -2), "d_k", NOTHING, (-2, -4)),
        (Power(Size("d_k"), 0), "d_k", NOTHING, (0, 0)),
        (Sum(1, "d_k", Sum(2, "d_k", Q)), "d_k", NOTHING, (2, 0)),
        (Sum(1, "n_keys", Size("d_k")), "d_k", NOTHING, (1, 1)),
        (Mean(Power(U, 4)), "d_k", ISOTROPIC, (0, -2)),
        (Mean(Mul((U, U, U))), "d_k", ISOTROPIC, (0, -2)),
        (Mean(Add((U, Mul((U, U))))), "d_k", ISOTROPIC, (0, -1)),
        (Mean(Sum(1, "d_k", U)), "d_k", ISOTROPIC, (1, -1)),
        (Mean(Power(S, 2)), "d_k", HYPOTHESIS, (1, 0)),
        (Mean(Power(Component("W", (1, 2)), 4)), "d_model", SMALL_W, (0, -2)),
        (Mean(Power(Component("W", (1, 2)), 4)), "d_k", SMALL_W, (0, 0)),
    ],
)
def test_powers_of_a_size_are_bounded(term, sort, facts, expected):
    assert degrees(term, sort, facts) == expected


def test_the_sizes_that_decide():
    square = Sum(1, "d_k", Sum(2, "d_k", Q))
    assert points(square, "d_k", 0, NOTHING, {}) == 3
    assert points(square, "d_k", 2, NOTHING, {}) == 5
    assert points(Mul((square, Size("d_k", -2))), "d_k", 0, NOTHING, {}) == 3  # (2 − 1) − (0 − 1) + 1
    assert points(Size("d_k", -2), "d_k", 0, NOTHING, {}) == 1
    weights = Sum(1, "n_keys", Power(Mul((EXP, INVERSE_Z)), 2))
    assert points(weights, "n_keys", 0, NOTHING, {}) == 4  # one sum, and Z² to clear
    assert points(weights, "d_k", 0, NOTHING, {}) == 1
    below = {"1/[1]": Sum(1, "d_k", Mul((Size("d_k", 4), Q)))}
    assert points(Parameter("1/[1]", 2), "d_k", 0, NOTHING, below) == 7  # twice a degree of 3
    assert points(Q, "d_k", 0, NOTHING, below) == 1
    under = {"1/[1]": Add((Size("d_k", -4), ONE))}
    assert points(Parameter("1/[1]"), "d_k", 0, NOTHING, under) == 3
    partition = {"1/[1]": weights}
    assert points(Parameter("1/[1]"), "n_keys", 0, NOTHING, partition) == 4
    assert points(Parameter("1/[1]"), "d_k", 0, NOTHING, partition) == 1


def test_powers_of_the_partition_function():
    assert inverse_power(Q) == 0
    assert inverse_power(Mul((INVERSE_Z, Power(INVERSE_Z, 3)))) == 4
    assert inverse_power(Add((INVERSE_Z, Sum(1, "n_keys", Mul((INVERSE_Z, INVERSE_Z)))))) == 2
    assert inverse_power(Power(INVERSE_Z, -2)) == 2  # a bound


def test_the_sizes_on_which_a_term_may_depend():
    assert sorts(Q, NOTHING) == set()
    assert sorts(Size("d_k"), NOTHING) == {"d_k"}
    assert sorts(Add((Size("d_k"), Sum(1, "n_keys", Q))), NOTHING) == {"d_k", "n_keys"}
    assert sorts(Power(Mean(Mul((U, Q))), 2), ISOTROPIC) == {"d_k"}
    assert sorts(Parameter("⁴√n_keys"), NOTHING) == {"n_keys"}
    assert sorts(Parameter("m_2(u)"), ISOTROPIC) == {"d_k"}
    assert sorts(Parameter("m_2(q)"), ISOTROPIC) == set()
    assert sorts(Component("C_q", (1, 2)), Facts(["moment(q, 2, 1/d_model)"])) == {"d_model"}
    assert sorts(Number(Fraction(2)), ISOTROPIC) == set()


def test_terms_are_counted_and_searched():
    assert weight(ONE) == 1
    assert weight(Sum(1, "d_k", Add((Q, Mul((Q, U)), Power(Q, 2))))) == 8
    shared = Add((Q, Q))
    assert weight(Mul((shared, shared))) == 7
    inverse = Parameter("1/[1]", 2)
    assert denominator_power(Mul((inverse, Power(inverse, -3))), "1/[1]") == 8
    assert denominator_power(Add((inverse, Q)), "1/[1]") == 2
    assert denominator_power(Q, "1/[1]") == denominator_power(inverse, "1/[2]") == 0
    assert (quarter_root("⁴√d_k"), quarter_root("√d_k")) == ("d_k", "")


def test_rates_are_those_of_the_moments_given():
    rate = Facts(["moment(q, 4, 3/d_k)", "moment(q, 2, 1/2/d_model)"]).rates
    assert rate("q", "d_k") == (0, Fraction(1, 4))
    assert rate("q", "d_model") == (0, Fraction(1, 2))
    assert rate("k", "d_k") == (0, 0)
    assert ISOTROPIC.rates("u", "d_k") == (0, Fraction(1, 2))
    assert ISOTROPIC.rates("u", "n_keys") == (0, 0)
    assert HYPOTHESIS.rates("S", "d_k") == (Fraction(1, 2), 0)
    assert HYPOTHESIS.rates("S", "n_keys") == (0, 0)
    assert Facts(["exchangeable(p)"]).rates("exp s", "n_keys") == (0, 1)
    assert Facts(["exchangeable(p)"]).rates("exp s", "d_k") == Facts().rates("exp s", "n_keys") == (0, 0)
    assert Facts(["unit(w)", "identical(w)"]).rates("w", "d_k") == (0, Fraction(1, 2))
    assert Facts(["unit(w)"]).rates("w", "d_k") == (0, 0)


def test_what_is_held_fixed_must_be_apart_from_what_is_averaged():
    monomial = ((("k", (1,)), 1), (("q", (1,)), 2))
    inner, outer = Facts(["independent(q, k)"]).parted(monomial, frozenset({"q", "k"}), ("q",))
    assert (inner, outer) == (((("k", (1,)), 1),), ((("q", (1,)), 2),))
    for assumption in ("independent(q, k, k2)", "independent_of(k, q, k2)", "independent_of(q, k, k2)"):
        assert Facts([assumption]).parted(monomial, frozenset({"q", "k"}), ("q",)) == (inner, outer)
    for assumption in ("uncorrelated(q, k)", "independent(q, k2)", "independent_of(k2, q, k)"):
        with pytest.raises(NotCovered, match="independent of it"):
            Facts([assumption]).parted(monomial, frozenset({"q", "k"}), ("q",))
    assert Facts().parted(monomial, frozenset({"q"})) == (((("q", (1,)), 2),), ((("k", (1,)), 1),))


def test_a_vector_independent_of_itself_is_fixed():
    assert Facts(["same(q, k)", "independent(q, k)"]).fixed == {"q"}
    assert Facts(["same(q, k)", "independent_of(q, k, k2)"]).fixed == {"q"}
    assert Facts(["same(q, k)", "independent_of(k2, q, k)"]).fixed == set()
    assert Facts(["independent(q, k)", "independent_of(q, k, k2)"]).fixed == set()


def test_powers_by_the_multinomial_theorem():
    x, y, z = (((name, ()), 1) for name in "xyz")
    base = {(x,): Fraction(1), (y,): Fraction(2), (z,): Fraction(-1, 3)}
    product = base
    for power in range(2, 5):
        product = multiply(product, base, Budget())
        assert raised(base, power, Budget()) == product
    assert raised(base, 1, Budget()) == base
    assert raised(base, 0, Budget()) == raised({}, 0, Budget()) == {(): 1}
    assert raised({}, 3, Budget()) == {}
    cut = raised(base, 3, Budget(), {"x": 2})
    assert cut == {own: value for own, value in raised(base, 3, Budget()).items() if dict(own).get(("x", ()), 0) < 2}
    assert vanishes(((("x", ()), 2),), {"x": 2})
    assert not vanishes(((("x", ()), 1),), {"x": 2})
    with pytest.raises(TooLarge):
        raised(base, 12, Budget(50))


def test_roots_are_reduced_and_terms_inverted():
    def of(name, power):
        return ((name, ()), power)

    assert reduced({(of("√3", 5), of("x", 1)): Fraction(1, 2)}) == {(of("x", 1), of("√3", 1)): Fraction(9, 2)}
    assert reduced({(of("√3", 4),): Fraction(1)}) == {(): Fraction(9)}
    assert reduced({(of("√3", -1),): Fraction(1)}) == {(of("√3", 1),): Fraction(1, 3)}
    assert reduced({(of("⁴√d_k", 5),): Fraction(1)}) == {(of("⁴√d_k", 1), of("√d_k", 2)): Fraction(1)}
    assert reduced({(of("⁴√d_k", 1),): Fraction(1)}) == {(of("⁴√d_k", 1),): Fraction(1)}
    assert inverted({(of("x", 2), of("y", -1)): 4}) == {(of("x", -2), of("y", 1)): Fraction(1, 4)}
    assert inverted({(of("x", 1),): 1, (): 1}) is None
    with pytest.raises(ZeroDivisionError):
        inverted({})


def test_labels_are_renamed_matched_and_told_apart():
    q, c = ("q", (1,)), ("C_q", (1, 2))
    moment = (MOMENT, ((("k", (1,)), 2), (("k", (3,)), 1)))
    assert entangled(((q, 2),)) == set()
    assert entangled(((q, 2), (c, 1))) == {1, 2}
    assert entangled(((moment, 1),)) == {1, 3}
    assert entangled((((MOMENT, ((("k", (1,)), 2),)), 1),)) == set()
    assert rename(((q, 2),), {}) == ((q, 2),)
    assert rename(((q, 2), (("q", (2,)), 1)), {2: 1}) == ((q, 3),)
    assert rename(((c, 1),), {1: 3}) == ((("C_q", (2, 3)), 1),)
    assert rename(((("K", (1, 2)), 1),), {1: 3}) == ((("K", (3, 2)), 1),)
    assert rename(((moment, 1),), {1: 5}) == (((MOMENT, ((("k", (3,)), 1), (("k", (5,)), 2))), 1),)
    assert list(matchings({1: "d_k", 2: "n_keys"}, {7: "n_keys"})) == [{}, {7: 2}]
    assert len(list(matchings({1: "d_k", 2: "d_k"}, {7: "d_k", 8: "d_k"}))) == 7
    one = ((q, 2), (c, 1))
    assert signature(one, 1) == signature(rename(one, {1: 4}), 4)
    assert signature(one, 1) != signature(one, 2)
    assert signature(one, 3) == ()
    assert signature(((("K", (1, 2)), 1),), 1) != signature(((("K", (2, 1)), 1),), 1)
    assert signature(((("C_q", (1, 2)), 1),), 1) == signature(((("C_q", (2, 1)), 1),), 1)
    assert signature(((("K", (1, -1)), 1),), 1) != signature(((("K", (1, -2)), 1),), 1)
    assert signature(((moment, 1),), 1) != signature(((moment, 1),), 3)
    assert signature(((moment, 1),), 2) == ()
