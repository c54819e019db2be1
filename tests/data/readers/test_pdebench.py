"""PDEBench's files: small files of the same layout, read value by value, and the refusal of damaged ones."""

import builtins
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

from ctfno_jax.data.readers import pdebench

INSTANTS, POINTS = 7, 16


def _value(sample: int, instant: np.ndarray, point: np.ndarray, channel: int = 0) -> np.ndarray:
    """A number that tells its own position."""
    return channel * 1000.0 + sample * 100.0 + instant * 10.0 + point / 100


def _frames(sample: int, channel: int = 0) -> np.ndarray:
    return _value(sample, np.arange(INSTANTS)[:, None], np.arange(POINTS), channel).astype(np.float32)


def _write_sorption(path: Path, num_samples: int = 5) -> Path:
    with h5py.File(path, "w") as file:
        for i in reversed(range(num_samples)):
            group = file.create_group(f"{i:04d}")
            group["data"] = _frames(i)[..., None]
            group["grid/x"] = (np.arange(POINTS, dtype=np.float32) + 0.5) / POINTS
            group["grid/t"] = 5 * np.arange(INSTANTS, dtype=np.float32)
            group.attrs["config"] = "text"
    return path


def _write_flow(path: Path, num_samples: int = 4) -> Path:
    with h5py.File(path, "w") as file:
        for channel, name in enumerate(("density", "pressure", "Vx")):
            file[name] = np.stack([_frames(i, channel) for i in range(num_samples)])
        file["x-coordinate"] = np.linspace(-1, 1, POINTS, dtype=np.float32)
        file["t-coordinate"] = 0.01 * np.arange(INSTANTS + 1, dtype=np.float32)
        file.attrs["eta"] = 0.1
    return path


WRITERS = {"diffusion_sorption": _write_sorption, "navier_stokes": _write_flow}
EACH_DATASET = pytest.mark.parametrize("name", list(WRITERS))


@pytest.fixture
def write(tmp_path):
    return lambda name: WRITERS[name](tmp_path / pdebench.FILES[name])


def test_every_value_of_diffusion_sorption_is_in_its_place(write):
    result = pdebench.read("diffusion_sorption", write("diffusion_sorption"), [3, 0, 4])
    assert {array.dtype for array in (result.u0, result.times, result.u)} == {np.dtype(np.float32)}
    assert result.u0.shape == (3, POINTS, 1)
    np.testing.assert_array_equal(result.times, [10, 20, 30])
    for i, sample in enumerate([3, 0, 4]):
        np.testing.assert_array_equal(result.u0[i, :, 0], _frames(sample)[0])
        np.testing.assert_array_equal(result.u[i, :, :, 0], _frames(sample)[[2, 4, 6]])


def test_every_value_of_the_flow_is_in_its_place(write):
    result = pdebench.read("navier_stokes", write("navier_stokes"), np.asarray([2, 1]), time_stride=3)
    assert result.u.shape == (2, 2, POINTS, 3)
    np.testing.assert_allclose(result.times, [0.03, 0.06], rtol=1e-6)
    for i, sample in enumerate([2, 1]):
        for channel in range(3):
            np.testing.assert_array_equal(result.u0[i, :, channel], _frames(sample, channel)[0])
            np.testing.assert_array_equal(result.u[i, :, :, channel], _frames(sample, channel)[[3, 6]])


@EACH_DATASET
def test_instants_between_the_training_times(name, write):
    path = write(name)
    trained = pdebench.read(name, path, [1])
    between = pdebench.read(name, path, [1], time_offset=1)
    np.testing.assert_array_equal(between.u[0, :, :, 0], _frames(1)[[3, 5]])
    np.testing.assert_allclose(between.times, (trained.times[:-1] + trained.times[1:]) / 2, rtol=1e-6)
    np.testing.assert_array_equal(between.u0, trained.u0)


@EACH_DATASET
def test_instants_after_the_last_training_time_are_not_between(name, write):
    # With stride 4, instant 4 is the only training time of 7; 5 and 6 come after it.
    path = write(name)
    np.testing.assert_array_equal(pdebench.read(name, path, [0], time_stride=4).u[0, :, :, 0], _frames(0)[[4]])
    with pytest.raises(ValueError, match="7 instants are too few for time_stride 4, time_offset 1"):
        pdebench.read(name, path, [0], time_stride=4, time_offset=1)


@EACH_DATASET
def test_stride_one_reads_everything(name, write):
    np.testing.assert_array_equal(pdebench.read(name, write(name), [0], time_stride=1).u[0, ..., 0], _frames(0)[1:])


