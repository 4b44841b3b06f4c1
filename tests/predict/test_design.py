"""The scores of a head at initialisation."""

import json
import math

import pytest

import analysis
from analysis.cli import main

HEAD = {"d_model": 768, "d_k": 64, "n_keys": 128}


@pytest.mark.parametrize(
    ("init", "variance"),
    [
        ("xavier", 0.25),
        ("xavier-head", (2 * 768 / (768 + 64)) ** 2),
        ("normal:0.02", (768 * 0.02**2) ** 2),
        ("linear", 1 / 9),
        ("t5", 1.0),
        ("mup", 1 / 64),
        ("uniform:0.1", (768 * 0.01 / 3) ** 2),
    ],
)
def test_the_variance_of_each_initialisation(init, variance):
    result = analysis.design(**HEAD, init=init)
    assert result.score_variance == pytest.approx(variance, rel=1e-12)
    exact = analysis.expected_entropy(128, d_k=64, scale=math.sqrt(variance / 64))
    assert result.entropy == pytest.approx(exact, rel=1e-12)


def test_correlated_tokens_act_as_a_smaller_scale():
    alone, together = (analysis.design(**HEAD, init="t5", token_correlation=r).score_variance for r in (0.0, 0.6))
    assert together == pytest.approx(0.4 * alone, rel=1e-12)


def test_normalised_queries_and_keys_forget_the_initialisation():
    one, other = (analysis.design(**HEAD, init=init, qk_norm="rms") for init in ("normal:0.02", "normal:3"))
    assert one.entropy == other.entropy
    assert one.entropy == analysis.expected_entropy(128, d_k=64, scale=8.0, score="cosine")


def test_advice_names_a_scale_that_mends():
    result = analysis.design(**HEAD, init="normal:0.02")
    line = next(line for line in result.advice if "variance 1" in line)
    scale = float(line.split("A scale of ")[1].split()[0])
    assert analysis.design(**HEAD, init="normal:0.02", scale=scale).score_variance == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize(
    ("kw", "named"),
    [
        ({"init": "normal"}, "init must be"),
        ({"init": "normal:x"}, "number above 0"),
        ({"init": "normal:-1"}, "number above 0"),
        ({"norm": "batch"}, "norm must be"),
        ({"qk_norm": "l3"}, "qk_norm must be"),
        ({"token_correlation": 1.0}, "token_correlation must be"),
        ({"token_correlation": 0.1, "qk_norm": "l2"}, "goes without qk_norm"),
        ({"n_keys": 1}, "n_keys must be at least 2"),
    ],
)
def test_bad_input_is_one_sentence(kw, named):
    with pytest.raises(ValueError, match=named):
        analysis.design(**(HEAD | kw))


def test_the_command(capsys):
    arguments = ["design", "--d-model", "768", "--d-k", "64", "--n-keys", "128", "--sink", "0"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["entropy"] == analysis.design(**HEAD, sink=0).entropy
    assert main(arguments) == 0
    assert "score_variance" in capsys.readouterr().out
