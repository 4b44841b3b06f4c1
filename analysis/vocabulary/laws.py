"""The laws of the components of query and key: sampling, exact moments, and which moments exist at all."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from analysis.vocabulary.frozen_laws import FrozenMoments, frozen_name
from analysis.vocabulary.numbers import shown
from attnsym._names import find_name

Sampler = Callable[[np.random.Generator, tuple[int, ...], Any], NDArray[Any]]
LawLike = Any  # str | frozen scipy.stats distribution | Law

STANDARDISED = ("normal", "rademacher", "uniform", "laplace", "exponential", "logistic")
_T_PREFIX = "student_t"


@dataclass(frozen=True)
class Law:
    """
    The law of one real component X.

    Attributes
    ----------
    name : str
        What tables, stores and seeds call it: ``"normal"``, ``"student_t10"``, ``"gamma(2.0, scale=3.0)"``.
    mean, variance : float
        E X and Var X; infinite or NaN where they do not exist.
    is_symmetric : bool
        Whether X and −X are known to have one law.
    zero_probability : float
        P(X = 0).
    given : str or frozen scipy.stats distribution
        What the law was made from.
    """

    name: str
    mean: float
    variance: float
    _draw: Sampler = field(repr=False, compare=False)
    _raw: Callable[[int], float] = field(repr=False, compare=False)
    _central: Callable[[int], float] = field(repr=False, compare=False)
    is_symmetric: bool = field(default=False, repr=False)
    zero_probability: float = field(default=0.0, repr=False)
    given: Any = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process as what it was made from."""
        return resolve_law, (self.given,)

    @property
    def is_named(self) -> bool:
        """Whether it was given by its name, and so is standardised; a frozen distribution is as it was given."""
        return isinstance(self.given, str)

    def sample(self, rng: np.random.Generator, shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> Any:
        """Return independent draws of the given shape, as float64 or float32."""
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        return self._draw(rng, dims, np.dtype(dtype))

    def raw_moment(self, order: int) -> float:
        """Return E Xⁿ: exact (correctly rounded) for named laws, SciPy's for frozen ones, ±inf or NaN if infinite."""
        return self._raw(_check_order(order))

    def central_moment(self, order: int) -> float:
        """Return E (X − E X)ⁿ, with the same accuracy and the same conventions as `raw_moment`."""
        return self._central(_check_order(order))

    @property
    def is_standardised(self) -> bool:
        """Whether the mean is 0 and the variance 1, to rounding."""
        return abs(self.mean) < 1e-12 and abs(self.variance - 1.0) < 1e-12


def resolve_law(law: LawLike) -> Law:
    """
    Turn what a user passes as ``law`` for one side into a `Law`.

    Parameters
    ----------
    law : str, frozen scipy.stats distribution or Law
        ``"normal"``, ``"rademacher"``, ``"uniform"``, ``"laplace"``, ``"exponential"`` (centred, the skewed one),
        ``"logistic"`` and ``"student_tν"`` (ν > 2 degrees of freedom, ``"student_t10"``) are standardised to mean 0
        and variance 1. A frozen distribution (``scipy.stats.gamma(2)``) is used as it is given.

    Raises
    ------
    ValueError
        For an unknown name, Student's t with ν ≤ 2 (it has no variance to standardise), or another kind of object.
    """
    if isinstance(law, Law):
        return law
    if isinstance(law, str):
        return _named(law)
    if hasattr(law, "dist") and hasattr(law, "rvs") and hasattr(law, "args"):
        return _frozen(law)
    if is_unfrozen(law):
        raise ValueError(f"law must be a frozen distribution, with parentheses: got scipy.stats.{law.name}, unfrozen")
    raise ValueError(
        f"law must be a name ({', '.join(STANDARDISED)}, {_T_PREFIX}10, ...) or a frozen univariate scipy.stats "
        f"distribution such as scipy.stats.gamma(2): got {shown(law)}"
    )


def is_unfrozen(law: Any) -> bool:
    """Tell scipy.stats' distributions without parameters, which are callables too."""
    return hasattr(law, "rvs") and hasattr(law, "freeze") and hasattr(law, "name") and not hasattr(law, "dist")


def law_pair(law: Any) -> tuple[Law, Law]:
    """Resolve one law for both sides, or a pair (query, key)."""
    if isinstance(law, tuple | list):
        if len(law) != 2:
            raise ValueError(f"law must be one law or a pair for query and key: got {len(law)} laws")
        return resolve_law(law[0]), resolve_law(law[1])
    resolved = resolve_law(law)
    return resolved, resolved


def _check_order(order: int) -> int:
    if isinstance(order, bool) or not isinstance(order, int | np.integer) or order < 0:
        raise ValueError(f"the order of a moment must be a whole number of at least 0: got {order!r}")
    return int(order)


# Named laws: mean 0, variance 1, so that raw and central moments agree.


def _named(name: str) -> Law:
    if name.startswith(_T_PREFIX):
        return _student_t(name)
    name = find_name("law", name, STANDARDISED, more=f" and {_T_PREFIX}10 (or another ν)")
    draw, moment = _DRAW[name], _MOMENT[name]
    return Law(name, 0.0, 1.0, draw, moment, moment, is_symmetric=name != "exponential", given=name)


def _student_t(name: str) -> Law:
    try:
        nu = float(name.removeprefix(_T_PREFIX))
    except ValueError:
        nu = math.nan
    if not 2.0 < nu < math.inf:
        raise ValueError(f"law {name!r} needs degrees of freedom above 2, as in {_T_PREFIX}10")
    factor = math.sqrt((nu - 2.0) / nu)

    def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        return (factor * rng.standard_t(nu, shape)).astype(dtype, copy=False)

    def moment(order: int) -> float:
        if order % 2:
            return 0.0 if order < nu else math.nan
        if order >= nu:
            return math.inf
        exact = Fraction(nu)
        value = Fraction(1)
        for i in range(1, order // 2 + 1):
            value *= (exact - 2) * (2 * i - 1) / (exact - 2 * i)
        return float(value)

    return Law(f"{_T_PREFIX}{nu:g}", 0.0, 1.0, draw, moment, moment, is_symmetric=True, given=name)


def _draw_normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    return rng.standard_normal(shape, dtype=dtype)


def _draw_rademacher(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    signs = rng.integers(0, 2, shape, dtype=np.int8).astype(dtype)
    signs *= 2
    signs -= 1
    return signs


def _draw_uniform(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    unit: NDArray[Any] = rng.random(shape, dtype=dtype)
    unit -= 0.5
    unit *= math.sqrt(12.0)
    return unit


def _draw_laplace(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    return rng.laplace(0.0, math.sqrt(0.5), shape).astype(dtype, copy=False)


def _draw_exponential(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    draws: NDArray[Any] = rng.standard_exponential(shape, dtype=dtype)
    draws -= 1
    return draws


def _draw_logistic(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    return rng.logistic(0.0, math.sqrt(3.0) / math.pi, shape).astype(dtype, copy=False)


def _even(value: Callable[[int], float]) -> Callable[[int], float]:
    """Moments of a symmetric law from a function of n = order / 2."""
    return lambda order: 0.0 if order % 2 else value(order // 2)


def _subfactorial(order: int) -> float:
    """E (X − 1)ⁿ for X ~ Exp(1): the number of derangements."""
    value = 1
    for i in range(1, order + 1):
        value = i * value + (-1) ** i
    return float(value)


def _logistic_moment(half: int) -> float:
    from scipy.special import bernoulli

    # E X²ⁿ = (2²ⁿ − 2) π²ⁿ |B₂ₙ| at scale 1; at variance 1 the factor π²ⁿ becomes 3ⁿ.
    return 1.0 if half == 0 else (4.0**half - 2.0) * 3.0**half * abs(float(bernoulli(2 * half)[-1]))


_DRAW: dict[str, Sampler] = {
    "normal": _draw_normal,
    "rademacher": _draw_rademacher,
    "uniform": _draw_uniform,
    "laplace": _draw_laplace,
    "exponential": _draw_exponential,
    "logistic": _draw_logistic,
}
_MOMENT: dict[str, Callable[[int], float]] = {
    "normal": _even(lambda n: float(math.factorial(2 * n) // (2**n * math.factorial(n)))),
    "rademacher": _even(lambda n: 1.0),
    "uniform": _even(lambda n: float(Fraction(3**n, 2 * n + 1))),
    "laplace": _even(lambda n: float(Fraction(math.factorial(2 * n), 2**n))),
    "exponential": _subfactorial,
    "logistic": _even(_logistic_moment),
}


# Frozen scipy.stats distributions, as given.


def _frozen(frozen: Any) -> Law:
    arguments = [*frozen.args, *frozen.kwds.values()]
    if any(np.iscomplexobj(value) for value in arguments):
        raise ValueError(f"law {frozen_name(frozen)} has parameters that are not real")
    if any(np.ndim(value) for value in arguments) or np.shape(frozen.mean()):
        raise ValueError("a law must be one distribution of one number: got a frozen distribution of several")
    if math.isnan(float(frozen.cdf(0.0))):
        raise ValueError(f"law {frozen_name(frozen)} has parameters outside the domain of {frozen.dist.name}")
    raw, central = FrozenMoments(frozen, shifted=False), FrozenMoments(frozen, shifted=True)

    def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        return np.asarray(frozen.rvs(size=shape, random_state=rng)).astype(dtype, copy=False)

    name, mean = frozen_name(frozen), raw(1)
    # SciPy's own norm alone: a user's class of that name carries a fingerprint behind its arguments.
    symmetric = name.startswith("norm(") and name.endswith(")") and mean == 0
    at_zero = float(frozen.pmf(0)) if hasattr(frozen, "pmf") else 0.0
    return Law(name, mean, central(2), draw, raw, central, symmetric, at_zero, frozen)
