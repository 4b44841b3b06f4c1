"""Folders of checkpoints as they are met at night: half written, mixed, beside other things, or no run at all."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from analysis.audit.over_time.run_files import run_of
from analysis.cli import main

CONFIG = json.dumps({"num_attention_heads": 4})


def weights(size=1.0, layers=2, width=32, prefix="model.layers"):
    rng = np.random.default_rng(0)
    return {
        f"{prefix}.{layer}.self_attn.{role}_proj.weight": (size * rng.standard_normal((width, width)) / width**0.5)
        .astype(np.float32)
        for layer in range(layers)
        for role in "qk"
    }  # fmt: skip


def save(folder, tensors=None, config=CONFIG):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights() if tensors is None else tensors, folder / "model.safetensors")
    if config:
        (folder / "config.json").write_text(config)


def save_run(folder, sizes=(1.0, 1.5, 2.5)):
    for i, size in enumerate(sizes, 1):
        save(folder / f"checkpoint-{1000 * i}", weights(size))


def audit(capsys, *arguments):
    """Return the exit code, what was printed as one line, and the one sentence of the error."""
    code = main(["audit", *map(str, arguments), "--weights"])
    printed = capsys.readouterr()
    assert printed.err.count("\n") == (1 if code else 0)
    return code, " ".join(printed.out.split()), printed.err


def test_a_trainers_folder_is_a_run_and_what_lies_beside_is_told(tmp_path, capsys):
    save_run(tmp_path)
    save(tmp_path)  # the final model
    save(tmp_path / "best")
    (tmp_path / "runs").mkdir()
    (tmp_path / "checkpoint-4000").mkdir()  # not yet written
    (tmp_path / "checkpoint-1000" / "optimizer.pt").write_bytes(b"\x80\x02")
    code, out, _ = audit(capsys, tmp_path)
    assert code == 0
    assert "8 of 8 heads grow over steps 1,000 to 3,000." in out
    assert "4 query heads, 4 key heads; no rotary embedding." in out
    assert out.endswith("No step of the run: best, checkpoint-4000, model.safetensors.")


def truncated(folder):
    file = folder / "checkpoint-3000" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    return "checkpoint-3000 was left out: model.safetensors holds"


def of_another_model(folder):
    save(folder / "checkpoint-1000", weights(prefix="transformer.h"))
    return "checkpoint-1000 was left out: its layers have other names"


def without_projections(folder):
    save(folder / "checkpoint-2000", {"head.weight": np.ones((2, 2), np.float32)})
    return "checkpoint-2000 was left out: no query and key projections found"


def with_huge_header(folder):
    file = folder / "checkpoint-3000" / "model.safetensors"
    file.write_bytes((2**62).to_bytes(8, "little") + file.read_bytes()[8:])
    return "checkpoint-3000 was left out: model.safetensors is no whole .safetensors file"


BREAKS = [truncated, of_another_model, without_projections, with_huge_header]


@pytest.mark.parametrize("spoil", BREAKS)
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_step_that_cannot_be_read_loses_nothing_of_the_others(tmp_path, capsys, spoil, form):
    save_run(tmp_path)
    message = spoil(tmp_path)
    code, out, err = audit(capsys, tmp_path, *(["--json"] if form == "json" else []))
    assert code == 2
    assert message in err
    assert "8 of 8 heads grow over steps" in out
    if form == "json":
        assert len(json.loads(out)["steps"]) == 2


def test_the_rotary_embedding_of_a_run_may_be_given(tmp_path, capsys):
    save_run(tmp_path)
    assert "rotary embedding (half)" in audit(capsys, tmp_path, "--rotary", "half")[1]
    np.savez(tmp_path / "a1.npz", q=np.ones((1, 1, 3, 2)), k=np.ones((1, 1, 3, 2)))
    assert main(["audit", str(tmp_path / "a1.npz"), "--rotary", "half"]) == 2
    assert "--rotary does not apply" in capsys.readouterr().err


def test_stored_audits_are_the_steps_of_a_run_too(tmp_path, capsys):
    save_run(tmp_path)
    for step in (1000, 2000, 3000):
        assert main(["audit", str(tmp_path / f"checkpoint-{step}"), "--weights", "--json"]) == 0
        (tmp_path / f"audit-{step}.json").write_text(capsys.readouterr().out)
    of_checkpoints = audit(capsys, tmp_path, "--json")[1]
    code, of_json, _ = audit(capsys, *tmp_path.glob("audit-*.json"), "--json")
    assert code == 0
    assert json.loads(of_json)["heads"] == json.loads(of_checkpoints)["heads"]
    (tmp_path / "audit-2000.json").write_text("{}")
    code, out, err = audit(capsys, *tmp_path.glob("audit-*.json"))
    assert code == 2
    assert "8 of 8 heads grow over steps 1,000 to 3,000." in out
    assert "audit-2000.json was left out: audit-2000.json is no audit" in err


def test_weights_that_stop_being_finite_are_told_first(tmp_path, capsys):
    save_run(tmp_path, (1.0, 1.0, 1.0))
    broken = weights()
    broken["model.layers.1.self_attn.k_proj.weight"][9, 3] = np.nan  # head 1
    save(tmp_path / "checkpoint-3000", broken)
    code, out, _ = audit(capsys, tmp_path)
    assert code == 0
    assert out.startswith("model.layers.1.self_attn, head 1: not finite since step 3,000. 0 of 8 heads grow")


def empty(folder):
    return "holds no .safetensors, .npz or .npy file"


def one(folder):
    save(folder / "checkpoint-7")
    return "holds one checkpoint, checkpoint-7, and a run needs two"


def without_numbers(folder):
    for name in ("alpha", "beta"):
        save(folder / name)
    return "tell no step (alpha, beta): they must differ in one number"


def two_numbers(folder):
    for name in ("run1-step1", "run1-step2", "run2-step1"):
        save(folder / name)
    return "differ in more than one number"


def two_numbers_of_files(folder):
    for name in ("run1-step1", "run1-step2", "run2-step1"):
        np.savez(folder / f"{name}.npz", **weights())
    return "differ in more than one number"


def other_widths(folder):
    save(folder / "checkpoint-1")
    save(folder / "checkpoint-2", weights(width=64))
    return "has d_k = 8 at step 1 and 16 at step 2: these are not steps of one model"


def pickles(folder):
    for i in (1, 2):
        (folder / f"checkpoint-{i}").mkdir()
        (folder / f"checkpoint-{i}" / "pytorch_model.bin").write_bytes(b"\x80\x02x")
    return "pytorch_model.bin is a pickle"


def other_names(folder):
    save(folder / "checkpoint-1")
    save(folder / "checkpoint-2", weights(prefix="h"))
    return "no head is in the audit of every step"


def without_heads(folder):
    for i in (1, 2):
        save(folder / f"checkpoint-{i}", config="")
    return "the number of heads is not known"


@pytest.mark.parametrize(
    "make",
    [empty, one, without_numbers, two_numbers, two_numbers_of_files, other_widths, pickles, other_names, without_heads],
)
def test_what_is_no_run_is_refused_in_one_sentence(tmp_path, capsys, make):
    message = make(tmp_path)
    code, out, err = audit(capsys, tmp_path)
    assert code == 2
    assert message in err
    assert out == ""


def test_the_configuration_may_lie_beside_the_steps(tmp_path, capsys):
    for i in (1, 2):
        save(tmp_path / f"checkpoint-{i}", config="")
    (tmp_path / "config.json").write_text(CONFIG)
    assert audit(capsys, tmp_path)[0] == 0


def test_files_are_steps_where_they_hold_the_same_names_and_parts_otherwise(tmp_path):
    for i in (1, 2):
        np.savez(tmp_path / f"step{i}.npz", a=np.ones(1))
    assert list(run_of([tmp_path]).steps) == [1, 2]
    np.savez(tmp_path / "step2.npz", b=np.ones(1))
    assert run_of([tmp_path]) is None


@pytest.mark.parametrize(
    "text", ["[]", '{"heads": [{"layer": 1}]}', "[" * 10_000, '{"heads": [{"layer": "a", "head": 1e400, "d_k": 0}]}']
)
def test_json_that_is_no_audit_is_refused(tmp_path, capsys, text):
    (tmp_path / "a.json").write_text(text)
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "a.json")]) == 2
    printed = capsys.readouterr()
    assert "no audit" in printed.err
    assert printed.err.count("\n") == 1
