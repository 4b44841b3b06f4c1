"""Two audits, and a run of checkpoints: the head, the step and the factor that were planted are the ones named."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from analysis import audit_tensors, audit_trends, audit_weights, compare_audits
from analysis.audit.over_time.fit import crossing, line, onset
from analysis.audit.over_time.run_files import run_of, steps_of
from analysis.cli import main


def gaussian(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def planted(what, size):
    """Queries and keys of two layers of three heads, in the second head of the second layer one thing of a size."""
    q, k = gaussian(1, 2, 1, 3, 120, 16), gaussian(2, 2, 1, 3, 120, 16)
    if what == "queries":
        q[1, 0, 1] *= size
    elif what == "keys":
        k[1, 0, 1] *= size
    elif what == "channel":
        k[1, 0, 1, :, 5] *= size
    elif what == "one key":
        k[1, 0, 1, 0] *= size
    elif what == "mean":
        q[1, 0, 1] += size - 1
    return {"a": q[0], "b": q[1]}, {"a": k[0], "b": k[1]}


WORDS = {
    "queries": "norms of the queries",
    "keys": "norms of the keys",
    "channel": "norms of the keys (channel 5 carries",
    "one key": "one key",
    "mean": "the queries' shared mean",
}


@pytest.mark.parametrize("what", WORDS)
def test_what_grew_is_named(what):
    before, after = audit_tensors(*planted(what, 1)), audit_tensors(*planted(what, 20))
    result = compare_audits(before, after)
    assert len(result.heads) == 6
    changed = [(head.layer, head.head) for head in result.heads if head.variance_ratio != 1]
    assert changed == [("b", 1)]
    head = result.heads[4]
    assert head.factor.startswith(WORDS[what])
    assert head.variance_ratio == pytest.approx(head.variance_after / head.variance_before)
    if what in ("queries", "keys"):
        assert head.factor_ratio == pytest.approx(400, rel=1e-6)
        assert head.variance_ratio == pytest.approx(400, rel=1e-6)
    assert f"b, head 1: variance {head.variance_before:.3g}" in result.summary()[1]
    assert compare_audits(before.to_dict(), after.to_dict()).summary() == result.summary()


def test_a_scale_that_changed_is_named():
    q, k = planted("queries", 1)
    result = compare_audits(audit_tensors(q, k), audit_tensors(q, k, scale="unscaled"))
    assert {head.factor for head in result.heads} == {"the scale"}
    assert [head.factor_ratio for head in result.heads] == pytest.approx([16] * 6)


def test_heads_of_one_side_alone_are_told_and_kinds_are_not_mixed():
    q, k = planted("queries", 1)
    whole, part = audit_tensors(q, k), audit_tensors({"a": q["a"]}, {"a": k["a"]})
    assert compare_audits(part, whole).missing == ("b 0", "b 1", "b 2")
    with pytest.raises(ValueError, match="no head in common"):
        compare_audits(audit_tensors(q["a"], k["a"]), whole)
    weights = audit_weights(gaussian(3, 8, 8), gaussian(4, 8, 8), num_heads=2)
    with pytest.raises(ValueError, match="stands before that of tensors"):
        compare_audits(whole, weights)
    with pytest.raises(ValueError, match="no head in common"):
        compare_audits(weights, whole)  # one layer, two layers
    with pytest.raises(ValueError, match="no audit"):
        compare_audits({"heads": [{}]}, {"heads": []})


@pytest.mark.parametrize("what", WORDS)
def test_a_run_names_the_head_its_rate_its_factor_and_the_step(what):
    sizes = {1000 * i: float(np.exp(0.5 * i)) for i in range(7)}
    trends = audit_trends({step: audit_tensors(*planted(what, size)) for step, size in sizes.items()})
    (head,) = trends.fastest
    assert (head.layer, head.head) == ("b", 1)
    assert head.factor.startswith(WORDS[what])
    if what in ("queries", "keys"):
        assert head.rate == pytest.approx(1e-3, rel=1e-9)  # the variance grows as the square of the size
        assert head.rate_standard_error < 1e-12
    first = next(step for step, value in zip(trends.steps, head.variance, strict=True) if value > 4)
    assert head.crossed["variance"] == first
    assert f"variance above 4 since step {first:,}" in trends.summary()[0]
    assert trends.summary()[0].startswith(
        f"b, head 1, since step {head.onset:,}, because of {WORDS[what].split(' (')[0]} ×"
    )
    clipped = head.variance[-1] * head.clip_factor**2, head.largest[-1] * head.clip_factor
    assert clipped[0] <= 4 * (1 + 1e-9)
    assert clipped[1] <= 100 * (1 + 1e-9)
    assert clipped[0] == pytest.approx(4) or clipped[1] == pytest.approx(100)
    assert head.query_factor * head.key_factor == pytest.approx(head.clip_factor)
    assert all(other.crossed["variance"] is None for other in trends.heads if other is not head)


def test_the_standard_error_of_a_rate_is_that_of_a_fitted_line():
    rng = np.random.default_rng(5)
    steps = np.arange(0, 900, 100)
    q, k = gaussian(6, 1, 1, 50, 8), gaussian(7, 1, 1, 50, 8)
    noise = rng.normal(0, 0.1, len(steps))
    audits = {int(s): audit_tensors(q * np.exp((s / 1000 + e) / 2), k) for s, e in zip(steps, noise, strict=True)}
    (head,) = audit_trends(audits).heads
    (slope, _), covariance = np.polyfit(steps, np.log(head.variance), 1, cov=True)
    assert head.rate == pytest.approx(slope)
    assert head.rate_standard_error == pytest.approx(np.sqrt(covariance[0, 0]))


@settings(max_examples=30)
@given(knot=st.integers(0, 5), slope=st.floats(0.05, 2), sigma=st.floats(1e-6, 0.02), seed=st.integers(0, 2**32 - 1))
def test_onset_and_crossing_of_a_bent_line(knot, slope, sigma, seed):
    """The crossing is told within its error: five of its standard errors, Student's t with 4 degrees or more."""
    steps = list(range(0, 1100, 100))
    noise = np.random.default_rng(seed).normal(0, sigma * slope, len(steps))
    values = [slope * max(0, i - knot) + e for i, e in enumerate(noise)]
    assert onset(steps, values) in (100 * knot, 100 * (knot - 1), 100 * (knot + 1))
    fitted = line(steps[knot:], values[knot:])
    step, error = crossing(fitted, 14 * slope, steps)
    assert abs(step - 100 * (knot + 14)) < 15 * error  # t with 4 degrees: exceeded once in 8,000
    assert crossing(fitted, 0.0, steps) is None  # it lies behind
    assert crossing(line(steps[:3], [0.0, 0.01, 0.0]), 1.0, steps) is None