def test_number_of_samples(write):
    assert pdebench.num_samples("diffusion_sorption", write("diffusion_sorption")) == 5
    assert pdebench.num_samples("navier_stokes", write("navier_stokes")) == 4


def test_damage_in_a_sample_that_is_not_asked_for_does_not_matter(write):
    path = write("diffusion_sorption")
    with h5py.File(path, "r+") as file:
        del file["0002/data"]
        file["0003/data"][4, 5] = np.nan
    assert len(pdebench.read("diffusion_sorption", path, [0, 1, 4])) == 3
    with pytest.raises(ValueError, match=r"0002/data is missing; the keys beside data are grid"):
        pdebench.read("diffusion_sorption", path, [0, 2])
    with pytest.raises(ValueError, match="sample 3 has values that are not finite"):
        pdebench.read("diffusion_sorption", path, [3])
    # Nor does it in an instant that is not asked for.
    assert len(pdebench.read("diffusion_sorption", path, [3], time_stride=3)) == 1


def test_damaged_bytes_are_found_only_where_they_are_read(tmp_path):
    path = tmp_path / "damaged.h5"
    with h5py.File(path, "w") as file:
        for i in range(2):
            file.create_dataset(f"{i:04d}/data", data=_frames(i)[..., None], chunks=True, fletcher32=True)
            file[f"{i:04d}/grid/t"] = np.arange(INSTANTS, dtype=np.float32)
        start = file["0001/data"].id.get_chunk_info(0).byte_offset
    with path.open("r+b") as stream:
        stream.seek(start)
        stream.write(b"\xff" * 8)
    np.testing.assert_array_equal(pdebench.read("diffusion_sorption", path, [0]).u0[0, :, 0], _frames(0)[0])
    with pytest.raises(ValueError, match=r"damaged.h5: cannot be read") as caught:
        pdebench.read("diffusion_sorption", path, [1])
    assert "\n" not in str(caught.value)


@EACH_DATASET
@pytest.mark.parametrize("kept", [0.0, 0.3, 0.95])
def test_a_file_that_was_cut_is_refused(name, kept, write):
    path = write(name)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    for call in (lambda: pdebench.num_samples(name, path), lambda: pdebench.read(name, path, [0])):
        with pytest.raises(ValueError, match=re.escape(f"{path}: cannot be read as HDF5")) as caught:
            call()
        assert "\n" not in str(caught.value)


@EACH_DATASET
def test_text_and_missing_files_are_refused(name, tmp_path):
    path = tmp_path / "page.h5"
    with pytest.raises(ValueError, match=r"page.h5: there is no such file"):
        pdebench.num_samples(name, path)
    path.write_text("<html>not found</html>" * 100)
    with pytest.raises(ValueError, match=r"page.h5: cannot be read as HDF5"):
        pdebench.num_samples(name, path)


def test_a_file_of_the_other_kind_is_refused(write):
    with pytest.raises(ValueError, match=r"no group is named by four digits.*there are Vx, density, pressure"):
        pdebench.num_samples("diffusion_sorption", write("navier_stokes"))
    with pytest.raises(ValueError, match=r"density is missing; the keys beside density are 0000, 0001"):
        pdebench.num_samples("navier_stokes", write("diffusion_sorption"))


def test_keys_are_listed_shortened(tmp_path):
    path = _write_sorption(tmp_path / "long.h5", num_samples=9)
    with pytest.raises(ValueError, match=r"0005, \.\.\. \(9 in all\)"):
        pdebench.num_samples("navier_stokes", path)


