"""PDEBench's files of diffusion-sorption and of the one-dimensional compressible Navier-Stokes equations.

Only the requested samples, instants and channels are read: the files have 4 to 12 gigabytes.

* Diffusion-sorption: one group per sample, named ``0000``, ``0001``, ...; in it ``data`` (time, x, 1) and ``grid/t``.
* Navier-Stokes: ``density``, ``pressure`` and ``Vx``, each (sample, time, x), and ``t-coordinate``, which has one more
  entry than there are instants.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ctfno_jax.data.trajectories import Trajectories

FILES: dict[str, str] = {
    "diffusion_sorption": "1D_diff-sorp_NA_NA.h5",
    "navier_stokes": "1D_CFD_Rand_Eta0.1_Zeta0.1_periodic_Train.hdf5",
}
_MD5 = {
    "diffusion_sorption": "9d466d1213065619d087319e16d9a938",
    "navier_stokes": "45655bd77d006ab539c52b7fbcf099b9",
}
# Files that hold a part of the diffusion-sorption samples, in the same layout.
_OTHER_NAMES = {"diffusion_sorption": "1D_diff-sorp*.h5"}
_CHANNELS = ("density", "pressure", "Vx")


def download_hint(name: str) -> str:
    """Name, digest and origin of the file of a data set."""
    _check_name(name)
    return f"{FILES[name]} (md5 {_MD5[name]}) is part of PDEBench, DaRUS dataset doi:10.18419/darus-2986"


def find_file(name: str, data_dir: str | Path) -> Path:
    """The file of a data set in ``data_dir`` or in a direct subfolder."""
    _check_name(name)
    folder = Path(data_dir)
    if not folder.is_dir():
        raise ValueError(f"data_dir {folder} is not a folder; name the folder that holds {FILES[name]}")
    folders = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    for path in (place / FILES[name] for place in folders):
        if path.is_file():
            return path
    if name in _OTHER_NAMES:
        found = [path for place in folders for path in sorted(place.glob(_OTHER_NAMES[name])) if path.is_file()]
        if len(found) == 1:
            return found[0]
        if found:
            raise ValueError(
                f"{folder} holds {len(found)} files like {_OTHER_NAMES[name]}, none of them {FILES[name]}: "
                f"{_shortened([path.name for path in found])}; keep one of them there"
            )
    raise ValueError(
        f"{FILES[name]} is neither in {folder} nor in a folder directly in it; {download_hint(name)}; "
        "without --data_dir the data is generated"
    )


def num_samples(name: str, path: str | Path) -> int:
    """Number of samples in a file."""
    _check_name(name)
    with _opened(Path(path)) as file:
        return _READERS[name](file, Path(path)).num_samples


def read(
    name: str,
    path: str | Path,
    samples: Sequence[int] | np.ndarray,
    *,
    time_stride: int = 2,
    time_offset: int = 0,
) -> Trajectories:
    """Samples of a file, in the requested order.

    Args:
      name: one of ``FILES``.
      path: the file.
      samples: indices of the samples; groups are counted in the order of their names.
      time_stride: the result has the instants ``time_stride``, ``2 time_stride``, ... of the file.
      time_offset: shifts these instants; only instants before the last multiple of ``time_stride`` are returned.

    Returns:
      Initial states (instant 0) and solutions at the chosen instants. Channels of Navier-Stokes: density, pressure, Vx.
    """
    _check_name(name)
    if time_stride < 1 or not 0 <= time_offset < time_stride:
        raise ValueError(
            "time_stride must be at least 1 and time_offset between 0 and time_stride - 1, "
            f"got {time_stride} and {time_offset}"
        )
    path, samples = Path(path), [int(sample) for sample in samples]
    with _opened(path) as file:
        reader = _READERS[name](file, path)
        _check_samples(path, samples, reader.num_samples)
        shape = reader.shape(samples[0])
        chosen = _instants(path, shape[0], time_stride, time_offset)
        times = _checked_times(path, reader.times(samples[0]), shape[0])
        frames = np.empty((len(samples), 1 + len(range(shape[0])[chosen]), *shape[1:]), np.float32)
        for i, sample in enumerate(samples):
            _check_alike(path, sample, reader, shape, times)
            frames[i, :1] = reader.frames(sample, slice(0, 1))
            frames[i, 1:] = reader.frames(sample, chosen)
            if not np.all(np.isfinite(frames[i])):
                raise ValueError(f"{path}: sample {sample} has values that are not finite; the file may be damaged")
    return Trajectories(frames[:, 0].copy(), times[chosen].astype(np.float32), frames[:, 1:].copy())


class _DiffusionSorption:
    """One group per sample."""

    def __init__(self, file: Any, path: Path) -> None:
        self._file, self._path = file, path
        self._names = sorted(key for key in file if re.fullmatch(r"\d{4}", key))
        if not self._names:
            raise ValueError(f"{path}: no group is named by four digits, such as 0000; there are {_shortened(file)}")

    @property
    def num_samples(self) -> int:
        return len(self._names)

    def shape(self, sample: int) -> tuple[int, ...]:
        return self._data(sample).shape

    def times(self, sample: int) -> np.ndarray:
        """The times of the instants; their number must equal that of the frames."""
        name = f"{self._names[sample]}/grid/t"
        times = _dataset(self._file, self._path, name, 1)[:]
        if len(times) != self.shape(sample)[0]:
            raise ValueError(f"{self._path}: {name} has {len(times)} entries for {self.shape(sample)[0]} instants")
        return times

    def frames(self, sample: int, instants: slice) -> np.ndarray:
        return self._data(sample)[instants]

    def _data(self, sample: int) -> Any:
        name = f"{self._names[sample]}/data"
        data = _dataset(self._file, self._path, name, 3)
        if data.shape[2] != 1:
            raise ValueError(f"{self._path}: {name} must have shape (time, x, 1), got {data.shape}")
        return data


class _NavierStokes:
    """One array per channel."""

    def __init__(self, file: Any, path: Path) -> None:
        self._file, self._path = file, path
        self._channels = [_dataset(file, path, name, 3) for name in _CHANNELS]
        shapes = {name: data.shape for name, data in zip(_CHANNELS, self._channels, strict=True)}
        if len(set(shapes.values())) > 1:
            raise ValueError(f"{path}: the channels must have one shape (sample, time, x), got {shapes}")

    @property
    def num_samples(self) -> int:
        return self._channels[0].shape[0]

    def shape(self, sample: int) -> tuple[int, ...]:
        del sample  # all have the same
        return (*self._channels[0].shape[1:], len(_CHANNELS))

    def times(self, sample: int) -> np.ndarray:
        """The times of the instants; the file may hold one more than there are frames."""
        num_instants = self.shape(sample)[0]
        times = _dataset(self._file, self._path, "t-coordinate", 1)[:]
        if len(times) not in (num_instants, num_instants + 1):
            raise ValueError(f"{self._path}: t-coordinate has {len(times)} entries for {num_instants} instants")
        return times[:num_instants]

    def frames(self, sample: int, instants: slice) -> np.ndarray:
        return np.stack([data[sample, instants] for data in self._channels], axis=-1)


_Reader = _DiffusionSorption | _NavierStokes
_READERS: dict[str, type[_DiffusionSorption] | type[_NavierStokes]] = {
    "diffusion_sorption": _DiffusionSorption,
    "navier_stokes": _NavierStokes,
}


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The open file; errors of h5py become a ValueError of one line."""
    try:
        import h5py
    except ImportError as error:
        raise ValueError("reading HDF5 files needs the data extra: pip install -e '.[data]'") from error
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error.args[-1] if error.args else error).split())
        raise ValueError(
            f"{path}: cannot be read as HDF5, it is damaged, cut short or of another kind: {reason}"
        ) from error