def test_a_run_that_only_scatters_grows_nowhere_and_promises_nothing():
    rng = np.random.default_rng(9)
    q, k = gaussian(6, 1, 32, 20, 8), gaussian(7, 1, 32, 20, 8)
    audits = {
        100 * i: audit_tensors(q * np.exp(rng.normal(0, 0.05, (1, 32, 1, 1))), k) for i in range(6)
    }  # fmt: skip
    trends = audit_trends(audits, targets={"variance": 100})
    assert trends.fastest == ()
    assert trends.summary()[0] == "0 of 32 heads grow over steps 0 to 500."


def test_grouped_heads_are_clipped_on_their_queries_alone():
    w_query, w_key = gaussian(1, 64, 32) / 8, gaussian(2, 64, 16) / 8
    grown = w_key.copy()
    grown[:, 8:] *= 3.0
    audits = {s: audit_weights(w_query, w, num_heads=4, num_key_value_heads=2) for s, w in ((0, w_key), (9, grown))}
    trends = audit_trends(audits)
    assert [h.head for h in trends.fastest] in ([2, 3], [3, 2])
    assert "layer0, heads 2 and 3, since step 0, because of norms of the keys × 9:" in trends.summary()[0]
    assert "W_k stays" in trends.summary()[0]
    clipped = w_query.copy()
    for head in trends.fastest:
        assert head.key_factor == 1.0
        clipped[:, 8 * head.head : 8 * head.head + 8] *= head.query_factor
    after = audit_weights(clipped, grown, num_heads=4, num_key_value_heads=2)
    assert [h.score_variance for h in after.heads[2:]] == pytest.approx([4, 4])


@pytest.mark.parametrize("rotary", [None, "half"])
def test_alignment_that_the_variance_over_positions_hides_is_told(rotary):
    w_query, w_key = gaussian(1, 64, 32) / 8, gaussian(2, 64, 32) / 8
    audits = {}
    for step in range(5):
        grown = w_key.copy()
        grown[:, 16:] = ((4 - step) * w_key[:, 16:] + step * w_query[:, 16:]) / np.hypot(4 - step, step)
        audits[step] = audit_weights(w_query, grown, num_heads=2, rotary=rotary)
    trends = audit_trends(audits)
    assert [head.head for head in trends.heads if head.attends_to_itself] == [1]
    assert "layer0, head 1: a token's score with itself goes from" in " ".join(trends.summary())
    if rotary:
        assert trends.heads[1].variance[-1] == pytest.approx(trends.heads[1].variance[0], rel=0.1)


