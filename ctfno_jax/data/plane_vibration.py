"""Ground vibration of an F-16: five signals, observed irregularly, and what they do next.

The protocol is that of Heavy Ball Neural ODEs. Of the record's instants but the last hundred, a tenth is dropped; the
rest is cut, in order, into training, validation and test parts of 2:1:1, and each part into runs of 65. The first 64
instants of a run are observed. Asked for are eight samples of the record from the 65th on, one after another, dropped
or not. Time is the number of a sample; one is 2.5 milliseconds.

The record is nine periods of one excitation, 8192 samples each: what the test part asks for resembles, up to noise,
what the training part has shown.
"""

import csv
import os
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from ctfno_jax.data.series import Series, SeriesDataset

NAME = "plane_vibration"
SIGNALS = ("Force", "Voltage", "Acceleration1", "Acceleration2", "Acceleration3")
CLOCKS = ("forecast", "last", "segment")
NUM_OBSERVED = 64
NUM_ASKED = 8

FILE = "pv.csv"
# Instants at the end that only forecasts may reach.
_RESERVED = 100
_WHERE = (
    "it is the F-16 ground vibration benchmark of nonlinearbenchmark.org as one file with the columns "
    f"{', '.join(SIGNALS)}, which the repository hedixia/HeavyBallNODE on GitHub has as data/{FILE}"
)


def find_file(data_dir: str | Path | None = None) -> Path:
    """The record in a folder, or in the one that ``CTFNO_DATA_DIR`` names."""
    folder = data_dir if data_dir is not None else os.environ.get("CTFNO_DATA_DIR")
    if folder is None:
        raise ValueError(f"{NAME} is read from {FILE}; name its folder by --data_dir: {_WHERE}")
    for path in (Path(folder) / FILE, Path(folder) / NAME / FILE):
        if path.is_file():
            return path
    raise ValueError(f"{folder} holds no {FILE}; get it first: {_WHERE}")


