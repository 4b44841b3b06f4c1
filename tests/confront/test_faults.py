"""Faults planted in the core, the samplers and the estimators are caught, each by the claim that is about it."""

import pkgutil
from dataclasses import replace

import numpy as np
import pytest

from analysis import CLAIMS, ClaimVerdict, confirm

BY_KEY = {claim.key: claim for claim in CLAIMS}
TESTS = sum(len(claim.cells) for claim in CLAIMS if claim.relation.stochastic)


def confirm_as_part_of_all(key, grid=None):
    """Confirm one claim, or some of its cells, at the default budget and the critical z of the default family."""
    claim = BY_KEY[key] if grid is None else replace(BY_KEY[key], grid=grid)
    assert set(claim.cells) <= set(BY_KEY[key].cells)
    share = len(claim.cells) / TESTS if claim.relation.stochastic else 1.0
    return confirm([claim], family_wise_alpha=1e-6 * share).claims[0]


def plant(monkeypatch, path, fault):
    """Replace what a dotted path names by ``fault(it)``."""
    monkeypatch.setattr(path, fault(pkgutil.resolve_name(path)))


def test_a_core_that_its_own_functions_refuse_is_rejected_not_an_error(monkeypatch):
    plant(monkeypatch, "attnsym._plain.softmax_in_place", over_queries)
    result = confirm([BY_KEY["causal-row-entropy"], BY_KEY["score-mean"]], budget=0.05)
    assert result["causal-row-entropy"].verdict is ClaimVerdict.REJECTED
    assert result["score-mean"].verdict is not ClaimVerdict.REJECTED


def over_queries(softmax):
    """Softmax down the queries instead of along the keys."""

    def wrong(x):
        turned = softmax(np.ascontiguousarray(np.swapaxes(x, -1, -2)))
        x[...] = np.swapaxes(turned, -1, -2)
        return x

    return wrong


FAULTS = {
    "scale off by 1 %": (
        ("attnsym._settings._default_scale", lambda scale: lambda d_k: 1.01 * scale(d_k)),
        "scaled-score-variance",
        {"law": ("rademacher",), "d_k": (64,)},
    ),
    "1/d_k for 1/√d_k": (
        ("attnsym._settings._default_scale", lambda scale: lambda d_k: 1.0 / d_k),
        "scaled-score-variance",
        {"law": ("normal",), "d_k": (64,)},
    ),
    "softmax over the queries": (
        ("attnsym._plain.softmax_in_place", over_queries),
        "softmax-jacobian",
        None,
    ),
    "causal mask off by one": (
        ("attnsym.masks.causal_end", lambda end: lambda *args: end(*args) + 1),
        "causal-row-entropy",
        {"d_k": (16,), "n_keys": (12,), "row": (0, 1)},
    ),
    "n for n - 1": (
        (
            "analysis.measure.estimate.estimators._variance",
            lambda variance: lambda moments, level: _biased(variance, moments, level),
        ),
        "variance-denominator",
        None,
    ),
    "one stream for all shards": (
        (
            "analysis.measure.run.shard.shard_sequence",
            lambda sequence: lambda seed, digest, shard: sequence(seed, digest, 0),
        ),
        "independent-streams",
        None,
    ),
    "a Jacobian without its off-diagonal": (
        ("attnsym.softmax_vjp", lambda vjp: lambda w, g: w * (1 - w) * g),
        "softmax-jacobian",
        None,
    ),
    "a gradient without the scale": (
        ("attnsym.backward.times_scale", lambda times: lambda x, scale: x),
        "attention-gradient",
        None,
    ),
    "a conditional sampler that fixes the query's length": (
        (
            "analysis.measure.draw.conditional.ConditionalSampler._query_lengths",
            lambda lengths: lambda self, rng: np.full(self.cell.chunk, self.cell.d_k**0.5),
        ),
        "conditional-sampler",
        {"of": ("value",), "quantity": ("entropy",), "scale": ("sqrt",), "d_k": (3,), "n_keys": (5,)},
    ),
    "a soft-cap that is not applied": (
        ("attnsym._settings.optional_softcap", lambda cap: lambda *given: None),
        "softcap-bound",
        None,
    ),
}


def _biased(variance, moments, level):
    found = variance(moments, level)
    return replace(found, estimate=found.estimate * (moments.count - 1) / moments.count)


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_caught(monkeypatch, fault):
    where, *what = FAULTS[fault]
    assert confirm_as_part_of_all(*what).verdict is not ClaimVerdict.REJECTED
    plant(monkeypatch, *where)
    assert confirm_as_part_of_all(*what).verdict is ClaimVerdict.REJECTED


@pytest.mark.parametrize(
    ("fault", "key", "grid"),
    [
        ("scale off by 1 %", "score-variance", {"law": ("normal",), "d_k": (64,)}),
        ("causal mask off by one", "entropy-exact", {"scale": ("sqrt",), "d_k": (4,), "n_keys": (10,)}),
        ("n for n - 1", "independent-streams", None),
        ("one stream for all shards", "variance-denominator", None),
    ],
)
def test_fault_leaves_other_claims_alone(monkeypatch, fault, key, grid):
    plant(monkeypatch, *FAULTS[fault][0])
    assert confirm_as_part_of_all(key, grid).verdict is not ClaimVerdict.REJECTED
