"""Ground vibration of an F-16: forecasts of five signals from irregular observations.

The protocol is that of Heavy Ball Neural ODEs. The last hundred samples of the record are set aside, and a tenth of the
others is dropped at random. The retained samples are cut in order into training, validation and test parts of 2:1:1,
and each part into segments of 65. The first 64 samples of a segment are observations. The queries are the eight
consecutive samples of the record from the 65th on, dropped or not. Time is counted in samples of 2.5 milliseconds.

The record consists of nine periods of one excitation, 8192 samples each. The test part is therefore a noisy repetition
of the training part.
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
# Samples at the end of the record that are used as forecast targets only.
_RESERVED = 100
_WHERE = (
    "it is the F-16 ground vibration benchmark of nonlinearbenchmark.org as one file with the columns "
    f"{', '.join(SIGNALS)}, which the repository hedixia/HeavyBallNODE on GitHub has as data/{FILE}"
)


def find_file(data_dir: str | Path | None = None) -> Path:
    """The file in ``data_dir`` or in the folder that ``CTFNO_DATA_DIR`` names, or in its subfolder."""
    folder = data_dir if data_dir is not None else os.environ.get("CTFNO_DATA_DIR")
    if folder is None:
        raise ValueError(f"{NAME} is read from {FILE}; name its folder by --data_dir: {_WHERE}")
    for path in (Path(folder) / FILE, Path(folder) / NAME / FILE):
        if path.is_file():
            return path
    raise ValueError(f"{folder} holds no {FILE}; get it first: {_WHERE}")


def read_record(path: str | Path) -> Float[np.ndarray, "samples signals"]:
    """The five signals in the units of the file, float64."""
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
    """Sorted indices of the retained samples; with ``seed=1`` those of the published code."""
    usable = num_samples - _RESERVED
    kept = int(usable * (1 - dropped))
    generator = np.random.RandomState(seed)
    # The published code draws noise first, and multiplies it by zero.
    generator.randn(num_samples, len(SIGNALS))
    return np.sort(generator.choice(usable, kept, replace=False))


def split_in_order(indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first half, the third quarter and the last quarter of the indices."""
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
    """Segments of 64 retained samples as observations, with the eight samples from the next retained one on as queries.

    Args:
      record: all samples.
      indices: sorted indices of the retained samples.
      clock: origin of the times: the first query (``"forecast"``); the ``"last"`` observation; or, as in the published
        code, the first observation for observations and the first query for queries (``"segment"``).
      stride: retained samples from the start of one segment to the start of the next.
      end: index of the first sample that queries must not reach; None for no limit.
      interpolated: replace the observations by their linear interpolation at the 64 samples before the first query,
        constant after the last observation.
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
    seed: int = 1,
    with_test: bool = True,
    dropped: float = 0.1,
    clock: str = "forecast",
    train_stride: int = NUM_OBSERVED + 1,
    interpolated: bool = False,
) -> SeriesDataset:
    """The three parts, normalised by mean and standard deviation of the whole record as in the published protocol.

    Args:
      path: the file.
      seed: seed of the choice of dropped samples; 1 gives that of the published code.
      with_test: return the test part.
      dropped: fraction of samples that are dropped.
      clock: origin of the times, see :func:`segments`.
      train_stride: stride of the training segments, which overlap below 65; validation and test segments never overlap.
      interpolated: replace observations by their interpolation, see :func:`segments`.
    """
    if not 0 <= dropped < 1:
        raise ValueError(f"dropped must be at least 0 and below 1, got {dropped}")
    record = read_record(path)
    parts = split_in_order(retained_indices(len(record), dropped, seed)) if len(record) > _RESERVED else ()
    if not parts or min(map(len, parts)) <= NUM_OBSERVED:
        raise ValueError(
            f"{path} holds {len(record)} samples, too few for segments of {NUM_OBSERVED + 1} retained ones per part "
            f"with dropped={dropped:g}; get the whole file, or drop less"
        )
    if not isinstance(train_stride, int) or train_stride < 1:
        raise ValueError(f"train_stride must be a whole number of at least 1, got {train_stride}")
    steady = np.ptp(record, axis=0) == 0
    if np.any(steady):
        raise ValueError(f"{path}: {SIGNALS[int(np.argmax(steady))]} never changes; get the file again")
    record = (record - record.mean(axis=0)) / record.std(axis=0)
    # Queries of overlapping segments must not reach the observations of the validation part.
    end = int(parts[1][0]) if train_stride <= NUM_OBSERVED else None
    train = segments(record, parts[0], clock, train_stride, end, interpolated)
    validation = segments(record, parts[1], clock, interpolated=interpolated)
    test = segments(record, parts[2], clock, interpolated=interpolated) if with_test else None
    facts = {"num_samples": len(record), "train": len(train), "validation": len(validation)}
    if test is not None:
        facts["test"] = len(test)
    info = {name: float(value) for name, value in facts.items()}
    return SeriesDataset(NAME, train, validation, test, info, scaled=False, source=Path(path).name)