def _dataset(file: Any, path: Path, name: str, num_axes: int) -> Any:
    """A floating-point array of the file, not read yet."""
    group = file
    for part in name.split("/"):
        if not isinstance(group, Mapping) or part not in group:
            present = _shortened(group) if isinstance(group, Mapping) else "none"
            raise ValueError(f"{path}: {name} is missing; the keys beside {part} are {present}")
        group = group[part]
    if isinstance(group, Mapping) or group.ndim != num_axes or not np.issubdtype(group.dtype, np.floating):
        found = "a group" if isinstance(group, Mapping) else f"shape {group.shape} of {group.dtype}"
        raise ValueError(f"{path}: {name} must be an array of floats with {num_axes} axes, got {found}")
    return group


def _instants(path: Path, num_instants: int, stride: int, offset: int) -> slice:
    # The last multiple of the stride is included without an offset and is the bound with one.
    last = (num_instants - 1) // stride * stride
    chosen = slice(stride + offset, last if offset else last + 1, stride)
    if not len(range(num_instants)[chosen]):
        raise ValueError(f"{path}: {num_instants} instants are too few for time_stride {stride}, time_offset {offset}")
    return chosen


def _check_name(name: str) -> None:
    if name not in FILES:
        raise ValueError(f"PDEBench files are known for {', '.join(FILES)}, not for {name!r}")


def _check_samples(path: Path, samples: list[int], available: int) -> None:
    if not samples:
        raise ValueError(f"{path}: no samples were asked for")
    if len(samples) > available:
        raise ValueError(
            f"{path} holds {available} samples, {len(samples)} were asked for; lower num_train or num_test"
        )
    outside = [sample for sample in samples if not 0 <= sample < available]
    if outside:
        raise ValueError(f"{path} holds the samples 0 to {available - 1}, sample {outside[0]} was asked for")


def _checked_times(path: Path, times: np.ndarray, num_instants: int) -> np.ndarray:
    if times[0] != 0 or not np.all(np.diff(times) > 0):
        raise ValueError(f"{path}: the {num_instants} times must start at 0 and increase, got {_shortened(times)}")
    return times


def _check_alike(path: Path, sample: int, reader: _Reader, shape: tuple[int, ...], times: np.ndarray) -> None:
    if reader.shape(sample) != shape:
        raise ValueError(f"{path}: sample {sample} has shape {reader.shape(sample)}, the first one read has {shape}")
    if not np.array_equal(reader.times(sample), times):
        raise ValueError(f"{path}: sample {sample} has other times than the first one read")


def _shortened(names: Iterable[Any]) -> str:
    names = [str(name) for name in names]
    return ", ".join(names[:6]) + (f", ... ({len(names)} in all)" if len(names) > 6 else "") or "none"
