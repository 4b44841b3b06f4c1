"""No callable ends an audit with a traceback; options of the audit; two functions side by side."""

import functools

import numpy as np
import pytest
from attention_zoo import build, softmax
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import audit_callable
from analysis.cli import main
from attnsym import scaled_dot_product_attention


class Boom(BaseException):
    pass


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Unreadable:
    __name__ = 3

    def __call__(self, query, key, value):
        return query

    def __getattr__(self, name):
        raise KeyError(name)


def raising(error):
    def attention(query, key, value):
        raise error

    return attention


def product(query, key):
    return query @ key.swapaxes(-1, -2)


def sometimes(calls=None):
    count = iter(range(10**6))

    def attention(query, key, value):
        if next(count) % 7 == 6:
            raise SystemExit(3)
        return softmax(product(query, key) / 4) @ value

    return attention


W = np.random.default_rng(0).standard_normal((16, 64))


def features(query, key, value):
    a, b = np.cos(query @ W), np.cos(key @ W)
    return a @ (b.swapaxes(-1, -2) @ value) / (a @ b.sum(-2)[..., None])


STRANGE = {
    "relu": lambda q, k, v: np.maximum(product(q, k) / 4, 0) @ v,
    "features that cancel": features,
    "zero": lambda q, k, v: 0 * q,
    "constant": lambda q, k, v: np.ones_like(q),
    "the query": lambda q, k, v: q,
    "now and then an exit": sometimes(),
    "writes its inputs": lambda q, k, v: np.multiply(q, 2, out=q),
    "NaN above a bound": lambda q, k, v: np.where(np.abs(product(q, k)).max() > 3, np.nan, softmax(product(q, k)) @ v),
    "root of negatives": lambda q, k, v: np.sqrt(product(q, k)) @ v,
    "infinite": lambda q, k, v: q * np.inf,
    "huge": lambda q, k, v: q * 1e308,
    "signs": lambda q, k, v: np.sign(product(q, k)) @ v,
    "Taylor": lambda q, k, v: (lambda s: s / s.sum(-1, keepdims=True))(1 + product(q, k) + product(q, k) ** 2 / 2) @ v,
    "residual": lambda q, k, v: q + softmax(product(q, k)) @ v,
    "root of the output": lambda q, k, v: np.cbrt(softmax(product(q, k)) @ v),
    "tiny scale": lambda q, k, v: softmax(product(q, k) * 1e-12) @ v,
    "enormous scale": lambda q, k, v: softmax(product(q, k) * 1e300) @ v,
    "unreadable": Unreadable(),
    "any arguments": lambda *arguments: softmax(product(*arguments[:2]) / 4) @ arguments[2],
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("intended", [None, 0.0])
def test_what_a_strange_function_does_is_reported(name, intended):
    audit = audit_callable(STRANGE[name], intended_scale=intended)
    assert audit.lines()
    assert audit.to_dict()


@pytest.mark.parametrize(
    "function",
    [
        raising(Boom("\x1b[31mred")), raising(Silent()), raising(SystemExit(1)), raising(GeneratorExit()),
        lambda q, k, v: None, lambda q, k, v: "x", lambda q, k, v: [[1, 2]], lambda q, k, v: q.astype(object),
        lambda q, k, v: (), lambda: 3, dict,
    ],
)  # fmt: skip
def test_what_cannot_be_called_is_refused_in_one_printable_sentence(function):
    with pytest.raises(ValueError, match="could not be called") as caught:
        audit_callable(function)
    assert str(caught.value).isprintable()


def test_an_interrupt_goes_through():
    with pytest.raises(KeyboardInterrupt):
        audit_callable(raising(KeyboardInterrupt()))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"num_heads": 10**6}, "num_heads times d_k must be at most"),
        ({"n_keys": 10**9}, "num_heads times n_queries times n_keys must be at most"),
        ({"n_queries": 1}, "n_queries must be"),
        ({"n_keys": True}, "n_keys must be"),
        ({"dtype": "int8"}, "dtype must be one of"),
        ({"intended_softcap": float("nan")}, "intended_softcap must be a number"),
        ({"against": 3}, "must be callable"),
    ],
)
def test_options_that_no_audit_ends_with_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        audit_callable(build(), **keywords)


