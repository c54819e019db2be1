"""A user's own trajectories: one ``.npz`` file with the arrays ``u0``, ``times`` and ``u``.

* ``u0``: initial states, ``(batch, *space, channels)`` with one to three space axes;
* ``times``: query times, ``(time,)`` shared by all trajectories or ``(batch, time)``, none negative;
* ``u``: solutions, ``(batch, time, *space, out_channels)``.

Fields with one channel may leave out the channel axis, in ``u0`` and ``u`` alike. The last axis is a space axis
if ``u0`` has two axes, or if it has the same size in ``u0`` and ``u`` and that size exceeds 16.
"""

import zipfile
from pathlib import Path

import numpy as np
from jaxtyping import Float

NAMES = ("u0", "times", "u")
FEWEST_TRAJECTORIES = 10
_MOST_CHANNELS = 16

Arrays = tuple[
    Float[np.ndarray, "batch *space channels"],
    Float[np.ndarray, " time"] | Float[np.ndarray, "batch time"],
    Float[np.ndarray, "batch time *space out_channels"],
]


def read(path: str | Path) -> Arrays:
    """``(u0, times, u)`` in float32, with a channel axis; ValueError if the file is not as described above."""
    path = Path(path)
    loaded = _load(path)
    for name in NAMES:
        if loaded[name].dtype.kind not in "fiu":
            raise ValueError(f"{path}: {name} must hold real numbers, got dtype {loaded[name].dtype}; convert it")
    u0, times, u = (loaded[name] for name in NAMES)
    u0, u = _check_shapes(path, u0, times, u)
    u0, times, u = (_as_float32(path, name, array) for name, array in zip(NAMES, (u0, times, u), strict=True))
    if times.min() < 0:
        first = tuple(int(i) for i in np.argwhere(times < 0)[0])
        raise ValueError(f"{path}: times must not be negative, got {times[first]:g} at {first}; count them from u0")
    return u0, times, u


def _load(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; save one with numpy.savez(path, u0=u0, times=times, u=u)")
    with open(path, "rb") as stream:
        try:
            archive = np.load(stream, allow_pickle=False)
        except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is not an .npz file: {_one_line(error)}; save one with numpy.savez") from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError(f"{path} holds a single array, not u0, times and u; save them with numpy.savez")
        missing = [name for name in NAMES if name not in archive.files]
        if missing:
            present = ", ".join(archive.files) or "nothing"
            raise ValueError(f"{path} has no array {', '.join(missing)}; it has {present}")
        return {name: _member(path, archive, name) for name in NAMES}


def _member(path: Path, archive: np.lib.npyio.NpzFile, name: str) -> np.ndarray:
    try:
        return archive[name]
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        # Object arrays would have to be unpickled, which runs code of the file.
        reason = "it holds Python objects" if "pickle" in str(error) else f"it is damaged ({_one_line(error)})"
        raise ValueError(f"{path}: {name} cannot be read: {reason}; save a plain array of numbers") from error


def _check_shapes(path: Path, u0: np.ndarray, times: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``u0`` and ``u`` with a channel axis, or ValueError with the shapes."""
    if _without_channels(u0, u):
        u0, u = u0[..., None], u[..., None]
    shapes = f"u0 {u0.shape}, times {times.shape} and u {u.shape}"
    if not 3 <= u0.ndim <= 5:
        raise ValueError(f"{path}: u0 must have shape (batch, *space, channels) with 1 to 3 space axes, got {shapes}")
    if times.ndim not in (1, 2) or (times.ndim == 2 and len(times) != len(u0)):
        raise ValueError(f"{path}: times must have shape (time,) or (batch, time) with batch={len(u0)}, got {shapes}")
    expected = (len(u0), times.shape[-1], *u0.shape[1:-1])
    if u.shape[:-1] != expected:
        wanted = ", ".join(map(str, expected))
        raise ValueError(f"{path}: u must have shape ({wanted}, channels) to agree with u0 and times, got {shapes}")
    if 0 in u0.shape or 0 in u.shape:
        raise ValueError(f"{path}: no axis may be empty, got {shapes}")
    if len(u0) < FEWEST_TRAJECTORIES:
        raise ValueError(f"{path} holds {len(u0)} trajectories; at least {FEWEST_TRAJECTORIES} are needed")
    return u0, u


def _without_channels(u0: np.ndarray, u: np.ndarray) -> bool:
    if u.ndim != u0.ndim + 1:
        return False
    return u0.ndim == 2 or (u0.ndim in (3, 4) and u0.shape[-1] == u.shape[-1] > _MOST_CHANNELS)


def _as_float32(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, np.float32)
    bad = ~np.isfinite(array)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{path}: {name} holds {int(bad.sum())} values that are NaN, infinite or beyond float32, the first at "
            f"{first}; remove those trajectories"
        )
    return array


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
