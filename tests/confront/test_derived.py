"""When a claim may be called derived: its derivation gives its number, in every cell, under the law of the cell."""

import json
from dataclasses import replace

import numpy as np
import pytest

import attnsym
from analysis import CLAIMS, Claim, Exactly, confirm
from analysis.cli import main
from analysis.confront.cell import Cell
from analysis.confront.claims.draws import STANDARD
from analysis.confront.derived import implied, unmet
from analysis.confront.inputs import Inputs
from analysis.show.views import confirmation_view
from attnsym.symbolic import DERIVATIONS, assumption

BY_KEY = {claim.key: claim for claim in CLAIMS}
DERIVED = [claim for claim in CLAIMS if claim.route == "derived"]
IN_PART = {  # what the words must hold
    "score-distribution": "log E[exp(t·kᵀq)]",
    "score-aligned-laws": "each pair (qᵢ, kᵢ) is jointly normal",
    "alike-keys": "Var(kᵀq − k′ᵀq)",
    "entropy-high-temperature": "O(t⁴)",
    "two-key-gradient": "O(σ_z⁸)",
}
# Other derivations of the very statement, or of one that contains it.
ALSO_COVERED = {("score-variance", "score-variance-bienayme")}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)
def test_another_derivation_never_makes_a_claim_derived(claim):
    """Not even of its first and last cell alone, which asks more than of all of them."""
    ends = dict.fromkeys((claim.cells[0], claim.cells[-1]))
    few = replace(claim, grid=[{name: [value] for name, value in cell.settings} for cell in ends])
    for key in DERIVATIONS:
        if key != claim.derivation and (claim.key, key) not in ALSO_COVERED:
            found = replace(few, derivation=key).support
            assert found.route != "derived", key
            assert found.missing or claim.predict is None


def test_a_second_proof_of_the_same_statement_does():
    for claim, derivation in ALSO_COVERED:
        assert replace(BY_KEY[claim], derivation=derivation).route == "derived"


def test_the_claims_that_are_derived_in_part_say_what_is_missing():
    assert {claim.key for claim in CLAIMS if claim.route == "derived in part"} == set(IN_PART)
    for key, words in IN_PART.items():
        (missing,) = BY_KEY[key].support.missing
        assert words in missing


@pytest.mark.parametrize("claim", DERIVED, ids=lambda claim: claim.key)
def test_a_number_off_by_one_percent_is_not_derived(claim):
    def off(cell):
        return 1.01 * claim.predict(cell) + (0.01 if claim.predict(cell) == 0.0 else 0.0)

    wrong = replace(claim, predict=off)
    assert wrong.route == "derived in part"
    assert "its right side is not the predicted number" in wrong.support.missing[0]


@pytest.mark.parametrize("claim", DERIVED, ids=lambda claim: claim.key)
def test_an_assumption_that_the_claim_does_not_state_is_missing(claim):
    if all(item.kind == "modulo" for chain in DERIVATIONS[claim.derivation].chains for item in chain.assumptions):
        return  # softmax's own algebra assumes nothing
    bare = replace(claim, assumptions=("nothing",))
    assert bare.route == "derived in part"
    assert "which the claim does not state" in bare.support.missing[0]


@pytest.mark.parametrize(
    ("key", "grid", "predict", "words"),
    [
        (
            "score-variance",
            {"law": ("normal",), "d_k": (16,), "alignment": (0.5,)},
            lambda c: 16.0,
            "q and k are indep",
        ),
        ("score-variance", {"law": ("normal",), "d_k": (16,), "std_q": (2.0,)}, lambda c: 16.0, "of q has variance 1"),
        ("score-variance", {"law": ("normal",), "d_k": (16,), "mean_k": (1.0,)}, lambda c: 16.0, "of k has mean 0"),
        ("score-mean", {"law": ("normal",), "d_k": (16,), "alignment": (0.1,)}, lambda c: 0.0, "independent"),
        (
            "score-aligned",
            {"statistic": ("variance",), "law": ("laplace",), "d_k": (16,), "alignment": (0.8,), "scale": ("sqrt",)},
            BY_KEY["score-aligned"].predict,
            "jointly normal",
        ),
        ("cosine-variance", {"law": ("normal",), "d_k": (8,)}, lambda c: 1 / 8, "prefers no axis"),
    ],
)
def test_the_right_number_under_the_wrong_law_is_not_derived(key, grid, predict, words):
    changes = {"inputs": Inputs.of} if key != "cosine-variance" else {"inputs": skewed}
    wrong = replace(BY_KEY[key], grid=grid, predict=predict, **changes)
    assert wrong.route == "derived in part"
    assert words in wrong.support.missing[0]