@pytest.mark.parametrize(
    ("name", "key", "array", "message"),
    [
        ("diffusion_sorption", "0001/data", np.zeros((INSTANTS, POINTS), "f4"), r"0001/data must be .* 3 axes"),
        ("diffusion_sorption", "0001/data", np.zeros((INSTANTS, POINTS, 2), "f4"), r"\(time, x, 1\)"),
        ("diffusion_sorption", "0001/data", np.zeros((INSTANTS, 8, 1), "f4"), "sample 1 has shape"),
        ("diffusion_sorption", "0001/data", np.zeros((INSTANTS, POINTS, 1), "i4"), "array of floats"),
        ("diffusion_sorption", "0001/grid/t", np.arange(6, dtype="f4"), "6 entries for 7 instants"),
        ("diffusion_sorption", "0001/grid/t", np.arange(7, dtype="f4"), "sample 1 has other times"),
        ("diffusion_sorption", "0000/grid/t", np.arange(1, 8, dtype="f4"), "must start at 0 and increase"),
        ("diffusion_sorption", "0000/grid/t", None, "0000/grid/t is missing; the keys beside t are x"),
        ("navier_stokes", "pressure", None, "pressure is missing; the keys beside pressure are Vx, density"),
        ("navier_stokes", "Vx", np.zeros((4, INSTANTS, 8), "f4"), "must have one shape"),
        ("navier_stokes", "t-coordinate", np.arange(9, dtype="f4"), "9 entries for 7 instants"),
        ("navier_stokes", "t-coordinate", np.zeros(8, "f4"), "must start at 0 and increase"),
        ("navier_stokes", "Vx", np.full((4, INSTANTS, POINTS), np.inf, "f4"), "sample 0 has values that are not"),
    ],
)
def test_wrong_content_is_refused(name, key, array, message, write):
    path = write(name)
    with h5py.File(path, "r+") as file:
        del file[key]
        if array is not None:
            file[key] = array
    with pytest.raises(ValueError, match=message) as caught:
        pdebench.read(name, path, [0, 1])
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@EACH_DATASET
def test_samples_that_are_not_there_are_refused(name, write):
    path = write(name)
    held = pdebench.num_samples(name, path)
    with pytest.raises(ValueError, match=f"holds {held} samples, 6 were asked for; lower num_train or num_test"):
        pdebench.read(name, path, range(6))
    for sample in (held, -1):
        with pytest.raises(ValueError, match=f"holds the samples 0 to {held - 1}, sample {sample} was asked for"):
            pdebench.read(name, path, [0, sample])
    with pytest.raises(ValueError, match="no samples were asked for"):
        pdebench.read(name, path, [])


@pytest.mark.parametrize(("stride", "offset"), [(0, 0), (2, 2), (2, -1)])
def test_bad_strides_are_refused(stride, offset, write):
    with pytest.raises(ValueError, match="time_stride must be at least 1"):
        pdebench.read("navier_stokes", write("navier_stokes"), [0], time_stride=stride, time_offset=offset)


@EACH_DATASET
@pytest.mark.parametrize("place", [".", "inner"])
def test_the_file_is_found_in_a_folder_and_one_below(name, place, tmp_path):
    (tmp_path / "another").mkdir()
    (tmp_path / place).mkdir(exist_ok=True)
    path = WRITERS[name](tmp_path / place / pdebench.FILES[name])
    assert pdebench.find_file(name, tmp_path).samefile(path)
    assert pdebench.find_file(name, str(tmp_path)).samefile(path)


def test_a_part_of_the_sorption_file_is_found_if_it_is_the_only_one(tmp_path):
    (tmp_path / "inner").mkdir()
    first = _write_sorption(tmp_path / "inner" / "1D_diff-sorp_first.h5")
    assert pdebench.find_file("diffusion_sorption", tmp_path) == first
    _write_sorption(tmp_path / "1D_diff-sorp_second.h5")
    with pytest.raises(ValueError, match=r"2 files like .*1D_diff-sorp_second.h5, 1D_diff-sorp_first.h5; keep one"):
        pdebench.find_file("diffusion_sorption", tmp_path)
    official = _write_sorption(tmp_path / "inner" / pdebench.FILES["diffusion_sorption"])
    assert pdebench.find_file("diffusion_sorption", tmp_path) == official


@EACH_DATASET
def test_a_file_that_is_not_found_comes_with_its_source(name, tmp_path):
    deep = tmp_path / "one" / "two"
    deep.mkdir(parents=True)
    WRITERS[name](deep / pdebench.FILES[name])
    with pytest.raises(ValueError, match=re.escape(pdebench.FILES[name])) as caught:
        pdebench.find_file(name, tmp_path)
    message = str(caught.value)
    for part in (str(tmp_path), "PDEBench", "10.18419/darus-2986", "md5", "without --data_dir the data is generated"):
        assert part in message
    assert "\n" not in message
    with pytest.raises(ValueError, match="is not a folder"):
        pdebench.find_file(name, tmp_path / "nowhere")


def test_unknown_names_are_refused(tmp_path):
    calls = [
        lambda: pdebench.find_file("heat", tmp_path),
        lambda: pdebench.num_samples("heat", tmp_path),
        lambda: pdebench.read("heat", tmp_path, [0]),
        lambda: pdebench.download_hint("heat"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="known for diffusion_sorption, navier_stokes, not for 'heat'"):
            call()


def test_without_h5py_the_extra_is_named(monkeypatch, write):
    path = write("navier_stokes")
    real_import = builtins.__import__

    def without_h5py(name, *args, **kwargs):
        if name == "h5py":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_h5py)
    with pytest.raises(ValueError, match=re.escape("needs the data extra: pip install -e '.[data]'")):
        pdebench.num_samples("navier_stokes", path)
