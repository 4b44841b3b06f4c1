"""Streams by content: equal for equal settings, distinct for everything else, and never the plain seed's own."""

import json

import numpy as np
import pytest

from analysis.measure.draw.samplers import draw
from analysis.measure.run.seeds import check_seed, settings_digest, shard_sequence
from analysis.measure.settings import Asked, read_settings


def first_draw(seed=0, name="entropy", settings=(("d_k", 4),), shard=0) -> int:
    sequence = shard_sequence(seed, settings_digest(name, dict(settings)), shard)
    return int(np.random.PCG64(sequence).random_raw())


def test_order_of_settings_does_not_matter():
    assert settings_digest("x", {"a": 1, "b": None}) == settings_digest("x", {"b": None, "a": 1})


def test_every_part_of_the_content_matters():
    draws = [
        first_draw(),
        first_draw(seed=1),
        first_draw(seed=2**40),
        first_draw(name="score"),
        first_draw(settings=(("d_k", 5),)),
        first_draw(settings=(("d_k", 4), ("softcap", None))),
        first_draw(shard=1),
    ]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize("seed", [0, 42])
def test_no_shard_repeats_the_stream_of_the_plain_seed(seed):
    # default_rng(42), default_rng([42]) and default_rng([42, 0]) are one stream
    plain = {int(np.random.PCG64(entropy).random_raw()) for entropy in (seed, [seed], [seed, 0], [seed, 1])}
    assert plain.isdisjoint({first_draw(seed=seed, shard=shard) for shard in range(100)})


def test_twenty_thousand_shards_do_not_collide():
    digest = settings_digest("entropy", {"d_k": 4})
    states = {tuple(shard_sequence(0, digest, shard).generate_state(2)) for shard in range(20_000)}
    assert len(states) == 20_000


def test_the_streams_are_pinned():
    # what a published seed means must not change with the code around it
    assert settings_digest("entropy", {"d_k": 64, "scale": "sqrt"})[:16] == "bea3a461eb36e5ef"
    assert first_draw() == 13538857118327914381


@pytest.mark.parametrize("seed", [True, False, np.True_, -1, 1.0, "1", None, np.random.default_rng(0), [1]])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(ValueError, match="seed must be a whole number of at least 0"):
        check_seed(seed)


def test_zero_and_numpy_integers_are_seeds():
    assert (check_seed(0), check_seed(np.int64(7)), check_seed(2**100)) == (0, 7, 2**100)


def asked(quantity, **changes):
    given = {"d_k": [3], "n_keys": [5], "scale": ["sqrt", "log(n_keys)/d_k"], "replicates": 100, "seed": 7}
    return read_settings(quantity, Asked(**{**given, **changes}))


PINNED = [
    ("score", {}, "283526e5313d8c4b", [3041757526, 3537699471], 8192, 65536),
    ("entropy", {}, "25043ad9ad530eaf", [2303987510, 1073165098], 8192, 65536),
    ("query_gradient_norm", {"law": ("rademacher", "uniform"), "softcap": 2, "statistic": ("mean", 0.9)},
     "e8ca481b5ea7ca85", [1896649217, 2322772696], 8192, 65536),
    ("dead_row", {"is_causal": True, "precision": "single", "name": "mine"},
     "bfe6335a9ef7e59d", [3777294986, 2062575777], 4766, 61958),
]  # fmt: skip


@pytest.mark.parametrize(("quantity", "changes", "digest", "words", "chunk", "shard"), PINNED)
def test_the_streams_of_a_study_are_pinned(quantity, changes, digest, words, chunk, shard):
    settings = asked(quantity, **changes)
    cell = settings.cells[-1]
    assert (cell.digest[:16], cell.chunk, cell.shard) == (digest, chunk, shard)
    assert shard_sequence(7, cell.digest, 3).generate_state(2).tolist() == words


def test_what_a_store_remembers_is_pinned():
    identity = asked(
        "query_gradient_norm", law=("rademacher", "uniform"), softcap=2, statistic=("mean", 0.9)
    ).identity()
    assert json.dumps(identity) == (
        '{"name": "query_gradient_norm", "seed": 7, "quantity": "query_gradient_norm", "law": "rademacher, uniform", '
        '"d_k": [3], "n_keys": [5], "scale": ["sqrt", "log(n_keys)/d_k"], "alignment": 0.0, "key_correlation": 0.0, '
        '"score": "dot", "softcap": 2.0, "is_causal": false, "sampler": "direct", "precision": "double", '
        '"statistic": ["mean", "quantile_0.9"]}'
    )


def test_draws_are_pinned():
    # sums of six signs: whole numbers, on every machine
    cell = asked("score", law="rademacher", scale=1.0, d_k=6).cells[0]
    drawn = draw(cell, shard_sequence(7, cell.digest, 3), 20)
    assert drawn.tolist() == [-4, 4, 4, 4, 0, 4, 2, 0, 2, 2, 0, -2, 4, 0, 0, -2, 0, 0, 0, 4]
