"""The reader of typed expressions and the scale: values, and refusals that run nothing."""

import math

import pytest

from analysis.vocabulary.scale import resolve_scale
from attnsym._expression import read_expression


@pytest.mark.parametrize(
    ("scale", "d_k", "n_keys", "value"),
    [
        (None, 64, 1, 1 / 8),
        ("sqrt", 512, 10, 1 / math.sqrt(512)),
        ("unscaled", 512, 10, 1.0),
        (0, 4, 4, 0.0),
        (0.25, 4, 4, 0.25),
        ("1/d_k", 16, 4, 1 / 16),
        ("log(n_keys)/sqrt(d_k)", 16, 100, math.log(100) / 4),
        ("2**-3", 1, 1, 0.125),
        (lambda d_k, n_keys: d_k * n_keys, 3, 5, 15.0),
    ],
)
def test_scale_values(scale, d_k, n_keys, value):
    assert resolve_scale(scale)(d_k, n_keys) == value


@pytest.mark.parametrize("scale", ["10**400", "exp(1000)", f"1{'0' * 400}"])
def test_a_number_too_large_is_called_so(scale):
    with pytest.raises(ValueError, match=r"a number in it is too large$"):
        resolve_scale(scale)


def test_a_callable_that_overflows_is_told_where():
    with pytest.raises(ValueError, match=r"has no value at d_k=4, n_keys=5: it is too large$"):
        resolve_scale(lambda d_k, n_keys: 10.0 ** (100 * d_k))(4, 5)


@pytest.mark.parametrize("scale", ["none", "None", True, math.nan, math.inf, "d_q", "", [1.0], "1e999"])
def test_scale_refuses(scale):
    with pytest.raises(ValueError, match=r"scale|expression|unknown name"):
        resolve_scale(scale)(4, 4)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch canary')",
        "().__class__.__base__",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "x.real",
        "f'{x}'",
        "x if x else x",
        "x == x",
        "x := 1",
        "True",
        "'text'",
        "sqrt(x, key=1)",
        "sqrt(*x)",
        "9**9**9",
        "(" * 300 + "1" + ")" * 300,
        "1+" * 250 + "1",
        "x\0",
        "1_0j",
    ],
)
def test_hostile_text_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def power(base, exponent):
        if abs(exponent) > 100:
            raise ValueError("too large")
        return base**exponent

    with pytest.raises(ValueError, match=r"\w"):
        read_expression(text, names={"x": 1.0}, functions={"sqrt": math.sqrt}, number=float, power=power)
    assert not list(tmp_path.iterdir())
