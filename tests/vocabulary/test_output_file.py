"""Where results are written: whole or not at all; links, permissions and devices stay what they are."""

import os
import stat
import threading
from pathlib import Path

import pytest

from analysis.cli import main
from analysis.vocabulary.output_file import check_writable, write_whole

FULL = Path("/dev/full")


def test_a_new_file_has_the_permissions_of_any_other(tmp_path):
    (tmp_path / "other").touch()
    write_whole(tmp_path / "new", "é")
    assert (tmp_path / "new").read_bytes() == "é".encode()
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_link_and_the_permissions_of_its_file_stay(tmp_path):
    target, link = tmp_path / "folder" / "file", tmp_path / "link"
    target.parent.mkdir()
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, b"new")
    assert link.readlink() == target
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("new", 0o640)
    assert list(target.parent.iterdir()) == [target]


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "file"
    target.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_pipe_is_written_to(tmp_path):
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    check_writable("path", pipe)
    write_whole(pipe, "text")
    reader.join(60)
    assert received == ["text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("place", ["", "none/file"])
def test_a_place_that_cannot_be_written_is_refused_and_named(tmp_path, place):
    with pytest.raises(OSError, match=f"^--output: cannot write {tmp_path / place}: "):
        check_writable("--output", tmp_path / place)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full stands for a full disk")
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("study score --d-k 4 --replicates 100 --output", "s.json"),
        ("length --n-keys 16,64 --plot", "l.svg"),
        ("report --no-confirm --output", "r.html"),
        ("report --no-confirm -o", "r.html"),
    ],
)
def test_a_full_disk_ends_in_one_sentence_and_leaves_the_device(tmp_path, monkeypatch, capsys, command, name):
    monkeypatch.setattr("analysis.cli.report._studies", lambda *_: [])
    monkeypatch.setattr("analysis.show.report._render", lambda *_: "page")
    (tmp_path / name).symlink_to(FULL)
    assert main([*command.split(), str(tmp_path / name)]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("attnsym: error: ")
    assert last.endswith("No space left on device")
    assert stat.S_ISCHR(FULL.stat().st_mode)
    assert (tmp_path / name).is_symlink()
