"""What an exact value says, in words: the lines that `attnsym predict` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.predict.of_quantity import exact_of, value_of
from analysis.predict.shares import check_arguments, find_predictable
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
    mechanism: dict[str, Any] = field(default_factory=dict)


def predictions(
    quantity: str,
    *,
    n_keys: list[int] | None = None,
    d_k: list[int] | None = None,
    scale: list[str] | None = None,
    sigma: list[float] | None = None,
    method: str = "quadrature",
    mechanism: Mapping[str, Any] | None = None,
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
    mechanism : mapping, optional
        Further keyword arguments of the expectation: a sink, a soft-cap, a normalizer, ...

    Returns
    -------
    list of Prediction
        In the order d_k (or sigma), n_keys, scale.

    Raises
    ------
    ValueError
        For an unknown quantity and whatever the expectations refuse.
    """
    record, further = find_predictable(quantity), dict(mechanism or {})
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
    default = "1" if further.get("score") == "cosine" else "sqrt"
    wheres += [{"d_k": d, "scale": s} for d in d_k or [] for s in scale or [default]]
    lengths: Sequence[int | None] = [None] if n_keys is None else n_keys
    check_arguments(record.name, further)
    if record.reads == "score" and further:
        raise ValueError(f"{quantity} is one score's, without {', '.join(sorted(further))}")
    return [_predict(quantity, record, n, where, method, further) for where in wheres for n in lengths]


def _predict(
    name: str, record: Quantity, n_keys: int | None, where: dict[str, Any], method: str, further: dict[str, Any]
) -> Prediction:
    if n_keys is not None:
        record.check_keys(n_keys)
    value, known = float(value_of(record)(n_keys, **where, method=method, **further)), exact_of(record)
    place = {"d_k": None, "scale": None, "sigma": None} | where
    words = known.meaning(value, n_keys or 1)
    return Prediction(name, known.formula, value, words, n_keys, method=method, mechanism=further, **place)