def test_an_intended_scale_of_zero():
    assert "0.25 where 0 is intended" in str(audit_callable(build(), intended_scale=0))
    flat = audit_callable(build(scale=lambda d, h, n: 0.0), intended_scale=0)
    assert flat.faults == ()
    assert flat.scale.value == 0


@pytest.mark.slow
def test_many_heads_end_soon():
    audit = audit_callable(scaled_dot_product_attention, num_heads=300, intended_scale="sqrt")
    assert audit.faults == ()


@settings(max_examples=12)
@given(
    factor=st.floats(0.02, 20), power=st.sampled_from([0.0, 0.5, 1.0]), seed=st.integers(0, 2**31),
    shape=st.sampled_from([(3, 16), (1, 8), (2, 6), (4, 33)]),
)  # fmt: skip
def test_a_scale_is_recovered_whatever_it_is(factor, power, seed, shape):
    audit = audit_callable(build(scale=lambda d, h, n: factor * d**-power), num_heads=shape[0], d_k=shape[1], seed=seed)
    assert audit.scale.exponent_d == pytest.approx(power, abs=1e-6)
    assert audit.scale.coefficient == pytest.approx(factor, rel=1e-6)
    assert [item.code for item in audit.faults if item.severity == "error"] == []


@settings(max_examples=6)
@given(fill=st.floats(-12, -0.5), seed=st.integers(0, 2**31))
def test_a_fill_that_leaks_is_found_at_any_height(fill, seed):
    def attention(query, key, value, attn_mask=None):
        s = product(query, key) / np.sqrt(query.shape[-1])
        return softmax(s if attn_mask is None else np.where(attn_mask, s, fill)) @ value

    (item,) = audit_callable(attention, seed=seed).faults
    assert item.code == "mask-leaks"
    assert f"set to {fill:.4g}" in item.evidence


def test_one_width_leaves_laws_open():
    def attention(query, key, value):
        assert query.shape[-1] == 16
        return softmax(product(query, key) * 0.25) @ value

    assert audit_callable(attention).scale.name == "1/√d_k or the constant 0.25: the function has one width"


def test_two_backends_are_compared():
    reference = functools.partial(scaled_dot_product_attention, scale=0.3)
    assert not [f for f in audit_callable(reference, against=reference).findings if f.code.startswith("against")]
    codes = {f.code for f in audit_callable(reference, against=build()).findings}
    assert {"against-scale", "against-output"} <= codes
    shown = audit_callable(build(mask=lambda s, m: np.where(m, s, -1e9)), against=scaled_dot_product_attention)
    assert {"against-mask", "against-range"} <= {f.code for f in shown.findings}


def test_lengths_and_types_can_be_fixed():
    def kernel(query, key, value):
        assert query.shape[-2] % 16 == 0 == key.shape[-2] % 16
        assert query.dtype == np.float32
        return softmax(product(query, key) / np.sqrt(np.float32(query.shape[-1]))) @ value

    audit = audit_callable(kernel, n_queries=16, n_keys=32, dtype="float32", intended_scale="sqrt")
    assert audit.faults == ()
    assert audit.dtype == "float32"
    assert "length" not in dict(audit.skipped)


def test_caps_and_sinks_that_are_meant():
    capped = build(cap=50.0)
    assert audit_callable(capped, intended_softcap=50.0).faults == ()
    assert [f.code for f in audit_callable(capped, intended_softcap=30.0).faults] == ["softcap-unintended"]
    assert audit_callable(build(), intended_softcap=float("inf"), intended_sink=float("-inf")).faults == ()
    assert [f.code for f in audit_callable(build(), intended_sink=0.0).faults] == ["sink-unintended"]


COMMAND = """
import numpy as np

def attention(query, key, value):
    s = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ value
"""


def test_command_options(capsys, tmp_path, monkeypatch):
    (tmp_path / "one_attention.py").write_text(COMMAND)
    monkeypatch.chdir(tmp_path)
    name = "one_attention:attention"
    assert main(["audit", "--callable", name, "--scale", "0"]) == 1
    assert "where 0 is intended" in " ".join(capsys.readouterr().out.split())
    assert main(["audit", "--callable", name, "--dtype", "float32", "--lengths", "8,16", "--against", name]) == 0
    assert "float32" in capsys.readouterr().out
    assert main(["audit", "--callable", name, "--softcap", "30"]) == 1
    assert main(["audit", "--callable", name, "--lengths", "8"]) == 2
    assert "--lengths takes" in capsys.readouterr().err
