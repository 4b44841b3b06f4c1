"""Every derivation of the catalogue: TRUE, under assumptions that something satisfies, and each of them needed."""

from functools import cache

import pytest

from attnsym.symbolic import DERIVATIONS, Axiom, Derivation, Truth, derive
from attnsym.symbolic.derivation.rules import RULES
from attnsym.symbolic.refute.laws import laws
from attnsym.symbolic.refute.satisfaction import satisfies
from attnsym.symbolic.trusted.families import family

KEYS = [
    "score-mean",
    "score-variance",
    "score-variance-bienayme",
    "score-variance-induction",
    "scaled-score-variance",
    "scale-uniqueness",
    "score-moments-general",
    "score-variance-correlated",
    "score-aligned",
    "score-fourth-moment",
    "score-kurtosis",
    "score-mgf",
    "score-self",
    "scores-share-query",
    "score-common-key",
    "softmax-jacobian",
    "softmax-jacobian-norm",
    "softmax-jacobian-spectral-norm",
    "log-sum-exp",
    "output-variance",
    "attention-gradient",
    "attention-gradient-keys-values",
    "entropy-gradient",
    "entropy-high-temperature",
    "softmax-saturation",
    "two-key-gradient",
    "cosine-variance",
    "projected-score-variance",
    "rotary-scores",
]
ON_AXIOMS = {
    "score-variance-induction",
    "score-mgf",
    "entropy-high-temperature",
    "softmax-saturation",
    "two-key-gradient",
    "rotary-scores",
}


@cache
def verdict_of(derivation):
    return derivation.check()


@pytest.fixture(params=list(DERIVATIONS))
def derivation(request):
    return DERIVATIONS[request.param]


def test_teaching_order():
    assert list(DERIVATIONS) == KEYS
    assert all(key == derivation.key for key, derivation in DERIVATIONS.items())


def test_verdict_is_true(derivation):
    verdict = verdict_of(derivation)
    assert verdict.truth is Truth.TRUE, str(verdict)
    assert verdict.step is None


def test_verdict_prints_what_is_trusted(derivation):
    verdict = verdict_of(derivation)
    assert bool(verdict.axioms) is (derivation.key in ON_AXIOMS)
    assert all(f"Trusted: {axiom}" in str(verdict) for axiom in verdict.axioms)


def test_record(derivation):
    assert derivation.title
    assert derivation.source
    assert all(step.rule in RULES for step in derivation.steps)
    record = derivation.to_record()
    assert record["verdict"] == "TRUE"
    assert len(record["steps"]) == len(derivation.steps)


def test_moments_are_required_where_there_are_expectations(derivation):
    speaks_of_means = any("E[" in str(step) or "Var(" in str(step) for step in derivation.steps)
    opaque = derivation.key in {"score-mgf", "two-key-gradient"}
    assert bool(verdict_of(derivation).moments) is (speaks_of_means and not opaque) or opaque


def test_no_step_is_vacuous(derivation):
    """Some finite law satisfies what each chain assumes; from assumptions that contradict each other all follows."""
    for chain in derivation.chains:
        given = [item for item in chain.assumptions if item.kind != "modulo"]
        about = [item.arguments[:1] if item.kind in ("moment", "law") else item.arguments for item in given]
        names = list(dict.fromkeys(name for arguments in about for name in arguments))
        vectors = [name for name in names if family(name).sorts]
        scalars = [name for name in names if not family(name).sorts]
        normal = any(item.kind.startswith("gaussian") for item in given)
        sizes = (1,) if normal else (2, 1)  # enough to be consistent, and quick
        choices = laws(vectors, scalars, normal=normal, sizes=sizes)
        found = any(all(satisfies(law, item) for item in given) for law in choices)
        assert found, chain.heading


def test_no_chain_repeats_its_left_side(derivation):
    for chain in derivation.chains:
        assert all(step.lhs != step.rhs for step in chain.steps)


def test_a_series_that_was_cut_says_so_to_the_end_of_its_chain(derivation):
    """No line after the cut is printed as an equality, and the last says what the statement says."""
    for chain in derivation.chains:
        cut = [step.remainder is not None for step in chain.steps]
        assert cut == sorted(cut)
        assert cut[-1] is (chain.equation.remainder is not None), chain.heading
        assert all("O(" in str(step) for step, is_cut in zip(chain.steps, cut, strict=True) if is_cut)


def test_unknown_key_lists_the_known():
    with pytest.raises(ValueError, match="score-variance"):
        derive("score-varience")


def test_a_false_derivation_is_false():
    """A claim that is wrong, written with a rule that looks right, comes back with a law that contradicts it."""
    from attnsym.symbolic import Dot, Var, chain, d_k, k, line, q

    wrong = chain(Var(Dot(k, q)), line("moments", d_k**2, "zero_mean(q)", "unit_variance(q)"))
    verdict = Derivation("wrong", "wrong", (wrong,), "nowhere").check()
    assert verdict.truth is Truth.FALSE
    assert verdict.step == 0
    assert verdict.witness is not None


def test_axioms_are_sentences():
    axioms = {axiom for derivation in DERIVATIONS.values() for axiom in derivation.axioms}
    assert all(isinstance(axiom, Axiom) and len(axiom.sentence) > 20 for axiom in axioms)


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
def test_each_assumption_is_needed_or_the_claim_survives(key):
    derivation = DERIVATIONS[key]
    for item in derivation.assumptions:
        verdict = derivation.without(item).check()
        if item.kind == "modulo":
            continue
        assert verdict.truth is not Truth.TRUE
        trusting = any(known for known in derivation.steps[verdict.step].known) or key == "two-key-gradient"
        assert verdict.truth is Truth.FALSE or "still follows" in verdict.reason or trusting, (item, verdict)