def skewed(cell):
    return Inputs.of(Cell((("law", "exponential"),)))


def test_an_equation_supports_no_bound_and_a_series_no_exact_value():
    spectral = BY_KEY["jacobian-spectral-norm"]
    assert replace(spectral, derivation="score-mean").route == "derived in part"
    norm = BY_KEY["softmax-jacobian-norm"]
    assert replace(norm, relation=spectral.relation).route == "derived in part"
    assert replace(BY_KEY["softmax-saturation"], relation=norm.relation).route == "derived in part"


def plain_score(cell, rng, replicates):
    query, key = rng.normal(size=(2, replicates, 1, cell.d_k))
    return attnsym.attention_scores(query, key, scale=1.0)[:, 0, 0]


def own_claim(**changes):
    fields = {
        "key": "my-variance",
        "statement": "Var[kᵀq] = d_k",
        "assumptions": ("independent(q, k)", "independent_components(q)", *STANDARD),
        "source": "mine",
        "derivation": "score-variance",
        "predict": lambda cell: float(cell.d_k),
        "sample": plain_score,
        "estimator": "variance",
        "relation": Exactly(),
        "grid": {"d_k": (4,)},
        "rival": lambda cell: 16.0,
        "subject": "Var(Dot(k, q))",
    }
    return Claim(**(fields | changes))


def test_a_claim_of_ones_own_is_derived_as_the_built_in_ones_are():
    assert own_claim().route == "derived"
    assert own_claim(subject=None).route == "derived in part"
    assert own_claim(derivation=None).route == "predicted"
    assert own_claim(predict=None).route == "measured only"


def test_what_cannot_be_read_is_named_before_anything_is_drawn():
    def drawn(cell, rng, replicates):
        raise AssertionError("nothing is to be drawn")

    with pytest.raises(ValueError, match=r"claim 'my-variance': .*Varr"):
        confirm([own_claim(subject="Varr(Dot(k, q))", sample=drawn)])
    with pytest.raises(ValueError, match="unknown derivation 'score-varience'"):
        confirm([own_claim(derivation="score-varience", sample=drawn)])


# Pages.


def test_table_json_and_report_say_it(capsys):
    planted = replace(BY_KEY["jacobian-spectral-norm"], derivation="score-mean", subject=None, replicates=20)
    confirmation = confirm([planted])
    result = confirmation.claims[0]
    assert result.verdict == "confirmed"
    assert result.to_dict()["route"] == "derived in part"
    assert result.to_dict()["missing"] == ["it proves E[kᵀq] = 0, and not the number measured here"]
    assert "jacobian-spectral-norm: derived in part: it proves E[kᵀq] = 0" in str(confirmation)
    (row,) = confirmation_view(confirmation)["rows"]
    assert row["route"] == "derived in part"
    assert row["missing"]
    assert main(["list", "--json"]) == 0
    listed = {row["key"]: row for row in json.loads(capsys.readouterr().out)["claims"]}
    assert listed["alike-keys"]["route"] == "derived in part"
    assert listed["alike-keys"]["missing"]
    assert listed["softcap-bound"]["is_code_check"]


def test_the_allowance_is_shown():
    result = confirm([BY_KEY["jacobian-trace-unscaled"], BY_KEY["score-mean"]], budget=0.01)
    table = str(result)
    assert "exactly" in table
    assert "±" in result["jacobian-trace-unscaled"].shown.allowed
    assert result.to_dict()["claims"][0]["cells"][0]["allowance"] > 0


# What a law satisfies.


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)
def test_what_a_claim_assumes_holds_in_each_of_its_cells(claim):
    for cell in claim.cells:
        assert unmet(claim.assumptions, claim.inputs(cell)) == (), cell


