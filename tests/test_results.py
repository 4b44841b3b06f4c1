"""Every result has one line, a page, and a form in a notebook, in which what a user named is escaped."""

import numpy as np
import pytest

import analysis
import attnsym
import attnsym.symbolic as symbolic

Q, K = np.random.default_rng(0).standard_normal((2, 1, 2, 16, 8))
W = np.random.default_rng(1).standard_normal((8, 16))
NORMAL = ["independent(q, k)", "law(q, normal)", "law(k, normal)", "independent_components(q)"]
TRENDS = {step: analysis.audit_weights(step * W, W[::-1], num_heads=2) for step in (1, 2, 4)}


def study():
    return analysis.run_study("entropy", d_k=(4, 8), n_keys=4, replicates=100, name="<b>&")


def confirmation():
    return analysis.confirm(analysis.CLAIMS[:1], budget=0.01)


RESULTS = {
    "derivation": lambda: symbolic.derive("score-mean"),
    "true": lambda: symbolic.prove("1", "1"),
    "false": lambda: symbolic.prove("d_k", "1"),
    "closed form": lambda: symbolic.closed_form("E(Dot(k, q)**2)", NORMAL),
    "needs": lambda: symbolic.derive("score-mean").weakest_by_statement()[0],
    "explanation": lambda: attnsym.explain(Q[0, 0, 0], K[0, 0], K[0, 0]),
    "study": study,
    "row": lambda: study().rows[0],
    "claim": lambda: analysis.CLAIMS[0],
    "confirmation": confirmation,
    "claim's result": lambda: confirmation().claims[0],
    "sentence": lambda: analysis.PUBLISHED[0],
    "adjudication": lambda: analysis.PUBLISHED[0].adjudicate(),
    "tensors": lambda: analysis.audit_tensors(Q, K),
    "function": lambda: analysis.audit_callable(attnsym.scaled_dot_product_attention),
    "weights": lambda: TRENDS[1],
    "trends": lambda: analysis.audit_trends(TRENDS),
    "comparison": lambda: analysis.compare_audits(TRENDS[1], TRENDS[4]),
    "design": lambda: analysis.design(d_model=64, d_k=8, n_keys=16),
    "clip": lambda: analysis.clip_factors([1.0, 200.0], 100.0),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_has_a_line_and_a_page(name):
    result = RESULTS[name]()
    line, page, html = repr(result), str(result), result._repr_html_()
    assert line.startswith(f"<{type(result).__name__} ")
    assert len(line) <= 100
    assert "\n" not in line
    assert " object at " not in page
    assert len(page) > 10
    assert html.startswith("<")
    assert "<b>&" not in html


@pytest.mark.parametrize("part", ["statement", "chains", "steps"])
def test_the_parts_of_a_derivation_have_a_line(part):
    found = getattr(symbolic.derive("score-variance"), part)
    for item in found if isinstance(found, tuple) else (found,):
        assert repr(item).startswith(f"<{type(item).__name__} ")
        assert len(repr(item)) <= 100
        assert str(item)


@pytest.mark.parametrize("name", ["study", "tensors", "weights", "trends"])
def test_what_has_numbers_for_many_heads_or_cells_is_a_frame_and_a_figure(name):
    pandas = pytest.importorskip("pandas")
    result = RESULTS[name]()
    assert isinstance(result.to_dataframe(), pandas.DataFrame)
    assert len(result.to_dataframe()) == len(result.to_records())
    assert result.plot().axes


def test_a_study_is_a_table_of_words_to_the_left_and_numbers_to_the_right():
    _, header, *rows = str(study()).splitlines()
    assert header.startswith("scale ")
    assert [row.split()[0] for row in rows[:4]] == ["sqrt", "sqrt", "unscaled", "unscaled"]
    assert not any(row.startswith(" ") for row in rows[:4])
    end = header.index("n_keys") + len("n_keys")
    assert [row[:end].split()[-1] for row in rows[:4]] == ["4"] * 4


def test_a_confirmation_is_a_frame_of_its_cells():
    pytest.importorskip("pandas")
    result = confirmation()
    assert len(result.to_dataframe()) == sum(len(claim.cells) for claim in result.claims)