def read_record(path: str | Path) -> Float[np.ndarray, "samples signals"]:
    """The five signals, in the units of the file."""
    path = Path(path)
    rows, ended = [], False
    with path.open(newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        if tuple(header[: len(SIGNALS)]) != SIGNALS:
            raise ValueError(f"{path} must begin with the columns {', '.join(SIGNALS)}, got {', '.join(header)!r}")
        for number, row in enumerate(reader, start=2):
            if not any(row):
                ended = True
                continue
            if ended:
                raise ValueError(f"{path}, line {number}: values after an empty line; get the file again")
            try:
                rows.append([float(value) for value in row[: len(SIGNALS)]])
            except ValueError:
                rows.append([])
            if len(rows[-1]) != len(SIGNALS):
                raise ValueError(f"{path}, line {number}: expected {len(SIGNALS)} numbers, got {','.join(row)!r}")
    record = np.asarray(rows, np.float64).reshape(-1, len(SIGNALS))
    if not np.all(np.isfinite(record)):
        line = int(np.argmax(~np.all(np.isfinite(record), axis=1))) + 2
        raise ValueError(f"{path}, line {line}: a value is not finite; get the file again")
    return record


def retained_indices(num_samples: int, dropped: float, seed: int) -> Int[np.ndarray, " retained"]:
    """The instants that are kept, in order: those of the published code.

    Before it chooses them, it draws noise for every value, and multiplies it by zero.
    """
    usable = num_samples - _RESERVED
    kept = int(usable * (1 - dropped))
    generator = np.random.RandomState(seed)
    generator.randn(num_samples, len(SIGNALS))
    return np.sort(generator.choice(usable, kept, replace=False))


def split_in_order(indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two, one and one quarter."""
    num_train, num_validation = int(0.5 * len(indices)), int(0.25 * len(indices))
    return indices[:num_train], indices[num_train : num_train + num_validation], indices[num_train + num_validation :]


def segments(
    record: Float[np.ndarray, "samples signals"],
    indices: Int[np.ndarray, " retained"],
    clock: str = "forecast",
    stride: int = NUM_OBSERVED + 1,
    end: int | None = None,
    interpolated: bool = False,
) -> Series:
    """Runs of 65 retained instants, and the eight samples from the last of them on.

    Args:
      record: all samples.
      indices: retained instants.
      clock: what times count from: the first sample that is asked for (``"forecast"``), the ``"last"`` observation; or,
        as in the published code, observations from the first of them and queries from the first sample asked for
        (``"segment"``).
      stride: retained instants from the beginning of a run to that of the next.
      end: the first sample that must not be asked for; None for no such.
      interpolated: instead of what was observed, values at the 64 samples before the first that is asked for, on
        straight lines between the observations, and level beyond the last.
    """
    if clock not in CLOCKS:
        raise ValueError(f"clock must be one of {', '.join(CLOCKS)}, got {clock!r}")
    runs = np.lib.stride_tricks.sliding_window_view(indices, NUM_OBSERVED + 1)[::stride]
    if end is not None:
        runs = runs[runs[:, -1] + NUM_ASKED <= end]
    seen, first = runs[:, :-1], runs[:, -1:]
    asked = first + np.arange(NUM_ASKED)
    if interpolated and clock != "forecast":
        raise ValueError(f"interpolated observations are on clock=forecast, got clock={clock}")
    origin = {"forecast": first, "last": seen[:, -1:], "segment": seen[:, :1]}[clock]
    times = np.arange(NUM_ASKED) if clock != "last" else asked - origin
    observed = record[seen]
    if interpolated:
        even = first + np.arange(-NUM_OBSERVED, 0)
        observed = np.stack(
            [
                np.stack([np.interp(at, instants, signal) for signal in values.T], axis=-1)
                for at, instants, values in zip(even, seen, observed, strict=True)
            ]
        )
        seen = even
    single = lambda a: np.ascontiguousarray(a, np.float32)  # noqa: E731
    return Series(single(seen - origin), single(observed), single(times), single(record[asked]))


def load(
    path: str | Path,
    *,
    dropped: float = 0.1,
    drop_seed: int = 1,
    clock: str = "forecast",
    train_stride: int = NUM_OBSERVED + 1,
    interpolated: bool = False,
) -> SeriesDataset:
    """The three parts, in units of each signal's mean and deviation over the whole record, as published numbers are.

    Args:
      path: the file.
      dropped: fraction of instants that are not observed.
      drop_seed: of their choice.
      clock: what times count from, see :func:`segments`.
      train_stride: instants from one training run to the next; below 65 they overlap. Others never do.
      interpolated: what is observed comes interpolated to the samples before the forecast, see :func:`segments`.
    """
    if not 0 <= dropped < 1:
        raise ValueError(f"dropped must be at least 0 and below 1, got {dropped}")
    record = read_record(path)
    parts = split_in_order(retained_indices(len(record), dropped, drop_seed)) if len(record) > _RESERVED else ()
    if not parts or min(map(len, parts)) <= NUM_OBSERVED:
        raise ValueError(
            f"{path} holds {len(record)} samples, too few for runs of {NUM_OBSERVED + 1} retained ones in every part "
            f"with dropped={dropped:g}; get the whole file, or drop less"
        )
    if not isinstance(train_stride, int) or train_stride < 1:
        raise ValueError(f"train_stride must be a whole number of at least 1, got {train_stride}")
    steady = np.ptp(record, axis=0) == 0
    if np.any(steady):
        raise ValueError(f"{path}: {SIGNALS[int(np.argmax(steady))]} never changes; get the file again")
    record = (record - record.mean(axis=0)) / record.std(axis=0)
    # Overlapping runs go up to the end of their part; what they ask for must not be observed by validation.
    end = int(parts[1][0]) if train_stride <= NUM_OBSERVED else None
    train = segments(record, parts[0], clock, train_stride, end, interpolated)
    validation, test = (segments(record, part, clock, interpolated=interpolated) for part in parts[1:])
    facts = {"num_samples": len(record), "train": len(train), "validation": len(validation), "test": len(test)}
    return SeriesDataset(NAME, train, validation, test, {k: float(v) for k, v in facts.items()}, scaled=False)