def test_implications():
    given = implied(("independent(q, k, k2)", "independent_components(k)", "zero_mean(k)", "prose"))
    assert {"independent(q, k)", "independent_of(q, k, k2)", "uncorrelated(k2)", "zero_mean(k2)"} <= given
    assert "independent_components(q)" not in given


@pytest.mark.parametrize("law", ["normal", "rademacher", "uniform", "laplace", "exponential"])
@pytest.mark.parametrize(("mean", "std", "alignment", "correlation"), [(0.0, 1.0, 0.0, 0.0), (0.5, 2.0, 0.6, 0.3)])
def test_what_inputs_say_is_what_the_draws_show(law, mean, std, alignment, correlation):
    """Each parameter that a right side may name, against the moments of vectors drawn by these very settings."""
    from analysis.vocabulary.laws import resolve_law

    settings = {"law": law, "mean_q": mean, "std_q": std, "correlation_q": correlation}
    inputs = Inputs.of(Cell(tuple(settings.items())))
    rng = np.random.default_rng(5)
    x = resolve_law(law).sample(rng, (200_000, 2))
    factor = np.linalg.cholesky(np.array([[1.0, correlation], [correlation, 1.0]]))
    q = mean + std * x @ factor.T
    values = inputs.parameters({})
    for name, draws in (("mu_q", q[:, 0]), ("sigma_q", (q[:, 0] - mean) ** 2)):
        error = 6 * draws.std() / np.sqrt(draws.size)
        assert draws.mean() == pytest.approx(values[name] ** (2 if name == "sigma_q" else 1), abs=error)
    fourth = q[:, 0] ** 4
    assert fourth.mean() == pytest.approx(values["m_4(q)"], abs=6 * fourth.std() / np.sqrt(fourth.size))
    assert inputs.satisfy("zero_mean", ("q",)) is (mean == 0.0)
    assert inputs.satisfy("unit_variance", ("q",)) is (std == 1.0)
    assert inputs.satisfy("uncorrelated", ("q",)) is (correlation == 0.0)
    assert inputs.satisfy("gaussian", ("q",)) is (law == "normal")
    assert inputs.satisfy("isotropic", ("u",)) is (mean == 0.0 and law != "exponential")
    aligned = Inputs.of(Cell((("law", law), ("alignment", alignment))))
    assert aligned.satisfy("independent", ("q", "k")) is (alignment == 0.0)
    assert aligned.satisfy("gaussian_pairs", ("q", "k")) is (law == "normal")
    assert aligned.parameters({"aligned": ("q", "k")})["rho"] == alignment
    assert aligned.satisfy("same", ("q", "k")) is False


def test_every_kind_of_assumption_has_an_answer():
    from attnsym.symbolic import KINDS

    texts = {kind: f"{kind}(q)" for kind in KINDS}
    texts |= {
        kind: f"{kind}(q, k)" for kind in ("independent", "independent_of", "independent_pairs", "gaussian_pairs")
    }
    texts |= {"aligned": "aligned(q, k)", "same": "same(q, k)", "isotropic": "isotropic(u)", "modulo": "modulo(t, 4)"}
    texts |= {"induction_hypothesis": "induction_hypothesis(S)", "exchangeable": "exchangeable(p)", "unit": "unit(u)"}
    texts |= {"moment": "moment(q, 4, 3)", "law": "law(q, normal)", "given": "given(p)"}
    inputs = Inputs.of(Cell(()))
    for text in texts.values():
        item = assumption(text)
        assert inputs.satisfy(item.kind, item.arguments) in (True, False)
    assert not inputs.satisfy("gaussian", ("z",))
    assert inputs.satisfy("moment", ("q", "4", "3"))
    assert not inputs.satisfy("moment", ("q", "4", "9/5"))
    assert Inputs.of(Cell((("law", "uniform"),))).satisfy("moment", ("q", "4", "9/5"))
    assert Inputs.of(Cell((("law", "rademacher"),))).satisfy("law", ("q", "sign"))
    assert not inputs.satisfy("law", ("q", "uniform"))
