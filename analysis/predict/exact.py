"""
What softmax attention must give on average: exact expectations over iid Gaussian scores, or Gaussian query and keys.

Every function takes ``n_keys`` and either ``sigma``, the standard deviation of iid N(0, σ²) scores, or ``d_k`` with a
``scale``, for scores scale·kᵀq of q, k ~ N(0, I) that share the query. Arguments broadcast as in SciPy. Keyword
arguments add a sink, biases, a soft-cap, cosines, a needle, keys of different lengths or a causal mask.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from analysis.predict.mechanism.setting import MechanismArguments, OtherArguments
from analysis.predict.routes import Method, Values, expectation
from analysis.predict.typed import of_key, of_order, of_row, of_sink, of_vectors
from analysis.vocabulary.scale import ScaleLike


@of_row
def expected_logsumexp(
    n_keys: ArrayLike,
    *,
    sigma: ArrayLike | None = None,
    d_k: ArrayLike | None = None,
    scale: ScaleLike | ArrayLike = None,
    method: Method = "quadrature",
    **mechanism: Unpack[MechanismArguments],
) -> Values:
    """
    Return E log Σ exp z, the mean log-partition function of a row of scores.

    Parameters
    ----------
    n_keys : int or array_like of int
        Number of scores in the row, at least 1.
    sigma : float or array_like, optional
        Standard deviation of iid Gaussian scores of mean 0, >= 0. Give either this or `d_k`.
    d_k : int or array_like of int, optional
        Dimension of independent q, k ~ N(0, I), at least 1; the scores are scale·kᵀq.
    scale : {"sqrt", "unscaled"}, number, array_like, expression or callable, optional
        None and "sqrt" are 1/√d_k, "unscaled" is 1.
    method : {"quadrature", "direct"}, optional
        "direct" is an independent and slower second route: other formulas on other nodes. It agrees to some 1e-13, less
        where it cancels (σ above 20).
    **mechanism
        sink, bias, softcap, score, needle, key_spread, is_causal, window: see `MechanismArguments`. With any of them
        the keys are still independent, and the general integral of `analysis.predict.mechanism` takes over.

    Returns
    -------
    float or ndarray
        A float for scalar arguments. At σ = 0 it is log n; at n_keys = 1 it is 0, the mean of the only score.

    Raises
    ------
    ValueError
        For n_keys or d_k not a whole number >= 1, sigma negative or not finite, both or neither of sigma and d_k, a
        mechanism out of its range, or scores beside one so wide that no quick exact value exists.

    Notes
    -----
    E log Σ exp z = E H + σ² E tr J, since log Σ exp z = H + Σ p z and E Σ p z = σ² E tr J (Gaussian integration by
    parts). Relative error about 1e-15, measured against 80-digit values for σ in 1e-3..200 and n_keys up to 10⁶.
    Assumes Gaussian scores, nothing about sizes: this is not an asymptotic.

    Source: the Laplace transform of a sum of lognormals; Gumbel's log Σ exp z + G ~ max (z + G).
    """
    return expectation("logsumexp", n_keys, sigma, d_k, scale, method, mechanism)


@of_row
def expected_entropy(
    n_keys: ArrayLike,
    *,
    sigma: ArrayLike | None = None,
    d_k: ArrayLike | None = None,
    scale: ScaleLike | ArrayLike = None,
    method: Method = "quadrature",
    **mechanism: Unpack[MechanismArguments],
) -> Values:
    """
    Return E[-Σ p log p] in nats, the mean entropy of the attention weights p = softmax(z).

    Parameters
    ----------
    n_keys, sigma, d_k, scale, method, **mechanism
        As for `expected_logsumexp`.

    Returns
    -------
    float or ndarray
        In [0, log n_keys]; log n_keys at σ = 0, 0 at n_keys = 1.

    Raises
    ------
    ValueError
        As `expected_logsumexp`.

    Notes
    -----
    E H = n(n-1) ∫ K A₁ φⁿ⁻² du, with φ(u) = E e⁻ʷ, A₁ = E[w e⁻ʷ], K = E[E₁(w) + e⁻ʷ(log w + γ)], w = exp(u + σZ):
    all terms positive. It follows from -dP_a/da at a = 1, P_a = E Σ pᵃ = n/Γ(a) ∫ E[wᵃ e⁻ʷ] φⁿ⁻¹ du, by one integration
    by parts. Relative error about 1e-15. Assumes Gaussian scores.

    Source: Frullani-type representations of Σ pᵃ; derivation above.
    """
    return expectation("entropy", n_keys, sigma, d_k, scale, method, mechanism)


@of_order
def expected_power_sum(
    order: int,
    n_keys: ArrayLike,
    *,
    sigma: ArrayLike | None = None,
    d_k: ArrayLike | None = None,
    scale: ScaleLike | ArrayLike = None,
    method: Method = "quadrature",
    **mechanism: Unpack[MechanismArguments],
) -> Values:
    """
    Return E Σ p^order of the attention weights; order 2 is the inverse participation ratio.

    Parameters
    ----------
    order : {2, 3}
    n_keys, sigma, d_k, scale, method, **mechanism
        As for `expected_logsumexp`.

    Returns
    -------
    float or ndarray
        In [n_keys^(1 - order), 1]; the lower end at σ = 0, 1 at n_keys = 1.

    Raises
    ------
    ValueError
        For another order, and as `expected_logsumexp`.

    Notes
    -----
    E Σ pᵃ = n/Γ(a) ∫ E[wᵃ e⁻ʷ] φⁿ⁻¹ du, w = exp(u + σZ), φ = E e⁻ʷ. Relative error about 1e-15; Gaussian scores.

    Source: Γ(a) S⁻ᵃ = ∫ tᵃ⁻¹ e^(-tS) dt.
    """
    if isinstance(order, bool) or order not in (2, 3):
        raise ValueError(f"order must be 2 or 3: got {order!r}")
    return expectation("power_sum_2" if order == 2 else "power_sum_3", n_keys, sigma, d_k, scale, method, mechanism)


@of_row
def expected_jacobian_trace(
    n_keys: ArrayLike,
    *,
    sigma: ArrayLike | None = None,
    d_k: ArrayLike | None = None,
    scale: ScaleLike | ArrayLike = None,
    method: Method = "quadrature",
    **mechanism: Unpack[MechanismArguments],
) -> Values:
    """
    Return E tr J = 1 - E Σ p², with J = ∂p/∂z = diag(p) - p pᵀ the Jacobian of softmax.

    Parameters
    ----------
    n_keys, sigma, d_k, scale, method, **mechanism
        As for `expected_logsumexp`.

    Returns
    -------
    float or ndarray
        In [0, 1 - 1/n_keys]; the upper end at σ = 0, 0 at n_keys = 1.

    Raises
    ------
    ValueError
        As `expected_logsumexp`.

    Notes
    -----
    E tr J = n(n-1) ∫ A₁² φⁿ⁻² du, with A₁, φ as in `expected_entropy`: no subtraction, so that it keeps its digits when
    softmax saturates. Relative error about 1e-15. Assumes Gaussian scores.

    Source: p_i p_j = ∫ t w_i w_j e^(-tS) dt.
    """
    return expectation("jacobian_trace", n_keys, sigma, d_k, scale, method, mechanism)


@of_row
def expected_jacobian_frobenius_squared(
    n_keys: ArrayLike,
    *,
    sigma: ArrayLike | None = None,
    d_k: ArrayLike | None = None,
    scale: ScaleLike | ArrayLike = None,
    method: Method = "quadrature",
    **mechanism: Unpack[MechanismArguments],
) -> Values:
    """
    Return E‖J‖_F², which is also E‖J g‖² for an upstream gradient g ~ N(0, I) independent of the scores.

    Parameters
    ----------
    n_keys, sigma, d_k, scale, method, **mechanism
        As for `expected_logsumexp`.

    Returns
    -------
    float or ndarray
        (n_keys - 1)/n_keys² at σ = 0, 0 at n_keys = 1. Not monotone in σ for n_keys >= 5: it rises first.

    Raises
    ------
    ValueError
        As `expected_logsumexp`.

    Notes
    -----
    E‖J‖_F² = n(n-1)/3 ∫ A₂² φⁿ⁻² du + n(n-1)(n-2)/6 ∫ A₂ A₁² φⁿ⁻³ du, A_a = E[wᵃ e⁻ʷ], w = exp(u + σZ), φ = E e⁻ʷ: from
    ‖J‖_F² = Σ_{i≠j} 2p_i²p_j² + Σ p_i² p_j p_k over distinct i, j, k. Relative error about 2e-15; Gaussian scores.

    Source: Γ(a) S⁻ᵃ = ∫ tᵃ⁻¹ e^(-tS) dt at a = 4.
    """
    return expectation("jacobian_frobenius_squared", n_keys, sigma, d_k, scale, method, mechanism)


@of_row
def expected_max_weight(
    n_keys: ArrayLike,
    *,
    sigma: ArrayLike | None = None,
    d_k: ArrayLike | None = None,
    scale: ScaleLike | ArrayLike = None,
    method: Method = "quadrature",
    **mechanism: Unpack[MechanismArguments],
) -> Values:
    """
    Return E max p, the mean largest attention weight.

    Parameters
    ----------
    n_keys, sigma, d_k, scale, method, **mechanism
        As for `expected_logsumexp`.

    Returns
    -------
    float or ndarray
        In [1/n_keys, 1]; 1/n_keys at σ = 0, 1 at n_keys = 1.

    Raises
    ------
    ValueError
        As `expected_logsumexp`.

    Notes
    -----
    E max p = n ∫ φ(x) dx ∫ e⁻ᵗ ψ(t, x)ⁿ⁻¹ dt with 1 - ψ = Φ(-x) + ∫ N(σx - y; 0, σ²)(1 - exp(-t e⁻ʸ)) dy over y > 0:
    the largest score is σx, the others lie y below it. Relative error about 1e-15. Assumes Gaussian scores.

    Source: 1/S = ∫ e^(-tS) dt, conditionally on the largest score.
    """
    return expectation("max_weight", n_keys, sigma, d_k, scale, method, mechanism)


@of_vectors
def expected_query_gradient_squared(
    n_keys: ArrayLike,
    *,
    d_k: ArrayLike,
    scale: ScaleLike | ArrayLike = None,
    method: Method = "quadrature",
    **mechanism: Unpack[MechanismArguments],
) -> Values:
    """
    Return E‖∂(gᵀp)/∂q‖² = E‖scale·Kᵀ J g‖² for Gaussian query and keys and an upstream gradient g ~ N(0, I).

    Parameters
    ----------
    n_keys, d_k, scale, method, **mechanism
        As for `expected_logsumexp`; d_k is required, since keys have a length.

    Returns
    -------
    float or ndarray
        0 at scale = 0 and at n_keys = 1.

    Raises
    ------
    ValueError
        As `expected_logsumexp`.

    Notes
    -----
    scale²·[(d_k - 1) E‖J‖_F² + E(‖J z‖²/σ²)] with σ = scale·‖q‖: the d_k - 1 components of the keys that are
    perpendicular to q do not enter the scores, the one along q is z/σ. Relative error below 1e-10.

    With a soft-cap the derivative of the cap multiplies J; a needle is along q. Of cosine scores only what is across q
    moves, as 1/‖q‖, and E 1/‖q‖² = 1/(d_k - 2): d_k must then be at least 3.

    Source: rotation invariance of the Gaussian keys.
    """
    if d_k is None:
        raise ValueError("the gradient with respect to the query needs d_k: got None")
    return expectation("query_gradient", n_keys, None, d_k, scale, method, mechanism)


@of_key
def expected_key_weight(
    n_keys: ArrayLike,
    *,
    key: ArrayLike = 0,
    sigma: ArrayLike | None = None,
    d_k: ArrayLike | None = None,
    scale: ScaleLike | ArrayLike = None,
    method: Method = "quadrature",
    **mechanism: Unpack[MechanismArguments],
) -> Values:
    """
    Return E p_key, the mean weight of one key: with `needle`, of the needle, which is key 0.

    Parameters
    ----------
    n_keys, sigma, d_k, scale, method, **mechanism
        As for `expected_logsumexp`.
    key : int or array_like of int, optional
        Which key, from 0; all keys of one row cost little more than one.

    Returns
    -------
    float or ndarray
        In [0, 1]; 1/n_keys without a mechanism. Under a causal mask the mean over all rows, 0 in those without the key.

    Raises
    ------
    ValueError
        For a key that is not a whole number in [0, n_keys), and as `expected_logsumexp`.

    Notes
    -----
    E p_j = ∫ E[w_j e^(-w_j)] Π_{i≠j} φ_i du, w = e^(u+s), φ = E e⁻ʷ. Weights down to some e⁻³⁰⁰ keep their digits.

    Source: 1/S = ∫ e^(-tS) dt.
    """
    whole = np.asarray(key)
    if whole.size and (whole.dtype.kind not in "iu" or np.any(whole < 0)):
        raise ValueError(f"key must be a whole number >= 0: got {key!r}")
    return expectation("key_weight", n_keys, sigma, d_k, scale, method, mechanism, key=whole.astype(np.int64))


@of_sink
def expected_sink_weight(
    n_keys: ArrayLike,
    *,
    sink: ArrayLike,
    sigma: ArrayLike | None = None,
    d_k: ArrayLike | None = None,
    scale: ScaleLike | ArrayLike = None,
    method: Method = "quadrature",
    **mechanism: Unpack[OtherArguments],
) -> Values:
    """
    Return the mean of e^sink / (e^sink + Σ exp z), the weight that a sink takes from the keys.

    Parameters
    ----------
    n_keys, sigma, d_k, scale, method, **mechanism
        As for `expected_logsumexp`.
    sink : float or array_like
        The logit; 0 is softmax-off-by-one.

    Returns
    -------
    float or ndarray
        In [0, 1]; 0 for a sink of -inf.

    Raises
    ------
    ValueError
        As `expected_logsumexp`.

    Notes
    -----
    ∫ e^(u+b) exp(-e^(u+b)) Π φ_i du. Under a causal mask the mean over the rows.

    Source: 1/S = ∫ e^(-tS) dt.
    """
    if sink is None:
        raise ValueError("sink must be -inf or a number: got None")
    minus = np.array(-1, dtype=np.int64)
    return expectation("key_weight", n_keys, sigma, d_k, scale, method, {"sink": sink, **mechanism}, key=minus)
