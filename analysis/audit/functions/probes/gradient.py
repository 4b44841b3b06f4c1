"""Automatic derivatives against differences."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np

from analysis.audit.functions.adapter import CallFailed, to_numpy
from analysis.audit.functions.layouts import Array, from_layout
from analysis.audit.functions.session import Session

PRECISION = 1e-5
STEPS = (0.04, 0.02, 0.01, 0.005)
FLOOR = 1e-3  # a derivative off by less changes no training, and is rounding in single precision


def probe_gradient(s: Session) -> None:
    """
    Compare automatic derivatives with central differences in a random direction, argument by argument.

    Differences at four steps give three extrapolations to step 0; their spread, rounding and all, is the error allowed.
    """
    if s.caller.framework not in ("torch", "jax") or s.repeats > 1:
        s.skipped["gradient"] = "dropout is on" if s.repeats > 1 else "no automatic derivatives in NumPy"
        return
    if s.caller.precision > PRECISION or s.facts.get("inner") in ("float16", "bfloat16"):
        s.skipped["gradient"] = "half precision is too coarse for differences"
        return
    if s.axis == "none" and s.found("nonlinear", "sparsemax"):
        s.skipped["gradient"] = "the weights have kinks"
        return
    arrays = s.draw()
    upstream = s.caller.rounded(s.rng.standard_normal((*arrays[0].shape[:3], arrays[2].shape[3])))
    try:
        gradients = (_torch_gradients if s.caller.framework == "torch" else _jax_gradients)(s, arrays, upstream)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a stranger's code raises under differentiation
        s.skipped["gradient"] = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        return
    for place, name in enumerate(("query", "key", "value")):
        direction = s.rng.standard_normal(arrays[place].shape)
        direction *= np.sqrt(np.mean(arrays[place] ** 2))
        numeric, doubt = _difference(s, arrays, place, direction, upstream)
        analytic = float((gradients[place] * direction).sum())
        if max(abs(numeric), abs(analytic)) < s.tolerance * float(np.abs(upstream).sum()):
            continue
        size = max(abs(numeric), abs(analytic), float(np.sqrt(((gradients[place] * arrays[place].std()) ** 2).sum())))
        if abs(numeric - analytic) > 8 * doubt + FLOOR * size:
            off = abs(numeric - analytic) / max(abs(numeric), 1e-300)
            s.report(
                "gradient",
                f"In {name}: derivative {analytic:.6g}, difference {numeric:.6g} ± {doubt:.2g}, {off:.2%} off.",
            )


def _difference(
    s: Session, arrays: tuple[Array, ...], place: int, direction: Array, upstream: Array
) -> tuple[float, float]:
    """Return the derivative along a direction by Richardson's extrapolation, and the spread of three of them."""
    slopes = []
    for step in STEPS:
        moved = [list(arrays), list(arrays)]
        moved[0][place] = s.caller.rounded(arrays[place] + step * direction)
        moved[1][place] = s.caller.rounded(arrays[place] - step * direction)
        plus, minus = (float((upstream * s.caller(*a)).sum()) for a in moved)
        slopes.append((plus - minus) / (2 * step))
    better = [(4 * fine - coarse) / 3 for coarse, fine in itertools.pairwise(slopes)]
    return better[-1], max(better) - min(better)


def _torch_gradients(s: Session, arrays: tuple[Array, ...], upstream: Array) -> list[Array]:
    torch = sys.modules["torch"]
    with torch.enable_grad():
        leaves = [s.caller.present(x).requires_grad_() for x in arrays]
        output = s.caller.native(*leaves, like=(arrays[0], arrays[1]))
        if not output.requires_grad:
            raise CallFailed("the output carries no derivative")
        output.backward(_upstream(s, upstream))
    return [_back(s, x.grad, a) for x, a in zip(leaves, arrays, strict=True)]


def _jax_gradients(s: Session, arrays: tuple[Array, ...], upstream: Array) -> list[Array]:
    jax = sys.modules["jax"]
    weight = _upstream(s, upstream)

    def total(*inputs: Any) -> Any:
        return (s.caller.native(*inputs, like=(arrays[0], arrays[1])) * weight).sum()

    gradients = jax.grad(total, argnums=(0, 1, 2))(*(s.caller.present(x) for x in arrays))
    return [_back(s, np.asarray(g), a) for g, a in zip(gradients, arrays, strict=True)]


def _upstream(s: Session, upstream: Array) -> Any:
    """Return what is multiplied with the output, put together as the function puts its output together."""
    return s.caller.using(layout=s.caller.output_layout or s.caller.layout, raw_split=s.caller.raw_merge).present(
        upstream
    )


def _back(s: Session, gradient: Any, like: Array) -> Array:
    if gradient is None:
        return np.zeros_like(like)
    return from_layout(np.asarray(to_numpy(gradient), np.float64), s.caller.layout, like.shape, raw=s.caller.raw_split)
