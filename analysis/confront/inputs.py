"""The joint law of the vectors that a cell draws, as far as assumptions and derivations speak of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from analysis.confront.cell import Cell
from analysis.vocabulary.laws import Law, resolve_law

_ROUNDING = 1e-12  # of a mean or variance that a law states in float64
_NORMAL_MOMENTS = {3: 0.0, 4: 3.0, 5: 0.0, 6: 15.0, 8: 105.0}

# Directions and single components are told by the vector that they belong to.
_VECTOR = {"q": "q", "u": "q", "k": "k", "w": "k", "k2": "k"}


@dataclass(frozen=True)
class Components:
    """
    One vector: mean + std·L x with independent components x of one law, L Lᵀ having the entries correlation^|i − j|.

    Attributes
    ----------
    law : Law
        Of a component of x.
    mean, std, correlation : float
    """

    law: Law
    mean: float = 0.0
    std: float = 1.0
    correlation: float = 0.0

    @property
    def is_standard(self) -> bool:
        """Whether every component has mean 0 and variance 1."""
        return self.has_zero_mean and abs(self.std**2 * self.law.variance - 1.0) < _ROUNDING

    @property
    def has_zero_mean(self) -> bool:
        """Whether every component has mean 0."""
        return abs(self.mean + self.std * self.law.mean) < _ROUNDING

    @property
    def is_normal(self) -> bool:
        """Whether every component is normal: by the name of the law and by its moments."""
        moments = all(abs(self.law.central_moment(n) - value) < 1e-9 for n, value in _NORMAL_MOMENTS.items())
        return self.law.name.startswith("norm") and moments

    @property
    def is_independent(self) -> bool:
        """Whether the components are independent of one another."""
        return self.correlation == 0.0

    @property
    def is_isotropic(self) -> bool:
        """Whether the direction has E[uᵢ] = 0 and E[uᵢuⱼ] = δᵢⱼ/d_k: signs and places may be exchanged."""
        return self.is_independent and self.mean == 0.0 and self.law.is_symmetric and self.law.zero_probability == 0.0


@dataclass(frozen=True)
class Inputs:
    """
    What a cell draws: a query, a key with k = ρ q + √(1 − ρ²) e, further keys alike, with a common part or none.

    Attributes
    ----------
    query, key : Components
        Of the query and of a key (of e, where the alignment is not 0).
    alignment : float
        ρ: 0 for independent query and keys, 1 for k = q.
    key_correlation : float
        The correlation of two keys, component by component.
    """

    query: Components
    key: Components
    alignment: float = 0.0
    key_correlation: float = 0.0

    @classmethod
    def of(cls, cell: Cell) -> Inputs:
        """Read the cell's settings: ``law``, ``mean_q``, ``std_q``, ``correlation_q`` (and k), ``alignment``, ..."""
        law = resolve_law(cell.get("law", "normal"))
        query, key = (
            Components(
                law,
                float(cell.get(f"mean_{name}", 0.0)),
                float(cell.get(f"std_{name}", 1.0)),
                float(cell.get(f"correlation_{name}", 0.0)),
            )
            for name in ("q", "k")
        )
        return cls(query, key, float(cell.get("alignment", 0.0)), float(cell.get("key_correlation", 0.0)))

    def components(self, name: str) -> Components:
        """Return the law of the vector called `name`: q, k or k2, or their directions u and w."""
        return self.query if _VECTOR[name] == "q" else self.key

    def satisfy(self, kind: str, names: tuple[str, ...]) -> bool:
        """Whether the assumption holds; False also where this law cannot tell."""
        if kind in ("modulo", "given", "exchangeable"):
            return True  # a truncation, a conditioning; and the keys of a row are drawn alike
        if kind in ("moment", "law"):
            return self._has_law(kind, names)
        if not all(name in _VECTOR for name in names):
            return False  # the difference of two scores, say: normal only for a query of fixed length
        vectors = [self.components(name) for name in names]
        first = vectors[0]
        match kind:
            case "independent" | "independent_of":
                return self._independent(names, among_keys=kind == "independent")
            case "independent_components":
                return first.is_independent
            case "independent_pairs":
                return all(vector.is_independent for vector in vectors)
            case "uncorrelated":
                return first.is_independent if len(names) == 1 else self._independent(names, among_keys=True)
            case "zero_mean":
                return first.has_zero_mean
            case "unit_variance":
                return abs(first.std**2 * first.law.variance - 1.0) < _ROUNDING
            case "mean_variance":
                return math.isfinite(first.law.variance)
            case "second_moments":
                return self._unmixed(names[0]) and math.isfinite(first.law.variance)
            case "identical" | "fourth_moment":
                finite = math.isfinite(first.law.central_moment(4))
                return finite and (first.is_normal or (first.is_independent and self._unmixed(names[0])))
            case "gaussian" | "gaussian_pairs":
                return all(vector.is_normal for vector in vectors) and self._jointly_normal()
            case "aligned":
                return self._covariance(names) is not None
            case "same":
                return self.alignment == 1.0 and set(names) == {"q", "k"} and self.query == self.key
            case "unit":
                return set(names) <= {"u", "w"}
            case "isotropic":
                return first.is_isotropic and self._unmixed(names[0])
        return False

    def parameters(self, names: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
        """Return the values of ρ, means, standard deviations and moments; `names` says whose covariance ρ is."""
        values: dict[str, float] = {}
        for vector, components in (("q", self.query), ("k", self.key)):
            law = components.law
            values[f"mu_{vector}"] = components.mean + components.std * law.mean
            values[f"sigma_{vector}"] = components.std * math.sqrt(law.variance)
            values[f"m_4({vector})"] = _raw_fourth(components)
        values["m_4(k2)"] = values["m_4(k)"]
        covariance = self._covariance(names["aligned"]) if "aligned" in names else None
        return values if covariance is None else {**values, "rho": covariance}

    def _has_law(self, kind: str, said: tuple[str, ...]) -> bool:
        """Whether one vector has the moment or the law that is named after it."""
        name, *rest = said
        if name not in _VECTOR or not self._unmixed(name):
            return False
        own = self.components(name)
        if kind == "law":
            return (
                own.is_standard and own.is_independent and own.law.name == {"sign": "rademacher"}.get(rest[0], rest[0])
            )
        if not own.is_independent or not rest[1].replace("/", "").lstrip("-").isdigit():
            return False  # a moment in units of a size that is no setting of a cell
        power, value = int(rest[0]), float(Fraction(rest[1]))
        mean = own.mean + own.std * own.law.mean
        central = [
            math.comb(power, m) * mean ** (power - m) * own.std**m * own.law.central_moment(m) for m in range(power + 1)
        ]
        return abs(sum(central) - value) <= 1e-9 * max(1.0, abs(value))

    def _independent(self, names: tuple[str, ...], *, among_keys: bool) -> bool:
        keys = [name for name in names if _VECTOR[name] == "k"]
        if len(keys) < len(names) and keys and self.alignment != 0.0:
            return False
        return not (among_keys and len(keys) > 1) or (self.key_correlation == 0.0 and self.alignment == 0.0)

    def _unmixed(self, name: str) -> bool:
        """Whether the vector is drawn from its own law alone, with nothing of another added to it."""
        return name in ("q", "u") or (self.alignment in (0.0, 1.0) and self.key_correlation == 0.0)

    def _jointly_normal(self) -> bool:
        return self.alignment in (0.0, 1.0) or self.query.is_normal

    def _covariance(self, names: tuple[str, ...]) -> float | None:
        if not all(self.components(name).is_standard for name in names):
            return None
        if {_VECTOR[name] for name in names} == {"q", "k"}:
            return self.alignment
        return self.key_correlation if self.alignment == 0.0 else None


def _raw_fourth(components: Components) -> float:
    """Return E X⁴ of one component; of a correlated one only if it is normal, which `Inputs.satisfy` asks."""
    law, mean = components.law, components.mean + components.std * components.law.mean
    second, third, fourth = (components.std**n * law.central_moment(n) for n in (2, 3, 4))
    return fourth + 4 * mean * third + 6 * mean**2 * second + mean**4
