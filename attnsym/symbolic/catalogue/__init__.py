"""The derivations in teaching order; adding one is writing one function and naming it here."""

from __future__ import annotations

from attnsym.symbolic.catalogue.scaling import scaled_score_variance
from attnsym.symbolic.catalogue.scores import score_mean, score_variance
from attnsym.symbolic.derivation import Derivation

DERIVATIONS: dict[str, Derivation] = {
    derivation.key: derivation
    for derivation in (
        score_mean(),
        score_variance(),
        scaled_score_variance(),
    )
}
