"""The two routes to an exact expectation, by the name of a quantity, for scores of given deviation or for vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from analysis.predict import arguments as exact_arguments
from analysis.predict.average import gaussian_attention, gaussian_attention_max_weight
from analysis.predict.maximum import gaussian_max_weight
from analysis.predict.mechanism.evaluate import evaluate
from analysis.predict.mechanism.setting import Mechanism, read_mechanism
from analysis.predict.quadrature import Expectations, equal_scores, gaussian_softmax
from analysis.predict.ranges import kept
from analysis.predict.second_route import direct, direct_average
from attnsym._threads import one_blas_thread

Method = Literal["quadrature", "direct"]
Values = float | NDArray[np.float64]
PLAIN = {*Expectations._fields, "max_weight", "query_gradient"}


@np.errstate(all="ignore")  # what under- or overflows on the way to a value is meant to
def expectation(
    name: str,
    n_keys: Any,
    sigma: Any,
    d_k: Any,
    scale: Any,
    method: str,
    mechanism: Mapping[str, Any] | None = None,
    *,
    key: Any = None,
) -> Values:
    """
    Check the arguments and evaluate one expectation, whatever NumPy's error state of the caller is.

    Parameters
    ----------
    name : str
        An attribute of `Expectations`, "max_weight", "query_gradient" or "key_weight".
    n_keys, sigma, d_k, scale, method, mechanism
        As the public functions of `analysis.predict.exact` take them.
    key : ndarray of int, optional
        For "key_weight"; -1 is the sink.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ValueError
        One sentence naming the argument.
    """
    if method not in ROUTES:
        raise ValueError(f"method must be one of {', '.join(ROUTES)}: got {method!r}")
    with one_blas_thread():  # the products are small: a second thread would only wait
        return _expectation(name, n_keys, (sigma, d_k, scale), method, read_mechanism(**(mechanism or {})), key)


def _expectation(
    name: str, n_keys: Any, scores: tuple[Any, Any, Any], method: str, setting: Mechanism, key: Any
) -> Values:
    sigma, d_k, scale = scores
    if not setting.is_plain or name not in PLAIN:
        values = evaluate(name, n_keys, sigma, d_k, scale, setting, key=key, method=method)
        return kept(name, values, n_keys, has_sink=bool(np.any(setting.sink > -np.inf)))
    by_sigma, by_dimension = ROUTES[method]
    values = exact_arguments.evaluate(
        n_keys,
        sigma,
        d_k,
        scale,
        lambda sigma, n: by_sigma(name, sigma, n) if sigma > 0 else _equal(name, n),
        lambda d_k, scale, n: by_dimension(name, d_k, scale, n) if scale > 0 else _equal(name, n),
    )
    return kept(name, values, n_keys)


def _equal(name: str, n_keys: tuple[int, ...]) -> NDArray[np.float64]:
    """Give the limit σ = 0, where every weight is 1/n and the gradient of q is 0 because the scale is."""
    n = np.array(n_keys, dtype=np.float64)
    if name == "query_gradient":
        return np.zeros_like(n)
    return 1 / n if name == "max_weight" else _named(equal_scores(n), name)


def _named(expectations: Expectations, name: str) -> NDArray[np.float64]:
    result: NDArray[np.float64] = getattr(expectations, name)
    return result


def _quadrature_by_sigma(name: str, sigma: float, n_keys: tuple[int, ...]) -> Any:
    if name == "max_weight":
        return [gaussian_max_weight(sigma, float(n)) for n in n_keys]
    return _named(gaussian_softmax(sigma, np.array(n_keys, dtype=np.float64)), name)


def _quadrature_by_dimension(name: str, d_k: int, scale: float, n_keys: tuple[int, ...]) -> Any:
    if name == "max_weight":
        return [gaussian_attention_max_weight(d_k, scale, n) for n in n_keys]
    expectations = gaussian_attention(d_k, scale, n_keys)
    if name == "query_gradient":
        perpendicular = (d_k - 1) * expectations.jacobian_frobenius_squared
        return scale**2 * (perpendicular + expectations.jacobian_radial_squared)
    return _named(expectations, name)


def _direct_by_sigma(name: str, sigma: float, n_keys: tuple[int, ...]) -> Any:
    return [direct(name, sigma, n) for n in n_keys]


def _direct_by_dimension(name: str, d_k: int, scale: float, n_keys: tuple[int, ...]) -> Any:
    return [direct_average(name, d_k, scale, n) for n in n_keys]


ROUTES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "quadrature": (_quadrature_by_sigma, _quadrature_by_dimension),
    "direct": (_direct_by_sigma, _direct_by_dimension),
}
