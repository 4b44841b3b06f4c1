"""What the attention functions refuse, each in one sentence that names the argument."""

import math

import numpy as np
import pytest

from attnsym import scaled_dot_product_attention

NAN = math.nan

Q, K, V = np.ones((2, 3, 4)), np.ones((2, 5, 4)), np.ones((2, 5, 6))

REFUSED = {
    "d_k": ((Q, np.ones((2, 5, 3)), V), {}, r"share their last axis d_k: got query \(2, 3, 4\) and key \(2, 5, 3\)"),
    "n_keys": ((Q, K, np.ones((2, 4, 6))), {}, "share the axis n_keys"),
    "one axis": ((np.ones(4), K, V), {}, "query must have at least two axes"),
    "leading": ((np.ones((3, 3, 4)), K, V), {}, "leading axes must broadcast.*enable_gqa"),
    "groups": ((np.ones((5, 3, 4)), K, V), {"enable_gqa": True}, "must divide"),
    "kv heads": ((Q, K, np.ones((1, 5, 6))), {"enable_gqa": True}, "same number of heads"),
    "gqa axes": ((Q[0], K[0], V[0]), {"enable_gqa": True}, "head axis"),
    "integer mask": ((Q, K, V, np.ones((3, 5), int)), {}, "attn_mask must be boolean"),
    "text mask": ((Q, K, V, np.full((3, 5), "x")), {}, "attn_mask must be boolean"),
    "mask shape": ((Q, K, V, np.ones((3, 4), bool)), {}, r"scores' shape \(2, 3, 5\): got \(3, 4\)"),
    "mask axes": ((Q, K, V, np.ones((2, 2, 3, 5), bool)), {}, "scores' shape"),
    "column mask": (
        (Q, np.ones((2, 3, 4)), V[..., :4].swapaxes(-1, -2), np.ones((3, 4), bool)),
        {"convention": "columns"},
        "share the axis n_keys",
    ),
    "dropout": ((Q, K, V), {"dropout_p": -0.1}, "dropout_p"),
    "dropout above": ((Q, K, V), {"dropout_p": 1.5}, "dropout_p"),
    "dropout nan": ((Q, K, V), {"dropout_p": NAN}, "dropout_p"),
    "dropout bool": ((Q, K, V), {"dropout_p": True}, "dropout_p"),
    "scale nan": ((Q, K, V), {"scale": NAN}, "scale must be a finite number"),
    "scale text": ((Q, K, V), {"scale": "sqrt"}, "scale must be None"),
    "scale bool": ((Q, K, V), {"scale": True}, "scale"),
    "scale array": ((Q, K, V), {"scale": [1.0, 2.0]}, "scale"),
    "softcap": ((Q, K, V), {"softcap": 0}, "softcap must be positive"),
    "softcap range": ((Q.astype("f4"), K.astype("f4"), V.astype("f4")), {"softcap": 1e300}, "range of float32"),
    "score": ((Q, K, V), {"score": "sine"}, "score must be"),
    "score shape": ((Q, K, V), {"score": lambda q, k: np.ones((3, 5))}, r"must return the shape \(2, 3, 5\)"),
    "score kind": ((Q, K, V), {"score": lambda q, k: np.full((2, 3, 5), "x")}, "the result of score"),
    "window": ((Q, K, V), {"window": 0}, "window"),
    "window fraction": ((Q, K, V), {"window": 1.5}, "window"),
    "window bool": ((Q, K, V), {"window": True}, "window"),
    "window side": ((Q, K, V), {"window": (-1, 0)}, "each side of window"),
    "window triple": ((Q, K, V), {"window": (1, 2, 3)}, "window"),
    "alignment": ((Q, K, V), {"causal_alignment": "centre"}, "causal_alignment must be one of"),
    "convention": ((Q, K, V), {"convention": "cols"}, "convention must be one of"),
    "causal text": ((Q, K, V), {"is_causal": "no"}, "is_causal must be True or False: got 'no'"),
    "gqa number": ((Q, K, V), {"enable_gqa": 2}, "enable_gqa must be True or False: got 2"),
    "rng": ((Q, K, V), {"dropout_p": 0.5, "rng": True}, "rng must be"),
    "rng text": ((Q, K, V), {"dropout_p": 0.5, "rng": "seed"}, "rng must be"),
    "complex": ((Q * 1j, K, V), {}, "query must hold real numbers"),
    "boolean": ((Q > 0, K, V), {}, "query must hold real numbers"),
    "objects": ((Q, K, [[None]]), {}, "value must hold real numbers"),
    "ragged": (([[1.0], [1.0, 2.0]], K, V), {}, "query must be an array of numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_one_sentence(name):
    arguments, options, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as caught:
        scaled_dot_product_attention(*arguments, **options)
    assert "\n" not in str(caught.value)
