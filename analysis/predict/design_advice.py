"""What is off about the scores of a head at initialisation, and what mends it: a sentence each, with its source."""

from __future__ import annotations

import math
from typing import Any

from scipy import optimize

from analysis.predict.inverse import scale_for
from analysis.predict.to_six_digits import to_six_digits

# Entropy fractions beyond which a row says next to nothing of its scores, or looks at next to one key.
SPREAD, SHARP, WANTED = 0.98, 0.35, 0.9
# A scale to the digits that the sentence shows; and how often the search doubles the scale before it gives up.
PRECISION = 1e-6
DOUBLINGS = 5
NEAR_THE_CAP = 0.5  # there the slope of the cap is 3/4
# Of a score by its rounding, and so of its weight, relatively.
NOTABLE_ERROR = 0.01


def advice(
    variance: float,
    fraction: float,
    largest: float,
    error: float,
    n_keys: int,
    where: dict[str, Any],
    ratio: float,
    *,
    is_gaussian: bool,
    equal_gains: bool,
    rotary: bool,
) -> tuple[str, ...]:
    """
    Say what is off, and which scale would mend it.

    Parameters
    ----------
    variance, fraction, largest, error : float
        Of a score; entropy over log n_keys; the largest score, and its rounding in bfloat16.
    n_keys : int
    where : dict
        The keyword arguments of the expectations.
    ratio : float
        Of the scale of standard vectors, or of the temperature of cosines, to the scale that the head has.
    is_gaussian, equal_gains, rotary : bool
    """
    is_cosine = where.get("score") == "cosine"
    source = "cosine-variance" if is_cosine else "projected-score-variance"
    lines = [f"The scores have variance {variance:.4g} (derivation {source})."]
    how = "nearly uniform" if fraction > SPREAD else "nearly one-hot" if fraction < SHARP else None
    lines.append(
        f"Weights are {how or 'neither uniform nor one-hot'}: {fraction:.2%} of log n_keys (expected_entropy)."
    )
    if not 0.25 <= variance <= 4:
        unit = math.sqrt(where["d_k"]) if is_cosine else 1 / math.sqrt(where["d_k"])
        unique = "cosine-variance" if is_cosine else "scale-uniqueness"
        lines.append(f"A scale of {unit / ratio:.4g} gives variance 1 (derivation {unique}).")
    if how is not None:
        lines.append(_mending(n_keys, where, ratio))
    softcap = where.get("softcap")
    if softcap is not None and largest > NEAR_THE_CAP * softcap:
        lines.append(
            f"The soft-cap acts before training: the largest score is about {largest:.4g} of {softcap:g}, where its "
            "slope is lost to the gradient (largest score, expected_query_gradient_squared)."
        )
    if error > NOTABLE_ERROR:
        lines.append(
            f"The largest score is about {largest:.4g}; rounded to bfloat16 it is off by up to {error:.3g}, and the "
            "logarithm of its weight with it: keep scores in float32 (half a unit in the last of 8 binary digits)."
        )
    if rotary:
        lines.append(
            "Rotary positions change none of these numbers: q and k have no direction (derivation rotary-scores)."
        )
    if not is_gaussian:
        lines.append("Uniform projections are Gaussian up to errors of order 1/d_model.")
    if not equal_gains:
        lines.append("Unequal gains of the QK-norm: the variance is exact, the rest up to errors of order 1/d_k.")
    return tuple(lines)


def _mending(n_keys: int, where: dict[str, Any], ratio: float) -> str:
    """Name the scale that gives the wanted entropy fraction."""
    mechanism = {name: value for name, value in where.items() if name not in ("d_k", "scale") and value is not None}
    source = "scale_for" if not mechanism else "expected_entropy, solved for the scale"
    found, last = _scale(n_keys, where["d_k"], mechanism)
    if found is None:
        return f"No scale up to {last / ratio:.4g} gives {WANTED:.0%} of log n_keys ({source})."
    return f"A scale of {found / ratio:.4g} gives {WANTED:.0%} of log n_keys ({source})."


def _scale(n_keys: int, d_k: int, mechanism: dict[str, Any]) -> tuple[float | None, float]:
    """Return the scale, from the plain one outwards, and the last tried: `scale_for` walks over all, for seconds."""
    plain = float(scale_for("entropy_fraction", WANTED, n_keys, d_k=d_k))
    if not mechanism:
        return plain, plain

    def excess(log_scale: float) -> float:
        where = {"d_k": d_k, "scale": math.exp(log_scale), **mechanism}
        return to_six_digits("entropy", n_keys, where) / math.log(n_keys) - WANTED

    near = math.log(plain) + (math.log(d_k) if mechanism.get("score") == "cosine" else 0.0)
    side = 1.0 if excess(near) > 0 else -1.0  # more entropy than wanted: a larger scale
    for _ in range(DOUBLINGS):
        far = near + side * math.log(2)
        try:
            crossed = excess(far) * side <= 0
        except ValueError:  # too wide for an exact value
            break
        if crossed:
            return math.exp(float(optimize.brentq(excess, near, far, xtol=PRECISION))), math.exp(far)
        near = far
    return None, math.exp(near)
