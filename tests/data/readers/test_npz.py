"""A user's own trajectories: what comes back, and one clear line for every file that cannot be used."""

import re

import numpy as np
import pytest

from ctfno_jax.data.readers import npy, npz


def _arrays(grid: tuple[int, ...] = (9,), channels: int = 2, out_channels: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "u0": rng.normal(size=(11, *grid, channels)),
        "times": np.linspace(0.0, 2.0, 4),
        "u": rng.normal(size=(11, 4, *grid, out_channels)),
    }


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mine.npz"


def _refused(path, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        npz.read(path)
    assert "mine.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


# --- what comes back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [(9,), (9, 10), (9, 10, 12)])
def test_arrays_come_back_in_single_precision(path, grid):
    arrays = _arrays(grid)
    np.savez(path, **arrays, note=np.asarray("further arrays do not matter"))
    for read, name in zip(npz.read(path), ("u0", "times", "u"), strict=True):
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, arrays[name].astype(np.float32))


def test_times_of_each_trajectory_and_whole_numbers_are_accepted(path):
    arrays = _arrays() | {"times": np.arange(44).reshape(11, 4)}
    np.savez(path, **arrays)
    np.testing.assert_array_equal(npz.read(path)[1], np.arange(44, dtype=np.float32).reshape(11, 4))


@pytest.mark.parametrize("grid", [(9,), (10, 17), (9, 10, 20)])
def test_fields_of_one_channel_may_leave_out_the_channel_axis(path, grid):
    arrays = _arrays(grid, channels=1, out_channels=1)
    np.savez(path, u0=arrays["u0"][..., 0], times=arrays["times"], u=arrays["u"][..., 0])
    u0, _, u = npz.read(path)
    np.testing.assert_array_equal(u0, arrays["u0"].astype(np.float32))
    np.testing.assert_array_equal(u, arrays["u"].astype(np.float32))


def test_a_short_last_axis_holds_channels(path):
    arrays = _arrays((20,), channels=16, out_channels=16)
    np.savez(path, **arrays)
    assert npz.read(path)[0].shape == (11, 20, 16)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_missing_file(path):
    _refused(path, "there is no such file; save one with numpy.savez(path, u0=u0, times=times, u=u)")


@pytest.mark.parametrize("content", [b"", b"u0,times,u\n1,2,3\n", b"PK\x03\x04 cut short"])
def test_a_file_of_another_kind(path, content):
    path.write_bytes(content)
    _refused(path, "is not an .npz file: ")


def test_a_single_array(path):
    with open(path, "wb") as file:
        np.save(file, np.ones(3))
    _refused(path, "holds a single array, not u0, times and u; save them with numpy.savez")


def test_missing_arrays_are_named_and_the_others_listed(path):
    np.savez(path, u0=np.ones((11, 9, 1)), time=np.ones(4))
    _refused(path, "has no array times, u; it has u0, time")
    np.savez(path)
    _refused(path, "has no array u0, times, u; it has nothing")


def test_python_objects_are_never_unpickled(path):
    np.savez(path, **_arrays() | {"u": np.asarray([{}], dtype=object)})
    _refused(path, "u cannot be read: it holds Python objects; save a plain array of numbers")


def test_a_damaged_array(path):
    np.savez(path, **_arrays())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    _refused(path, "u cannot be read: it is damaged (")


@pytest.mark.parametrize(("name", "kind"), [("u0", np.complex64), ("u", np.complex128), ("times", "U4"), ("u0", bool)])
def test_numbers_that_are_not_real(path, name, kind):
    arrays = _arrays()
    np.savez(path, **arrays | {name: arrays[name].astype(kind)})
    _refused(path, f"{name} must hold real numbers, got dtype {np.dtype(kind)}; convert it")


def test_values_that_are_not_finite_are_counted_and_the_first_is_located(path):
    arrays = _arrays()
    arrays["u"][3, 1, 4, 2], arrays["u"][7, 0, 0, 0], arrays["u"][7, 0, 0, 1] = np.nan, np.inf, 1e39
    np.savez(path, **arrays)
    _refused(path, "u holds 3 values that are NaN, infinite or beyond float32, the first at (3, 1, 4, 2); remove")
    np.savez(path, **_arrays() | {"times": np.asarray([0.0, 1.0, np.nan, 2.0])})
    _refused(path, "times holds 1 values that are NaN, infinite or beyond float32, the first at (2,)")


def test_negative_times(path):
    np.savez(path, **_arrays() | {"times": np.asarray([0.5, -0.25, -1.0, 2.0])})
    _refused(path, "times must not be negative, got -0.25 at (1,); count them from u0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"u": (11, 5, 9, 3)}, "u must have shape (11, 4, 9, channels) to agree with u0 and times"),
        ({"u": (12, 4, 9, 3)}, "u must have shape (11, 4, 9, channels) to agree with u0 and times"),
        ({"u": (11, 4, 8, 3)}, "u must have shape (11, 4, 9, channels) to agree with u0 and times"),
        ({"u": (11, 4, 9)}, "u must have shape (11, 4, 9, channels) to agree with u0 and times"),
        ({"times": (10, 4)}, "times must have shape (time,) or (batch, time) with batch=11"),
        ({"times": ()}, "times must have shape (time,) or (batch, time) with batch=11"),
        ({"u0": (11,), "u": (11, 4)}, "u0 must have shape (batch, *space, channels) with 1 to 3 space axes"),
        ({"u0": (11, 9, 2, 3, 4, 2)}, "u0 must have shape (batch, *space, channels) with 1 to 3 space axes"),
        ({"times": (0,), "u": (11, 0, 9, 3)}, "no axis may be empty"),
    ],
)
def test_shapes_that_disagree_are_shown(path, change, message):
    arrays = _arrays() | {name: np.zeros(shape) for name, shape in change.items()}
    np.savez(path, **arrays)
    shapes = f"got u0 {arrays['u0'].shape}, times {arrays['times'].shape} and u {arrays['u'].shape}"
    _refused(path, f"{message}, {shapes}")


def test_too_few_trajectories(path):
    arrays = _arrays()
    np.savez(path, u0=arrays["u0"][:9], times=arrays["times"], u=arrays["u"][:9])
    _refused(path, "holds 9 trajectories; at least 10 are needed")


# --- one array ------------------------------------------------------------------------------------------------------


def test_one_array_comes_back_and_other_files_are_refused(tmp_path):
    path = tmp_path / "u0.npy"
    with pytest.raises(ValueError, match=r"u0\.npy: there is no such file; save an array with numpy\.save"):
        npy.read(path)
    np.save(path, np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(npy.read(path), np.arange(6.0).reshape(2, 3))
    np.save(path, np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"not a \.npy file of plain numbers"):
        npy.read(path)
    with open(path, "wb") as file:
        np.savez(file, u0=np.ones(3))
    with pytest.raises(ValueError, match=r"is an archive of several arrays; save one array"):
        npy.read(path)
