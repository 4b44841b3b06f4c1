"""Tensor files: right values from every format and layout, and no hostile file believed."""

import json
import pickle
import subprocess
import sys
import zipfile

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from analysis import audit_files
from analysis.audit.files import numpy_files, safetensors_files
from analysis.audit.files.readers import read_tensors

CANARY = "canary-was-run"


class Bomb:
    def __reduce__(self):
        return (open, (CANARY, "w"))


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    text = header.encode()
    width = 2 if version == 1 else 4
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(width, "little") + text + data


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: str = "F32", shape: tuple[int, ...] = (2,), span: tuple[int, int] = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(span)}


ARRAYS = {
    "c-order": np.arange(24.0).reshape(2, 3, 4),
    "fortran": np.asfortranarray([[0, 1, 2], [3, 4, 5]]),
    "strided": np.arange(12.0)[::2],
    "big-endian": np.arange(4, dtype=">f4"),
    "float16": np.array([1.5, -2.0], np.float16),
    "scalar": np.array(3.0),
    "empty": np.zeros((0, 4), np.float32),
    "boolean": np.array([True, False]),
    "bfloat16": np.array([1.0, -2.0], ml_dtypes.bfloat16),
}


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("form", ["npy", "npz", "compressed"])
def test_numpy_files_give_back_the_values(tmp_path, kind, form):
    array = ARRAYS[kind]
    path = tmp_path / ("x.npy" if form == "npy" else "x.npz")
    save = {
        "npy": np.save,
        "npz": lambda p, a: np.savez(p, x=a),
        "compressed": lambda p, a: np.savez_compressed(p, x=a),
    }
    save[form](path, array)
    tensor = read_tensors([path])["x"]
    assert tensor.shape == array.shape
    assert tensor.array().dtype == array.dtype
    np.testing.assert_array_equal(tensor.array().astype(float), array.astype(float))


@settings(max_examples=40, derandomize=True)
@given(
    array=hnp.arrays(st.sampled_from(["<f2", "<f4", ">f8", "<i4"]), hnp.array_shapes(max_dims=4, max_side=4)),
    fortran=st.booleans(),
)
def test_npy_reader_agrees_with_numpy(tmp_path_factory, array, fortran):
    path = tmp_path_factory.mktemp("npy") / "x.npy"
    np.save(path, np.asfortranarray(array) if fortran else array)
    np.testing.assert_array_equal(read_tensors([path])["x"].array(), np.load(path, allow_pickle=False))


def test_safetensors_agree_with_the_library(tmp_path):
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([7, -7]), "c": np.float16([[0.5]])}
    save_file(arrays, tmp_path / "x.safetensors", metadata={"note": "kept apart"})
    read = read_tensors([tmp_path / "x.safetensors"])
    assert set(read) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name].array(), array)


def test_bfloat16_and_float8_bits_are_read(tmp_path):
    data = np.array([0x3F80, 0xC000], "<u2").tobytes() + bytes([0x38, 0xC0])
    header = {"b": entry("BF16", (2,), (0, 4)), "e": entry("F8_E4M3", (2,), (4, 6))}
    (tmp_path / "x.safetensors").write_bytes(safetensors(header, data))
    read = read_tensors([tmp_path / "x.safetensors"])
    assert read["b"].array().astype(np.float32).tolist() == [1.0, -2.0]
    assert read["e"].array().astype(np.float32).tolist() == [1.0, -2.0]


def test_large_arrays_are_mapped_and_not_read(tmp_path):
    with (tmp_path / "x.npy").open("wb") as stream:
        stream.write(npy("{'descr': '<f2', 'fortran_order': False, 'shape': (4, 1073741824)}"))
        stream.truncate(stream.tell() + 4 * 2 * 2**30)  # 8 GiB of holes
    array = read_tensors([tmp_path / "x.npy"])["x"].array()
    assert array.shape == (4, 2**30)
    assert array[3, -2:].tolist() == [0.0, 0.0]
    assert not array.flags.writeable


HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': %s}"
HOSTILE = {
    "giant shape.npy": (npy(HUGE % "(1099511627776, 1024)"), "declares shape"),
    "product overflows.npy": (npy(HUGE % "(4611686018427387904, 8)"), "declares shape"),
    "negative.npy": (npy(HUGE % "(-1,)"), "makes no sense"),
    "boolean length.npy": (npy(HUGE % "(True,)", b"\0\0\0\0"), "makes no sense"),
    "numpy scalar in header.npy": (npy(HUGE % "(np.int64(1),)", b"\0\0\0\0"), "cannot be read"),
    "call in header.npy": (npy("__import__('os').getcwd()"), "cannot be read"),
    "deep header.npy": (npy("(" * 5000), "cannot be read"),
    "long header.npy": (npy(" " * 20_000, version=2), "header of 20,000 bytes"),
    "short header.npy": (b"\x93NUMPY\x01\x00\xff\x00{}", "cannot be read|makes no sense"),
    "no version.npy": (b"\x93NUMPY", "unknown .npy version"),
    "object array.npy": (
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", pickle.dumps([Bomb()])),
        "pickle",
    ),
    "trailing.npy": (npy(HUGE % "(1,)", b"\0" * 9), "declares shape"),
    "truncated.npy": (npy(HUGE % "(3,)", b"\0" * 8), "declares shape"),
    "bare pickle.npy": (pickle.dumps(Bomb()), "pickle, which could run code"),
    "bare pickle.npz": (pickle.dumps(Bomb()), "pickle, which could run code"),
    "empty.npz": (b"", "is empty"),
    "noise.npz": (b"not an archive", "is no .npz, .npy or .safetensors"),
    "broken.npz": (b"PK\x03\x04" + b"\0" * 40, "not a whole .npz"),
    "pickle.pt": (pickle.dumps(Bomb()), "convert it with python -c"),
    "length beyond the file.safetensors": (safetensors({}, length=2**63), "its header claims"),
    "shorter than a length.safetensors": (b"\0\0", "its header claims"),
    "no json.safetensors": (safetensors(b"{not json"), "cannot be read"),
    "deep json.safetensors": (safetensors(b'{"a":' * 20_000), "cannot be read"),
    "name twice.safetensors": (safetensors(b'{"a":1,"a":2}'), "twice"),
    "list.safetensors": (safetensors(b"[]"), "no table"),
    "not an entry.safetensors": (safetensors({"a": 3}), "lacks one of"),
    "overlap.safetensors": (safetensors({"a": entry(), "b": entry(span=(4, 12))}, b"\0" * 12), "where 8 is due"),
    "gap.safetensors": (safetensors({"a": entry(), "b": entry(span=(9, 17))}, b"\0" * 17), "where 8 is due"),
    "trailing.safetensors": (safetensors({"a": entry()}, b"\0" * 9), "holds 9 bytes"),
    "span and shape differ.safetensors": (safetensors({"a": entry(shape=(3,))}, b"\0" * 8), "span of 8 bytes"),
    "shape overflows.safetensors": (safetensors({"a": entry(shape=(2**62, 4))}, b"\0" * 8), "span of 8 bytes"),
    "negative span.safetensors": (safetensors({"a": entry(span=(-8, 0))}), "makes no sense"),
    "backward span.safetensors": (safetensors({"a": entry("XX", (2,), (8, 0))}, b"\0" * 8), "where 0 is due"),
    "beyond the end.safetensors": (safetensors({"a": entry(shape=(2**40,), span=(0, 2**42))}), "its tensors"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_in_one_sentence(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    content, message = HOSTILE[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_tensors([tmp_path / name])
    assert "\n" not in str(caught.value)
    assert not (tmp_path / CANARY).exists()


def archive(path, members, **options):
    with zipfile.ZipFile(path, "w", **options) as out:
        for name, data in members:
            out.writestr(name, data)


ONE = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", b"\0\0\0\0")
BAD_MEMBERS = {
    "object member": ([("a.npy", ONE), ("b.npy", HOSTILE["object array.npy"][0])], "pickle"),
    "pickle member": ([("b.npy", pickle.dumps(Bomb()))], "pickle"),
    "torch archive": ([("archive/data.pkl", pickle.dumps(Bomb()))], "torch.load"),
    "text member": ([("readme.txt", b"hello there")], "not a NumPy array"),
    "giant shape": ([("a.npy", npy(HUGE % "(1099511627776,)"))], "declares shape"),
}


@pytest.mark.parametrize("case", BAD_MEMBERS)
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_hostile_members_are_refused(tmp_path, monkeypatch, case, compression):
    monkeypatch.chdir(tmp_path)
    members, message = BAD_MEMBERS[case]
    archive(tmp_path / "x.npz", members, compression=compression)
    with pytest.raises(ValueError, match=message):
        read_tensors([tmp_path / "x.npz"])
    assert not (tmp_path / CANARY).exists()


def test_two_members_of_one_name_are_refused(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        archive(tmp_path / "x.npz", [("a.npy", ONE), ("a.npy", ONE)])
    with pytest.raises(ValueError, match="two members of the same name"):
        read_tensors([tmp_path / "x.npz"])


def test_a_flipped_bit_is_noticed_when_the_member_is_read(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", a=np.arange(1000.0))
    raw = bytearray((tmp_path / "x.npz").read_bytes())
    raw[300] ^= 0xFF
    (tmp_path / "x.npz").write_bytes(raw)
    with pytest.raises(ValueError, match=r"damaged|not a whole"):
        read_tensors([tmp_path / "x.npz"])["a"].array()


def test_an_inflating_member_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(numpy_files, "MAX_INFLATED", 2**16)
    np.savez_compressed(tmp_path / "x.npz", small=np.zeros(2**10), large=np.zeros(2**17))
    tensors = read_tensors([tmp_path / "x.npz"])
    assert not tensors["small"].array().any()
    with pytest.raises(ValueError, match="inflates to 1,048,704 bytes"):
        tensors["large"].array()


def test_names_are_labels_and_never_paths(tmp_path):
    names = ["../../evil", "/root/evil", "layer/0/q", "esc\x1b[31m"]
    np.savez(tmp_path / "x.npz", **{name: np.zeros(1) for name in names})
    assert set(read_tensors([tmp_path / "x.npz"])) == set(names)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["x.npz"]


def test_types_without_numbers_are_refused_only_when_asked_for(tmp_path):
    np.savez(tmp_path / "x.npz", words=np.array(["a", "b"]), q=np.zeros(1))
    tensors = read_tensors([tmp_path / "x.npz"])
    assert tensors["q"].array().tolist() == [0.0]
    with pytest.raises(ValueError, match="words has type <U1"):
        tensors["words"].array()


def test_one_name_in_two_files_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", q=np.zeros(1))
    np.savez(tmp_path / "b.npz", q=np.zeros(1))
    with pytest.raises(ValueError, match="two of the files"):
        read_tensors([tmp_path / "a.npz", tmp_path / "b.npz"])


@pytest.mark.slow
def test_the_line_that_converts_a_pickle_works(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"layer0.q": torch.ones(1, 1, 2, 2).mT, "layer0.k": torch.ones(1, 1, 2, 2)}, tmp_path / "run one.pt")
    with pytest.raises(ValueError, match="convert it with") as caught:
        read_tensors([tmp_path / "run one.pt"])
    line = str(caught.value).partition("convert it with ")[2].replace("python", sys.executable, 1)
    subprocess.run(line, shell=True, check=True)
    assert set(read_tensors([tmp_path / "run one.safetensors"])) == {"layer0.q", "layer0.k"}


def shards(folder, places=None):
    for part, name in (("1", "layer0.q"), ("2", "layer0.k")):
        save_file({name: np.full((1, 1, 3, 2), float(part), np.float32)}, folder / f"model-{part}-of-2.safetensors")
    places = {"layer0.q": "model-1-of-2.safetensors", "layer0.k": "model-2-of-2.safetensors"} | (places or {})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


@pytest.mark.parametrize("what", ["", "model.safetensors.index.json"])
def test_an_index_and_a_folder_stand_for_their_shards(tmp_path, what):
    shards(tmp_path)
    save_file({"layer0.q": np.zeros(1)}, tmp_path / "of-another-run.safetensors")  # not in the index
    read = read_tensors([tmp_path / what])
    assert {name: tensor.array().max() for name, tensor in read.items()} == {"layer0.q": 1.0, "layer0.k": 2.0}


def test_a_folder_without_an_index_is_all_its_files(tmp_path):
    np.save(tmp_path / "q.npy", np.zeros((3, 2)))
    np.savez(tmp_path / "rest.npz", k=np.ones((3, 2)))
    (tmp_path / "notes.txt").write_text("not a tensor")
    assert set(read_tensors([tmp_path])) == {"q", "k"}


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"x": "../evil.safetensors"}, "shards are files beside the index"),
        ({"x": "/root/evil.safetensors"}, "shards are files beside the index"),
        ({"x": 3}, "no index of shards|shards are files"),
        ({"x": "model-1-of-2.safetensors"}, "names x, which none of its shards holds"),
    ],
)
def test_hostile_indices_are_refused(tmp_path, places, message):
    shards(tmp_path, places)
    with pytest.raises(ValueError, match=message):
        read_tensors([tmp_path])


@pytest.mark.parametrize("text", ["", "[]", '{"weight_map": 3}', "[" * 100_000])
def test_what_is_no_index_is_refused(tmp_path, text):
    (tmp_path / "x.index.json").write_text(text)
    with pytest.raises(ValueError, match="no index of shards"):
        read_tensors([tmp_path / "x.index.json"])


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no"):
        read_tensors([tmp_path])


def test_very_long_names_and_very_many_members_are_refused_at_once(tmp_path, monkeypatch):
    (tmp_path / "x.safetensors").write_bytes(safetensors({"\u202e" * 2_000_000: entry()}, b"\0" * 8))
    with pytest.raises(ValueError, match="name has 2,000,000 characters") as caught:
        read_tensors([tmp_path / "x.safetensors"])
    assert len(str(caught.value)) < 1000
    checked = []
    monkeypatch.setattr(safetensors_files, "MAX_TENSORS", 1000)
    monkeypatch.setattr(safetensors_files, "_entry", lambda *parts: checked.append(parts))
    many = {f"x{i}": entry(shape=(0,), span=(0, 0)) for i in range(safetensors_files.MAX_TENSORS + 1)}
    (tmp_path / "x.safetensors").write_bytes(safetensors(many))
    with pytest.raises(ValueError, match="more than 1,000 tensors"):
        read_tensors([tmp_path / "x.safetensors"])
    assert checked == []
    opened = []
    monkeypatch.setattr(numpy_files.zipfile, "ZipFile", opened.append)  # its directory is not even parsed
    (tmp_path / "y.npz").write_bytes(b"PK\x01\x02".ljust(46, b"\0") * (numpy_files.MAX_MEMBERS + 1))
    with pytest.raises(ValueError, match="more than 10,000 members"):
        read_tensors([tmp_path / "y.npz"])
    assert opened == []


@pytest.mark.parametrize("state", ["raise", "warn"])
def test_no_bit_pattern_makes_numpy_speak(tmp_path, state):
    noise = np.random.default_rng(0).integers(0, 256, 4 * 64, dtype=np.uint8).tobytes()
    header = {
        name: entry(kind, (1, 1, 8, 8), (64 * size * i, 64 * size * (i + 1)))
        for i, (name, kind, size) in enumerate([("q", "BF16", 2), ("k", "BF16", 2)])
    }
    (tmp_path / "x.safetensors").write_bytes(safetensors(header, noise))
    with np.errstate(all=state):
        audit = audit_files([tmp_path / "x.safetensors"])
    assert audit.heads[0].verdict == "not finite"


@pytest.mark.parametrize("name", ["a.npz", "b.npz", "c.safetensors"])
def test_flipped_bytes_end_in_one_short_sentence_or_an_audit(tmp_path, name):
    rng = np.random.default_rng(1)
    q = rng.standard_normal((1, 2, 6, 4)).astype(np.float16)
    arrays = {"l.q": q, "l.k": q, "attention_mask": np.ones((1, 6), np.int8)}
    save = {"a.npz": np.savez, "b.npz": np.savez_compressed, "c.safetensors": lambda p, **a: save_file(a, p)}[name]
    save(tmp_path / name, **arrays)
    whole = (tmp_path / name).read_bytes()
    for _ in range(150):
        broken = bytearray(whole)
        for place in rng.integers(len(whole), size=rng.integers(1, 4)):
            broken[place] = rng.integers(256)
        (tmp_path / name).write_bytes(broken)
        words = ""
        try:
            json.dumps(audit_files([tmp_path / name]).to_dict(), allow_nan=False)
        except ValueError as error:
            words = str(error)
        assert len(words) < 400
        assert words.isprintable()
