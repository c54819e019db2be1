"""Files are whole or absent."""

import json

import numpy as np
import pytest

from experiments import files


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


def test_arrays_come_back(tmp_path):
    u = np.arange(6.0).reshape(2, 3)
    files.write_npz(tmp_path / "u.npz", u=u)
    with np.load(tmp_path / "u.npz", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["u"], u)


def test_a_folder_below_a_file_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot make the directory .*file/below"):
        files.make_directory(tmp_path / "file" / "below")


def test_lines_after_the_resumed_step_and_half_lines_are_dropped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for step in (100, 200, 300):
        files.append_json_line(path, {"step": step})
    with open(path, "a") as file:
        file.write('{"step": 4')
    files.truncate_json_lines(path, last_step=200)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [100, 200]


def test_objects_are_never_unpickled(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"not a \.npy file of plain numbers"):
        files.read_array(tmp_path / "objects.npy")
