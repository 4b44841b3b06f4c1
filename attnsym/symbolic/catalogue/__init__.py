"""The derivations in teaching order; adding one is writing one function and naming it here."""

from __future__ import annotations

from attnsym.symbolic.catalogue import dependence, gradient, layers, moments, scaling, scores, softmax
from attnsym.symbolic.derivation.derivation import Derivation

DERIVATIONS: dict[str, Derivation] = {
    derivation.key: derivation
    for derivation in (
        scores.score_mean(),
        scores.score_variance(),
        scores.score_variance_bienayme(),
        scores.score_variance_induction(),
        scaling.scaled_score_variance(),
        scaling.scale_uniqueness(),
        moments.score_moments_general(),
        moments.score_variance_correlated(),
        moments.score_aligned(),
        moments.score_fourth_moment(),
        moments.score_kurtosis(),
        moments.score_mgf(),
        dependence.score_self(),
        dependence.scores_share_query(),
        dependence.score_common_key(),
        softmax.softmax_jacobian(),
        softmax.softmax_jacobian_norm(),
        softmax.softmax_jacobian_spectral_norm(),
        softmax.log_sum_exp(),
        layers.output_variance(),
        gradient.attention_gradient(),
        gradient.attention_gradient_keys_values(),
        gradient.entropy_gradient(),
        gradient.entropy_high_temperature(),
        softmax.softmax_saturation(),
        gradient.two_key_gradient(),
        dependence.cosine_variance(),
        layers.projected_score_variance(),
        layers.rotary_scores(),
    )
}
