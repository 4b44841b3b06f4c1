"""Every argument of every public function with values that nobody should pass: a result, or one sentence, and soon."""

import inspect
import types
import typing

import numpy as np
import pytest
from hostile_values import CALLABLES, CONTAINERS, NUMBERS, OTHERS, TEXTS

import analysis
from analysis.predict.mechanism.setting import MechanismArguments
from attnsym import scaled_dot_product_attention, symbolic

VALUES = [*NUMBERS, *TEXTS, *CONTAINERS, *CALLABLES, *OTHERS]
Q, K, W = (np.random.default_rng(0).standard_normal(shape) for shape in ((2, 5, 4), (2, 6, 4), (8, 8)))
SIZED, AT = {"n_keys": 4, "d_k": 3}, {"n_keys": 4, "sigma": 1.0}
AUDIT = analysis.audit_weights(W, W, num_heads=2)

# function -> the arguments of an ordinary call, or None where another file sweeps it
ORDINARY = {
    "apply_clip": {"module": types.SimpleNamespace(weight=W), "gamma": [1.0, 0.5]},
    "audit_callable": {"attention": scaled_dot_product_attention},
    "audit_checkpoint": {"paths": "nothing.npz"},
    "audit_example": {},
    "audit_files": {"paths": "nothing.npz"},
    "audit_tensors": {"query": Q, "key": K},
    "audit_trends": {"audits": {1: AUDIT, 2: AUDIT}},
    "audit_weights": {"w_query": W, "w_key": W, "num_heads": 2},
    "clip_factors": {"largest": [1.0, 200.0], "target": 100.0},
    "clip_model": {"model": None, "maxima": [], "target": 100.0},
    "compare_audits": {"before": AUDIT, "after": AUDIT},
    "confirm": {"claims": "score-mean", "budget": 0.01, "workers": 1},
    "design": {"d_model": 8, "d_k": 4, "n_keys": 4},
    "expected_key_weight": SIZED,
    "expected_power_sum": {"order": 2, **SIZED},
    "expected_query_gradient_squared": SIZED,
    "expected_row_sum": AT,
    "expected_sink_weight": {"sink": 0.0, **AT},
    "gradient_decay": {"n_keys": 4},
    "high_temperature": {"quantity": "entropy", **AT},
    "low_temperature": {"quantity": "entropy", **AT},
    "normal_maximum": {"n_keys": 4},
    "random_energy": {"quantity": "entropy", **AT},
    "read_history": {"path": "nothing.jsonl"},
    "row_sum_variance": AT,
    "run_study": None,  # tests/measure
    "scale_for": {"quantity": "entropy_fraction", "target": 0.5, "n_keys": 4},
    "score_distribution": {"d_k": 3},
    "score_moments": {"d_k": 3},
    "watch": None,  # needs torch: tests/audit
    "write_report": None,  # tests/show
} | {
    f"expected_{name}": AT
    for name in ("entropy", "jacobian_trace", "jacobian_frobenius_squared", "logsumexp", "max_weight")
}
# Of the symbolic half, what answers about an expression or a name.
ANSWERS = {
    "assumption": {"text": "zero_mean(q)"},
    "closed_form": {"expression": "E(q[i])", "assuming": ["zero_mean(q)"]},
    "derive": {"key": "score-mean"},
    "moment": {"vector": symbolic.q, "order": 2},
    "prove": {"lhs": "E(q[i])", "rhs": "0", "assuming": ["zero_mean(q)"]},
    "rewrite": {"expression": "E(q[i])", "rule": "moments", "assuming": ["zero_mean(q)"]},
    "to_latex": {"expression": symbolic.E(symbolic.q[symbolic.i])},
    "to_mathml": {"expression": symbolic.E(symbolic.q[symbolic.i])},
    "to_unicode": {"expression": symbolic.E(symbolic.q[symbolic.i])},
    "vector": {"name": "q"},
}


WITH_MECHANISMS = ("expected_entropy", "expected_key_weight", "scale_for")  # the others read them by the same code


def swept(module, ordinary):
    """Yield function, ordinary arguments and the argument to change; a mechanism's keywords are arguments too."""
    for name, base in ordinary.items():
        if base is not None:
            for argument, parameter in inspect.signature(getattr(module, name)).parameters.items():
                mechanism = typing.get_type_hints(MechanismArguments) if name in WITH_MECHANISMS else ()
                for own in mechanism if parameter.kind is inspect.Parameter.VAR_KEYWORD else [argument]:
                    yield pytest.param(getattr(module, name), base, own, id=f"{name} {own}")


def test_every_function_is_swept_or_says_where():
    assert set(ORDINARY) == {name for name in analysis.__all__ if inspect.isfunction(getattr(analysis, name))}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Casting complex")  # SciPy's own, of stats.norm(1j)
@pytest.mark.parametrize(("function", "base", "argument"), [*swept(analysis, ORDINARY), *swept(symbolic, ANSWERS)])
def test_hostile_values_end_in_a_result_or_a_sentence(function, base, argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in VALUES:
        before = np.geterr()
        try:
            with np.errstate(all="raise"):
                function(**{**base, argument: value})
        except (ValueError, TypeError, OSError) as error:
            sentence = str(error)
            assert not isinstance(value, int | float | str) or sentence.isprintable(), (value, sentence)
            assert len(sentence) < 1500, (value, sentence)
        assert np.geterr() == before
