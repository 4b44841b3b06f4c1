"""What an exact value says, in words: the lines that `attnsym predict` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.predict.of_quantity import exact_of, value_of
from analysis.vocabulary.quantities import find_quantity
from analysis.vocabulary.quantity import Quantity


@dataclass(frozen=True)
class Prediction:
    """One predicted value with where it holds, as `attnsym predict --json` prints it."""

    quantity: str
    formula: str
    value: float
    meaning: str
    n_keys: int | None
    d_k: int | None
    scale: str | None
    sigma: float | None
    method: str


def predictions(
    quantity: str,
    *,
    n_keys: list[int] | None = None,
    d_k: list[int] | None = None,
    scale: list[str] | None = None,
    sigma: list[float] | None = None,
    method: str = "quadrature",
) -> list[Prediction]:
    """
    Predict one quantity over a grid of settings.

    Parameters
    ----------
    quantity : str
        A name or alias of a quantity that has an exact value; of a root mean square for a norm.
    n_keys : list of int, optional
        Not needed for a single score, unless a scale depends on it.
    d_k, scale : list, optional
        Dimensions of Gaussian query and keys, and scales as `resolve_scale` reads them (1/√d_k without them).
    sigma : list of float, optional
        Instead of d_k and scale: standard deviations of iid Gaussian scores.
    method : {"quadrature", "direct"}, optional

    Returns
    -------
    list of Prediction
        In the order d_k (or sigma), n_keys, scale.

    Raises
    ------
    ValueError
        For an unknown quantity and whatever the expectations refuse.
    """
    record = find_quantity(quantity)
    exact_of(record)
    if sigma is not None and (d_k is not None or scale is not None):
        raise ValueError("give either --sigma or --d-k with --scale: got both")
    if scale is not None and not scale:
        raise ValueError("--scale is empty: name at least one, such as sqrt or unscaled")
    if sigma is None and d_k is None:
        raise ValueError("give --d-k (with --scale), or --sigma, the standard deviation of the scores: got neither")
    if sigma is not None and record.reads == "query_gradient":
        raise ValueError(f"{quantity} needs --d-k: the gradient with respect to q depends on the keys' length")
    if n_keys is None and record.reads != "score":
        raise ValueError(f"{quantity} needs --n-keys, the number of keys: got none")
    wheres: list[dict[str, Any]] = [{"sigma": x} for x in sigma or []]
    wheres += [{"d_k": d, "scale": s} for d in d_k or [] for s in scale or ["sqrt"]]
    lengths: Sequence[int | None] = [None] if n_keys is None else n_keys
    return [_predict(quantity, record, n, where, method) for where in wheres for n in lengths]


def _predict(name: str, record: Quantity, n_keys: int | None, where: dict[str, Any], method: str) -> Prediction:
    if n_keys is not None:
        record.check_keys(n_keys)
    value, known = float(value_of(record)(n_keys, **where, method=method)), exact_of(record)
    place = {"d_k": None, "scale": None, "sigma": None} | where
    return Prediction(name, known.formula, value, known.meaning(value, n_keys or 1), n_keys, method=method, **place)