def test_targets_are_the_callers_and_bad_ones_are_refused():
    audits = {step: audit_tensors(*planted("keys", size)) for step, size in ((1, 1), (2, 3), (3, 9))}
    trends = audit_trends(audits, targets={"variance": 50, "entropy": 0.5, "largest": 1e9})
    assert trends.heads[4].crossed == {"variance": 3, "entropy": 2, "largest": None}
    with pytest.raises(ValueError, match="targets are of"):
        audit_trends(audits, targets={"size": 3})
    with pytest.raises(ValueError, match="at least two steps"):
        audit_trends({1: audits[1]})
    json.loads(json.dumps(trends.to_dict(), allow_nan=False))


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        (["step2.npz", "step10.npz"], [2, 10]),
        (["model-1-of-2.safetensors", "model-2-of-2.safetensors"], [1, 2]),
        (["q.npy", "k.npy"], None),
        (["run1step2.npz", "run2step3.npz"], None),
        (["one1.npz"], None),
        ([], None),
    ],
)
def test_steps_are_the_one_number_in_which_names_differ(tmp_path, names, steps):
    found = steps_of([tmp_path / name for name in names])
    assert (found and sorted(found)) == steps


def save_run(folder):
    for step, size in ((900, 1.0), (1000, 3.0), (11000, 9.0)):
        q, k = planted("keys", size)
        save_file({f"{n}.{r}": x for r, part in (("q", q), ("k", k)) for n, x in part.items()},
                  folder / f"step{step}.safetensors")  # fmt: skip


def test_parts_of_one_whole_are_no_run(tmp_path):
    for part in (1, 2):
        np.savez(tmp_path / f"part{part}.npz", **{f"layer{part}.{r}": np.ones((1, 1, 3, 2)) for r in "qk"})
    assert run_of([tmp_path / "part1.npz", tmp_path / "part2.npz"]) is None
    assert main(["audit", str(tmp_path)]) == 0


@pytest.mark.parametrize("form", ["files", "folder"])
def test_the_command_follows_a_run(tmp_path, capsys, form):
    save_run(tmp_path)
    arguments = [str(tmp_path)] if form == "folder" else [str(p) for p in tmp_path.iterdir()]
    assert main(["audit", *arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] == [900, 1000, 11000]
    assert result["heads"][4]["crossed"]["variance"] == 1000
    assert main(["audit", *arguments]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 of 6 heads grow over steps 900 to 11,000." in printed
    assert printed.startswith("b, head 1, since step 900, because of norms of the keys × 81: variance 1.08 to 87.4, ")
    assert (
        "variance above 4 since step 1,000; clip W_q and W_k of the head by 0.46 each (kᵀq by 0.21) for variance 4."
        in printed
    )
    assert main(["audit", *arguments, "--target", "largest_score=3"]) == 2
    assert "--target does not apply to an audit of the steps of a run" in capsys.readouterr().err


def test_the_command_compares_tensors_json_and_checkpoints(tmp_path, capsys):
    save_run(tmp_path)
    first, last = (str(tmp_path / f"step{step}.safetensors") for step in (900, 11000))
    assert main(["compare", first, last, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["heads"][4]["factor_ratio"] == pytest.approx(81)
    assert main(["audit", first, "--json"]) == 0
    (tmp_path / "first.json").write_text(capsys.readouterr().out)
    assert main(["compare", str(tmp_path / "first.json"), last]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 100
    assert "norms of the keys × 81" in " ".join(printed.split())
    assert main(["compare", str(tmp_path / "first.json"), str(tmp_path / "first.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"] == [
        "0 of 6 heads changed their score variance by more than a tenth."
    ]
    (tmp_path / "bad.json").write_text("[]")
    assert main(["compare", str(tmp_path / "bad.json"), last]) == 2
    assert "is no audit" in capsys.readouterr().err
    weights = {f"h.0.attn.{r}_proj.weight": gaussian(s, 12, 12).astype(np.float32) for s, r in ((8, "q"), (9, "k"))}
    for name, factor in (("x1", 1), ("x2", 2)):
        save_file({key: factor * value for key, value in weights.items()}, tmp_path / f"{name}.safetensors")
    both = [str(tmp_path / f"{name}.safetensors") for name in ("x1", "x2")]
    assert main(["compare", *both, "--weights", "--num-heads", "2", "--json"]) == 0
    assert [head["variance_ratio"] for head in json.loads(capsys.readouterr().out)["heads"]] == pytest.approx([16, 16])
    assert main(["audit", *both, "--weights", "--num-heads", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == [1, 2]


def test_a_bound_is_not_called_a_maximum(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.savez(
            tmp_path / f"{name}.npz", **{f"layers.0.{part}_proj.weight": rng.standard_normal((16, 16)) for part in "qk"}
        )
        np.savez(tmp_path / f"t{name}.npz", q=rng.standard_normal((1, 2, 8, 4)), k=rng.standard_normal((1, 2, 8, 4)))
    assert main(["compare", str(tmp_path / "a.npz"), str(tmp_path / "b.npz"), "--weights", "--num-heads", "2"]) == 0
    shown = capsys.readouterr().out
    assert "|s| ≤" in shown
    assert "max |s|" not in shown
    assert main(["compare", str(tmp_path / "ta.npz"), str(tmp_path / "tb.npz")]) == 0
    assert "max |s|" in capsys.readouterr().out
