"""The laws by which projections of query and key are initialised, as deviations of their entries."""

from __future__ import annotations

import math
from dataclasses import dataclass

from analysis.vocabulary.numbers import positive, shown

NAMED_INITS = ("xavier", "xavier-head", "linear", "t5", "mup")


@dataclass(frozen=True)
class Initialisation:
    """
    What of an initialisation reaches the scores.

    Attributes
    ----------
    query, key : float
        Standard deviations of the entries of w_query and w_key, (d_model, d_k).
    scale : str
        The scale that belongs to it, as `resolve_scale` reads it.
    is_gaussian : bool
        Whether entries are normal, so that q and k of a token are exactly Gaussian.
    """

    query: float
    key: float
    scale: str = "sqrt"
    is_gaussian: bool = True


def read_initialisation(init: str, d_model: int, d_k: int) -> Initialisation:
    """
    Return the initialisation of that name.

    Parameters
    ----------
    init : str
        "normal:STD"; "uniform:BOUND", of variance BOUND²/3; "xavier", query, key and value packed in one matrix of
        d_model columns and 3·d_model rows, variance 2/(4·d_model); "xavier-head", a matrix a head, 2/(d_model + d_k);
        "linear", uniform within 1/√d_model; "t5", normal of variance 1/(d_model·d_k) for the query and 1/d_model for
        the key, without scale; "mup", normal of variance 1/d_model, with 1/d_k as scale.
    d_model, d_k : int

    Returns
    -------
    Initialisation

    Raises
    ------
    ValueError
        For another name, or a size that is not above 0.

    References
    ----------
    Glorot and Bengio (2010), Understanding the Difficulty of Training Deep Feedforward Neural Networks, for Xavier.
    Raffel et al. (2020), Exploring the Limits of Transfer Learning, for T5. Yang et al. (2022), Tensor Programs V, for
    muP.
    """
    kind, colon, size = init.partition(":") if isinstance(init, str) else ("", "", "")
    if kind in ("normal", "uniform") and colon:
        try:
            value = positive("init", float(size))
        except ValueError:
            raise ValueError(f"init {kind} needs a number above 0 after the colon: got {shown(init)}") from None
        deviation = value if kind == "normal" else value / math.sqrt(3)
        return Initialisation(deviation, deviation, is_gaussian=kind == "normal")
    known = {
        "xavier": (math.sqrt(2 / (4 * d_model)), 1.0, "sqrt", False),
        "xavier-head": (math.sqrt(2 / (d_model + d_k)), 1.0, "sqrt", False),
        "linear": (1 / math.sqrt(3 * d_model), 1.0, "sqrt", False),
        "t5": (1 / math.sqrt(d_model), 1 / math.sqrt(d_k), "unscaled", True),
        "mup": (1 / math.sqrt(d_model), 1.0, "1/d_k", True),
    }
    if not isinstance(init, str) or init not in known:
        names = ", ".join(NAMED_INITS)
        raise ValueError(f"init must be normal:STD, uniform:BOUND or one of {names}: got {shown(init)}")
    deviation, smaller, scale, is_gaussian = known[init]
    return Initialisation(deviation * smaller, deviation, scale, is_gaussian)
