"""Outputs take the place of files alone, and nothing half written stays beside them."""

import errno
import os
import stat

import pytest

from edgefl.cli.main import main
from edgefl.storage import files
from edgefl.storage.files import replace_file
from tests.small_models import linear_model


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(linear_model().SerializeToString())
    return path


@pytest.fixture
def pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def prepare(model, output):
    return main(["model", "prepare", str(model), "-o", str(output)])


def test_a_file_takes_no_place_of_a_pipe_or_a_folder(tmp_path, pipe):
    for path in (pipe, tmp_path):
        with pytest.raises(FileExistsError, match="is there"):
            replace_file(path, b"new")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_file_takes_the_place_of_a_file_and_of_a_lost_link(tmp_path):
    old, lost = tmp_path / "old", tmp_path / "lost"
    old.write_bytes(b"old")
    lost.symlink_to("nowhere")
    for path in (old, lost):
        replace_file(path, b"new")
        assert path.read_bytes() == b"new"


def test_prepare_refuses_what_is_no_file(model, pipe, capsys):
    assert prepare(model, pipe) == 6
    line = capsys.readouterr().err.strip()
    assert line.startswith("edgefl: E-OUT-WRITE")
    assert "a pipe" in line
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(path.name for path in model.parent.iterdir()) == ["model.onnx", "pipe"]


def test_a_full_disk_leaves_the_old_bundle_and_no_part_of_the_new_one(
    model, tmp_path, monkeypatch, capsys
):
    bundle = tmp_path / "bundle.efl"
    bundle.write_bytes(b"old")

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", full)
    assert prepare(model, bundle) == 6
    assert "No space left" in capsys.readouterr().err
    assert bundle.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle.efl", "model.onnx"]
