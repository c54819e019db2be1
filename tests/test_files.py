"""Files are complete or absent."""

import json
import os

import numpy as np
import pytest

from ctfno_jax import files


def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "result.json"
    files.write_json(path, {"a": 1})

    def fail_half_way() -> None:
        with files.replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="the disk is full"):
        fail_half_way()
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_two_processes_that_write_one_file_do_not_share_the_temporary_one(tmp_path, monkeypatch):
    path = tmp_path / "result.txt"
    with files.replacing(path) as mine:
        mine.write_text("mine")
        monkeypatch.setattr(os, "getpid", lambda: -1)
        files.write_text(path, "theirs")
        assert path.read_text() == "theirs"
    assert path.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["result.txt"]


def test_the_temporary_path_keeps_the_suffix(tmp_path):
    class Figure:
        def savefig(self, fname, *, dpi) -> None:
            fname.write_text(f"{fname.suffix} {dpi}")

    files.write_figure(tmp_path / "figure.png", Figure())
    assert (tmp_path / "figure.png").read_text() == ".png 130"


def test_arrays_come_back(tmp_path):
    u = np.arange(6.0).reshape(2, 3)
    files.write_npz(tmp_path / "below" / "u.npz", u=u, times=u[0])
    with np.load(tmp_path / "below" / "u.npz", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["u"], u)
        np.testing.assert_array_equal(archive["times"], u[0])


def test_a_folder_below_a_file_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot make the directory .*file/below"):
        files.make_directory(tmp_path / "file" / "below")


def test_lines_after_the_resumed_step_and_incomplete_lines_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    files.truncate_json_lines(path, last_step=200)
    assert not path.exists()
    for step in (100, 200, 300):
        files.append_json_line(path, {"step": step})
    with open(path, "a") as file:
        file.write('{"step": 4')
    assert [values["step"] for values in files.read_json_lines(path)] == [100, 200, 300]
    assert files.read_json_lines(tmp_path / "missing.jsonl") == []
    files.truncate_json_lines(path, last_step=200)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [100, 200]
