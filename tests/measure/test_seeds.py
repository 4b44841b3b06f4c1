"""Streams by content: equal for equal settings, distinct for everything else, and never the plain seed's own."""

import numpy as np
import pytest

from analysis.measure.run.seeds import check_seed, settings_digest, shard_sequence


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
